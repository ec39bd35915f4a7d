package submission

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
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
