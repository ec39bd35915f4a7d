package dkim

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"example.org/mta/internal/envelope"
)

// maxHeader bounds the memory for a header section, in octets.
const maxHeader = 1 << 20

// ErrMessage is matched by errors about a message that can't be signed as it is; trying again
// doesn't help.
var ErrMessage = errors.New("the message can't be signed as it is")

// Message is a message as far as signatures need it.
type Message struct {
	header   []byte // the section without the empty line
	fields   []field
	bodyHash [sha256.Size]byte
}

// field is one header field with its folding and its last CRLF.
type field struct {
	name  string // in lower case
	start int    // in the header
	raw   []byte
}

const (
	bufferSize  = 32 << 10
	usualHeader = 2 << 10 // octets; more costs another allocation
	usualFields = 24
)

var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, bufferSize) }}

// Read reads a message to its end. An error that matches ErrMessage is about its header; all others
// are r's.
func Read(r io.Reader) (*Message, error) {
	in := readers.Get().(*bufio.Reader)
	in.Reset(r)
	defer func() { in.Reset(nil); readers.Put(in) }()
	m := &Message{header: make([]byte, 0, usualHeader), fields: make([]field, 0, usualFields)}
	if err := m.readHeader(in); err != nil {
		return nil, err
	}
	sum := sha256.New()
	body := relaxedBody{out: sum}
	for {
		p, err := in.Peek(max(in.Buffered(), 1))
		body.add(p)
		if _, err := in.Discard(len(p)); err != nil {
			return nil, err
		}
		if errors.Is(err, io.EOF) {
			body.close()
			sum.Sum(m.bodyHash[:0])
			return m, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// readHeader reads up to and with the empty line, or to the end of a message that has none.
func (m *Message) readHeader(in *bufio.Reader) error {
	broken := false // the last piece of a line did not end it
	for {
		piece, err := in.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) && !errors.Is(err, io.EOF) {
			return err
		}
		if len(m.header)+len(piece) > maxHeader {
			return fmt.Errorf("%w: its header is larger than %d octets", ErrMessage, maxHeader)
		}
		switch {
		case !broken && (len(piece) == 0 || string(piece) == "\r\n" || string(piece) == "\n"):
			m.cut()
			return nil
		case broken, len(m.fields) > 0 && (piece[0] == ' ' || piece[0] == '\t'):
		default:
			name, _, ok := envelope.CutField(piece)
			if !ok {
				return fmt.Errorf("%w: line %d of its header is not a field", ErrMessage,
					bytes.Count(m.header, []byte("\n"))+1)
			}
			m.fields = append(m.fields, field{name: lowerName(name), start: len(m.header)})
		}
		m.header = append(m.header, piece...)
		if errors.Is(err, io.EOF) {
			m.cut()
			return nil
		}
		broken = err != nil
	}
}

// cut gives each field its part of the header, which has stopped growing.
func (m *Message) cut() {
	end := len(m.header)
	for i := len(m.fields) - 1; i >= 0; i-- {
		f := &m.fields[i]
		f.raw, end = m.header[f.start:end:end], f.start
	}
}

// lowerName gives a field's name in lower case. Those that are signed are in common, and cost no memory.
func lowerName(name []byte) string {
	var short [32]byte
	if len(name) > len(short) {
		return strings.ToLower(string(name))
	}
	lower := short[:len(name)]
	for i, c := range name {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		lower[i] = c
	}
	if known, ok := signedNames[string(lower)]; ok {
		return known
	}
	return string(lower)
}

// From gives the domains of the authors, in A-label form, each once. An error matches ErrMessage, and then domains are
// those of all that could be taken for an author.
func (m *Message) From() (domains []string, err error) { return From(m.header) }

// From does so for a header section.
func From(header []byte) (domains []string, err error) {
	addresses, err := envelope.From(header)
	for _, a := range addresses {
		domain, wrong := envelope.ToASCII(a[strings.LastIndexByte(a, '@')+1:])
		switch {
		case wrong != nil && err == nil:
			err = errors.New("a domain in its From field is not valid")
		case wrong == nil && !slices.Contains(domains, domain):
			domains = append(domains, domain)
		}
	}
	if err != nil {
		return domains, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	return domains, nil
}

// always are the fields that are signed once more than they are there, whether or not they are: a
// second one that somebody adds breaks the signature (RFC 6376, 8.15).
var always = []string{"from", "to", "cc", "subject", "reply-to", "date", "message-id", "content-type"}

// present are those that are signed only where they are there, and whether once more than they are.
// Relays and lists add fields of these names where there are none.
var present = map[string]bool{
	"sender": true, "in-reply-to": true, "references": true,
	"mime-version": true, "content-transfer-encoding": true, "content-description": true, "content-disposition": true,
	"content-id": true, "content-language": true,
	"feedback-id": true, "list-unsubscribe": true, "list-unsubscribe-post": true,
	"cfbl-address": false, "cfbl-feedback-id": false, "x-mta-token": false,
	"list-id": false, "list-help": false, "list-subscribe": false, "list-post": false, "list-owner": false,
	"list-archive": false,
	"resent-date":  false, "resent-from": false, "resent-sender": false, "resent-to": false, "resent-cc": false,
	"resent-message-id": false,
}

// signedNames are the names of always and present.
var signedNames = func() map[string]string {
	names := make(map[string]string)
	for _, n := range always {
		names[n] = n
	}
	for n := range present {
		names[n] = n
	}
	return names
}()

// signedFields gives the canonical form of what is signed of the header, and its names for the h= tag.
func (m *Message) signedFields() (canonical []byte, names []string, err error) {
	if !m.has("from") {
		return nil, nil, fmt.Errorf("%w: it has no From field", ErrMessage)
	}
	canonical, names = make([]byte, 0, len(m.header)), make([]string, 0, len(always)+len(m.fields))
	add := func(name string, once bool) {
		for i := len(m.fields) - 1; i >= 0; i-- { // from the last to the first (RFC 6376, 5.4.2)
			if f := &m.fields[i]; f.name == name {
				names = append(names, name)
				canonical = append(relaxedField(canonical, f.raw), '\r', '\n')
			}
		}
		if once {
			names = append(names, name)
		}
	}
	for _, name := range always {
		add(name, true)
	}
	for i := range m.fields {
		name := m.fields[i].name
		if once, signed := present[name]; signed && !m.hasBefore(i, name) {
			add(name, once)
		}
	}
	return canonical, names, nil
}

// Has reports whether the message has a field of that name.
func (m *Message) Has(name string) bool { return m.has(strings.ToLower(name)) }

// Add puts whole fields, each ending in CRLF, in front of the header. The error, of what is not a field, matches
// ErrMessage.
func (m *Message) Add(fields []byte) error {
	if len(fields) == 0 {
		return nil
	}
	in := readers.Get().(*bufio.Reader)
	in.Reset(bytes.NewReader(fields))
	defer func() { in.Reset(nil); readers.Put(in) }()
	top := &Message{header: make([]byte, 0, len(fields)+len(m.header)), fields: make([]field, 0, len(m.fields)+4)}
	if err := top.readHeader(in); err != nil {
		return err
	}
	for _, f := range m.fields {
		f.start += len(top.header)
		top.fields = append(top.fields, f)
	}
	m.header, m.fields = append(top.header, m.header...), top.fields
	m.cut()
	return nil
}

func (m *Message) has(name string) bool { return m.hasBefore(len(m.fields), name) }

func (m *Message) hasBefore(i int, name string) bool {
	return slices.ContainsFunc(m.fields[:i], func(f field) bool { return f.name == name })
}

// relaxedField adds the relaxed form of a header field to out, without its CRLF (RFC 6376, 3.4.2):
// the name in lower case, the value unfolded, each run of white space one space, none at its ends.
func relaxedField(out, raw []byte) []byte {
	name, value, _ := bytes.Cut(raw, []byte(":"))
	for _, c := range bytes.TrimRight(name, " \t") {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		out = append(out, c)
	}
	out = append(out, ':')
	start, space := len(out), false
	for _, c := range value {
		switch c {
		case ' ', '\t':
			space = true
			continue
		case '\r', '\n':
			continue
		}
		if space && len(out) > start {
			out = append(out, ' ')
		}
		out, space = append(out, c), false
	}
	return out
}

// relaxedBody writes the relaxed form of a body to out (RFC 6376, 3.4.4): each run of white space in
// a line one space, none at its end; empty lines at the end of the body left out, and its last line
// ended. The body comes in pieces of any size. A CR or LF by itself is a character like any other.
type relaxedBody struct {
	out     io.Writer
	ends    int  // line ends that are written when anything follows
	space   bool // so is one space
	cr      bool // the last octet was a CR
	written bool
}

var (
	crlf   = []byte("\r\n")
	single = []byte(" ")
)

func (b *relaxedBody) add(p []byte) {
	for i := 0; i < len(p); {
		switch c := p[i]; {
		case b.cr && c == '\n':
			b.cr, b.space = false, false
			b.ends++
			i++
		case b.cr:
			b.cr = false
			b.write([]byte("\r"))
		case c == '\r':
			b.cr = true
			i++
		case c == ' ' || c == '\t':
			b.space = true
			i++
		default:
			n := plain(p[i:])
			b.write(p[i : i+n])
			i += n
		}
	}
}

// plain is how many octets of p, at least one, are their own relaxed form whatever follows. Most
// text is, so that it is hashed where it lies.
func plain(p []byte) int {
	i := 1
	for n := len(p); i < n; {
		switch c := p[i]; {
		case c > ' ':
			i++
		case c == ' ' && i+1 < n && p[i+1] > ' ':
			i += 2
		case c == '\r' && i+2 < n && p[i+1] == '\n' && p[i+2] > ' ':
			i += 3
		default:
			return i
		}
	}
	return i
}

// write writes what can't be left out any longer, and p.
func (b *relaxedBody) write(p []byte) {
	for ; b.ends > 0; b.ends-- {
		b.out.Write(crlf)
	}
	if b.space {
		b.out.Write(single)
		b.space = false
	}
	b.out.Write(p)
	b.written = true
}

func (b *relaxedBody) close() {
	if b.cr {
		b.cr = false
		b.write([]byte("\r"))
	}
	if b.written {
		b.out.Write(crlf)
	}
}
