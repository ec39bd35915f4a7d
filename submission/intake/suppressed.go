package intake

import (
	"strings"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
)

// suppressed gives the reply that refuses a recipient no mail is to be sent to, nil when there is
// nothing against it. Reports (null sender) are let through: who can't be told of a failure never
// hears of it.
func (m *Message) suppressed(rcpt envelope.Address) *reply.Reply {
	cfg := &m.desk.cfg
	if cfg.Recipients.Suppressed == nil || m.Sender.Null() {
		return nil
	}
	why, listed := cfg.Recipients.Suppressed(m.account.tenant, rcpt)
	if !listed {
		return nil
	}
	if m.client.APIKey != "" {
		return suppressedByKey.Refusal(reply.Printable(why))
	}
	return suppressedRcpt.Refusal(reply.Printable(why), forShell(rcpt))
}

// forShell gives an address as it can be pasted into a command line; a word that stands for it
// when it has anything that a shell or a reply line would not take as it is.
func forShell(a envelope.Address) string {
	for _, c := range []byte(a) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
			strings.IndexByte("@.-_+=", c) >= 0) {
			return "ADDRESS"
		}
	}
	return string(a)
}
