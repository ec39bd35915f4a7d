package submission

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/submission/intake"
)

// command is the one that is being answered.
type command struct {
	verb    string // upper case; "" before the first and between two
	path    path   // of MAIL and RCPT
	content bool   // of DATA: the content was asked for
	named   bool   // of EHLO: the first line of the reply has been given

	priority *int        // of MAIL: MT-PRIORITY; nil: none
	by       envelope.By // of MAIL; zero: none
}

// gate looks at a command line before the library does: it answers what the library would answer
// wrongly or dangerously, and puts what the library is to see in feed. When it gets a line, all
// replies to earlier ones have been given, so its own answers are in order.
func (c *conn) gate(line []byte) {
	text, ended := cutLineEnd(line)
	verb, arg, ok := cutVerb(text)
	c.command.verb = verb
	c.said(true, line)
	switch {
	case !ok && c.helo == "":
		// What is not SMTP from the start, a browser's POST for one, must not get to a line that
		// looks like a command.
		r := notSMTP.Reply()
		c.report("connect", r)
		c.expel(r)
	case !ended && c.client.Newlines == intake.RefuseBareNewlines:
		c.answer(bareLFCommand.Reply())
	case hasControl(text):
		c.answer(controlInLine.Reply())
	case !ok:
		c.answer(unknownCommand.Reply())
	default:
		c.dispatch(verb, arg)
	}
}

// dispatch does what a verb needs before the library sees it.
func (c *conn) dispatch(verb, arg string) {
	switch verb {
	case "MAIL", "RCPT", "DATA", "BDAT", "STARTTLS", "QUIT":
	default:
		c.client.idle++
	}
	switch verb {
	case "HELO", "EHLO":
		c.gateHelo(verb, arg)
	case "MAIL":
		c.gateMail(arg)
	case "RCPT":
		c.gateRcpt(arg)
	case "DATA":
		c.gateData(arg)
	case "BDAT":
		c.gateChunk(arg)
	case "STARTTLS":
		c.startTLS(arg)
	case "AUTH":
		c.auth(arg)
	case "EXPN", "HELP", "TURN", "SEND", "SOML", "SAML":
		c.answer(notImplemented.Reply())
	case "QUIT", "RSET":
		if arg != "" {
			c.answer(noParameters.Reply(verb))
			return
		}
		c.hand(phaseReply, verb)
	default: // NOOP and VRFY: the library does not look at their argument
		c.hand(phaseReply, verb)
	}
}

// hand gives the library a command line; next is what it will do with what it reads after it.
func (c *conn) hand(next phase, parts ...string) {
	b := c.line[:0]
	for _, p := range parts {
		b = append(b, p...)
	}
	b = append(b, crlf...)
	c.line, c.feed, c.phase = b, b, next
}

func (c *conn) gateHelo(verb, arg string) {
	name, _, _ := strings.Cut(arg, " ") // the library takes the first word too
	switch {
	case name == "" || len(name) > 255 || !isGraphicASCII(name):
		c.answer(badHelo.Reply(verb))
	case c.helo == "" && c.r < c.w:
		// EHLO must be the last of a group (RFC 2920, 3.1). Before it, the client can't know
		// that we take groups at all.
		c.expel(outOfStep.Reply(verb))
	default:
		c.helo, c.extended = name, verb == "EHLO"
		c.hand(phaseReply, verb, " ", name)
	}
}

func (c *conn) gateMail(arg string) {
	rest, ok := cutFold(arg, "FROM:")
	switch {
	case c.helo == "":
		c.answer(greetFirst.Reply())
	case c.tx != nil:
		c.answer(nestedMail.Reply()) // RFC 5321, 4.1.4
	case !ok:
		c.answer(badSender.Reply("MAIL FROM:<address> expected"))
	default:
		p, err := parsePath(rest)
		if err == nil && p.postmaster {
			err = errors.New("address has no domain")
		}
		if err != nil {
			c.answer(badSender.Reply(err.Error()))
			return
		}
		c.command.path = p
		size, _ := declaredSize(p.params)
		if r := c.srv.desk.Fits(size); r != nil {
			c.answer(*r) // the library takes 32 bits only
			return
		}
		if r, ok := checkParameters("MAIL", p.params, c.tls != nil); !ok {
			c.answer(r)
			return
		}
		params, bad := c.command.takeOwn(p.params, c.srv.cfg.Intake.Now())
		if bad != "" {
			c.answer(badParam.Reply(bad))
			return
		}
		c.hand(phaseReply, "MAIL FROM:<", string(p.address), ">", params)
	}
}

func (c *conn) gateRcpt(arg string) {
	rest, ok := cutFold(arg, "TO:")
	switch {
	case c.tx == nil:
		c.answer(mailFirst.Reply())
	case c.mu.chunks != nil:
		c.answer(midTransfer.Reply())
	case !ok:
		c.answer(badRecipient.Reply("RCPT TO:<address> expected"))
	default:
		p, err := parsePath(rest)
		if err == nil && !p.postmaster && p.address == "" {
			err = errors.New("recipient is missing")
		}
		if err != nil {
			c.answer(badRecipient.Reply(err.Error()))
			return
		}
		if p.postmaster {
			if p.address = c.postmaster(); p.address == "" {
				c.answer(noPostmasterHere.Reply())
				return
			}
		}
		c.command.path = p
		if r := c.tx.Full(); r != nil {
			c.answer(*r)
			return
		}
		if r, ok := checkParameters("RCPT", p.params, c.tls != nil); !ok {
			c.answer(r)
			return
		}
		c.hand(phaseReply, "RCPT TO:<", string(p.address), ">", p.params)
	}
}

