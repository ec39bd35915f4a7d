package intake

import (
	"net/netip"
	"strings"
	"time"

	"example.org/mta/internal/envelope"
)

// dateLayout is the date-time of RFC 5322, 3.3.
const dateLayout = "Mon, 02 Jan 2006 15:04:05 -0700"

// trace is what the header fields that this relay adds are made of.
type trace struct {
	hostname string
	helo     string
	peer     netip.AddrPort
	// protocol is one of RFC 3848 for SMTP. The registry has none for HTTP; relays that take mail by HTTP
	// write "HTTP" there, and ours writes "HTTPS" where TLS protected it, in keeping with the S of ESMTPS.
	protocol         string
	tls              string           // version and cipher suite, as overTLS gives them; "": none
	id               string           // of the transaction
	only             envelope.Address // the recipient, when there is just one
	time             time.Time
	needDate, needID bool   // RFC 6409, 8
	unsubscribe      string // the link of List-Unsubscribe; "": the field is not added
	needPost         bool   // as List-Unsubscribe-Post (RFC 8058)
}

// append writes the fields: Received (RFC 5321, 4.4), and Date, Message-ID and the fields
// to unsubscribe when missing. No
// part of them is taken from the client unchecked: the EHLO name stands there only if it is a
// domain or an address literal, and addresses have been parsed.
func (t *trace) append(b []byte) []byte {
	b = append(b, "Received: from "...)
	b = t.appendFrom(b)
	b = append(b, "\r\n\tby "...)
	b = append(b, t.hostname...)
	b = append(b, " with "...)
	b = append(b, t.protocol...)
	if t.tls != "" {
		b = append(b, " ("...)
		b = append(b, t.tls...)
		b = append(b, ')')
	}
	b = append(b, "\r\n\tid "...)
	b = append(b, t.id...)
	if t.only != "" { // more than one would tell each recipient of the others (RFC 5321, 7.2)
		b = append(b, "\r\n\tfor <"...)
		b = append(b, t.only...)
		b = append(b, '>')
	}
	b = append(b, ";\r\n\t"...)
	b = t.time.AppendFormat(b, dateLayout)
	b = append(b, "\r\n"...)
	if t.needDate {
		b = append(b, "Date: "...)
		b = t.time.AppendFormat(b, dateLayout)
		b = append(b, "\r\n"...)
	}
	if t.needID {
		b = append(b, "Message-ID: <"...)
		b = append(b, t.id...)
		b = append(b, '@')
		b = append(b, t.hostname...)
		b = append(b, ">\r\n"...)
	}
	if t.unsubscribe != "" {
		b = append(b, "List-Unsubscribe:\r\n\t<"...)
		b = append(b, t.unsubscribe...)
		b = append(b, ">\r\n"...)
	}
	if t.needPost {
		b = append(b, "List-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n"...)
	}
	return b
}

// appendFrom writes the Extended-Domain of RFC 5321, 4.4.
func (t *trace) appendFrom(b []byte) []byte {
	peer := t.peer.Addr()
	switch {
	case isHeloName(t.helo):
		b = append(b, t.helo...)
	case peer.IsValid():
		b = appendLiteral(b, peer)
	default:
		b = append(b, "unknown"...)
	}
	if peer.IsValid() {
		b = append(b, " ("...)
		b = appendLiteral(b, peer)
		b = append(b, ')')
	}
	return b
}

// appendLiteral writes "[192.0.2.1]" or "[IPv6:2001:db8::1]" (RFC 5321, 4.1.3).
func appendLiteral(b []byte, a netip.Addr) []byte {
	b = append(b, '[')
	if !a.Is4() {
		b = append(b, "IPv6:"...)
	}
	return append(a.WithZone("").AppendTo(b), ']')
}

// isHeloName reports whether s is made like a domain or an address literal. Underscores are
// forgiven.
func isHeloName(s string) bool {
	inner := s
	if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		inner = s[1 : len(s)-1]
	} else if strings.Contains(s, ":") {
		return false
	}
	if inner == "" {
		return false
	}
	for i := range len(inner) {
		switch c := inner[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '.', c == '-', c == '_', c == ':':
		default:
			return false
		}
	}
	return true
}
