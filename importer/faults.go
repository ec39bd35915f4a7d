package importer

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// Fault is an error in the configuration that is imported.
type Fault struct {
	File string
	Line int    // from 1; 0 for a file as a whole
	What string // what is wrong, and the remedy
}

// Error gives "FILE:LINE: what is wrong".
func (f *Fault) Error() string {
	if f.Line == 0 {
		return fmt.Sprintf("%s: %s", f.File, f.What)
	}
	return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.What)
}

// Unreadable gives the text of a fault for a file that can't be read.
func Unreadable(err error) string {
	at := (*fs.PathError)(nil)
	switch {
	case !errors.As(err, &at):
		return fmt.Sprintf("%v: copy the file there, or correct its name", err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("%s is closed to this user: run the command as one who may read it", at.Path)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("%s does not exist: copy the file there, or correct its name", at.Path)
	}
	return fmt.Sprintf("%s: %v: copy the file there, or correct its name", at.Path, at.Err)
}

// Bounds of what is kept of the faults.
const (
	mostFaults   = 50   // that are listed
	keptFaults   = 1000 // of which the first in the order of the files are listed
	longestFault = 1000 // octets of a fault's text
)

// Faults gathers the faults of one import. The zero value has none.
type Faults struct {
	kept  []*Fault
	seen  map[Fault]bool // those in kept
	order map[string]int // of the files
	full  bool           // faults were left out
}

// Reads notes that a file is read now: faults are listed in the order in which their files are.
func (fs *Faults) Reads(file string) {
	if fs.order == nil {
		fs.order = make(map[string]int)
	}
	if _, again := fs.order[file]; !again {
		fs.order[file] = len(fs.order)
	}
}

// Add adds a fault, unless it is there already.
func (fs *Faults) Add(f *Fault) {
	one := Fault{f.File, f.Line, plain(f.What, longestFault)}
	if fs.seen[one] {
		return
	}
	if len(fs.kept) == keptFaults {
		fs.full = true
		return
	}
	if fs.seen == nil {
		fs.seen = make(map[Fault]bool)
	}
	fs.seen[one] = true
	fs.kept = append(fs.kept, &one)
}

// Err gives the faults as a *FaultList; nil if there are none.
func (fs *Faults) Err() error {
	if len(fs.kept) == 0 {
		return nil
	}
	place := func(f *Fault) int {
		if n, ok := fs.order[f.File]; ok {
			return n
		}
		return len(fs.order)
	}
	all := slices.SortedStableFunc(slices.Values(fs.kept), func(a, b *Fault) int {
		return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a.Line, b.Line))
	})
	n := min(len(all), mostFaults)
	return &FaultList{First: all[:n:n], More: len(all) - n, AtLeast: fs.full}
}

// FaultList is all that is wrong with a configuration.
type FaultList struct {
	First   []*Fault // in the order of the files
	More    int      // how many are not in First
	AtLeast bool     // there are even more
}

// Error gives each fault on a line.
func (l *FaultList) Error() string {
	lines := make([]string, 0, len(l.First)+1)
	for _, f := range l.First {
		lines = append(lines, f.Error())
	}
	switch {
	case l.AtLeast:
		lines = append(lines, fmt.Sprintf("and more than %d more faults", l.More))
	case l.More == 1:
		lines = append(lines, "and 1 more fault")
	case l.More > 1:
		lines = append(lines, fmt.Sprintf("and %d more faults", l.More))
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives the faults in First.
func (l *FaultList) Unwrap() []error {
	all := make([]error, len(l.First))
	for i, f := range l.First {
		all[i] = f
	}
	return all
}
