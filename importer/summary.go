package importer

import (
	"cmp"
	"slices"
)

// Note is what an operator must know of one directive: the draft has it otherwise, or not at all.
type Note struct {
	File      string `json:"file"`
	Line      int    `json:"line"` // from 1
	Directive string `json:"directive"`
	Reason    string `json:"reason"`
	// Protects: the directive limits or protects something (a rate, an access rule, a suppression).
	Protects bool `json:"protects"`
	// Lost: the draft doesn't have the directive. Otherwise it has it in another form.
	Lost bool `json:"lost"`
}

// Summary counts directives and lists the notes.
type Summary struct {
	Carried  int    `json:"carried"`       // in the draft, without a note
	Noted    int    `json:"carried_noted"` // in the draft, with a note
	Lost     int    `json:"not_carried"`   // not in the draft
	Protects int    `json:"protecting"`    // of those that are not in the draft: they limit or protect something
	Notes    []Note `json:"notes"`         // in the order of the files
}

// Summary gives what became of the directives.
func (d *Draft) Summary() Summary {
	noted, lost, protects := make(map[place]bool), make(map[place]bool), make(map[place]bool)
	for _, n := range d.notes {
		p := place{n.File, n.Line, n.Directive}
		switch {
		case n.Lost && n.Protects:
			protects[p] = true
			fallthrough
		case n.Lost:
			lost[p] = true
		default:
			noted[p] = true
		}
	}
	for p := range lost { // what is lost in part is lost
		delete(noted, p)
	}
	s := Summary{Noted: len(noted), Lost: len(lost), Protects: len(protects), Notes: slices.Clone(d.notes)}
	for p := range d.carried {
		p.text = plain(p.text, maxDirective)
		if !noted[p] && !lost[p] {
			s.Carried++
		}
	}
	first := make(map[string]int) // files stay in the order in which they were read
	for i, n := range s.Notes {
		if _, ok := first[n.File]; !ok {
			first[n.File] = i
		}
	}
	slices.SortStableFunc(s.Notes, func(a, b Note) int {
		return cmp.Or(cmp.Compare(first[a.File], first[b.File]), cmp.Compare(a.Line, b.Line))
	})
	return s
}
