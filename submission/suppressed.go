package submission

import (
	"strings"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
)

// suppressed gives the reply that refuses a recipient no mail is to be sent to, nil when there is
// nothing against it. Reports (null sender) are let through: who can't be told of a failure never
// hears of it.
func (c *conn) suppressed(rcpt envelope.Address) *reply.Reply {
	cfg := &c.srv.cfg
	if cfg.Suppressed == nil || c.tx.sender.Null() {
		return nil
	}
	why, listed := cfg.Suppressed(c.tx.account.tenant, rcpt)
	if !listed {
		return nil
	}
	r := suppressedRcpt.reply(printable(why), forShell(rcpt))
	return &r
}

// maxWhy bounds what a reply quotes, so that its line stays within 512 octets (RFC 5321, 4.5.3.1.5).
const maxWhy = 200

// printable makes of a text what may stand in a reply line.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return ' '
		}
		return r
	}, s)
	return s[:min(len(s), maxWhy)]
}

// forShell gives an address as it can be pasted into a command line; a word that stands for it
// when it has anything that a shell or a reply line would not take as it is.
func forShell(a envelope.Address) string {
	for _, c := range []byte(a) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("@.-_+=", c) >= 0) {
			return "ADDRESS"
		}
	}
	return string(a)
}
