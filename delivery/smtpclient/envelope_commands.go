package smtpclient

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"example.org/mta/internal/envelope"
)

// appendMail adds MAIL with what the host can be told.
func appendMail(b []byte, t *Transaction, host *Capabilities) []byte {
	m := t.Message
	b = append(b, "MAIL FROM:<"...)
	b = append(b, t.sender...)
	b = append(b, '>')
	if host.Size {
		b = append(b, " SIZE="...)
		b = strconv.AppendInt(b, m.Size, 10)
	}
	if t.body != envelope.Body7Bit {
		b = append(b, " BODY="...)
		b = append(b, t.body.String()...)
	}
	if t.utf8 {
		b = append(b, " SMTPUTF8"...)
	}
	if t.requireTLS {
		b = append(b, " REQUIRETLS"...)
	}
	if by := m.By(); host.DeliverBy && !by.At.IsZero() {
		left := by.Left(time.Now())
		if by.Return {
			left = max(left, 1) // as it was when the host was asked for
		}
		b = by.Append(append(b, " BY="...), left)
	}
	if host.Priority {
		if n, asked := m.Priority(); asked {
			b = strconv.AppendInt(append(b, " MT-PRIORITY="...), int64(n), 10)
		}
	}
	if host.DSN {
		if ret := m.Ret.String(); ret != "" {
			b = append(b, " RET="...)
			b = append(b, ret...)
		}
		if m.EnvID != "" {
			b = append(b, " ENVID="...)
			b = appendXtext(b, m.EnvID)
		}
	}
	return append(b, '\r', '\n')
}

// appendRcpt adds RCPT for the i-th recipient.
func appendRcpt(b []byte, t *Transaction, i int, host *Capabilities) []byte {
	r := t.recipient(i)
	address := r.Address
	if !t.utf8 {
		address = address.Downgrade()
	}
	b = append(b, "RCPT TO:<"...)
	b = append(b, address...)
	b = append(b, '>')
	if host.DSN {
		// NOTIFY is about reports to the sender.
		if notify := r.Notify.String(); notify != "" && t.ReturnPath == nil {
			b = append(b, " NOTIFY="...)
			b = append(b, notify...)
		}
		b = appendORcpt(b, r.ORcpt, t.utf8)
	}
	return append(b, '\r', '\n')
}

// appendORcpt adds the original recipient, "type;address" (RFC 3461, 4.2). An address that isn't
// ASCII has the type utf-8: as it is in a transaction with SMTPUTF8, as utf-8-addr-xtext in
// others (RFC 6533, 3).
func appendORcpt(b []byte, orcpt string, utf8 bool) []byte {
	kind, address, ok := strings.Cut(orcpt, ";")
	if !ok || kind == "" || address == "" {
		return b
	}
	b = append(b, " ORCPT="...)
	if !envelope.Address(address).ASCII() || strings.EqualFold(kind, "utf-8") {
		return appendUTF8Address(append(b, "utf-8;"...), address, utf8)
	}
	return appendXtext(append(appendXtext(b, kind), ';'), address)
}

// appendXtext adds s as xtext (RFC 3461, 4): what isn't printable ASCII, and + and =, become +XX.
func appendXtext(b []byte, s string) []byte {
	for i := range len(s) {
		switch c := s[i]; {
		case c > ' ' && c < 0x7f && c != '+' && c != '=':
			b = append(b, c)
		default:
			b = append(b, '+', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return b
}

// appendUTF8Address adds s as utf-8-addr-unitext when raw, else as utf-8-addr-xtext: \x{HEX} for
// the characters that can't stand for themselves (RFC 6533, 3).
func appendUTF8Address(b []byte, s string, raw bool) []byte {
	for _, r := range s {
		switch {
		case r > ' ' && r < 0x7f && r != '+' && r != '=' && r != '\\', raw && r >= 0xa0:
			b = utf8.AppendRune(b, r)
		default:
			b = append(b, `\x{`...)
			b = append(b, strings.ToUpper(strconv.FormatInt(int64(r), 16))...)
			b = append(b, '}')
		}
	}
	return b
}

const hexDigits = "0123456789ABCDEF"
