package api

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
	// Count is what would be changed now, when that is not what was expected (Intent.Expect); else nil.
	Count *int `json:"count,omitempty"`

	cause error // why the relay could not be asked
}

func (e *Error) Error() string { return e.Message }

// Unwrap gives why the relay could not be asked, as fs.ErrPermission, or nil.
func (e *Error) Unwrap() error { return e.cause }

// Invalid returns the error that the request itself is wrong.
func Invalid(hint, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// NotFound returns the error that there is no such thing.
func NotFound(hint, format string, args ...any) *Error {
	return &Error{Status: http.StatusNotFound, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// Unavailable returns the error that it can't be done now.
func Unavailable(hint, format string, args ...any) *Error {
	return &Error{Status: http.StatusServiceUnavailable, Message: fmt.Sprintf(format, args...), Hint: hint}
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
		return &Error{Status: e.Status, Message: err.Error(), Hint: e.Hint, Count: e.Count}
	}
	return &Error{Status: http.StatusInternalServerError, Message: err.Error()}
}
