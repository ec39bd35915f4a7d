package bounce

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"example.org/mta/internal/reply"
)

// FuzzOf: whatever a host says, the class is one, and neither the case of letters nor line ends matter.
func FuzzOf(f *testing.F) {
	for _, s := range samples(f) {
		f.Add(s.Code, s.Enhanced[1], s.Enhanced[2], s.Command, s.Text)
	}
	f.Add(550, uint16(1), uint16(1), "RCPT", "\x00\x1b[31m\xff\u202e <a@b>\n<\"@\"@>")
	f.Fuzz(func(t *testing.T, code int, subject, detail uint16, command, text string) {
		r := reply.Reply{Code: code, Enhanced: reply.Enhanced{uint16(max(code, 0) / 100), subject, detail}, Command: command, Text: text}
		got := Of(r)
		if _, err := ParseClass(got.String()); err != nil && got != None {
			t.Fatalf("%d is no class", got)
		}
		if (got == None) != r.OK() {
			t.Fatalf("%v of a reply of %d", got, code)
		}
		var c Classifier
		if again := c.Of(&r, "p"); again != got {
			t.Fatalf("%v by a classifier without rules, %v by the built-in ones", again, got)
		}
		for i := range len(text) {
			if text[i] >= utf8.RuneSelf {
				return // what is longer in the other case may be cut elsewhere
			}
		}
		other := r
		other.Text = strings.ReplaceAll(strings.ToUpper(text), "\n", "\r")
		if again := Of(other); again != got {
			t.Fatalf("%v, and %v in capitals: %q", got, again, text)
		}
	})
}

// FuzzRules holds an operator's patterns and phrases, which are tried only when a word is there that they
// need, against the patterns tried by themselves.
func FuzzRules(f *testing.F) {
	for _, r := range common().rules {
		for _, p := range r.Patterns {
			f.Add(p.String(), "full", "client host 192.0.2.1 is BLOCKED, ofr004_104 (S3140) [TSS04]")
		}
	}
	f.Add(`(?:a|bc){0}x*(de|f)?[gG]h|\bK\b|ſ`, "Straße", "550 5.1.1 Kelvin \u212a ſtrasse GH")
	f.Fuzz(func(t *testing.T, pattern, phrase, text string) {
		if len(pattern) > 200 || len(text) > 1000 || strings.ContainsAny(text, "\n") || !utf8.ValidString(text) {
			return
		}
		p, err := regexp.Compile("(?i)" + pattern)
		if err != nil {
			return
		}
		var c Classifier
		c.SetRules([]Named{{"pattern", Rule{Class: HostFailure, Patterns: []*regexp.Regexp{p}}}, {"phrase", Rule{Class: MailboxBusy, Phrases: []string{phrase}}}})
		r := reply.Reply{Code: 550, Text: text}
		_, name := c.Explain(&r, "")
		line := r.String()
		switch want := p.MatchString(line); {
		case want && name != "pattern":
			t.Fatalf("%q matches %q, and the reply is decided by %q", pattern, line, name)
		case !want && name == "pattern":
			t.Fatalf("%q does not match %q, and decides", pattern, line)
		case !want && phrase != "" && strings.Contains(line, phrase) && name != "phrase":
			t.Fatalf("%q is in %q, and the reply is decided by %q", phrase, line, name)
		}
	})
}

// FuzzParseRules: the form of rules.txt is read without a fault, whatever is in it.
func FuzzParseRules(f *testing.F) {
	for _, line := range strings.Split(builtin, "\n")[:60] {
		f.Add(line)
	}
	f.Add("SpamBlock code 1,2 status x.1.1-2 to A \"b\" `c`\n \"d\"")
	f.Fuzz(func(t *testing.T, text string) {
		if rules, err := parseRules(text); err == nil && len(text) < 500 {
			newRuleset(rules).find(&reply.Reply{Code: 550, Text: "x"}, "", []byte("x"), []byte("x"))
		}
	})
}
