package envelope

import (
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// Address is a mailbox as it stands between < and > on the wire: the local part quoted where
// RFC 5321 (4.1.2) demands it, the domain as the sender wrote it. "" is the null sender.
type Address string

// Limits of RFC 5321, 4.5.3.1.
const (
	maxLocal  = 64
	maxDomain = 255
)

// Join makes an address from an unquoted local part and a domain. An empty domain gives the
// local part alone, as in <postmaster> (RFC 5321, 4.1.1.3).
func Join(local, domain string) Address {
	if !isDotString(local) {
		local = quote(local)
	}
	if domain == "" {
		return Address(local)
	}
	return Address(local + "@" + domain)
}

// ParseAddress checks s, which stands between < and > on the wire. UTF-8 is accepted in both
// parts (RFC 6531). A domain is demanded.
func ParseAddress(s string) (Address, error) {
	if !utf8.ValidString(s) {
		return "", errors.New("address is not valid UTF-8")
	}
	at := lastAt(s)
	if at < 0 || at == len(s)-1 {
		return "", errors.New("address has no domain")
	}
	local, domain := s[:at], s[at+1:]
	if strings.HasPrefix(local, `"`) {
		unquoted, ok := unquote(local)
		if !ok {
			return "", errors.New("address has a malformed quoted local part")
		}
		local = unquoted
	} else if !isDotString(local) {
		return "", errors.New("local part has characters that need quoting")
	}
	if len(local) > maxLocal {
		return "", errors.New("local part is longer than 64 octets")
	}
	if len(domain) > maxDomain {
		return "", errors.New("domain is longer than 255 octets")
	}
	if strings.HasPrefix(domain, "[") {
		if !isLiteral(domain) {
			return "", errors.New("address literal is malformed")
		}
	} else if _, err := ToASCII(domain); err != nil {
		return "", err
	}
	return Join(local, strings.TrimSuffix(domain, ".")), nil // no host takes the dot (RFC 5321, 2.3.5)
}

// Null reports whether a is the null sender.
func (a Address) Null() bool { return a == "" }

// Local is the local part as on the wire.
func (a Address) Local() string {
	if i := lastAt(string(a)); i >= 0 {
		return string(a[:i])
	}
	return string(a)
}

// Domain is the domain in A-label form and lower case, "" for the null sender. An address
// literal keeps its brackets.
func (a Address) Domain() string {
	i := lastAt(string(a))
	if i < 0 {
		return ""
	}
	d, err := ToASCII(string(a[i+1:]))
	if err != nil {
		return strings.ToLower(string(a[i+1:]))
	}
	return d
}

// ASCII reports whether a can be sent without SMTPUTF8 as it is.
func (a Address) ASCII() bool {
	for i := range len(a) {
		if a[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// Downgrade gives the address with its domain in A-label form. It can go to a host without
// SMTPUTF8 if the result is ASCII.
func (a Address) Downgrade() Address {
	if a.ASCII() || a == "" {
		return a
	}
	i := lastAt(string(a))
	if i < 0 {
		return a
	}
	return a[:i+1] + Address(a.Domain())
}

// ToASCII gives a domain in A-label form and lower case, without a trailing dot.
func ToASCII(domain string) (string, error) {
	if strings.HasPrefix(domain, "[") {
		return strings.ToLower(domain), nil
	}
	domain = strings.TrimSuffix(domain, ".")
	if isPlainDomain(domain) {
		return domain, nil
	}
	d, err := idna.Lookup.ToASCII(domain)
	if err != nil {
		// Underscores and other names that the hosts file way of life has left in mail.
		if d, err = idna.New(idna.MapForLookup(), idna.StrictDomainName(false)).ToASCII(domain); err != nil {
			return "", errors.New("domain is not a valid internationalized name")
		}
	}
	if !isPlainDomain(d) {
		return "", errors.New("domain has characters that a host name can't have")
	}
	return d, nil
}

// isPlainDomain is the fast path: lower-case ASCII letters, digits, hyphen, underscore, dots
// between labels of 1 to 63 octets.
func isPlainDomain(d string) bool {
	label := 0
	for i := range len(d) {
		switch c := d[i]; {
		case c == '.':
			if label == 0 {
				return false
			}
			label = 0
			continue
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
		default:
			return false
		}
		if label++; label > 63 {
			return false
		}
	}
	return label > 0 && len(d) <= maxDomain
}

// lastAt finds the @ before the domain: a quoted local part may have others.
func lastAt(s string) int { return strings.LastIndexByte(s, '@') }

// isLiteral reports whether d can be an address literal (RFC 5321, 4.1.3): what stands between the
// brackets is dcontent, printable ASCII without brackets and backslash.
func isLiteral(d string) bool {
	if len(d) < 3 || d[len(d)-1] != ']' {
		return false
	}
	return !slices.ContainsFunc([]byte(d[1:len(d)-1]), func(c byte) bool {
		return c <= ' ' || c > '~' || strings.IndexByte(`[\]<>@`, c) >= 0
	})
}

// isDotString reports whether local is a Dot-string of RFC 5321, 4.1.2, as widened by RFC 6531.
func isDotString(local string) bool {
	if local == "" || local[0] == '.' || local[len(local)-1] == '.' || strings.Contains(local, "..") {
		return false
	}
	for i := range len(local) {
		c := local[i]
		switch {
		case c >= utf8.RuneSelf, 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("!#$%&'*+-/=?^_`{|}~.", c) >= 0:
		default:
			return false
		}
	}
	return true
}

func quote(local string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(local) {
		if local[i] == '"' || local[i] == '\\' {
			b.WriteByte('\\')
		}
		b.WriteByte(local[i])
	}
	b.WriteByte('"')
	return b.String()
}

func unquote(s string) (string, bool) {
	if len(s) < 2 || s[len(s)-1] != '"' {
		return "", false
	}
	var b strings.Builder
	for s = s[1 : len(s)-1]; s != ""; s = s[1:] {
		switch c := s[0]; {
		case c == '"', c < ' ', c == 0x7f:
			return "", false
		case c == '\\':
			if s = s[1:]; s == "" || s[0] < ' ' || s[0] == 0x7f {
				return "", false
			}
		}
		b.WriteByte(s[0])
	}
	return b.String(), true
}
