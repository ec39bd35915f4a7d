package auth

import (
	"fmt"
	"slices"
	"strings"

	"example.org/mta/internal/envelope"
)

// Senders are the addresses that somebody may send from. An empty list bounds nothing.
type Senders []Sender

// Sender is "acme.example", all addresses of a domain; "*.acme.example", those of all domains below it;
// or one address.
type Sender string

// ParseSender reads a Sender.
func ParseSender(text string) (Sender, error) {
	if strings.Contains(text, "@") {
		a, err := envelope.ParseAddress(text)
		if err != nil || a.Null() {
			return "", fmt.Errorf("%q is not a valid mail address", text)
		}
		return Sender(a), nil
	}
	below := ""
	domain := text
	if rest, ok := strings.CutPrefix(text, "*."); ok {
		below, domain = "*.", rest
	}
	ascii, err := envelope.ToASCII(domain)
	if err != nil || ascii == "" || strings.HasPrefix(ascii, "[") || strings.ContainsAny(ascii, "*") {
		return "", fmt.Errorf("%q is not a valid sender (want a domain or a mail address)", text)
	}
	return Sender(below + ascii), nil
}

// UnmarshalText reads a Sender.
func (s *Sender) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSender(string(text))
	return err
}

// Allow reports whether an address may send. The null sender, of reports, always may.
func (ss Senders) Allow(a envelope.Address) bool {
	if len(ss) == 0 || a.Null() {
		return true
	}
	domain := a.Domain()
	for _, s := range ss {
		switch below, isBelow := strings.CutPrefix(string(s), "*"); {
		case strings.Contains(string(s), "@"):
			// No host of today tells local parts apart by case (RFC 5321, 2.4, discourages it).
			if s := envelope.Address(s); s.Domain() == domain && strings.EqualFold(s.Local(), a.Local()) {
				return true
			}
		case isBelow && strings.HasSuffix(domain, below):
			return true
		case string(s) == domain:
			return true
		}
	}
	return false
}

// Cover reports whether all addresses of a domain may send because an entry names it, or all domains above it.
func (ss Senders) Cover(domain string) bool {
	return slices.ContainsFunc(ss, func(s Sender) bool {
		below, isBelow := strings.CutPrefix(string(s), "*")
		return string(s) == domain || isBelow && strings.HasSuffix(domain, below)
	})
}

// Domain is that of the addresses, or one of them.
func (s Sender) Domain() string {
	if below, isBelow := strings.CutPrefix(string(s), "*"); isBelow {
		return "any" + below
	}
	if strings.Contains(string(s), "@") {
		return envelope.Address(s).Domain()
	}
	return string(s)
}

// String lists them with commas between.
func (ss Senders) String() string {
	list := make([]string, len(ss))
	for i, s := range ss {
		list[i] = string(s)
	}
	return strings.Join(list, ",")
}
