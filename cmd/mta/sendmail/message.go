package sendmail

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"unicode/utf8"
)

// Limits of what is kept in memory while a message is read.
const (
	maxHeader = 1 << 20 // octets of the header section; more is refused
	maxMemory = 1 << 20 // octets of the body; more goes to a file
)

// message is what came on standard input. It is read to the end before the relay is spoken to:
// who writes it may take an hour, and the relay does not have to wait.
type message struct {
	fields [][]byte // of the header section, each with all its lines, which end in CRLF
	body   spool    // lines end in CRLF
	head   string   // as it is sent, made by finish
}

// readMessage reads to the end of r or, unless dots are ignored, to a line with a dot alone.
func readMessage(r io.Reader, ignoreDots bool) (*message, error) {
	m := &message{}
	lines := &lineReader{r: bufio.NewReaderSize(r, 64<<10), ignoreDots: ignoreDots}
	if err := m.read(lines); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

func (m *message) read(lines *lineReader) error {
	first, err := m.readHeader(lines)
	if err != nil {
		return err
	}
	if err := m.body.write(first); err != nil {
		return err
	}
	for {
		part, err := lines.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := m.body.write(part); err != nil {
			return err
		}
	}
}

// readHeader reads fields, up to the empty line or to what is not a field: a message that begins
// with text has no header section. It gives what it has read of the body.
func (m *message) readHeader(lines *lineReader) (body []byte, err error) {
	size := 0
	for n := 0; ; n++ {
		line, err := lines.whole(maxHeader)
		if err == io.EOF {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if size += len(line); size > maxHeader {
			return nil, exitf(ExDataErr, "the header section is larger than %d octets", maxHeader)
		}
		text := string(line)
		switch {
		case n == 0 && (strings.HasPrefix(text, "From ") || strings.HasPrefix(text, ">From ")):
			// The line that a mailbox file has before each message.
		case text == "\r\n":
			return nil, nil
		case (text[0] == ' ' || text[0] == '\t') && len(m.fields) > 0:
			last := &m.fields[len(m.fields)-1]
			*last = append(*last, line...)
		case isField(text):
			m.fields = append(m.fields, line)
		default:
			return line, nil
		}
	}
}

// isField reports whether a line begins a header field (RFC 5322, 2.2, and 4.5 for the space before
// the colon).
func isField(line string) bool {
	name, _, ok := strings.Cut(line, ":")
	name = strings.TrimRight(name, " \t")
	return ok && name != "" && strings.IndexFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

// split gives the name of a field, in lower case, and its value on one line.
func split(field []byte) (name, value string) {
	name, value, _ = strings.Cut(string(field), ":")
	return strings.ToLower(strings.TrimRight(name, " \t")), strings.TrimSpace(strings.ReplaceAll(value, "\r\n", ""))
}

// recipients are the addresses that the message itself says that it is for. One that was sent
// again says so in fields of its own (RFC 5322, 3.6.6).
func (m *message) recipients() []string {
	var first, again []string
	for _, f := range m.fields {
		switch name, value := split(f); name {
		case "to", "cc", "bcc":
			first = append(first, addressSpecs(value)...)
		case "resent-to", "resent-cc", "resent-bcc":
			again = append(again, addressSpecs(value)...)
		}
	}
	if len(again) > 0 {
		return again
	}
	return first
}

// ofAddresses are the fields whose addresses readers and receivers go by, in lower case.
var ofAddresses = map[string]bool{
	"from": true, "sender": true, "reply-to": true, "to": true, "cc": true,
	"resent-from": true, "resent-sender": true, "resent-to": true, "resent-cc": true,
}

// finish makes the header section as it is sent: without Bcc, with From, and with the domain behind
// names that have none.
func (m *message) finish(author, domain string) {
	var b strings.Builder
	from := false
	for _, f := range m.fields {
		name, _ := split(f)
		if name == "bcc" || name == "resent-bcc" {
			continue
		}
		from = from || name == "from"
		if ofAddresses[name] {
			colon := bytes.IndexByte(f, ':') + 1
			b.Write(f[:colon])
			b.WriteString(withDomain(string(f[colon:]), domain))
			continue
		}
		b.Write(f)
	}
	if !from {
		b.WriteString("From: " + author + "\r\n")
	}
	b.WriteString("\r\n")
	m.head = b.String()
}

// utf8 reports whether the header section needs SMTPUTF8 (RFC 6532).
func (m *message) utf8() bool {
	return utf8.ValidString(m.head) && strings.IndexFunc(m.head, func(r rune) bool { return r >= utf8.RuneSelf }) >= 0
}

func (m *message) size() int64 { return int64(len(m.head)) + m.body.size }

// content gives the message from its beginning.
func (m *message) content() (io.Reader, error) {
	body, err := m.body.reader()
	if err != nil {
		return nil, err
	}
	return io.MultiReader(strings.NewReader(m.head), body), nil
}

func (m *message) close() { m.body.close() }

// lineReader gives lines with CRLF ends, whatever ends they had, and in parts when they are
// long.
type lineReader struct {
	r          *bufio.Reader
	ignoreDots bool
	within     bool // the last part did not end its line
	ended      bool
}

// next gives a line or a part of one, good until the call after it. A last line without an end
// gets one.
func (l *lineReader) next() ([]byte, error) {
	if l.ended {
		return nil, io.EOF
	}
	part, err := l.r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		// The CR of a CRLF may be the last octet: it waits for its LF.
		if part[len(part)-1] == '\r' {
			part = part[:len(part)-1]
			if err := l.r.UnreadByte(); err != nil {
				return nil, exitf(ExIOErr, "reading the message: %w", err)
			}
		}
		l.within = true
		return part, nil
	case err == io.EOF:
		l.ended = true
		if len(part) == 0 && !l.within {
			return nil, io.EOF
		}
	case err != nil:
		return nil, exitf(ExIOErr, "reading the message: %w", err)
	}
	line := bytes.TrimSuffix(bytes.TrimSuffix(part, []byte("\n")), []byte("\r"))
	if !l.ignoreDots && !l.within && string(line) == "." {
		l.ended = true
		return nil, io.EOF
	}
	l.within = false
	return append(bytes.Clone(line), '\r', '\n'), nil
}

// whole gives a line of at most limit octets.
func (l *lineReader) whole(limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := l.next()
		if err != nil {
			return nil, err
		}
		line = append(line, part...)
		if !l.within {
			return line, nil
		}
		if len(line) > limit {
			return nil, exitf(ExDataErr, "the header section has a line longer than %d octets", limit)
		}
	}
}

// spool holds a body while it is read: in memory, and when it grows in a file that has no name
// any more and so goes with the program.
type spool struct {
	size   int64
	memory bytes.Buffer
	file   *os.File
}

func (s *spool) write(p []byte) error {
	s.size += int64(len(p))
	if s.file == nil && s.memory.Len()+len(p) <= maxMemory {
		s.memory.Write(p)
		return nil
	}
	if s.file == nil {
		if err := s.spill(); err != nil {
			return exitf(ExOSErr, "keeping the message while it is read: %w", err)
		}
	}
	if s.memory.Len() >= maxMemory {
		if err := s.flush(); err != nil {
			return err
		}
	}
	s.memory.Write(p)
	return nil
}

func (s *spool) spill() error {
	f, err := os.CreateTemp("", "sendmail-")
	if err != nil {
		return err
	}
	s.file = f
	return os.Remove(f.Name())
}

func (s *spool) flush() error {
	if _, err := s.memory.WriteTo(s.file); err != nil {
		return exitf(ExOSErr, "keeping the message while it is read: %w", err)
	}
	return nil
}

// reader gives what was written, from its beginning.
func (s *spool) reader() (io.Reader, error) {
	if s.file == nil {
		return bytes.NewReader(s.memory.Bytes()), nil
	}
	if err := s.flush(); err != nil {
		return nil, err
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return nil, exitf(ExOSErr, "reading the message again: %w", err)
	}
	return s.file, nil
}

func (s *spool) close() {
	if s.file != nil {
		s.file.Close()
	}
}
