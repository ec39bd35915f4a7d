package bounce

import (
	"strings"
	"sync"
	"sync/atomic"

	"example.org/mta/internal/reply"
)

var common = sync.OnceValue(func() *ruleset {
	rules, err := parseRules(builtin)
	if err != nil {
		panic("rules.txt: " + err.Error()) // it is part of the program, and a test reads it
	}
	return newRuleset(rules)
})

// Of classifies a reply by the built-in rules.
func Of(r reply.Reply) Class {
	if r.OK() {
		return None
	}
	s, text := common(), plain(r.Text)
	if i := s.find(&r, "", text, text); i >= 0 {
		return s.rules[i].Class
	}
	return Uncategorized
}

// Classifier classifies replies by the rules of an operator, then by those that are built in. It may be
// used by several goroutines. The zero value has no rules of an operator; nil neither.
type Classifier struct {
	current atomic.Pointer[classifying] // nil: no rules of an operator
	seen    memory
}

// classifying is the rules of an operator. The memory asks whose answers it keeps.
type classifying struct {
	rules *ruleset
	names []string
}

// Named is a rule of an operator. Its phrases and patterns are looked for in "code status text", as in
// "550 5.1.1 user unknown".
type Named struct {
	Name string
	Rule
}

// SetRules puts other rules of an operator into force. The first that fits decides.
func (c *Classifier) SetRules(named []Named) {
	now := &classifying{}
	rules := make([]Rule, len(named))
	for i, n := range named {
		rules[i] = n.Rule
		now.names = append(now.names, n.Name)
	}
	if len(rules) > 0 {
		now.rules = newRuleset(rules)
	}
	c.current.Store(now)
}

// Of classifies a reply of a provider's host; "" is a provider that has no name.
func (c *Classifier) Of(r *reply.Reply, provider string) Class {
	if r.OK() {
		return None
	}
	if c == nil {
		return Of(*r)
	}
	now := c.current.Load()
	k := key{now, r.Code, r.Enhanced, r.Command, provider, r.Text}
	remember := !r.Local && len(r.Text) <= maxRemembered
	if remember {
		if class, ok := c.seen.get(k); ok {
			return class
		}
	}
	class, _ := now.judge(r, provider)
	if remember {
		k.text = strings.Clone(k.text) // it may be part of a larger buffer
		c.seen.put(k, class)
	}
	return class
}

// Explain is Of, with the name of the operator's rule that decided, "" when none did.
func (c *Classifier) Explain(r *reply.Reply, provider string) (Class, string) {
	if r.OK() {
		return None, ""
	}
	return c.current.Load().judge(r, provider)
}

func (n *classifying) judge(r *reply.Reply, provider string) (class Class, name string) {
	if n == nil || n.rules == nil || r.Local {
		return Of(*r), ""
	}
	text := r.String()
	if i := n.rules.find(r, provider, lower(text), []byte(text[:min(len(text), maxText)])); i >= 0 {
		return n.rules.rules[i].Class, n.names[i]
	}
	return Of(*r), ""
}

const (
	maxRemembered = 1024 // octets of a text; longer ones are rare
	maxSeen       = 2048 // replies in a generation
)

// memory keeps the classes of replies that were seen lately. When a generation is full, the one before is
// forgotten: what is still asked for moves to the new one.
type memory struct {
	mu       sync.Mutex
	now, old map[key]Class // guarded by mu
}

// key is all that the class depends on.
type key struct {
	rules    *classifying
	code     int
	enhanced reply.Enhanced
	command  string
	provider string
	text     string
}

func (m *memory) get(k key) (Class, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, ok := m.now[k]
	if !ok {
		if c, ok = m.old[k]; ok {
			m.keep(k, c)
		}
	}
	return c, ok
}

func (m *memory) put(k key, c Class) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keep(k, c)
}

func (m *memory) keep(k key, c Class) {
	if m.now == nil || len(m.now) >= maxSeen {
		m.now, m.old = make(map[key]Class), m.now
	}
	m.now[k] = c
}

// automaton finds all words of a set in a text in one pass (Aho and Corasick, 1975): its cost is that of
// the text, however many words there are.
type automaton struct {
	column [256]uint8 // of a byte in the table; 0: in no word
	width  int
	next   []int32   // state*width+column: the next state
	found  [][]int32 // state: the numbers of the words that end here
}

// newAutomaton is for words that are not empty. The number of a word is its index.
func newAutomaton(words []string) *automaton {
	a := &automaton{width: 1}
	for _, w := range words {
		for i := range len(w) {
			if a.column[w[i]] == 0 {
				a.column[w[i]] = uint8(a.width) // fewer than 256: words are in lower case
				a.width++
			}
		}
	}
	a.grow()
	for n, w := range words {
		state := int32(0)
		for i := range len(w) {
			at := int(state)*a.width + int(a.column[w[i]])
			if a.next[at] == 0 {
				a.next[at] = a.grow()
			}
			state = a.next[at]
		}
		a.found[state] = append(a.found[state], int32(n))
	}
	a.link()
	return a
}

// grow adds a state.
func (a *automaton) grow() int32 {
	a.next = append(a.next, make([]int32, a.width)...)
	a.found = append(a.found, nil)
	return int32(len(a.found) - 1)
}

// link completes the tree, state by state from its root: where a word ends or goes on otherwise, the
// search continues with the longest end of what was read that begins a word.
func (a *automaton) link() {
	back := make([]int32, len(a.found))
	var queue []int32
	for _, s := range a.next[:a.width] {
		if s != 0 {
			queue = append(queue, s)
		}
	}
	for ; len(queue) > 0; queue = queue[1:] {
		s := queue[0]
		a.found[s] = append(a.found[s], a.found[back[s]]...)
		for c := range a.width {
			at, otherwise := int(s)*a.width+c, a.next[int(back[s])*a.width+c]
			if child := a.next[at]; child != 0 {
				back[child] = otherwise
				queue = append(queue, child)
			} else {
				a.next[at] = otherwise
			}
		}
	}
}

// search calls each with the number of every word that is found, as often as it is.
func (a *automaton) search(text []byte, each func(word int32)) {
	state := int32(0)
	for _, b := range text {
		state = a.next[int(state)*a.width+int(a.column[b])]
		for _, n := range a.found[state] {
			each(n)
		}
	}
}
