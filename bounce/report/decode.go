package report

import (
	"bytes"
	"encoding/binary"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/htmlindex"
)

// Content returns the body without its transfer encoding. Junk within is skipped, or kept where it is text.
func (p *Part) Content() []byte {
	encoding := strings.ToLower(p.Get("Content-Transfer-Encoding"))
	if i := strings.IndexAny(encoding, " ;"); i >= 0 {
		encoding = encoding[:i]
	}
	switch encoding {
	case "base64":
		return fromBase64(p.Body)
	case "quoted-printable":
		return fromQuotedPrintable(p.Body)
	}
	return p.Body
}

// Text returns the body as UTF-8 with lines that end with "\n", without transfer encoding and NUL. What its
// charset does not have becomes U+FFFD; a charset that is unknown is taken for Windows-1252.
func (p *Part) Text() string {
	charset := ""
	if strings.HasPrefix(p.Type, "text/") || strings.HasPrefix(p.Type, "message/") {
		charset = p.Param("Content-Type", "charset")
	}
	text := toUTF8(plain(p.Content()), charset)
	if strings.IndexByte(text, 0) >= 0 {
		text = strings.ReplaceAll(text, "\x00", "")
	}
	if strings.IndexByte(text, '\r') < 0 {
		return text
	}
	if strings.IndexByte(text, '\n') < 0 {
		return strings.ReplaceAll(text, "\r", "\n")
	}
	return strings.ReplaceAll(text, "\r", "")
}

// plain makes of a text in UTF-16 one in UTF-8, of lines that end with a bare CR such that end with LF, and
// leaves out NUL.
func plain(b []byte) []byte {
	if order := utf16Order(b); order != nil {
		b = fromUTF16(b, order)
	}
	if bytes.IndexByte(b, 0) >= 0 {
		b = bytes.ReplaceAll(b, []byte{0}, nil)
	}
	if bytes.IndexByte(b, '\r') >= 0 && bytes.IndexByte(b, '\n') < 0 {
		b = bytes.ReplaceAll(b, []byte("\r"), []byte("\n"))
	}
	return bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))
}

// utf16Order recognizes UTF-16 by its mark, or by a NUL in every other octet of the beginning.
func utf16Order(b []byte) binary.ByteOrder {
	if len(b) < 4 {
		return nil
	}
	switch {
	case b[0] == 0xff && b[1] == 0xfe:
		return binary.LittleEndian
	case b[0] == 0xfe && b[1] == 0xff:
		return binary.BigEndian
	}
	even, odd, n := 0, 0, min(len(b), 64)&^1
	for i := 0; i < n; i += 2 {
		if b[i] == 0 {
			even++
		}
		if b[i+1] == 0 {
			odd++
		}
	}
	switch {
	case odd*10 >= n/2*9 && even == 0:
		return binary.LittleEndian
	case even*10 >= n/2*9 && odd == 0:
		return binary.BigEndian
	}
	return nil
}

func fromUTF16(b []byte, order binary.ByteOrder) []byte {
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = order.Uint16(b[2*i:])
	}
	return bytes.TrimPrefix([]byte(string(utf16.Decode(units))), []byte("\ufeff"))
}

// toUTF8 decodes text from a charset.
func toUTF8(b []byte, charset string) string {
	switch strings.ToLower(charset) {
	case "", "us-ascii", "utf-8", "ascii", "utf8":
		if utf8.Valid(b) {
			return string(b)
		}
	default:
		if e, err := htmlindex.Get(charset); err == nil {
			if decoded, err := e.NewDecoder().Bytes(b); err == nil {
				return strings.ToValidUTF8(string(decoded), "\ufffd")
			}
		}
		if utf8.Valid(b) {
			return string(b)
		}
	}
	decoded, err := charmap.Windows1252.NewDecoder().Bytes(b)
	if err != nil {
		return strings.ToValidUTF8(string(b), "\ufffd")
	}
	return string(decoded)
}

// fromBase64 decodes what has the alphabet; padding within begins anew. A body that is mostly something else
// has been declared wrongly and stays as it is.
func fromBase64(b []byte) []byte {
	out, junk := make([]byte, 0, len(b)/4*3+3), 0
	bits, n := uint32(0), 0
	for _, c := range b {
		d := base64Digit(c)
		switch {
		case d >= 0:
			bits, n = bits<<6|uint32(d), n+6
			if n >= 8 {
				n -= 8
				out = append(out, byte(bits>>n))
			}
		case c == '=':
			n = 0
		case c != '\r' && c != '\n':
			junk++
		}
	}
	if junk*4 > len(out) {
		return b
	}
	return out
}

func base64Digit(c byte) int {
	switch {
	case 'A' <= c && c <= 'Z':
		return int(c - 'A')
	case 'a' <= c && c <= 'z':
		return int(c-'a') + 26
	case '0' <= c && c <= '9':
		return int(c-'0') + 52
	case c == '+':
		return 62
	case c == '/':
		return 63
	}
	return -1
}

// fromQuotedPrintable decodes what is encoded and keeps every other "=".
func fromQuotedPrintable(b []byte) []byte {
	if bytes.IndexByte(b, '=') < 0 {
		return b
	}
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		if b[i] != '=' {
			out = append(out, b[i])
			continue
		}
		if i+2 < len(b) {
			if high, low := hexDigit(b[i+1]), hexDigit(b[i+2]); high >= 0 && low >= 0 {
				out = append(out, byte(high<<4|low))
				i += 2
				continue
			}
		}
		line := nextLine(b[i+1:])
		if len(bytes.TrimRight(line, " \t\r\n")) == 0 { // a soft line break, or the end
			i += len(line)
			continue
		}
		out = append(out, '=')
	}
	return out
}

func hexDigit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	}
	return -1
}
