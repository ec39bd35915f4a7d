package reply

import "strings"

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
