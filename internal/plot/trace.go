package plot

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// InputError is what is wrong with the input of a simulation: a usage error, one line.
type InputError struct {
	What string // "plan", "trace" or "options"
	Line int    // of the trace, counted from 1; 0 without
	Text string
}

// Error implements error.
func (e *InputError) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("%s, line %d: %s", e.What, e.Line, e.Text)
	}
	return e.What + ": " + e.Text
}

// Wrong makes an error of what is not about a line.
func Wrong(what, format string, args ...any) *InputError {
	return &InputError{What: what, Text: fmt.Sprintf(format, args...)}
}

// ReadTrace reads the input of a simulator, CSV with a header and a line for each event. It calls event with each line
// after the header, except empty ones. An error of event, and a trace without that header, is an *InputError.
func ReadTrace(r io.Reader, header string, event func(line string) error) error {
	in := bufio.NewScanner(r)
	n := 0
	for in.Scan() {
		n++
		line := strings.TrimSpace(in.Text())
		switch {
		case n == 1 && strings.TrimPrefix(line, "\ufeff") != header:
			return &InputError{"trace", 1, fmt.Sprintf("the header must be %q", header)}
		case n == 1 || line == "":
			continue
		}
		if err := event(line); err != nil {
			return &InputError{"trace", n, err.Error()}
		}
	}
	if errors.Is(in.Err(), bufio.ErrTooLong) {
		return &InputError{"trace", n + 1, "it is too long for a line"}
	}
	if err := in.Err(); err != nil {
		return fmt.Errorf("reading trace: %w", err)
	}
	if n == 0 {
		return &InputError{"trace", 0, "it is empty"}
	}
	return nil
}
