package submission

import (
	"errors"
	"strings"

	"example.org/mta/internal/envelope"
	"example.org/mta/submission/intake"
)

// path is the argument of MAIL or RCPT, taken apart.
type path struct {
	address    envelope.Address // "" is the null sender
	postmaster bool             // <postmaster> without a domain (RFC 5321, 4.1.1.3)
	params     string           // what follows, starting with a space, or ""
}

// parsePath reads what follows "FROM:" or "TO:". The library's own parser loses the quoting of
// local parts (<"a@b"@c> and <a@b@c> look alike afterwards), so the line is taken apart here and
// the library gets it in canonical form.
func parsePath(s string) (path, error) {
	mailbox, params, err := cutMailbox(strings.TrimLeft(s, " \t"))
	if err != nil {
		return path{}, err
	}
	if params != "" && params[0] != ' ' && params[0] != '\t' {
		return path{}, errors.New("a space must follow the address")
	}
	p := path{params: params}
	switch {
	case mailbox == "":
	case strings.EqualFold(mailbox, "postmaster"):
		p.postmaster = true
	default:
		p.address, err = envelope.ParseAddress(mailbox)
	}
	return p, err
}

// cutMailbox separates the mailbox from what follows it. A source route is dropped
// (RFC 5321, 4.1.1.3 and appendix C). Missing angle brackets are forgiven.
func cutMailbox(s string) (mailbox, rest string, err error) {
	if !strings.HasPrefix(s, "<") {
		if s == "" || s[0] == ' ' {
			return "", "", errors.New("address is missing")
		}
		n := intake.UnquotedEnd(s, " \t<>")
		return s[:n], s[n:], nil
	}
	s = s[1:]
	if strings.HasPrefix(s, "@") {
		colon := strings.IndexByte(s, ':')
		if colon < 0 || strings.ContainsAny(s[:colon], `<>" `) {
			return "", "", errors.New("source route is malformed")
		}
		if s = s[colon+1:]; strings.HasPrefix(s, ">") {
			return "", "", errors.New("address is missing after the source route")
		}
	}
	n := intake.UnquotedEnd(s, "<>")
	if n == len(s) || s[n] != '>' {
		return "", "", errors.New("address must stand between < and >")
	}
	return s[:n], s[n+1:], nil
}
