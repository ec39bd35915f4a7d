package compose

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/emersion/go-message/textproto"

	"example.org/mta/submission/request"
)

// dateLayout is RFC 5322, 3.3.
const dateLayout = "Mon, 02 Jan 2006 15:04:05 -0700"

// writers are buffers for use again: one would be a fifth of what a request costs in memory.
var writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 8<<10) }}

// WriteTo writes the message, with CRLF line ends, and returns its size in octets. The same letter with
// the same octets of Random makes the same message.
func (l *Letter) WriteTo(w io.Writer) (int64, error) {
	root := l.tree()
	if root.multipart != "" {
		var random [16]byte
		if _, err := io.ReadFull(l.Random, random[:]); err != nil {
			return 0, fmt.Errorf("making a boundary: %w", err)
		}
		root.setBoundaries("=_"+hex.EncodeToString(random[:]), new(int))
	}
	fields := l.fields()
	root.describe(&fields)
	header, err := fields.header()
	if err != nil {
		return 0, err
	}
	out := &counter{w: w}
	buffered := writers.Get().(*bufio.Writer)
	buffered.Reset(out)
	defer writers.Put(buffered)
	if err := textproto.WriteHeader(buffered, header); err != nil {
		return out.n, err
	}
	if err := root.write(buffered); err != nil {
		return out.n, err
	}
	if !root.endsLine() {
		_, _ = buffered.WriteString("\r\n") // a message ends in a line end; Flush has the error
	}
	err = buffered.Flush()
	return out.n, err
}

// fields are the fields of the message but those of its content.
func (l *Letter) fields() fields {
	all := make(fields, 0, 12+len(l.Headers))
	mailboxes := func(name string, list []request.Mailbox) {
		if len(list) > 0 {
			all.add(name, func(f *field) { f.mailboxes(list) })
		}
	}
	if !l.hasOwn("Date") {
		all.add("Date", func(f *field) { f.write(" " + l.Date.Format(dateLayout)) })
	}
	mailboxes("From", l.From)
	if l.hasSender() {
		mailboxes("Sender", []request.Mailbox{*l.Sender})
	}
	mailboxes("Reply-To", l.ReplyTo)
	mailboxes("To", l.To)
	mailboxes("Cc", l.Cc)
	if len(l.To)+len(l.Cc) == 0 {
		all.add("To", func(f *field) { f.write(" undisclosed-recipients:;") })
	}
	all.add("Subject", func(f *field) { f.text(l.Subject) })
	if !l.hasOwn("Message-ID") {
		all.add("Message-ID", func(f *field) { f.word("<" + strings.Trim(l.MessageID, "<>") + ">") })
	}
	for _, h := range l.Headers {
		all.add(h.Name, func(f *field) { f.text(h.Value) })
	}
	all.add("MIME-Version", func(f *field) { f.write(" 1.0") })
	return all
}

func (l *Letter) hasOwn(name string) bool {
	for _, h := range l.Headers {
		if strings.EqualFold(h.Name, name) {
			return true
		}
	}
	return false
}

// counter counts what is written to w.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
