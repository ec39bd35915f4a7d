package envelope

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/mail"
	"strings"
)

// From reads the addresses in the From field of a header section (RFC 5322, 3.6.2), as they are written there, for
// all who act on it: the rights of senders and DKIM must see the same author. An error is about a field that readers
// could understand differently, or not at all. Then addresses are all that could be taken for one.
func From(header []byte) (addresses []string, err error) {
	value, fields := unfolded(header, "From")
	switch {
	case fields == 0:
		return nil, errors.New("it has no From field")
	case fields > 1:
		return likeAddresses(value), errors.New("it has more than one From field")
	}
	if addresses, err = ParseList(strings.TrimSpace(value)); err == nil && len(addresses) > 0 {
		return addresses, nil
	}
	if addresses, ok := behindName(value); ok {
		return addresses, nil
	}
	if addresses = likeAddresses(value); len(addresses) > 1 {
		return addresses, errors.New("its From field can be read as different addresses")
	}
	return addresses, errors.New("its From field has no address that can be read")
}

// behindName reads one mailbox in angle brackets behind a name that is off the grammar, such as O'Neil, Bob
// <bob@example.com> or Acme [news] <a@example.com>. Whatever a reader makes of such a name, it must find no other
// domain: an address in the name counts as another author, and has the same domain.
func behindName(value string) (addresses []string, ok bool) {
	rest, bracketed := strings.CutSuffix(strings.TrimSpace(value), ">")
	name, inside := rest, ""
	if i := strings.LastIndexByte(rest, '<'); i >= 0 {
		name, inside = rest[:i], strings.Trim(rest[i+1:], " \t")
	}
	if !bracketed || !plainAddress(inside) || strings.ContainsAny(name, "<>") {
		return nil, false
	}
	addresses = []string{inside}
	for _, other := range likeAddresses(name) {
		if !plainAddress(other) || !strings.EqualFold(domainOf(other), domainOf(inside)) {
			return nil, false
		}
		addresses = append(addresses, other)
	}
	return addresses, true
}

// plainAddress reports whether s is an address without quotes, comments, routes, and literals.
func plainAddress(s string) bool {
	local, domain, found := strings.Cut(s, "@")
	if !found || !isDotString(local) || strings.HasPrefix(domain, "[") {
		return false
	}
	_, err := ToASCII(domain)
	return err == nil
}

// likeAddresses lists the words of a field that have an "@".
func likeAddresses(value string) (words []string) {
	for _, w := range strings.FieldsFunc(value, betweenWords) {
		if strings.Contains(w, "@") {
			words = append(words, w)
		}
	}
	return words
}

func betweenWords(r rune) bool { return r <= ' ' || strings.ContainsRune(`()<>[],;:"\`, r) }

func domainOf(address string) string { return address[strings.LastIndexByte(address, '@')+1:] }

// unfolded gives the value of a header field without its folding (RFC 5322, 2.2.3), and how many of that name there
// are. The values of several are joined.
func unfolded(header []byte, name string) (value string, fields int) {
	var all []byte
	within := false
	for line := range bytes.Lines(header) {
		if line[0] == ' ' || line[0] == '\t' {
			if within {
				all = append(all, bytes.TrimRight(line, "\r\n")...)
			}
			continue
		}
		n, v, isField := CutField(line)
		if within = isField && strings.EqualFold(string(n), name); within {
			fields++
			all = append(append(all, ' '), bytes.TrimRight(v, "\r\n")...)
		}
	}
	return string(all), fields
}

// CutField takes the first line of a header field apart at its colon (RFC 5322, 2.2). White space before the colon
// is obsolete but allowed (RFC 5322, 4.5).
func CutField(line []byte) (name, value []byte, ok bool) {
	before, after, ok0 := bytes.Cut(line, []byte{':'})
	if !ok0 {
		return nil, nil, false
	}
	name = bytes.TrimRight(before, " \t")
	if len(name) == 0 {
		return nil, nil, false
	}
	for _, c := range name {
		if c <= ' ' || c >= 0x7f {
			return nil, nil, false
		}
	}
	return name, after, true
}

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
