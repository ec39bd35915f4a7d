package control

import (
	"errors"
	"fmt"
	"net/http"
)

// Error is trouble as the operator reads it: what is wrong, and what to do about it. What the
// interfaces of this package return as another kind of error is answered as an internal one.
type Error struct {
	Status  int    `json:"-"` // of HTTP
	Message string `json:"error"`
	Hint    string `json:"hint,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// Invalid says that the request itself is wrong.
func Invalid(hint, format string, args ...any) *Error {
	return &Error{http.StatusBadRequest, fmt.Sprintf(format, args...), hint}
}

// NotFound says that there is no such thing.
func NotFound(hint, format string, args ...any) *Error {
	return &Error{http.StatusNotFound, fmt.Sprintf(format, args...), hint}
}

// Unavailable says that it can't be done now.
func Unavailable(hint, format string, args ...any) *Error {
	return &Error{http.StatusServiceUnavailable, fmt.Sprintf(format, args...), hint}
}

// Hint gives what an error says is to be done about it, "" when it says nothing.
func Hint(err error) string {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e.Hint
	}
	return ""
}

// IsNotFound reports whether err says that there is no such thing.
func IsNotFound(err error) bool {
	e := (*Error)(nil)
	return errors.As(err, &e) && e.Status == http.StatusNotFound
}

// asError makes an answer of any error.
func asError(err error) *Error {
	if e := (*Error)(nil); errors.As(err, &e) {
		return &Error{e.Status, err.Error(), e.Hint}
	}
	return &Error{http.StatusInternalServerError, err.Error(), ""}
}
