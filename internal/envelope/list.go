package envelope

import (
	"io"
	"mime"
	"net/mail"
	"strings"
)

// listParser takes display names in any character set, since nobody reads them here: net/mail by itself
// refuses the whole field for a name in ISO-2022-JP.
var listParser = mail.AddressParser{WordDecoder: &mime.WordDecoder{
	CharsetReader: func(_ string, in io.Reader) (io.Reader, error) { return in, nil },
}}

// ParseList reads the addresses of a header field like From (RFC 5322, 3.4), as they are written there.
func ParseList(value string) (addresses []string, err error) {
	if a, ok := plainMailbox(value); ok {
		return []string{a}, nil
	}
	list, err := listParser.ParseList(value)
	for _, a := range list {
		addresses = append(addresses, a.Address)
	}
	return addresses, err
}

// plainMailbox reads a single mailbox of the plainest form, as most are: "ann@example.com", with or without
// a name of letters and digits. It takes a tenth of the parser's time, and leaves all else to the parser.
func plainMailbox(value string) (address string, ok bool) {
	address = strings.Trim(value, " ")
	if rest, bracketed := strings.CutSuffix(address, ">"); bracketed {
		name, inside, found := strings.Cut(rest, "<")
		if !found || !all(name, func(c byte) bool { return c == ' ' || alphanumeric(c) }) {
			return "", false
		}
		address = inside
	}
	local, domain, found := strings.Cut(address, "@")
	return address, found && plainAtoms(local) && plainAtoms(domain)
}

// plainAtoms reports whether s is words of letters, digits, "-", "_" and "+" with a dot between them.
func plainAtoms(s string) bool {
	after := byte('.')
	for i := range len(s) {
		c := s[i]
		if c == '.' && after == '.' || c != '.' && c != '-' && c != '_' && c != '+' && !alphanumeric(c) {
			return false
		}
		after = c
	}
	return after != '.'
}

func all(s string, allowed func(byte) bool) bool {
	for i := range len(s) {
		if !allowed(s[i]) {
			return false
		}
	}
	return true
}

func alphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}
