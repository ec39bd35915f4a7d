package api

import (
	"errors"
	"fmt"
	"net/http"
)

// Error is a fault as the operator reads it, and its remedy. Errors of another kind that the interfaces of this package
// return are answered as internal ones.
type Error struct {
	Status  int    `json:"-"`               // of HTTP
	Message string `json:"error"`           // what is wrong
	Hint    string `json:"hint,omitempty"`  // what to do
	Count   *int   `json:"count,omitempty"` // of 409: what would be changed now

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
