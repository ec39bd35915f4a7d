package plot_test

import (
	"errors"
	"strings"
	"testing"
	"testing/iotest"

	"example.org/mta/internal/plot"
)

// TestReadNamesTheLine: what is wrong is told with its line, counted with the header and empty lines; a reader that
// fails is no fault of the input.
func TestReadNamesTheLine(t *testing.T) {
	odd := func(line string) error {
		if line == "odd" {
			return errors.New("it is odd")
		}
		return nil
	}
	for text, want := range map[string]string{
		"":                                   "trace: it is empty",
		"b,a\n":                              `trace, line 1: the header must be "a,b"`,
		"\ufeffa,b\r\n\r\nodd\n":             "trace, line 3: it is odd",
		"a,b\n" + strings.Repeat("x", 1<<17): "trace, line 2: it is too long for a line",
	} {
		err := plot.ReadTrace(strings.NewReader(text), "a,b", odd)
		if err == nil || err.Error() != want || !errors.As(err, new(*plot.InputError)) {
			t.Errorf("%.20q: %v, want %s", text, err, want)
		}
	}
	if err := plot.ReadTrace(iotest.ErrReader(errors.New("gone")), "a,b", odd); err == nil || errors.As(err, new(*plot.InputError)) {
		t.Errorf("a reader that fails: %v", err)
	}
}
