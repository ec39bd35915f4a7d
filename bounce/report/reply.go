package report

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"example.org/mta/internal/reply"
)

// findEnhanced finds the first enhanced status code of a text: 4.2.2, #5.1.1, (5.7.1). It returns what follows
// the code, too.
func findEnhanced(text string) (reply.Enhanced, string) {
	for i := 0; i+4 < len(text); i++ {
		if text[i+1] != '.' || i > 0 && (isWord(text[i-1]) || text[i-1] == '.' || text[i-1] == '-') {
			continue
		}
		if e, n := enhancedAt(text[i:]); n > 0 {
			return e, text[i+n:]
		}
	}
	return reply.Enhanced{}, text
}

// enhancedAt reads the enhanced code that s begins with, and returns its length; 0 when there is none.
func enhancedAt(s string) (e reply.Enhanced, n int) {
	for part := range e {
		digits := 0
		for n < len(s) && isDigit(s[n]) && digits < 4 {
			e[part] = e[part]*10 + uint16(s[n]-'0')
			n++
			digits++
		}
		if digits == 0 || part == 0 && digits > 1 {
			return reply.Enhanced{}, 0
		}
		if part == 2 {
			break
		}
		if n >= len(s) || s[n] != '.' {
			return reply.Enhanced{}, 0
		}
		n++
	}
	if e[0] != 2 && e[0] != 4 && e[0] != 5 {
		return reply.Enhanced{}, 0
	}
	if n < len(s) && isWord(s[n]) || n+1 < len(s) && s[n] == '.' && isDigit(s[n+1]) {
		return reply.Enhanced{}, 0 // an address of the network, a version
	}
	return e, n
}

func isDigit(c byte) bool  { return '0' <= c && c <= '9' }
func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// findReply finds the first reply of a host in a text: "550 5.1.1 no such user", "550-5.1.1 ...", "#5.1.1".
// The text of the reply begins at its code.
func findReply(text string) (r reply.Reply, ok bool) {
	for i := 0; i+3 <= len(text); i++ {
		c := text[i]
		if c != '4' && c != '5' || !isDigit(text[i+1]) || !isDigit(text[i+2]) || text[i+1] > '7' {
			continue
		}
		if i > 0 && !replyMayFollow(text[i-1]) || i+3 < len(text) && strings.IndexByte(" -:,;)]#\n\t.", text[i+3]) < 0 {
			continue
		}
		if i+4 < len(text) && text[i+3] == '.' && isDigit(text[i+4]) {
			continue
		}
		if !looksLikeReply(text[:i], text[i+3:]) {
			continue
		}
		r.Code = int(c-'0')*100 + int(text[i+1]-'0')*10 + int(text[i+2]-'0')
		rest := strings.TrimLeft(text[i+3:], " -:,;)]\t#(")
		if e, n := enhancedAt(rest); n > 0 && int(e[0]) == r.Code/100 {
			r.Enhanced, rest = e, strings.TrimLeft(rest[n:], " -:;)]\t")
		}
		r.Text = rest
		break
	}
	if r.Code == 0 {
		e, rest := findEnhanced(text)
		if e == (reply.Enhanced{}) || e[0] == 2 {
			return reply.Reply{}, false
		}
		r.Enhanced, r.Text = e, rest
	}
	return r, true
}

func replyMayFollow(c byte) bool { return strings.IndexByte(" \t\n:;(\"'#<>[=,", c) >= 0 }

// looksLikeReply keeps numbers out that are not codes of replies: sizes, ports, counts of lines or of days.
func looksLikeReply(before, after string) bool {
	before = strings.TrimRight(before, " \t:;#(\"'=[<>,")
	word := strings.ToLower(before[strings.LastIndexAny(before, " \t\n(:=")+1:])
	switch word {
	case "line", "lines", "port", "id", "size", "of", "after", "than", "within", "for", "in", "version", "v",
		"box", "phone", "tel", "fax", "+1", "about", "ext", "over", "messages", "by":
		return false
	}
	after = strings.TrimLeft(after, " -:,;)]\t#(")
	if after == "" {
		return true
	}
	next := strings.ToLower(after)
	return !slices.ContainsFunc([]string{
		"bytes", "kb", "mb", "octets", "days", "hours", "minutes", "seconds", "lines", "times", "recipients",
		"messages", "million", "percent", "%", "k ",
	}, func(unit string) bool {
		return strings.HasPrefix(next, unit)
	})
}

// maxDiagnostic bounds a diagnostic, in octets.
const maxDiagnostic = 1024

