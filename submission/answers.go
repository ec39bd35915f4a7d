package submission

import (
	"bytes"
	"context"
	"log/slog"
	"strconv"
	"strings"

	"mta/internal/reply"
)

// correct repairs replies of the library. It says 502 where a command comes out of order, which
// is 503, and 500 for an unknown parameter, which is 555 (RFC 5321, 4.2.4 and 4.1.1.11); and it
// can't tell MAILMAX (RFC 9422).
func (c *conn) correct(line []byte) []byte {
	switch verb := c.command.verb; {
	case (verb == "MAIL" || verb == "RCPT") && bytes.HasPrefix(line, []byte("500 5.5.4")):
		return append([]byte("555"), line[3:]...)
	case bytes.HasPrefix(line, []byte("502 5.5.1")) && (verb == "MAIL" || verb == "RCPT" || verb == "DATA" || verb == "BDAT"):
		return append([]byte("503"), line[3:]...)
	case verb == "EHLO" && c.srv.cfg.Limits.MessagesPerSession > 0:
		if text, ok := bytes.CutSuffix(line, crlf); ok && len(text) > 4 && bytes.HasPrefix(text[4:], []byte("LIMITS ")) {
			b := append(bytes.Clone(text), " MAILMAX="...)
			return append(strconv.AppendInt(b, int64(c.srv.cfg.Limits.MessagesPerSession), 10), '\r', '\n')
		}
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
	line = bytes.TrimRight(line, "\r\n")
	r := reply.Reply{Local: true}
	if len(line) < 4 {
		return r
	}
	r.Code, _ = strconv.Atoi(string(line[:3]))
	text := string(line[4:])
	if word, rest, ok := strings.Cut(text, " "); ok {
		if e, ok := parseEnhanced(word); ok {
			r.Enhanced, text = e, rest
		}
	}
	r.Text = text
	return r
}

func parseEnhanced(s string) (e reply.Enhanced, ok bool) {
	parts := strings.Split(s, ".")
	if len(parts) != 3 {
		return e, false
	}
	for i, p := range parts {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil {
			return e, false
		}
		e[i] = uint16(n)
	}
	return e, true
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

// report tells the accounting log and ours of a refusal.
func (c *conn) report(command string, r reply.Reply) {
	r.Command = command
	e := Rejection{
		Time: c.srv.cfg.Now(), Session: c.client.session, Peer: c.client.peer, HeloName: c.helo,
		Tenant: c.srv.cfg.Tenant, Reply: r,
	}
	switch tx := c.tx; {
	case command == "MAIL":
		e.Sender = c.command.path.address
	case tx == nil:
	case command == "RCPT":
		e.Sender, e.Recipient = tx.sender, c.command.path.address
	default:
		e.Sender, e.Recipients = tx.sender, tx.recipients
	}
	c.srv.cfg.Events.Rejected(e)
	c.srv.cfg.Log.LogAttrs(context.Background(), slog.LevelInfo, "refused",
		slog.String("session", e.Session), slog.Any("peer", e.Peer), slog.String("helo", e.HeloName),
		slog.String("sender", string(e.Sender)), slog.String("recipient", string(e.Recipient)),
		slog.String("reply", r.Error()))
}
