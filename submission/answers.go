package submission

import (
	"bytes"
	"strconv"
	"strings"

	"example.org/mta/internal/network"
	"example.org/mta/internal/reply"
	"example.org/mta/submission/intake"
)

// ours starts the text of each reply that passes through the library, so that conn can tell it
// from the library's own. No client can send it: gate refuses control characters.
const ours = "\x00"

// bareNewlineReply is how the reply starts after which the connection ends: what a client sends
// behind a line end that hosts disagree about could be meant as commands.
var bareNewlineReply = []byte("550 5.6.11 ")

// reword gives the line that a client gets in place of one from the library. What this package
// has said passes unchanged; for the library's own words there is a reply of ours.
func (c *conn) reword(line []byte) []byte {
	if i := bytes.Index(line, []byte(ours)); i >= 0 {
		return append(line[:i:i], line[i+len(ours):]...)
	}
	code, _ := strconv.Atoi(string(line[:min(3, len(line))]))
	verb := c.command.verb
	switch {
	case code == 421:
		return oneLine(internalError)
	case verb == "EHLO" || verb == "HELO":
		return c.greeting(line)
	case code >= 500 && (verb == "MAIL" || verb == "RCPT"):
		if name := parameterIn(line, verb); name != "" {
			return oneLine(badParam, name)
		}
	case verb == "BDAT" && code == 502 && c.tx != nil:
		return oneLine(intake.NoRecipients)
	}
	if with, ok := rewordings[answer{verb, code}]; ok {
		return with
	}
	c.srv.cfg.Intake.Log.Warn("unexpected reply by the SMTP library", "command", verb, "reply", string(line))
	return line
}

// answer is what the library has answered to a command.
type answer struct {
	verb string
	code int
}

// rewordings are the replies of the library that a client can cause, and ours in their place. gate
// and session give all others before the library can.
var rewordings = map[answer][]byte{
	{"MAIL", 250}: oneLine(senderTaken),
	{"MAIL", 501}: oneLine(badSender, "address is malformed"),
	{"RCPT", 250}: oneLine(recipientTaken),
	{"RCPT", 501}: oneLine(badRecipient, "address is malformed"),
	{"DATA", 354}: []byte("354 end data with <CR><LF>.<CR><LF>\r\n"), // 354 has no enhanced code (RFC 2034, 3)
	{"BDAT", 250}: oneLine(chunkTaken),
	{"BDAT", 502}: oneLine(mailFirst),
	{"BDAT", 552}: oneLine(chunksTooBig),
	{"RSET", 250}: oneLine(commandDone),
	{"NOOP", 250}: oneLine(commandDone),
	{"VRFY", 252}: oneLine(cannotVerify),
	{"QUIT", 221}: oneLine(closingNow),
}

func oneLine(r reply.Form, args ...any) []byte { return appendReply(nil, r.Reply(args...)) }

// parameterIn gives the parameter that a reply of the library is about, or "".
func parameterIn(line []byte, verb string) string {
	for name := range parameters[verb] {
		if bytes.Contains(line, []byte(name)) {
			return name
		}
	}
	return ""
}

// greeting makes the reply to EHLO and HELO start with this relay's name (RFC 5321, 4.1.1.1), and
// adds AUTH, which the library has no part in, and STARTTLS and
// REQUIRETLS (RFC 8689), since it knows of no TLS.
func (c *conn) greeting(line []byte) []byte {
	text, ended := bytes.CutSuffix(line, crlf)
	switch {
	case len(text) < 4 || !ended:
	case c.command.verb == "HELO" || !c.command.named:
		c.command.named = true
		b := append(bytes.Clone(text[:4]), c.srv.cfg.Intake.Hostname...)
		if offered := c.offered(); c.command.verb == "EHLO" && len(offered) > 0 {
			b = append(append(b, crlf...), "250-AUTH "...)
			b = append(b, strings.Join(offered, " ")...)
		}
		if c.command.verb == "EHLO" && c.tls == nil && c.srv.cfg.TLS != nil && !c.srv.uncertified() {
			b = append(b, "\r\n250-STARTTLS"...)
		}
		if c.command.verb == "EHLO" && c.tls != nil {
			b = append(append(b, "\r\n250-"...), requireTLS...)
		}
		return append(b, crlf...)
	}
	return line
}

func isLastLine(line []byte) bool { return len(line) < 4 || line[3] != '-' }

// appendReply writes r as one line.
func appendReply(b []byte, r reply.Reply) []byte {
	b = strconv.AppendInt(b, int64(r.Code), 10)
	b = append(append(b, ' '), r.Status().String()...)
	b = append(append(b, ' '), r.Text...)
	return append(b, '\r', '\n')
}

// parseReply reads a reply's last line, as the library writes it.
func parseReply(line []byte) reply.Reply {
	r := reply.Parse(strings.TrimRight(string(line), "\r\n"))
	r.Local = true
	return r
}

// observe takes note of a reply that is about to be given, the library's as well as ours, and
// gives its code.
func (c *conn) observe(line []byte) int {
	code := 0
	if len(line) > 3 {
		code, _ = strconv.Atoi(string(line[:3]))
	}
	if code >= 500 {
		c.client.errors++
	}
	if code < 400 {
		return code
	}
	switch command := &c.command; command.verb {
	case "MAIL", "RCPT":
		c.report(command.verb, parseReply(line))
	case "DATA", "BDAT":
		if command.content || command.verb == "BDAT" {
			c.report("content", parseReply(line))
		} else {
			c.report("DATA", parseReply(line))
		}
	}
	return code
}

// refused notes that the client was refused for what attackers do. Clients that may relay, and those at an address
// from where users log in, are known: what they do wrong is a mistake, unless they guess passwords.
func (c *conn) refused(why intake.Intrusion) {
	cfg, peer := &c.srv.cfg, c.client.Peer
	// the proxy's: to block it would block all
	unnamed := !c.client.direct && peer == network.Peer(c.socket.RemoteAddr())
	known := c.mayRelay() || cfg.Auth != nil && cfg.Auth.Knows(c.client.Network)
	if !unnamed && (why == intake.IntrusionLogin || !known) {
		cfg.Refused(peer.Addr(), why)
	}
}

// expel ends a session that doesn't keep to the protocol.
func (c *conn) expel(r reply.Reply) {
	c.refused(intake.IntrusionProtocol)
	c.farewell(r)
}

// report notes a refusal.
func (c *conn) report(command string, r reply.Reply) {
	r.Command = command
	e := intake.Rejection{Reply: r}
	switch tx := c.tx; {
	case command == "MAIL":
		e.Sender = c.command.path.address
	case tx == nil:
	case command == "RCPT":
		e.Sender, e.Recipient = c.envelope.Sender, c.command.path.address
	default:
		e.Sender, e.Recipients = c.envelope.Sender, tx.Recipients()
	}
	if c.tx == nil { // within a transaction it has been introduced, and another goroutine may be looking at it
		c.client.Helo, c.client.MayRelay = c.helo, c.mayRelay()
	}
	c.srv.desk.Report(&c.client.Client, e)
}
