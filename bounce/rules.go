package bounce

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"example.org/mta/internal/reply"
)

//go:embed rules.txt
var builtin string

// Rule gives a class to replies. All its conditions must hold.
type Rule struct {
	Class    Class
	Provider string   // whose reply it is; "" is anybody's
	Codes    []int    // one of these; empty is any
	Status   []Status // one of these; empty is any, and none
	Commands []string // what is answered; empty is anything

	Local     bool // said by this relay; the others are for what hosts say
	Permanent bool // only what is for good
	Temporary bool // only what is not

	// One of these must be found in the text, if there are any. Phrases are in lower case.
	Phrases  []string
	Patterns []*regexp.Regexp
}

// Status is a range of enhanced status codes: x.7.606-649 from 0.7.606 to 0.7.649.
type Status struct {
	Class, Subject uint16 // a Class of 0 is any
	From, To       uint16
}

// has reports whether e is in the range.
func (s *Status) has(e reply.Enhanced) bool {
	return e[1] == s.Subject && e[2] >= s.From && e[2] <= s.To && (s.Class == e[0] || s.Class == 0 && e[0] != 0)
}

var statusForm = regexp.MustCompile(`^([x245])\.(\d{1,3})\.(?:(\*)|(\d{1,3})(?:-(\d{1,3}))?)$`)

// ParseStatus reads 5.1.1, x.1.1 (of any class), 5.7.606-649 or x.6.*.
func ParseStatus(s string) (Status, error) {
	m := statusForm.FindStringSubmatch(s)
	if m == nil {
		return Status{}, fmt.Errorf("%q is not a valid status (want 5.1.1, x.1.1, 5.7.606-649 or x.6.*)", s)
	}
	number := func(s string) uint16 { n, _ := strconv.ParseUint(s, 10, 16); return uint16(n) }
	st := Status{Class: number(m[1]), Subject: number(m[2]), From: number(m[4]), To: number(m[4])}
	switch {
	case m[3] != "":
		st.From, st.To = 0, 999
	case m[5] != "":
		st.To = number(m[5])
	}
	if st.To < st.From {
		return Status{}, fmt.Errorf("%q is not a valid status: %d is less than %d", s, st.To, st.From)
	}
	return st, nil
}

// fits reports whether all conditions hold but those on the text.
func (r *Rule) fits(x *reply.Reply, provider string) bool {
	switch {
	case r.Local != x.Local, r.Permanent && !x.Permanent(), r.Temporary && !x.Temporary():
		return false
	case r.Provider != "" && r.Provider != provider:
		return false
	case len(r.Codes) > 0 && !slices.Contains(r.Codes, x.Code):
		return false
	case len(r.Commands) > 0 && !slices.Contains(r.Commands, x.Command):
		return false
	}
	return len(r.Status) == 0 || slices.ContainsFunc(r.Status, func(s Status) bool { return s.has(x.Enhanced) })
}

// session is what is answered when a session is refused as a whole.
var session = []string{"connect", "greeting", "EHLO", "STARTTLS", "AUTH"}

// parseRules reads rules in the form that rules.txt explains.
func parseRules(text string) (rules []Rule, err error) {
	for n, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
			continue
		}
		rest := line
		if line[0] != ' ' {
			name, conditions, _ := strings.Cut(line, " ")
			class, err := ParseClass(name)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", n+1, err)
			}
			rules = append(rules, Rule{Class: class})
			rest = conditions
		}
		if len(rules) == 0 {
			return nil, fmt.Errorf("line %d continues no rule", n+1)
		}
		if err := rules[len(rules)-1].parse(rest); err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
	}
	return rules, nil
}

// parse reads conditions, phrases and patterns.
func (r *Rule) parse(s string) (err error) {
	for s = trim(s); s != "" && err == nil; s = trim(s) {
		if s[0] == '"' || s[0] == '`' {
			text, rest, closed := strings.Cut(s[1:], s[:1])
			if !closed || text == "" {
				return fmt.Errorf("%s is not closed, or empty", s)
			}
			err = r.add(s[0], text)
			s = rest
			continue
		}
		var word, value string
		word, s, _ = strings.Cut(s, " ")
		if slices.Contains([]string{"code", "to", "status"}, word) {
			value, s, _ = strings.Cut(trim(s), " ")
		}
		err = r.condition(word, strings.Split(value, ","))
	}
	return err
}

// trim takes off what parts conditions.
func trim(s string) string { return strings.TrimLeft(s, " ,") }

// add adds a phrase or, in back quotes, a pattern.
func (r *Rule) add(quote byte, text string) error {
	if quote == '"' {
		r.Phrases = append(r.Phrases, text)
		return nil
	}
	p, err := regexp.Compile(text)
	r.Patterns = append(r.Patterns, p)
	return err
}

func (r *Rule) condition(word string, values []string) error {
	switch word {
	case "local":
		r.Local = true
	case "permanent":
		r.Permanent = true
	case "temporary":
		r.Temporary = true
	case "session":
		r.Commands = session
	case "to":
		r.Commands = values
	case "code":
		for _, v := range values {
			n, err := strconv.Atoi(v)
			if err != nil {
				return fmt.Errorf("%q is not a valid code (want a number such as 550)", v)
			}
			r.Codes = append(r.Codes, n)
		}
	case "status":
		for _, v := range values {
			s, err := ParseStatus(v)
			if err != nil {
				return err
			}
			r.Status = append(r.Status, s)
		}
	default:
		return fmt.Errorf("%q is not a valid condition (want local, permanent, temporary, session, to, code or status)",
			word)
	}
	return nil
}
