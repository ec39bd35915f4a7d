package request

import (
	"encoding/base64"
	"io"
	"maps"
	"mime"
	"mime/quotedprintable"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/emersion/go-message/textproto"
)

// entity is a part of the message (RFC 2045, 2.4): a multipart with parts, or a leaf.
type entity struct {
	multipart string // its subtype, "" for a leaf
	boundary  string
	parts     []*entity

	text       string // of a body, with subtype plain or html
	subtype    string
	attachment *Attachment // not nil for a file
	inline     bool
	encoding   string // Content-Transfer-Encoding (RFC 2045, 6); "" for a multipart
}

// The transfer encodings.
const (
	base64Encoding  = "base64"
	quotedPrintable = "quoted-printable"
	sevenBit        = "7bit"
	eightBit        = "8bit"
)

// tree arranges the content: mixed(related(alternative(text, html), inline...), attachments...), without
// the levels that would have one part.
func (l *Letter) tree() *entity {
	var bodies, related, all []*entity
	if l.Text != "" || l.HTML == "" && len(l.Attachments) == 0 {
		bodies = append(bodies, newBody("plain", l.Text))
	}
	if l.HTML != "" {
		bodies = append(bodies, newBody("html", l.HTML))
	}
	if len(bodies) > 0 {
		related = append(related, join("alternative", bodies))
	}
	for i := range l.Attachments {
		if a := &l.Attachments[i]; a.ContentID != "" && l.HTML != "" {
			related = append(related, newFile(a, true))
		} else {
			all = append(all, newFile(a, false))
		}
	}
	if len(related) > 0 {
		all = slices.Insert(all, 0, join("related", related))
	}
	return join("mixed", all)
}

func join(subtype string, parts []*entity) *entity {
	if len(parts) == 1 {
		return parts[0]
	}
	return &entity{multipart: subtype, parts: parts}
}

// setBoundaries gives each multipart a boundary. No line of base64 or quoted-printable has "=_".
func (e *entity) setBoundaries(prefix string, n *int) {
	if e.multipart == "" {
		return
	}
	*n++
	e.boundary = prefix + "_" + strconv.Itoa(*n)
	for _, p := range e.parts {
		p.setBoundaries(prefix, n)
	}
}

// endsLine reports whether what the entity writes ends in CRLF.
func (e *entity) endsLine() bool {
	switch {
	case e.multipart != "":
		return true
	case e.encoding == base64Encoding:
		return true
	case e.attachment != nil:
		return len(e.attachment.Content) > 0 && e.attachment.Content[len(e.attachment.Content)-1] == '\n'
	}
	return strings.HasSuffix(e.text, "\n") || strings.HasSuffix(e.text, "\r")
}

func newBody(subtype, text string) *entity {
	e := &entity{subtype: subtype, text: text, encoding: quotedPrintable}
	if base64Size(len(text)) < quotedSize(text) {
		e.encoding = base64Encoding
	}
	return e
}

func newFile(a *Attachment, inline bool) *entity {
	e := &entity{attachment: a, inline: inline, encoding: base64Encoding}
	if isMessage(a.Type) {
		e.encoding = identity(a.Content)
	}
	return e
}

// identity is the encoding of an attached message, which may not be base64 (RFC 2046, 5.2.1); "base64" is
// for what is no message by its lines.
func identity(content []byte) string {
	encoding, line := sevenBit, 0
	for i, c := range content {
		switch {
		case c == 0, line > 998, c == '\r' && (i+1 == len(content) || content[i+1] != '\n'):
			return base64Encoding
		case c >= 0x80:
			encoding = eightBit
		}
		if line++; c == '\n' {
			line = 0
		}
	}
	return encoding
}

func base64Size(n int) int { return (n + 2) / 3 * 4 * 78 / 76 }

// quotedSize is about the size of s in quoted-printable.
func quotedSize(s string) int {
	n := len(s)
	for i := range len(s) {
		if c := s[i]; c >= 0x7f || c == '=' || c < ' ' && c != '\n' && c != '\r' && c != '\t' {
			n += 2
		}
	}
	return n + n/75*3
}

// describe adds the fields of the entity to its header (RFC 2045, RFC 2183, RFC 2387).
func (e *entity) describe(h *fields) {
	h.add("Content-Type", e.describeType)
	if e.multipart != "" {
		return
	}
	h.add("Content-Transfer-Encoding", func(f *fields) { f.word(e.encoding) })
	if e.attachment == nil {
		return
	}
	h.add("Content-Disposition", func(f *fields) {
		if e.inline {
			f.word("inline")
		} else {
			f.word("attachment")
		}
		if name := e.attachment.Name; name != "" {
			f.param("filename", name)
		}
	})
	if id := e.attachment.ContentID; id != "" {
		h.add("Content-ID", func(f *fields) { f.word("<" + id + ">") })
	}
}

func (e *entity) describeType(f *fields) {
	switch {
	case e.multipart != "":
		f.word("multipart/" + e.multipart)
		if e.multipart == "related" {
			f.param("type", e.parts[0].mediaType())
		}
		f.param("boundary", e.boundary)
	case e.attachment == nil:
		f.word(e.mediaType())
		f.write("; charset=utf-8")
	default:
		e.describeFile(f)
	}
}

