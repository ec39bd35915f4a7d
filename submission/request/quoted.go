package request

import (
	"io"
	"mime/quotedprintable"
	"strings"
	"sync"
)

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
