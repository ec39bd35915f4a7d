package smtpclient

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
)

// prepare fits t to what the host offers: it decides what MAIL will say, and refuses what this
// host can't be sent. It reports false when no recipient is left to ask for.
func (c *Conn) prepare(t *Transaction) bool {
	m := t.Message
	t.sender, t.utf8 = m.Sender, c.caps.UTF8 && needsUTF8(t)
	t.requireTLS = m.RequireTLS && c.tls != nil && c.caps.RequireTLS
	if !t.utf8 {
		t.sender = m.Sender.Downgrade()
	}
	for _, check := range []func(*Conn, *Transaction) *Result{
		(*Conn).checkSize, (*Conn).checkSender, (*Conn).checkBy,
	} {
		if refusal := check(c, t); refusal != nil {
			t.conclude(refusal.Fate, refusal.Reply)
			return false
		}
	}
	for i := range t.results {
		if refusal := checkRecipient(t.recipient(i).Address, t.utf8); refusal != nil {
			t.close(i, refusal.Fate, refusal.Reply)
		}
	}
	if t.asked == 0 {
		return false // the address says more than the content, in which Received names it
	}
	if refusal := c.checkContent(t); refusal != nil {
		t.conclude(refusal.Fate, refusal.Reply)
		return false
	}
	c.limitRecipients(t)
	if t.ReturnPath != nil && t.asked > 0 {
		t.sender = t.ReturnPath(t.only())
	}
	if t.asked > 0 && t.MayBegin != nil && !t.MayBegin(t.asked) {
		t.conclude(Withdrawn, withdrawn)
		return false
	}
	return t.asked > 0
}

// only is the one recipient that is open, -1 if several are.
func (t *Transaction) only() int {
	found := -1
	for i := range t.results {
		if t.results[i].open() {
			if found >= 0 {
				return -1
			}
			found = t.Recipients[i]
		}
	}
	return found
}

// withdrawn stands for a reply to what the caller took back.
var withdrawn = reply.Local(451, reply.Enhanced{4, 3, 0}, "MAIL", "returned to the queue before it was sent")

// refuse is a final answer that this relay gives in the host's place.
func refuse(code int, enhanced reply.Enhanced, command, format string, args ...any) *Result {
	return &Result{Fate: Answered, Reply: reply.Local(code, enhanced, command, format, args...)}
}

// checkSize spares the host a message that it has said it won't take (RFC 1870, 6.1).
func (c *Conn) checkSize(t *Transaction) *Result {
	if limit := c.caps.SizeLimit; limit > 0 && t.Message.Size > limit {
		return refuse(552, reply.Enhanced{5, 3, 4}, "MAIL", "the message has %d octets, and %s takes %d at most",
			t.Message.Size, c.cfg.Host.Name, limit)
	}
	return nil
}

// checkBy keeps a message that must be given up at a time from a host that doesn't promise that (RFC 2852, 4.1.4). Any
// other one can be sent.
func (c *Conn) checkBy(t *Transaction) *Result {
	by := t.Message.By()
	left, least := by.Left(time.Now()), max(1, c.caps.MinBy)
	switch {
	case !by.Return:
	case !c.caps.DeliverBy:
		return refuse(554, reply.Enhanced{5, 4, 7}, "MAIL",
			"the message has BY with mode R, and %s has no DELIVERBY", c.cfg.Host.Name)
	case left < least:
		return refuse(554, reply.Enhanced{5, 4, 7}, "MAIL",
			"the message must be delivered in %d s, and %s wants %d at least", left, c.cfg.Host.Name, least)
	}
	return nil
}

func (c *Conn) checkSender(t *Transaction) *Result {
	switch {
	case t.ReturnPath != nil: // the host does not see the sender
	case !speakable(t.sender):
		return refuse(553, reply.Enhanced{5, 1, 7}, "MAIL", "the sender's address has characters that SMTP can't carry")
	case !t.utf8 && !t.sender.ASCII():
		return refuse(550, reply.Enhanced{5, 6, 7}, "MAIL", "the sender's address is not ASCII, and %s has no SMTPUTF8",
			c.cfg.Host.Name)
	}
	return nil
}

// checkRecipient refuses an address that needs SMTPUTF8 where there is none: its domain has an
// ASCII form, its local part has not (RFC 6531, 3.2).
func checkRecipient(a envelope.Address, utf8 bool) *Result {
	if !utf8 {
		a = a.Downgrade()
	}
	switch {
	case !speakable(a):
		return refuse(553, reply.Enhanced{5, 1, 3}, "RCPT", "the address has characters that SMTP can't carry")
	case !utf8 && !a.ASCII():
		return refuse(553, reply.Enhanced{5, 6, 7}, "RCPT", "the address is not ASCII, and the host has no SMTPUTF8")
	}
	return nil
}

