package inbox

import (
	"bytes"
	"fmt"
	"strings"
)

// forwarded returns the mail with this relay's fields on top and proper line ends. Delivered-To marks it: when it
// comes back to the same address, it has looped.
func (a *arrival) forwarded() ([]byte, error) {
	head := headOf(a.Content)
	hops, _ := count(head, "Received", "")
	_, was := count(head, deliveredTo, string(a.Recipients[0]))
	if was || a.cfg.MaxHops > 0 && hops >= a.cfg.MaxHops {
		return nil, ErrLoop
	}
	helo := strings.Map(func(r rune) rune {
		if r <= ' ' || r >= 0x7f || strings.ContainsRune("();<>\"\\", r) {
			return -1
		}
		return r
	}, a.Helo)
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s: %s\r\n", deliveredTo, a.Recipients[0])
	fmt.Fprintf(&b, "Received: from %s ([%s])\r\n\tby %s with %s\r\n\tid %s\r\n\tfor <%s>;\r\n\t%s\r\n", helo,
		a.Peer.Addr().WithZone(""),
		a.cfg.Hostname, a.Protocol, a.Session, a.Recipients[0], a.Time.Format("Mon, 02 Jan 2006 15:04:05 -0700"))
	if n, _ := count(head, "Message-ID", ""); n == 0 { // some hosts refuse mail without it
		fmt.Fprintf(&b, "Message-ID: <%s.%d@%s>\r\n", a.Session, a.Time.UnixNano(), a.cfg.Hostname)
	}
	if len(head) == 0 || bytes.IndexByte(head, ':') < 0 {
		b.WriteString("\r\n") // there is no header section
	}
	normalise(&b, a.Content)
	return b.Bytes(), nil
}

const deliveredTo = "Delivered-To"

// headOf returns the header section.
func headOf(content []byte) []byte {
	for i := 0; i < len(content); {
		n := bytes.IndexByte(content[i:], '\n')
		if n < 0 {
			break
		}
		if line := bytes.TrimRight(content[i:i+n], "\r"); len(line) == 0 {
			return content[:i]
		}
		i += n + 1
	}
	return content
}

// normalise writes content with CRLF for each bare CR and LF, and without NUL: hosts disagree about what such octets
// end, and refuse them.
func normalise(b *bytes.Buffer, content []byte) {
	for i := 0; i < len(content); i++ {
		switch c := content[i]; c {
		case 0:
		case '\r':
			b.WriteString("\r\n")
			if i+1 < len(content) && content[i+1] == '\n' {
				i++
			}
		case '\n':
			b.WriteString("\r\n")
		default:
			b.WriteByte(c)
		}
	}
	if !bytes.HasSuffix(b.Bytes(), []byte("\r\n")) {
		b.WriteString("\r\n")
	}
}
