// Package format keeps the stores of a data directory in formats that programs agree on. Each store states its
// format in a small file: "format" in its folder, or the name of its file and ".format".
//
// A program reads a store in its own format and in the one before, and goes on writing the one that the store
// states, until an operator finishes the upgrade: until then the program before can be put back. A format that
// a program does not read is an error, which names the version that does; it is never taken for damage.
package format

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/internal/smallfile"
)

// ErrRefused is wrapped by every error about data in a format that this program does not read.
var ErrRefused = errors.New("the format is not understood")

// Store is what a program knows of the formats of a store. Formats count from 1.
type Store struct {
	Name   string
	Reads  int // the oldest that it reads and writes
	Writes int // the newest
	// Vital is a store that no program may open without its statement: a statement that is damaged is refused. That of
	// another store is set aside, and the newest format stated.
	Vital bool
	// Unstated is the format of a store without a statement: a program from before 0.1.0 wrote it.
	Unstated int
}

// Place is a store where it lies.
type Place struct {
	Store
	Path   string // of its folder, or of its file
	Folder bool
	// OnDisk returns the format of what lies there, 0 if that is not known: for a store without a statement. It may be
	// nil.
	OnDisk func() (int, error)
}

// StatementPath names the file that has a store's statement.
func (p Place) StatementPath() string {
	if p.Folder {
		return filepath.Join(p.Path, FileName)
	}
	return p.Path + "." + FileName
}

// FileName is the name of a folder's statement, and the end of the name of a file's.
const FileName = "format"

// Statement is the format of a store, as its file states it.
type Statement struct {
	Store  string    `json:"store"`
	Format int       `json:"format"`
	By     string    `json:"by"`    // the last version of mta that had it as its newest
	Since  time.Time `json:"since"` // when it was stated first
}

// beforeStatements is By of a store without a statement.
const beforeStatements = "before 0.1.0"

// reader names a version that reads the store.
func (s *Statement) reader() string {
	if s.By == beforeStatements {
		return "0.1.0, which reads it"
	}
	return s.By + ", which wrote it"
}

// statement reads the statement of a store. It is zero if there is no file. summed reports whether it has a sum.
func (p Place) statement() (s Statement, summed bool, err error) {
	text, err := os.ReadFile(p.StatementPath())
	if errors.Is(err, fs.ErrNotExist) {
		return Statement{}, false, nil
	}
	if err != nil {
		return s, false, err
	}
	summed, err = smallfile.Unmarshal(text, &s)
	if err != nil || s.Store != p.Name || s.Format < 1 {
		return s, summed, errDamaged
	}
	return s, summed, nil
}

// errDamaged is a statement that is not valid.
var errDamaged = errors.New("the statement is damaged")

// state makes a statement durable.
func (p Place) state(s Statement) error {
	dir := filepath.Dir(p.StatementPath())
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := errors.Join(os.MkdirAll(dir, 0o750), smallfile.Inherit(dir)); err != nil {
			return err
		}
	}
	return smallfile.WriteObject(p.StatementPath(), 0o640, s)
}

