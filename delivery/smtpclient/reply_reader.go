package smtpclient

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"example.org/mta/internal/reply"
)

// Bounds on what a host may say. RFC 5321, 4.5.3.1.5, allows a line 512 octets; many hosts write
// more.
const (
	maxLine  = 4 << 10
	maxReply = 32 << 10 // octets of a reply, all lines
	maxText  = 2 << 10  // of which so much is kept
)

var (
	errLineTooLong  = fmt.Errorf("%w: a line of more than %d octets", ErrOutOfStep, maxLine)
	errReplyTooLong = fmt.Errorf("%w: a reply of more than %d octets", ErrOutOfStep, maxReply)
)

// replyReader cuts what a host says into replies. It takes a bounded amount of memory whatever
// is said.
type replyReader struct {
	src  io.Reader
	buf  [maxLine]byte
	from int    // buf[from:to] is read and not parsed
	to   int    //
	raw  []byte // the lines of the reply so far, each with "\n" at its end
}

// rawReply is a reply as it was read. It is good until the next is read.
type rawReply struct {
	code int
	raw  []byte
}

// next reads a reply. An error of src is given as it is; one that wraps ErrOutOfStep is about
// what the host said.
func (r *replyReader) next() (rawReply, error) {
	if cap(r.raw) > maxLine {
		r.raw = nil
	}
	r.raw = r.raw[:0]
	for code := 0; ; {
		line, err := r.line()
		if err != nil {
			return rawReply{}, err
		}
		if len(r.raw)+len(line)+1 > maxReply {
			return rawReply{}, errReplyTooLong
		}
		r.raw = append(append(r.raw, line...), '\n')
		n, last, ok := parseReplyLine(line)
		if !ok || code != 0 && n != code {
			return rawReply{}, fmt.Errorf("%w: %q", ErrOutOfStep, clean(line, 80))
		}
		if code = n; last {
			return rawReply{code: code, raw: r.raw}, nil
		}
	}
}

// line reads to the next LF, which hosts are forgiven for sending without CR, and gives the line
// without its end.
func (r *replyReader) line() ([]byte, error) {
	for searched := r.from; ; {
		if i := bytes.IndexByte(r.buf[searched:r.to], '\n'); i >= 0 {
			line := r.buf[r.from : searched+i]
			r.from = searched + i + 1
			if n := len(line); n > 0 && line[n-1] == '\r' {
				line = line[:n-1]
			}
			return line, nil
		}
		if r.from > 0 {
			r.to = copy(r.buf[:], r.buf[r.from:r.to])
			r.from = 0
		}
		if r.to == len(r.buf) {
			return nil, errLineTooLong
		}
		searched = r.to
		n, err := r.src.Read(r.buf[r.to:])
		r.to += n
		if n == 0 && err != nil {
			return nil, err
		}
	}
}

// discard forgets what is read and not parsed, and says whether there was anything.
func (r *replyReader) discard() bool {
	some := r.to > r.from
	r.from, r.to = 0, 0
	return some
}

// parseReplyLine reads a line of a reply (RFC 5321, 4.2): three digits, then a hyphen when more
// lines come. The code alone is accepted.
func parseReplyLine(line []byte) (code int, last, ok bool) {
	if len(line) < 3 || line[0] < '2' || line[0] > '5' {
		return 0, false, false
	}
	for _, c := range line[:3] {
		if c < '0' || c > '9' {
			return 0, false, false
		}
		code = 10*code + int(c-'0')
	}
	if len(line) == 3 {
		return code, true, true
	}
	return code, line[3] != '-', line[3] == ' ' || line[3] == '-'
}

// positive reports whether r is 2xx.
func (r rawReply) positive() bool { return r.code < 300 }

// aside reports whether a positive reply is not about mail: its second digit says information,
// connection, or AUTH (RFC 5321, 4.2.1; RFC 4954, 6). The rest need not be 250: the first digit
// decides where the code isn't known (RFC 5321, 4.3.2), and hosts say 200 or 251, too.
func (r rawReply) aside() bool {
	second := r.code / 10 % 10
	return second >= 1 && second <= 3
}

// negative reports whether r is 4xx or 5xx.
func (r rawReply) negative() bool { return r.code >= 400 }

// enhanced gives the enhanced code of the first line.
func (r rawReply) enhanced() reply.Enhanced {
	line, _, _ := bytes.Cut(r.raw, []byte{'\n'})
	e, _ := cutEnhanced(line[min(4, len(line)):], r.code/100)
	return e
}

// reply makes the reply that outlives the next one. Control characters and what isn't UTF-8 are
// replaced: the text goes to logs and into reports.
func (r rawReply) reply(command string) reply.Reply {
	enhanced, lines := r.enhanced(), bytes.TrimSuffix(r.raw, []byte{'\n'})
	first, more, long := bytes.Cut(lines, []byte{'\n'})
	text := clean(r.text(first, enhanced), maxText)
	for long && len(text) < maxText {
		var line []byte
		line, more, long = bytes.Cut(more, []byte{'\n'})
		text += "\n" + clean(r.text(line, enhanced), maxText-len(text))
	}
	return reply.Reply{Code: r.code, Enhanced: enhanced, Text: text, Command: command}
}

// text is a line without codes. RFC 2034, 4 has the enhanced code on each; only the first one's is
// kept.
func (r rawReply) text(line []byte, enhanced reply.Enhanced) []byte {
	line = line[min(4, len(line)):]
	if e, rest := cutEnhanced(line, r.code/100); e == enhanced {
		return rest
	}
	return line
}

// clean gives at most n octets of a line as printable UTF-8.
func clean(line []byte, n int) string {
	if len(line) > n {
		line = line[:n]
	}
	line = bytes.TrimSpace(line)
	for _, c := range line {
		if c < ' ' || c >= utf8.RuneSelf-1 {
			return strings.Map(func(r rune) rune {
				if r < ' ' || r >= 0x7f && r < 0xa0 || r == utf8.RuneError {
					return '?'
				}
				return r
			}, string(line))
		}
	}
	return string(line)
}

// cutEnhanced takes an enhanced code (RFC 3463, 2) of the given class off the beginning of s.
// One whose class isn't the reply's is no enhanced code (RFC 2034, 4) and left in place.
func cutEnhanced(s []byte, class int) (e reply.Enhanced, rest []byte) {
	rest = s
	for i := range e {
		n, digits := 0, 0
		for digits < len(rest) && digits < 4 && rest[digits] >= '0' && rest[digits] <= '9' {
			n = 10*n + int(rest[digits]-'0')
			digits++
		}
		if digits == 0 || digits > 3 || i == 0 && (digits > 1 || n != class) {
			return reply.Enhanced{}, s
		}
		e[i], rest = uint16(n), rest[digits:]
		switch {
		case i == 2 && len(rest) == 0:
			return e, rest
		case i == 2 && rest[0] == ' ':
			return e, bytes.TrimLeft(rest, " ")
		case i == 2, len(rest) == 0, rest[0] != '.':
			return reply.Enhanced{}, s
		}
		rest = rest[1:]
	}
	return e, rest
}
