// Package reply has the one type in which an answer travels from the SMTP client to the queue,
// the logs and the reports: code, enhanced code, text, command. Whether a failure is temporary or
// permanent is asked of the reply and never guessed from its text; package bounce says what it is
// about.
package reply

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// Enhanced is an enhanced status code (RFC 3463), as 5.1.1. Zero means none was given.
type Enhanced [3]uint16

// String gives "5.1.1", or "" when there is none.
func (e Enhanced) String() string {
	if e == (Enhanced{}) {
		return ""
	}
	return string(e.append(nil))
}

func (e Enhanced) append(b []byte) []byte {
	for i, n := range e {
		if i > 0 {
			b = append(b, '.')
		}
		b = strconv.AppendUint(b, uint64(n), 10)
	}
	return b
}

// Reply is what a remote host answered, or, when Local is set, what this relay says in place of
// an answer that it never got (a refused connection, a failed look-up, a time-out).
type Reply struct {
	Code     int      // 200 to 599; 0 means no reply
	Enhanced Enhanced // zero when the remote gave none
	Text     string   // without codes; the lines of a long reply are joined by "\n"
	Command  string   // what it answers: connect, greeting, EHLO, STARTTLS, AUTH, MAIL, RCPT, DATA, content, or route
	Local    bool     // made by this relay
}

// Local makes a reply of this relay's own.
func Local(code int, enhanced Enhanced, command, format string, args ...any) Reply {
	return Reply{Code: code, Enhanced: enhanced, Command: command, Text: fmt.Sprintf(format, args...), Local: true}
}

// Parse reads "550 5.1.1 no such user". An enhanced code of another class than the reply's does not count (RFC
// 2034, 4) and part of the text.
func Parse(line string) Reply {
	var r Reply
	if len(line) < 4 {
		return r
	}
	r.Code, _ = strconv.Atoi(line[:3])
	r.Text = line[4:]
	word, rest, _ := strings.Cut(r.Text, " ")
	if e, ok := parseEnhanced(word); ok && int(e[0]) == r.Code/100 {
		r.Enhanced, r.Text = e, rest
	}
	return r
}

func parseEnhanced(s string) (e Enhanced, ok bool) {
	for i := range e {
		part, rest, more := strings.Cut(s, ".")
		n, err := strconv.ParseUint(part, 10, 16)
		if err != nil || more != (i < len(e)-1) {
			return e, false
		}
		e[i], s = uint16(n), rest
	}
	return e, true
}

// OK reports whether the command succeeded.
func (r Reply) OK() bool { return r.Code >= 200 && r.Code < 400 }

// Permanent reports whether trying again is of no use.
func (r Reply) Permanent() bool { return r.Code >= 500 }

// Temporary reports whether it is worth trying again. No reply at all is temporary too.
func (r Reply) Temporary() bool { return !r.OK() && !r.Permanent() }

// Status is the enhanced code, or the one that stands for the class when the remote gave none
// (RFC 3464, 2.3.4 demands one).
func (r Reply) Status() Enhanced {
	if r.Enhanced != (Enhanced{}) {
		return r.Enhanced
	}
	switch {
	case r.OK():
		return Enhanced{2, 0, 0}
	case r.Permanent():
		return Enhanced{5, 0, 0}
	}
	return Enhanced{4, 0, 0}
}

// String gives the reply on one line, as "550 5.1.1 no such user".
func (r Reply) String() string {
	b := make([]byte, 0, 128)
	if r.Code != 0 {
		b = append(strconv.AppendInt(b, int64(r.Code), 10), ' ')
	}
	if r.Enhanced != (Enhanced{}) {
		b = append(r.Enhanced.append(b), ' ')
	}
	b = append(b, strings.ReplaceAll(r.Text, "\n", " / ")...)
	return string(bytes.TrimSpace(b))
}

// Error makes a refusal usable as an error; it names the command.
func (r Reply) Error() string {
	if r.Command == "" {
		return r.String()
	}
	return r.Command + ": " + r.String()
}

// Form is a reply of this relay, with its text for package fmt.
type Form struct {
	Code     int
	Enhanced Enhanced
	Text     string
}

// NewForm makes a row of a table of replies.
func NewForm(code int, enhanced Enhanced, text string) Form { return Form{code, enhanced, text} }

// Reply fills in the text. The command is added where the answer is given.
func (f Form) Reply(args ...any) Reply { return Local(f.Code, f.Enhanced, "", f.Text, args...) }

// Refusal is Reply for those who return nil when there is nothing to refuse.
func (f Form) Refusal(args ...any) *Reply {
	r := f.Reply(args...)
	return &r
}

// maxQuoted bounds what a reply quotes, in octets, so that its line stays within 512 (RFC 5321, 4.5.3.1.5).
const maxQuoted = 200

// Printable makes of a text what may stand in a reply line.
func Printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return ' '
		}
		return r
	}, s)
	return s[:min(len(s), maxQuoted)]
}