// describeFile writes the type of an attachment, and its name once more: old readers know no Content-Disposition.
func (e *entity) describeFile(f *fields) {
	mediaType, params, err := mime.ParseMediaType(e.mediaType())
	if err != nil || isMessage(mediaType) && e.encoding == base64Encoding {
		mediaType, params = "application/octet-stream", nil
	}
	f.word(mediaType)
	delete(params, "name")
	for _, name := range slices.Sorted(maps.Keys(params)) {
		f.param(name, params[name])
	}
	if name := e.attachment.Name; name != "" {
		f.param("name", name)
	}
}

// mediaType is the type with the caller's parameters.
func (e *entity) mediaType() string {
	switch {
	case e.multipart != "":
		return "multipart/" + e.multipart
	case e.attachment == nil:
		return "text/" + e.subtype
	case e.attachment.Type != "":
		return e.attachment.Type
	}
	if known := mime.TypeByExtension(path.Ext(e.attachment.Name)); known != "" {
		known, _, _ = strings.Cut(known, ";") // the charset would be a guess
		return known
	}
	return "application/octet-stream"
}

func isMessage(mediaType string) bool {
	return len(mediaType) >= 8 && strings.EqualFold(mediaType[:8], "message/")
}

// write writes the content.
func (e *entity) write(w io.Writer) error {
	switch {
	case e.multipart != "":
		return e.writeParts(w)
	case e.encoding == quotedPrintable:
		return writeQuoted(w, e.text)
	case e.attachment == nil:
		return writeBase64(w, []byte(canonical(e.text)))
	case e.encoding == base64Encoding:
		return writeBase64(w, e.attachment.Content)
	default:
		_, err := io.WriteString(w, canonical(string(e.attachment.Content)))
		return err
	}
}

func (e *entity) writeParts(w io.Writer) error {
	parts := textproto.NewMultipartWriter(w)
	if err := parts.SetBoundary(e.boundary); err != nil {
		return err
	}
	for _, p := range e.parts {
		var header fields
		p.describe(&header)
		h, err := header.header()
		if err != nil {
			return err
		}
		pw, err := parts.CreatePart(h)
		if err != nil {
			return err
		}
		if err := p.write(pw); err != nil {
			return err
		}
	}
	return parts.Close()
}

// canonical has each line of s end in CRLF (RFC 2046, 4.1.1).
func canonical(s string) string {
	s = strings.ReplaceAll(s, "\r\n", "\n")
	s = strings.ReplaceAll(s, "\r", "\n")
	return strings.ReplaceAll(s, "\n", "\r\n")
}

// writeBase64 writes b in lines of 76 (RFC 2045, 6.8).
func writeBase64(w io.Writer, b []byte) error {
	const octets, lines = 57, 64
	var out [lines * 78]byte
	for len(b) > 0 {
		n := 0
		for range lines {
			if len(b) == 0 {
				break
			}
			chunk := b[:min(len(b), octets)]
			b = b[len(chunk):]
			base64.StdEncoding.Encode(out[n:], chunk)
			n += base64.StdEncoding.EncodedLen(len(chunk))
			n += copy(out[n:], "\r\n")
		}
		if _, err := w.Write(out[:n]); err != nil {
			return err
		}
	}
	return nil
}

// writeQuoted writes text in quoted-printable (RFC 2045, 6.7). Most lines stand for themselves: they are collected and
// written as they are, which takes a fraction of the encoder's time. The result is the encoder's.
func writeQuoted(w io.Writer, text string) error {
	if strings.Count(text, "\r") > strings.Count(text, "\r\n") {
		text = canonical(text) // the encoder loses a line end after a CR that stands alone
	}
	buffer := plainLines.Get().(*[plainSize]byte)
	defer plainLines.Put(buffer)
	plain := buffer[:0]
	for text != "" {
		if line, rest := cutLine(text); isPlain(line) && len(line) < len(text) {
			plain = append(append(plain, line...), "\r\n"...)
			text = rest
			if len(plain) <= cap(plain)-78 && text != "" {
				continue
			}
		}
		if _, err := w.Write(plain); err != nil {
			return err
		}
		plain = plain[:0]
		n := len(text) - len(fromPlain(text))
		if err := encodeQuoted(w, text[:n]); err != nil {
			return err
		}
		text = text[n:]
	}
	return nil
}

const plainSize = 2 << 10

// plainLines are buffers for use again.
var plainLines = sync.Pool{New: func() any { return new([plainSize]byte) }}

// fromPlain is text from its first plain line on.
func fromPlain(text string) string {
	for text != "" {
		line, rest := cutLine(text)
		if isPlain(line) && len(line) < len(text) {
			return text
		}
		text = rest
	}
	return ""
}

func encodeQuoted(w io.Writer, text string) error {
	if text == "" {
		return nil
	}
	qp := quotedprintable.NewWriter(w)
	if _, err := io.WriteString(qp, text); err != nil {
		return err
	}
	return qp.Close()
}

// cutLine takes the first line off, without its end.
func cutLine(text string) (line, rest string) {
	line, rest, _ = strings.Cut(text, "\n")
	return strings.TrimSuffix(line, "\r"), rest
}

// isPlain reports whether a line is the same in quoted-printable.
func isPlain(line string) bool {
	if len(line) > 75 { // the encoder breaks those of 76
		return false
	}
	for i := range len(line) {
		if c := line[i]; c < ' ' || c > '~' || c == '=' {
			return false
		}
	}
	return line == "" || line[len(line)-1] != ' '
}