// postmaster is who gets mail for <postmaster>, "" when nobody does (RFC 5321, 4.5.1).
func (c *conn) postmaster() envelope.Address {
	if in := c.srv.cfg.Inbound; in != nil && !c.mayRelay() {
		return in.Postmaster()
	}
	return c.srv.cfg.Postmaster
}

func (c *conn) gateData(arg string) {
	early := c.r < c.w // DATA must be the last of a group (RFC 2920, 3.1)
	var r reply.Reply
	switch {
	case arg != "":
		r = noParameters.Reply("DATA")
	case c.tx == nil:
		r = mailFirst.Reply()
	case len(c.tx.Recipients()) == 0:
		r = intake.NoRecipients.Reply()
	case c.mu.chunks != nil:
		r = midTransfer.Reply()
	default:
		if refused := c.tx.Waits(c.srv.patient); refused != nil {
			r = *refused
			break
		}
		c.transfer = newTransfer(c.client.Newlines)
		c.early = early
		c.hand(phaseData, "DATA")
		return
	}
	if early { // content that was not asked for must not be taken for commands
		c.farewell(r)
		return
	}
	c.answer(r)
}

// gateChunk reads BDAT's parameters. When they make no sense there is no telling how much content
// follows, and the connection must end: the library would take the content for commands.
func (c *conn) gateChunk(arg string) {
	size, last, ok := parseChunk(arg)
	if !ok {
		c.expel(badChunk.Reply())
		return
	}
	if size > c.maxTransfer() {
		c.farewell(contentOverrun.Reply(c.srv.cfg.Intake.Limits.Size))
		return
	}
	if c.mu.chunks == nil {
		c.transfer = newTransfer(c.client.Newlines)
		if c.tx != nil && len(c.tx.Recipients()) > 0 {
			c.setChunks(c.tx)
		}
	}
	c.transfer.chunk = size
	switch {
	case last:
		c.handChunk(size, " LAST")
	case size > 0:
		c.handChunk(size, "")
	case c.mu.chunks == nil:
		c.answer(mailFirst.Reply())
	default:
		c.client.idle++
		c.answer(chunkTaken.Reply())
	}
}

// handChunk gives the library a BDAT command, once its content has begun to come. The library
// starts a goroutine that looks for the session; it must find it before the connection closes,
// and the first octet makes the two meet.
func (c *conn) handChunk(size int64, end string) {
	if size == 0 {
		c.hand(phaseReply, "BDAT 0", end)
		return
	}
	if c.r == c.w {
		if err := c.fillContent(); err != nil {
			c.farewell(c.contentLost(err))
			return
		}
	}
	c.hand(phaseChunk, "BDAT ", strconv.FormatInt(size, 10), end)
}

// parseChunk reads "SP chunk-size [ SP end-marker ]" (RFC 3030, 2).
func parseChunk(arg string) (size int64, last, ok bool) {
	digits, marker, marked := strings.Cut(arg, " ")
	if len(digits) > 20 || strings.Trim(digits, "0123456789") != "" {
		return 0, false, false
	}
	size, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || size > math.MaxUint32 {
		return 0, false, false
	}
	return size, marked, !marked || strings.EqualFold(strings.TrimSpace(marker), "LAST")
}

// declaredSize finds the SIZE parameter of MAIL (RFC 1870, 6). A number that is too large for an
// int64 is the largest.
func declaredSize(params string) (int64, bool) {
	for p := range strings.FieldsSeq(params) {
		if digits, ok := cutFold(p, "SIZE="); ok && len(digits) <= 20 && strings.Trim(digits, "0123456789") == "" {
			n, err := strconv.ParseInt(digits, 10, 64)
			if err != nil && digits != "" {
				n = math.MaxInt64
			}
			return n, digits != ""
		}
	}
	return 0, false
}

// cutLineEnd takes the line end away, and trailing space (RFC 5321, 4.1.1, says to tolerate it).
// It reports whether the line ended in CRLF.
func cutLineEnd(line []byte) ([]byte, bool) {
	text, ok := bytes.CutSuffix(line, crlf)
	if !ok {
		text = bytes.TrimSuffix(line, []byte("\n"))
	}
	return bytes.TrimRight(text, " \t"), ok
}

// cutVerb takes a command line apart. ok is whether SMTP has the verb.
func cutVerb(text []byte) (verb, arg string, ok bool) {
	word, rest, _ := bytes.Cut(text, []byte(" "))
	if len(word) > len("STARTTLS") {
		return "", "", false
	}
	var upper [len("STARTTLS")]byte
	for i, c := range word {
		if 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		upper[i] = c
	}
	verb, ok = verbs[string(upper[:len(word)])]
	return verb, strings.TrimSpace(string(rest)), ok
}

// verbs are the commands of RFC 5321 and the extensions that are offered, and those that only
// deserve a 502 (RFC 5321, 4.2.4): each leads to itself.
var verbs = named("EHLO", "HELO", "MAIL", "RCPT", "DATA", "BDAT", "RSET", "NOOP", "QUIT", "VRFY", "STARTTLS",
	"AUTH", "EXPN", "HELP", "TURN", "SEND", "SOML", "SAML")

func named(names ...string) map[string]string {
	m := make(map[string]string, len(names))
	for _, n := range names {
		m[n] = n
	}
	return m
}

// hasControl reports whether text has a control character other than tab.
func hasControl(text []byte) bool {
	return slices.ContainsFunc(text, func(b byte) bool { return b < ' ' && b != '\t' || b == 0x7f })
}

func isGraphicASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}

// cutFold is strings.CutPrefix without regard to case.
func cutFold(s, prefix string) (string, bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return s, false
	}
	return s[len(prefix):], true
}
