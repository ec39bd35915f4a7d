package smtpclient

import "example.org/mta/internal/reply"

// manner is how a host answered RSET and a content the first time on a connection. A host that skips
// a reply shifts all that follow by one, and in a window every command can have a 250: what tells is
// an enhanced code that belongs to another command (RFC 3463, 3.2: X.1.Z is about addresses, and so
// answers MAIL and RCPT). There are hosts whose RSET or content is answered so always; the first
// answer shows that. Without enhanced codes there is nothing to be seen.
type manner struct {
	reset, content     reply.Enhanced
	hasReset, hasTaken bool
}

// foreign reports whether a positive reply to x seems to be that to another command.
func (m *manner) foreign(k command, r rawReply) bool {
	if !r.positive() {
		return false
	}
	switch k {
	case cmdReset, cmdAbort:
		if !m.hasReset {
			m.reset, m.hasReset = r.enhanced(), true
		}
		return r.enhanced() != m.reset
	case cmdContent, cmdLastChunk:
		if !m.hasTaken {
			m.content, m.hasTaken = r.enhanced(), true
		}
		return aboutAddress(r.enhanced()) != aboutAddress(m.content)
	}
	return false
}

func aboutAddress(e reply.Enhanced) bool { return e[1] == 1 }
