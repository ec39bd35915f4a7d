package tlsrpt

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"time"
)

// Mail is a report as a message. It must be delivered whatever is wrong with TLS, and not be counted
// (RFC 8460, 3): its field "TLS-Required: No" (RFC 8689) sees to both.
type Mail struct {
	From, To string // addresses
	Content  []byte
}

// lineLength is how many characters of base64 a line has (RFC 2045, 6.8).
const lineLength = 76

// mail makes the message of RFC 8460, 5.3 about a day.
func (c *Config) mail(d *Day, to string, report []byte, now time.Time) Mail {
	id, boundary := c.reportID(d), fmt.Sprintf("tlsrpt-%s-%x", d.Date, now.UnixNano())
	var b bytes.Buffer
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\r\n", args...) }
	line("From: TLS reports <%s>", c.From)
	line("To: <%s>", to)
	line("Date: %s", now.UTC().Format("Mon, 02 Jan 2006 15:04:05 -0700"))
	line("Message-ID: <%x.%s>", now.UnixNano(), id)
	line("Subject: Report Domain: %s\r\n Submitter: %s\r\n Report-ID: <%s>", d.Domain, c.Submitter, id)
	line("TLS-Report-Domain: %s", d.Domain)
	line("TLS-Report-Submitter: %s", c.Submitter)
	line("TLS-Required: No")
	line("Auto-Submitted: auto-generated")
	line("MIME-Version: 1.0")
	line("Content-Type: multipart/report; report-type=\"tlsrpt\";\r\n boundary=\"%s\"", boundary)
	line("\r\n--%s\r\nContent-Type: text/plain; charset=us-ascii\r\n", boundary)
	line("This is a report on how TLS went for mail from %s to %s", c.Submitter, d.Domain)
	line("on %s (UTC). RFC 8460 describes the attached file.", d.Date)
	line("\r\n--%s\r\nContent-Type: application/tlsrpt+gzip\r\nContent-Transfer-Encoding: base64", boundary)
	line("Content-Disposition: attachment;\r\n filename=\"%s\"\r\n", c.filename(d))
	text := base64.StdEncoding.EncodeToString(compressed(report))
	for len(text) > lineLength {
		line("%s", text[:lineLength])
		text = text[lineLength:]
	}
	line("%s\r\n--%s--", text, boundary)
	return Mail{From: c.From, To: to, Content: b.Bytes()}
}
