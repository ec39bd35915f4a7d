package submission

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/submission/intake"
)

// parameters are those of MAIL and RCPT that go with the extensions offered, and the longest value
// of each, in characters as sent; 0: as long as the command line allows. AUTH is taken though it
// is not offered: clients send AUTH=<> out of habit, and it changes nothing (RFC 4954, 5). REQUIRETLS
// is for sessions with TLS only (RFC 8689, 2).
var parameters = map[string]map[string]int{
	"MAIL": {"SIZE": 20, "BODY": 0, "SMTPUTF8": 0, "RET": 0, "ENVID": 100, "AUTH": 0, "REQUIRETLS": 0, // RFC 3461, 4.4
		mtPriority: 2, deliverBy: 13},
	"RCPT": {"NOTIFY": 0, "ORCPT": 500}, // RFC 3461, 4.2
}

const (
	requireTLS = "REQUIRETLS"
	mtPriority = "MT-PRIORITY" // RFC 6710
	deliverBy  = "BY"          // RFC 2852, 4
)

// checkParameters gives the reply that refuses the parameters of a command, if there is one. The
// library keeps the last of two with one name, and knows no limit on their length.
func checkParameters(verb, params string, secured bool) (reply.Reply, bool) {
	var seen []string
	for p := range strings.FieldsSeq(params) {
		name, value, valued := strings.Cut(p, "=")
		name = strings.ToUpper(name)
		longest, known := parameters[verb][name]
		switch {
		case !known || name == requireTLS && !secured:
			return unknownParam.Reply(reply.Printable(name)), false
		case slices.Contains(seen, name):
			return repeatedParam.Reply(name), false
		case longest > 0 && len(value) > longest:
			return longParam.Reply(name, longest), false
		case strings.Contains(value, "=") || name == requireTLS && valued:
			return badParam.Reply(name), false
		case name == "BODY" && strings.EqualFold(value, "BINARYMIME"):
			return unknownParam.Reply("BODY=BINARYMIME"), false
		}
		seen = append(seen, name)
	}
	return reply.Reply{}, true
}

// takeOwn takes MT-PRIORITY and BY out of the parameters of MAIL, since the library expects them at RCPT. If one has a
// malformed value, it returns its name.
func (c *command) takeOwn(params string, now time.Time) (rest, bad string) {
	c.priority, c.by, rest = nil, envelope.By{}, params
	for p := range strings.FieldsSeq(params) {
		name, value, _ := strings.Cut(p, "=")
		ok := true
		switch name = strings.ToUpper(name); name {
		case mtPriority:
			n, err := strconv.Atoi(value)
			c.priority, ok = &n, err == nil && -9 <= n && n <= 9 && strconv.Itoa(n) == value
		case deliverBy:
			c.by, ok = envelope.ParseBy(value, now)
		default:
			continue
		}
		if rest = strings.Replace(rest, p, "", 1); !ok {
			return rest, name
		}
	}
	return rest, ""
}

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
