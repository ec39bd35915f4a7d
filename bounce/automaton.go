package bounce

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
