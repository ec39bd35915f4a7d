package bounce

import (
	"math/bits"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"example.org/mta/internal/reply"
)

// ruleset is rules made ready: their phrases, and words without which their patterns can't match, are
// looked for in one pass over the text.
type ruleset struct {
	rules  []Rule
	looks  []look // in the order of the rules
	words  *automaton
	means  []int    // of each word: the pattern that is worth trying when the word is in the text
	always []uint64 // bits of the patterns that need no word
}

// look is a rule and what is looked for: its phrases, one of its patterns, or nothing.
type look struct {
	rule    int
	pattern *regexp.Regexp // nil: the word is enough
}

func newRuleset(rules []Rule) *ruleset {
	s := &ruleset{rules: rules}
	var words, phrases []string
	add := func(rule int, p *regexp.Regexp, needed []string) {
		n := len(s.looks)
		s.looks = append(s.looks, look{rule, p})
		if n%64 == 0 {
			s.always = append(s.always, 0)
		}
		if needed == nil {
			s.always[n/64] |= 1 << (n % 64)
		}
		for _, w := range needed {
			words, s.means = append(words, w), append(s.means, n)
		}
	}
	for i := range rules {
		r := &rules[i]
		phrases = nil
		for _, p := range r.Phrases {
			phrases = append(phrases, string(lower(p)))
		}
		if phrases != nil || r.Patterns == nil {
			add(i, nil, phrases)
		}
		for _, p := range r.Patterns {
			add(i, p, Needs(p.String()))
		}
	}
	s.words = newAutomaton(words)
	return s
}

// find gives the index of the first rule that fits, -1 when none does. The words are looked for in low,
// the patterns in text.
func (s *ruleset) find(r *reply.Reply, provider string, low, text []byte) int {
	var small [8]uint64
	worth := append(small[:0], s.always...)
	s.words.search(low, func(w int32) {
		n := s.means[w]
		worth[n/64] |= 1 << (n % 64)
	})
	for at, set := range worth {
		for ; set != 0; set &= set - 1 {
			l := &s.looks[at*64+bits.TrailingZeros64(set)]
			if s.rules[l.rule].fits(r, provider) && (l.pattern == nil || l.pattern.Match(text)) {
				return l.rule
			}
		}
	}
	return -1
}

// Needs gives words in lower case one of which is in every text that a pattern matches; nil when that
// can't be said.
func Needs(pattern string) []string {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil
	}
	return needed(re.Simplify())
}

func needed(re *syntax.Regexp) []string {
	switch re.Op {
	case syntax.OpLiteral:
		if w := lower(string(re.Rune)); len(w) > 1 {
			return []string{string(w)}
		}
	case syntax.OpCapture, syntax.OpPlus:
		return needed(re.Sub[0])
	case syntax.OpAlternate:
		var all []string
		for _, sub := range re.Sub {
			words := needed(sub)
			if words == nil {
				return nil
			}
			all = append(all, words...)
		}
		return all
	case syntax.OpConcat:
		var best []string
		for _, sub := range re.Sub { // the longer the words, the seldomer they are found
			if words := needed(sub); words != nil && (best == nil || shortest(words) > shortest(best)) {
				best = words
			}
		}
		return best
	}
	return nil
}

func shortest(words []string) int {
	return len(slices.MinFunc(words, func(a, b string) int { return len(a) - len(b) }))
}

// maxText bounds what is looked at of a text, in octets.
const maxText = 4096

// lower gives at most maxText octets of a text in lower case. The two letters outside ASCII that
// patterns take for s and k, since case doesn't matter to them, become these.
func lower(s string) []byte {
	s = s[:min(len(s), maxText)]
	low := make([]byte, 0, len(s)+16)
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 0x80:
			s = strings.NewReplacer("ſ", "s", "\u212a", "k").Replace(strings.ToLower(s))
			return []byte(s)
		case c >= 'A' && c <= 'Z':
			c += 'a' - 'A'
		}
		low = append(low, c)
	}
	return low
}

// parts are the characters besides white space between which e-mail addresses stand.
var parts = [256]bool{'<': true, '>': true, '(': true, ')': true, '[': true, ']': true, '"': true, ',': true, ';': true}

// plain gives a text as the built-in rules want it: in lower case, on one line, with single spaces and
// without e-mail addresses.
func plain(text string) []byte {
	low := lower(text)
	out := low[:0]
	word := 0 // where in out the last word begins
	at := false
	end := func() {
		if at {
			out = out[:word]
		}
		at = false
	}
	for _, c := range low {
		switch {
		case c <= ' ' || c == 0x7f:
			end()
			if len(out) > 0 && out[len(out)-1] != ' ' {
				out = append(out, ' ')
			}
			word = len(out)
		case parts[c]:
			end()
			out = append(out, c)
			word = len(out)
		default:
			at = at || c == '@' && len(out) > word
			out = append(out, c)
		}
	}
	end()
	return out
}