// exists reports whether a store has been written.
func (p Place) exists() (bool, error) {
	if p.Folder {
		entries, err := os.ReadDir(p.Path)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return len(entries) > 0, err
	}
	_, err := os.Stat(p.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// refusedError is an error that is ErrRefused.
type refusedError string

func refusal(format string, args ...any) error { return refusedError(fmt.Sprintf(format, args...)) }

func (r refusedError) Error() string       { return string(r) }
func (r refusedError) Is(other error) bool { return other == ErrRefused }

// check returns why a program does not read a store; nil if it does.
func (p Place) check(s Statement, program string) error {
	switch {
	case s.Format > p.Writes:
		return refusal("the %s in %s has format %d, and this program, mta %s, reads %s: start mta %s, or a later "+
			"version",
			p.Name, p.Path, s.Format, program, p.span(), s.reader())
	case s.Format < p.Reads:
		return refusal("the %s in %s has format %d, and this program, mta %s, reads %s: start mta %s, and upgrade "+
			"version by version with 'mta upgrade finish' after each",
			p.Name, p.Path, s.Format, program, p.span(), s.reader())
	}
	return nil
}

func (p Place) span() string {
	if p.Reads == p.Writes {
		return fmt.Sprintf("format %d", p.Writes)
	}
	return fmt.Sprintf("formats %d to %d", p.Reads, p.Writes)
}

// Set is the stores of a data directory and their formats.
type Set struct {
	program string // this program's version
	stores  []*Use

	mu    sync.Mutex // guards is and stated of all stores, and what follows
	aside []string   // statements that were damaged, by their new names
	later []error    // of statements that the next start writes anew
}

// Use is the format that a store is kept in. It is safe for use by many goroutines.
type Use struct {
	Place
	is      Statement
	stated  bool // is that in the file
	summed  bool // the file has a sum
	damaged bool // the file is
	old     bool // without a statement, and in a format that this program reads but can't write
	number  atomic.Int64
}

// Number is the format to write in. It grows when an upgrade is finished.
func (u *Use) Number() int { return int(u.number.Load()) }

// Inspect reads the statements of stores and changes nothing. The error is ErrRefused if this program, whose version is
// given, must not open one of them.
func Inspect(program string, places ...Place) (*Set, error) {
	s := &Set{program: program}
	var errs []error
	for _, p := range places {
		u := &Use{Place: p}
		s.stores = append(s.stores, u)
		errs = append(errs, u.inspect(program))
	}
	if err := errors.Join(errs...); err != nil {
		return s, err
	}
	if slices.ContainsFunc(s.stores, func(u *Use) bool { return u.old }) { // what has written it reads nothing of ours
		for _, u := range s.stores {
			if u.Number() != 0 && !u.stated {
				u.set(Statement{Store: u.Name, Format: u.Writes, By: program})
			}
		}
	}
	before := s.before()
	for _, u := range s.stores {
		if u.Number() != 0 {
			continue
		}
		if before == "" {
			u.set(Statement{Store: u.Name, Format: u.Writes, By: program})
		} else { // the program before must be able to read what we make
			u.set(Statement{Store: u.Name, Format: u.Reads, By: before})
		}
	}
	return s, nil
}

// inspect finds a store's format; 0 where there is no store.
func (u *Use) inspect(program string) error {
	s, summed, err := u.statement()
	switch {
	case errors.Is(err, errDamaged) && u.Vital:
		return refusal("%s does not state the format of the %s in %s: restore that file from a backup",
			u.StatementPath(), u.Name, u.Path)
	case errors.Is(err, errDamaged):
		u.damaged = true // the store's entries have their versions too
		u.set(Statement{Store: u.Name, Format: u.Writes, By: program})
		return nil
	case err != nil:
		return err
	}
	if u.stated, u.summed = s.Format != 0, summed; !u.stated {
		there, err := u.exists()
		if err != nil || !there {
			return err
		}
		s = Statement{Store: u.Name, Format: u.Unstated, By: beforeStatements}
		if u.OnDisk != nil {
			n, err := u.OnDisk()
			if err != nil {
				return err
			}
			u.old = n != 0 && n < u.Reads
		}
	}
	u.set(s)
	return u.check(s, program)
}

func (u *Use) set(s Statement) {
	u.is = s
	u.number.Store(int64(s.Format))
}

// before is the version that can be put back, "" when every store that there is has the newest format.
func (s *Set) before() string {
	for _, u := range s.stores {
		if n := u.Number(); n != 0 && n < u.Writes {
			return u.is.By
		}
	}
	return ""
}

// Of gives the store of a name, nil where the set has none.
func (s *Set) Of(name string) *Use {
	for _, u := range s.stores {
		if u.Name == name {
			return u
		}
	}
	return nil
}

// State writes down the formats of stores that have no statement yet, and which version has run on those that are in
// its newest format. It must return before a store is opened. A statement that names the right format already may stay
// as it is, on a full disk: see [Set.Later].
func (s *Set) State(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.stores {
		if u.damaged {
			aside := smallfile.AsideName(u.StatementPath(), now)
			// a store must not look as if it had no statement
			if err := os.Link(u.StatementPath(), aside); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
			u.damaged = false
			s.aside = append(s.aside, aside)
		}
		is := u.is
		if is.Format == u.Writes {
			is.By = s.program
		}
		if u.stated && u.summed && is.By == u.is.By {
			continue
		}
		if err := u.become(is, now); err != nil && !u.stated {
			return err
		} else if err != nil {
			s.later = append(s.later, err)
		}
	}
	return nil
}

// become states a format. It is durable before anything is written in it.
func (u *Use) become(is Statement, now time.Time) error {
	if is.Since.IsZero() || is.Format != u.is.Format {
		is.Since = now.UTC().Truncate(time.Second)
	}
	if err := u.state(is); err != nil {
		return fmt.Errorf("stating the format of the %s: %w", u.Name, err)
	}
	u.stated, u.summed = true, true
	u.set(is)
	return nil
}

// Finish has every store written in the newest format from now on, and returns those that were not. The program
// before can't be put back then. With dryRun nothing changes.
func (s *Set) Finish(now time.Time, dryRun bool) (upgraded []Status, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.stores {
		if u.Number() == u.Writes {
			continue
		}
		was := u.status()
		if !dryRun {
			if err := u.become(Statement{Store: u.Name, Format: u.Writes, By: s.program}, now); err != nil {
				return upgraded, err
			}
		}
		upgraded = append(upgraded, was)
	}
	return upgraded, nil
}

// Status is the format of a store.
type Status struct {
	Store  string
	Path   string
	Format int // that it is written in
	Reads  int // the oldest that this program reads
	Writes int // what it writes once the upgrade is finished
	// BackTo is the version that can be put back until then, "" when none can.
	BackTo string
}

func (u *Use) status() Status {
	s := Status{Store: u.Name, Path: u.Path, Format: u.Number(), Reads: u.Reads, Writes: u.Writes}
	if s.Format < s.Writes {
		s.BackTo = u.is.By
	}
	return s
}

// Status describes all stores.
func (s *Set) Status() (all []Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.stores {
		all = append(all, u.status())
	}
	return all
}

// Aside lists the statements that were damaged, and that State has set aside.
func (s *Set) Aside() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.aside
}

// Later lists why State could not write statements anew that name the right format, but lack a sum or this version.
func (s *Set) Later() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.later
}

// Pending lists the names of the stores whose upgrade is yet to be finished.
func (s *Set) Pending() string {
	var names []string
	for _, u := range s.stores {
		if u.Number() < u.Writes {
			names = append(names, u.Name)
		}
	}
	return strings.Join(names, ", ")
}
