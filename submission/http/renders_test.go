package http

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
)

// TestATenantRendersWithItsShareOfProcessors: however much one tenant has rendered, others don't wait for it.
func TestATenantRendersWithItsShareOfProcessors(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, store := mailServer(t, nil)
		var leave func()
		for range runtime.GOMAXPROCS(0) {
			var err error
			if leave, err = s.renders.enter(t.Context(), "acme"); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.renders.enter(t.Context(), "other"); err != nil {
			t.Error(err)
		}
		gone, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.renders.enter(gone, "acme"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a message more is rendered: %v", err)
		}
		var w *httptest.ResponseRecorder
		go func() {
			w = post(s, `{"from":"shop@acme.example","text":"{{name}}","data":{"name":"A"},"to":"a@example.net"}`)
		}()
		time.Sleep(2 * renderTime) // the wait doesn't count
		synctest.Wait()
		if w != nil || post(s, simple).Code != http.StatusAccepted {
			t.Error("a message was rendered before its turn, or one without a template waited")
		}
		leave()
		synctest.Wait()
		if w == nil || w.Code != http.StatusAccepted || len(store.all) != 2 {
			t.Errorf("%v, %d messages", w, len(store.all))
		}
	})
}