// speakable reports whether a can stand between < and > without becoming another command: no
// control characters anywhere, and no space or bracket outside quotes.
func speakable(a envelope.Address) bool {
	quoted := strings.HasPrefix(string(a), `"`)
	for i := range len(a) {
		switch c := a[i]; {
		case c < ' ' || c == 0x7f:
			return false
		case !quoted && (c == ' ' || c == '<' || c == '>'):
			return false
		}
	}
	return true
}

// needsUTF8 reports whether SMTPUTF8 is to be said: the sender asked for it, or an address can't do
// without.
func needsUTF8(t *Transaction) bool {
	if t.Message.UTF8 || t.ReturnPath == nil && !t.Message.Sender.Downgrade().ASCII() {
		return true
	}
	for i := range t.results {
		if !t.recipient(i).Address.Downgrade().ASCII() {
			return true
		}
	}
	return false
}

// checkContent decides on BODY, and refuses content that the host can't take: this relay converts
// none. Only then the content is looked at, and that costs an extra reading.
func (c *Conn) checkContent(t *Transaction) *Result {
	m, host := t.Message, c.cfg.Host.Name
	if m.UTF8 && !t.utf8 {
		switch found, err := scan(t, true); {
		case err != nil:
			return c.unreadable(t, err)
		case found:
			// RFC 6531, 3.4 forbids sending it; the code is RFC 6531's for UTF-8 header fields.
			return refuse(550, reply.Enhanced{5, 6, 9}, "MAIL",
				"the message has header fields in UTF-8, and %s has no SMTPUTF8", host)
		}
	}
	switch {
	case m.Body == envelope.BodyBinaryMIME && c.caps.BinaryMIME && c.caps.Chunking:
		t.body = envelope.BodyBinaryMIME
	case m.Body == envelope.BodyBinaryMIME:
		return refuse(554, reply.Enhanced{5, 6, 3}, "MAIL",
			"the content is BINARYMIME, and %s does not take that; this relay does not convert it", host)
	case m.Body == envelope.Body8BitMIME && c.caps.EightBitMIME:
		t.body = envelope.Body8BitMIME
	case m.Body == envelope.Body8BitMIME && !c.cfg.SendEightBit:
		// Many senders say 8BITMIME of everything: only octets that are there count.
		switch found, err := scan(t, false); {
		case err != nil:
			return c.unreadable(t, err)
		case found:
			return refuse(554, reply.Enhanced{5, 6, 3}, "MAIL",
				"the content has 8-bit octets, and %s has no 8BITMIME; this relay does not convert it", host)
		}
	}
	return nil
}

// unreadable is the result of a body that could not be opened or read. The cause goes to the log
// only: it may name files.
func (c *Conn) unreadable(t *Transaction, err error) *Result {
	c.cfg.Log.Error("the content of a message could not be sent", "id", t.Message.ID, "err", err)
	v := resultOf(err)
	return &v
}

// scan reports whether the content has octets beyond ASCII, in its header only or anywhere.
func scan(t *Transaction, headerOnly bool) (found bool, err error) {
	body, err := t.Body()
	if err != nil {
		return false, fmt.Errorf("opening the content: %w", err)
	}
	defer body.Close()
	in := bufio.NewReader(body)
	for line := 0; ; {
		b, err := in.ReadByte()
		switch {
		case errors.Is(err, io.EOF):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("reading the content: %w", err)
		case b >= utf8.RuneSelf:
			return true, nil
		case b == '\n' && line == 0 && headerOnly:
			return false, nil
		case b == '\n':
			line = 0
		case b != '\r':
			line++
		}
	}
}

// limitRecipients puts aside the recipients beyond the host's limits (RFC 9422, 4.2 and 4.3):
// asking for them is asking to be refused.
func (c *Conn) limitRecipients(t *Transaction) {
	if c.caps.RcptMax == 0 && c.caps.RcptDomainMax == 0 {
		return
	}
	var domains map[string]bool
	if c.caps.RcptDomainMax > 0 {
		domains = make(map[string]bool)
	}
	asking := 0
	for i := range t.results {
		if !t.results[i].open() {
			continue
		}
		if c.caps.RcptMax > 0 && asking >= c.caps.RcptMax {
			t.close(i, Excess, tooMany)
			continue
		}
		if domains != nil {
			d := t.recipient(i).Address.Domain()
			if !domains[d] && len(domains) >= c.caps.RcptDomainMax {
				t.close(i, Excess, tooMany)
				continue
			}
			domains[d] = true
		}
		asking++
	}
}

var tooMany = reply.Local(452, reply.Enhanced{4, 5, 3}, "RCPT", "the host takes no more recipients in this transaction")
