package request

import (
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	"example.org/mta/internal/envelope"
)

// maxName is the longest display name, in octets.
const maxName = 512

// ParseMailbox reads "a@b" or "Name <a@b>". A name needs no quotes, whatever characters it has; one that
// stands in quotes loses them. The null sender is "<>".
func ParseMailbox(s string) (m Mailbox, err error) {
	s = strings.Trim(s, " \t")
	if s == "<>" {
		return m, nil
	}
	name, address := "", s
	if rest, ok := strings.CutSuffix(s, ">"); ok {
		if at := strings.LastIndexByte(rest, '<'); at >= 0 {
			name, address = strings.Trim(rest[:at], " \t"), rest[at+1:]
		}
	}
	if len(name) >= 2 && name[0] == '"' && name[len(name)-1] == '"' {
		name = unquote(name[1 : len(name)-1])
	}
	return m, m.set(name, address)
}

// set fills in the mailbox if name and address can stand in a header and an envelope.
func (m *Mailbox) set(name, address string) error {
	if err := checkDisplayName(name); err != nil {
		return err
	}
	a, err := envelope.ParseAddress(address)
	m.Name, m.Address = name, a
	return err
}

func checkDisplayName(name string) error {
	switch {
	case len(name) > maxName:
		return errors.New("name is longer than 512 octets")
	case !utf8.ValidString(name):
		return errors.New("name is not valid UTF-8")
	case strings.ContainsFunc(name, unicode.IsControl):
		return errors.New("name has a control character")
	}
	return nil
}

// unquote removes the backslashes of a quoted string (RFC 5322, 3.2.4).
func unquote(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// mailboxRemedy is what to send in place of a text that is no mailbox.
func mailboxRemedy(text string) string {
	if strings.ContainsAny(text, ",;") && strings.Count(text, "@") > 1 {
		return "send an array with one address in each element"
	}
	return `send "user@example.com" or "Name <user@example.com>"`
}
