package request

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/mta/internal/envelope"
)

// dateLayout is RFC 5322, 3.3.
const dateLayout = "Mon, 02 Jan 2006 15:04:05 -0700"

// buffers are what a letter is written with, for use again: they would be a fifth of what a request costs in memory.
type buffers struct {
	header fields
	out    *bufio.Writer
}

var pool = sync.Pool{New: func() any {
	return &buffers{fields{b: make([]byte, 0, 2<<10)}, bufio.NewWriterSize(nil, 8<<10)}
}}

// mostKept is the largest header section whose buffer is used again, in octets.
const mostKept = 64 << 10

func (b *buffers) release() {
	if b.out.Reset(nil); cap(b.header.b) <= mostKept {
		pool.Put(b)
	}
}

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
	use := pool.Get().(*buffers)
	defer use.release()
	header, buffered := &use.header, use.out
	header.reset()
	l.describe(header)
	root.describe(header)
	if header.err != nil {
		return 0, header.err
	}
	out := &counter{w: w}
	buffered.Reset(out)
	_, _ = buffered.Write(header.b) // an error stays until Flush
	_, _ = buffered.WriteString("\r\n")
	if err := root.write(buffered); err != nil {
		return out.n, err
	}
	if !root.endsLine() {
		_, _ = buffered.WriteString("\r\n") // a message ends in a line end; Flush has the error
	}
	err := buffered.Flush()
	return out.n, err
}

// describe adds the fields of the message, except those of its content.
func (l *Letter) describe(all *fields) {
	mailboxes := func(name string, list []Mailbox) {
		if len(list) > 0 {
			all.add(name, func(f *fields) { f.mailboxes(list) })
		}
	}
	if !l.hasOwn("Date") {
		all.add("Date", func(f *fields) { f.word(l.Date.Format(dateLayout)) })
	}
	mailboxes("From", l.From)
	if l.hasSender() {
		mailboxes("Sender", []Mailbox{*l.Sender})
	}
	mailboxes("Reply-To", l.ReplyTo)
	mailboxes("To", l.To)
	mailboxes("Cc", l.Cc)
	if len(l.To)+len(l.Cc) == 0 {
		all.add("To", func(f *fields) { f.write(" undisclosed-recipients:;") })
	}
	all.add("Subject", func(f *fields) { f.text(l.Subject) })
	if !l.hasOwn("Message-ID") {
		all.add("Message-ID", func(f *fields) { f.word("<" + strings.Trim(l.MessageID, "<>") + ">") })
	}
	for _, h := range l.Headers {
		all.add(h.Name, func(f *fields) { f.text(h.Value) })
	}
	all.add("MIME-Version", func(f *fields) { f.write(" 1.0") })
}

func (l *Letter) hasOwn(name string) bool {
	return slices.ContainsFunc(l.Headers, func(h Header) bool { return strings.EqualFold(h.Name, name) })
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

// Letter is a message in parts. Its fields must have passed the checks of [CheckHeaders] and
// [CheckAttachment].
//
// Of the MIME levels mixed, related and alternative (RFC 2046, 5.1) the message has those that it needs. Header values
// in UTF-8 become encoded words (RFC 2047), file names become RFC 2231 parameters, text is quoted-printable or base64,
// whichever is shorter. UTF-8 mailboxes stay UTF-8 (RFC 6532): [Letter.UTF8] reports whether the header has any.
type Letter struct {
	From    []Mailbox
	Sender  *Mailbox // nil, the null sender or the only author: no Sender field
	To, Cc  []Mailbox
	ReplyTo []Mailbox
	Subject string
	Text    string // lines end in LF, CR or CRLF
	HTML    string
	// Headers follow the fields above, in this order. A Date and a Message-ID among them take
	// the place of those below.
	Headers []Header
	// Attachments with a ContentID stand beside the HTML (RFC 2387), all others at the end.
	Attachments []Attachment

	Date      time.Time
	MessageID string    // without < and >
	Random    io.Reader // for boundaries; 16 octets are read if there are several parts
}

// NewLetter takes the parts from a request. Date, MessageID and Random are left to the caller.
func NewLetter(r *Request) *Letter {
	return &Letter{
		From: r.From, Sender: r.Sender, To: r.To, Cc: r.Cc, ReplyTo: r.ReplyTo,
		Subject: r.Subject, Text: r.Text, HTML: r.HTML, Headers: r.Headers, Attachments: r.Attachments,
	}
}

// UTF8 reports whether a mailbox of the header cannot be written in ASCII, so that the message needs
// SMTPUTF8 (RFC 6531). A domain alone never does: it is written in A-label form.
func (l *Letter) UTF8() bool {
	for _, list := range [][]Mailbox{l.From, l.To, l.Cc, l.ReplyTo} {
		for _, m := range list {
			if !headerAddress(m.Address).ASCII() {
				return true
			}
		}
	}
	return l.hasSender() && !headerAddress(l.Sender.Address).ASCII()
}

// hasSender reports whether there is a Sender field (RFC 5322, 3.6.2): not when it would repeat the author.
func (l *Letter) hasSender() bool {
	return l.Sender != nil && !l.Sender.Address.Null() && (len(l.From) != 1 || l.Sender.Address != l.From[0].Address)
}

// headerAddress is an address as the header shows it: the domain in A-label form if that makes it ASCII.
func headerAddress(a envelope.Address) envelope.Address {
	if d := a.Downgrade(); d.ASCII() {
		return d
	}
	return a
}
