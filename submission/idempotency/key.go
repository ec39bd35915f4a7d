package idempotency

import (
	"errors"
	"fmt"
	"strings"
)

// maxKey is the longest key, in characters.
const maxKey = 255

var (
	errString = errors.New(`the key is not a well-formed string: write "..." with printable ASCII, and \" and \\ for a quote and a backslash (RFC 9651, section 3.3.3)`)
	errBare   = errors.New(`the key has a character that needs quotes: write it as a string, "..."`)
)

// ParseKey reads the value of an Idempotency-Key field: a string as structured fields have it, or, as most
// clients send it, the key alone. Both ways name the same key. It has 1 to 255 characters.
func ParseKey(field string) (string, error) {
	field = strings.Trim(field, " \t")
	key, err := field, error(nil)
	if strings.HasPrefix(field, `"`) {
		key, err = unquote(field)
	} else if strings.ContainsFunc(field, func(r rune) bool { return r < ' ' || r >= 0x7f || r == '"' }) || strings.Contains(field, ", ") {
		err = errBare // a comma and a space may join two fields (RFC 9110, 5.3)
	}
	if err != nil {
		return "", err
	}
	if n := len(key); n == 0 || n > maxKey {
		return "", fmt.Errorf("the key has %d characters: send 1 to %d, such as a UUID", n, maxKey)
	}
	return key, nil
}

// unquote reads a string of RFC 9651. An Idempotency-Key has no parameters, so nothing may follow.
func unquote(s string) (string, error) {
	var key strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			if i != len(s)-1 {
				return "", errString
			}
			return key.String(), nil
		case c == '\\':
			if i++; i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", errString
			}
			key.WriteByte(s[i])
		case c < ' ' || c >= 0x7f:
			return "", errString
		default:
			key.WriteByte(c)
		}
	}
	return "", errString
}
