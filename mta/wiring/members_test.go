package wiring

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestPanicsOfAnswersAreLogged: with their stack, and the answer is cut off; those that only cut it off are not.
func TestPanicsOfAnswersAreLogged(t *testing.T) {
	for _, p := range []any{"index out of range", http.ErrAbortHandler} {
		var out strings.Builder
		h := logged(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(p) }), 2, slog.New(slog.NewTextHandler(&out, nil)))
		func() {
			defer func() {
				if got := recover(); got != http.ErrAbortHandler {
					t.Errorf("%v", got)
				}
			}()
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		}()
		if got := out.String(); strings.Contains(got, "index out of range") != (p != http.ErrAbortHandler) || got != "" && !strings.Contains(got, "members_test.go") {
			t.Errorf("%v: %q", p, got)
		}
	}
}