// clean makes one printable line of a text, so that it breaks no log line, terminal or reader of JSON.
func clean(text string) string {
	if len(text) > 4*maxDiagnostic {
		text = strings.ToValidUTF8(text[:4*maxDiagnostic], "")
	}
	var b strings.Builder
	b.Grow(min(len(text), maxDiagnostic))
	space := false
	for _, r := range text {
		if !unicode.IsPrint(r) || r == ' ' {
			space = true
			continue
		}
		if r == utf8.RuneError {
			r = '?'
		}
		if space && b.Len() > 0 {
			b.WriteByte(' ')
		}
		space = false
		if b.Len()+utf8.RuneLen(r) > maxDiagnostic {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}

// finish reads the diagnostic of a report and classifies it. Status and Action are set before where the
// report has them.
func (r *reader) finish(p *Report, diagnostic string) {
	p.Diagnostic = clean(diagnostic)
	answer, found := findReply(p.Diagnostic)
	if p.Action.success() {
		answer = reply.Parse(p.Diagnostic)
		found = answer.OK()
	}
	if found {
		p.Reply = answer
		p.Reply.Text = joinLines(answer)
		p.Reply.Command = commandOf(p.Diagnostic)
	} else {
		p.Reply.Text = p.Diagnostic
	}
	if e := p.Reply.Enhanced; e != (reply.Enhanced{}) &&
		(p.Status == (reply.Enhanced{}) || p.Status[0] == e[0] && p.Status[1] == 0) {
		p.Status = e
	}
	if p.Status == (reply.Enhanced{}) && p.Reply.Code != 0 {
		p.Status = p.Reply.Status()
	}
	p.Recipient, p.Final = clean(p.Recipient), clean(p.Final)
	if sameAddress(p.Final, p.Recipient) {
		p.Final = ""
	}
	r.classify(p)
}

// classify returns a report its class, and says whether it is hard.
func (r *reader) classify(p *Report) {
	answer := p.Reply
	answer.Enhanced = p.Status
	if answer.Code == 0 || int(p.Status[0]) != answer.Code/100 && p.Status[0] != 0 {
		answer.Code = codeFor(p)
	}
	if int(answer.Enhanced[0]) != answer.Code/100 {
		answer.Enhanced = reply.Enhanced{}
	}
	p.Class = r.o.Classify(&answer, domainOf(p.Recipient))
	p.Hard = p.Action == ActionFailed && answer.Permanent() && p.Class.Hard()
}

// codeFor returns the code of a reply that stands for a status or an action without one.
func codeFor(p *Report) int {
	switch {
	case p.Status[0] == 2, p.Status[0] == 0 && p.Action.success():
		return 250
	case p.Status[0] == 4, p.Status[0] == 0 && p.Action == ActionDelayed:
		return 450
	}
	return 550
}

// joinLines takes out the codes that stand before each line of a long reply: "550-5.1.1 a 550 5.1.1 b".
func joinLines(r reply.Reply) string {
	text := r.Text
	if r.Code == 0 {
		return strings.TrimSpace(text)
	}
	code := []byte{byte('0' + r.Code/100), byte('0' + r.Code/10%10), byte('0' + r.Code%10)}
	for _, sep := range []string{"-", " "} {
		prefix := " " + string(code) + sep
		if e := r.Enhanced.String(); e != "" {
			text = strings.ReplaceAll(text, prefix+e, "")
		}
		if sep == "-" {
			text = strings.ReplaceAll(text, prefix, " ")
		}
	}
	return strings.TrimSpace(text)
}

// refusedCommands are in the words of Postfix and of Exim.
var refusedCommands = []struct{ phrase, command string }{
	{"reply to rcpt to", "RCPT"}, {"reply to mail from", "MAIL"}, {"reply to end of data", "content"},
	{"reply to data", "DATA"}, {"reply to ehlo", "EHLO"}, {"reply to helo", "EHLO"},
	{"after rcpt to", "RCPT"}, {"after mail from", "MAIL"}, {"after end of data", "content"}, {"after data", "DATA"},
	{"after pipelined mail from", "MAIL"}, {"after pipelined data", "DATA"},
	{"after pipelined end of data", "content"}, {"after initial connection", "connect"},
}

// commandOf returns the command that was refused, where the report says so.
func commandOf(text string) string {
	lower := strings.ToLower(text)
	for _, m := range refusedCommands {
		if strings.Contains(lower, m.phrase) {
			return m.command
		}
	}
	return ""
}
