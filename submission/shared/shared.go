// Package shared has the entries of a file that the nodes of a cluster share, such as API keys: each node has the
// newest of each, whichever node's file or command it is from, and those that were removed.
package shared

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/internal/smallfile"
)

// removedFor is how long a removal is known: a node that joins later with an older file brings the entry back.
const removedFor = 90 * 24 * time.Hour

// Sealer encrypts and authenticates what goes through a database: whoever can write that must not be able to make
// keys.
type Sealer interface {
	Seal(at string, plain []byte) []byte
	Open(at string, value []byte) ([]byte, error)
	ID() string // of the key that Seal uses
}

// Config is what a Store works with.
type Config struct {
	Path string // of its file
	// Sealer and Note are those of the cluster. Without them nothing is shared, and what was shared before counts.
	Sealer Sealer
	Note   func(names []string) (done func(), err error) // that are about to change
	Now    func() time.Time
	Log    *slog.Logger
}

// Entries describes the entries of a kind: the lines of a file, each with a name.
type Entries[K comparable, E any] struct {
	Kind    string // in the cluster's database, and what values are authenticated with
	What    string // they are, in messages
	File    string // what has them
	Command string // that changes it, or shows its entries
	// Newest: whoever changed an entry last is right, a folder too. Else a removal is final, and an older file is not.
	Newest bool

	ID    func(e *E) K
	Name  func(id K) string
	Parse func(name string) (K, error)
	Show  func(name string) string // in messages; nil: as it is
	Entry func(id K, known Line) (*E, error)
	Text  func(e *E) string
	End   func(e *E) time.Time // zero: none; nil: none has one
	Sort  func(all, more []*E) // more: those at the end of all that are not in the file
	// Change returns what is known once an entry is e; nil: removed. filed: by its file.
	Change func(was Line, e *E, filed bool) Line
}

// Store has the entries of a file that the nodes of a cluster share, and those that were removed. They count before
// the file, whose changes they take over: so what was removed elsewhere is not valid, whatever the file has, which the
// relay may not be allowed to write. It implements changes.Kind, and is safe for concurrent use; nil has no entries.
type Store[K comparable, E any] struct {
	cfg Config
	of  *Entries[K, E]
	mu  sync.Mutex // guards what follows
	all contents
	// lost: both copies of its file were, and the file of entries has not been read since.
	lost bool
	// inForce is the entries of all; nil: removed.
	inForce atomic.Pointer[map[K]*E]
}

// contents are those of the file, by names.
type contents struct {
	Format int               `json:"format"`
	File   string            `json:"file"`  // of entries, that was read last
	Lines  map[string]string `json:"lines"` // of that
	Known  map[string]Line   `json:"known"`
	Key    string            `json:"key,omitempty"` // that all known was encrypted under, or a newer one
}

// Line is a line of a file of entries, or when it was removed.
type Line struct {
	Line    string    `json:"line,omitempty"`
	Removed time.Time `json:"removed,omitzero"`
	// Dropped is the line that was known when it went from this node's file, and may be put back there: a removal by a
	// command is final. Other nodes don't get it.
	Dropped string `json:"dropped,omitempty"`
	// Past has the sums of a user's hashes that were replaced, the oldest first. The last Same are of the password that
	// the user has.
	Past string `json:"past,omitempty"`
	Same int    `json:"same,omitempty"`
}

func (l Line) same(o Line) bool { return l.Line == o.Line }

const format = 1

// Open reads the file. After a change of the key all that is in it is noted, to be encrypted anew; not at each start,
// since it would override what another node has changed and not sent yet.
func Open[K comparable, E any](cfg Config, of *Entries[K, E]) (*Store[K, E], error) {
	s := &Store[K, E]{cfg: cfg, of: of}
	f := smallfile.Twin[contents]{
		Path: cfg.Path, Name: s.title(), Write: s.write, Now: cfg.Now(), Log: cfg.Log,
		Lost: func() (all contents, then, remedy string) {
			s.lost = true
			return contents{Format: format}, "they are read again from the cluster's database",
				"without a cluster look through the " + of.File + ": " + of.Command + " list"
		},
	}
	all, err := f.Read()
	if err == nil && all.Format > format {
		err = errFormat(all.Format)
	}
	if err == nil {
		err = s.set(all)
	}
	if err == nil && cfg.Sealer != nil && all.Key != cfg.Sealer.ID() {
		all.Key = cfg.Sealer.ID()
		err = s.change(all, slices.Sorted(maps.Keys(all.Known)))
	}
	if err != nil {
		return nil, fmt.Errorf("%s, %s: %w", s.title(), cfg.Path, err)
	}
	return s, nil
}

// Read reads the file of a Store for who only looks: there may be none.
func Read[K comparable, E any](path string, of *Entries[K, E]) (*Store[K, E], error) {
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	s := &Store[K, E]{of: of, cfg: Config{Now: time.Now}}
	var all contents
	if err == nil {
		_, err = smallfile.Unmarshal(text, &all)
	}
	if err == nil && all.Format != format {
		err = errFormat(all.Format)
	}
	if err == nil {
		err = s.set(all)
	}
	if err != nil {
		return nil, fmt.Errorf("%s, %s: %w", s.title(), path, err)
	}
	return s, nil
}

func (s *Store[K, E]) title() string { return "the " + s.of.What + " of the cluster" }

func errFormat(n int) error {
	return fmt.Errorf("it has format %d, and this program knows %d: use the program that wrote it", n, format)
}

func (s *Store[K, E]) write(all contents) error {
	if all.Format != format {
		return errFormat(all.Format)
	}
	if s.cfg.Path == "" { // of After
		return nil
	}
	return smallfile.WriteTwin(s.cfg.Path, 0o600, all)
}

// set brings contents into force. The caller has mu, or nobody else has s.
func (s *Store[K, E]) set(all contents) error {
	entries := make(map[K]*E, len(all.Known))
	for name, known := range all.Known {
		id, e, err := s.again(name, known)
		if err != nil {
			return err
		}
		entries[id] = e
	}
	all.Format = format
	s.all = all
	s.inForce.Store(&entries)
	return nil
}

// again is read for what may be in force.
func (s *Store[K, E]) again(name string, known Line) (id K, e *E, err error) {
	if was, is := s.all.Known[name]; is && was == known {
		if id, err = s.of.Parse(name); err == nil {
			return id, (*s.inForce.Load())[id], nil
		}
	}
	return s.read(name, known)
}

// read returns an entry, nil for one that was removed.
func (s *Store[K, E]) read(name string, known Line) (id K, e *E, err error) {
	if id, err = s.of.Parse(name); err != nil {
		return id, nil, err
	}
	switch {
	case known.Line == "" && !known.Removed.IsZero():
		return id, nil, nil
	case strings.TrimSpace(known.Line) == "":
		return id, nil, errors.New("it is neither there nor removed")
	}
	if e, err = s.of.Entry(id, known); err == nil && (s.of.ID(e) != id || s.of.Text(e) != known.Line) {
		err = errors.New("it is not the line of its key")
	}
	return id, e, err
}

// Empty reports whether nothing is known, as after the file was lost.
func (s *Store[K, E]) Empty() bool { return s.InForce() == nil }

// InForce returns the entries, nil if nothing is known. Other ones have another address.
func (s *Store[K, E]) InForce() *map[K]*E {
	if s == nil {
		return nil
	}
	if now := s.inForce.Load(); len(*now) > 0 {
		return now
	}
	return nil
}

// On reports whether entries are shared at present: then they are changed here, not in their file.
func (s *Store[K, E]) On() bool { return s != nil && s.cfg.Note != nil }

// Changed reports whether entries are changed here: what was shared counts before the file without a cluster, too.
func (s *Store[K, E]) Changed() bool { return s != nil && (s.On() || !s.Empty()) }

// Find returns an entry, nil if it was removed; false if nothing is known of it.
func (s *Store[K, E]) Find(id K) (*E, bool) {
	if s == nil {
		return nil, false
	}
	e, is := (*s.inForce.Load())[id]
	return e, is
}

// Of returns the entry in force, given that of the file; nil when there is none.
func (s *Store[K, E]) Of(id K, file *E) *E {
	if e, is := s.Find(id); is {
		return e
	}
	return file
}

// Over returns the entries in force, given those of the file.
func (s *Store[K, E]) Over(file []*E) (all []*E) {
	if s == nil {
		return file
	}
	now, there := *s.inForce.Load(), make(map[K]bool, len(file))
	for _, e := range file {
		id := s.of.ID(e)
		there[id] = true
		if known, is := now[id]; is {
			e = known
		}
		if e != nil {
			all = append(all, e)
		}
	}
	n := len(all)
	for id, e := range now {
		if e != nil && !there[id] {
			all = append(all, e)
		}
	}
	s.of.Sort(all, all[n:])
	return all
}

// Kind is that of the entries in the cluster's database.
func (s *Store[K, E]) Kind() string { return s.of.Kind }

// known is what is known, to be changed. The caller has mu.
func (s *Store[K, E]) known() map[string]Line {
	next := make(map[string]Line, len(s.all.Known))
	maps.Copy(next, s.all.Known)
	return next
}

// Take takes over what has changed in the file.
func (s *Store[K, E]) Take(path string, entries []*E) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.Changed() {
		return
	}
	lines, was := make(map[string]string, len(entries)), s.all.Lines
	for _, e := range entries {
		lines[s.of.Name(s.of.ID(e))] = s.of.Text(e)
	}
	first := s.all.File != path
	if first {
		was = nil // what another file lacks was not removed
	}
	if s.lost { // what the cluster knows of these lines is not known here yet
		was, s.lost = lines, false
	}
	if len(lines) == 0 && len(s.shown(slices.Collect(maps.Keys(was)))) > 1 {
		remedy := "'" + s.of.Command + " remove' removes them"
		if s.of.Newest {
			remedy = "to remove all, remove all but one first, and reload"
		}
		s.cfg.Log.Error("the "+s.of.File+" has lost all that it had, which stays valid, since the cluster knows it: "+
			remedy, "file", path, "kept", len(was))
		return
	}
	next := s.known()
	var changed, removed, earlier, others []string
	for _, e := range entries {
		name := s.of.Name(s.of.ID(e))
		line := lines[name]
		known, is := next[name]
		switch {
		case was[name] == line || known.Line == line:
		case s.of.Newest && first && is:
		case s.of.Newest:
			next[name], changed = s.of.Change(known, e, true), append(changed, name)
		case known.Line == "" && is && (first || known.Dropped == ""):
			removed = append(removed, name)
		case known.Line != "" && was[name] == "": // the file may be older than what is known
		default:
			k := s.of.Change(known, e, true)
			if k.Line != line {
				earlier = append(earlier, name)
			}
			if !k.same(known) {
				next[name], changed = k, append(changed, name)
			}
		}
	}
	s.warn(removed, " again that were removed, and they are not valid: '"+s.of.Command+" add' makes new ones", path)
	s.warn(earlier, " again as they were before a change, which stays in force", path)
	for name := range was {
		_, is := lines[name]
		switch known := next[name]; {
		case is || known.Line == "":
		case s.of.Newest && known.Line != was[name]: // what goes is not what the cluster has
		default:
			gone := s.removed(known)
			if !s.of.Newest {
				gone.Dropped = known.Line
			}
			next[name], changed = gone, append(changed, name)
		}
	}
	for name, line := range lines {
		if is, there := next[name]; s.of.Newest && there && is.Line != line {
			others = append(others, name)
		}
	}
	s.warn(others, differ, path)
	if len(changed) == 0 && s.all.File == path && maps.Equal(was, lines) {
		return
	}
	s.forget(next, lines)
	all := s.all
	all.File, all.Lines, all.Known = path, lines, next
	if err := s.change(all, changed); err != nil { // it counts here yet, and is tried again after the next change
		s.cfg.Log.Error("a change of the "+s.of.File+" is not known to the cluster", "file", path, "error", err)
		old := s.all
		_ = s.set(all)
		s.all = old
	}
}

const differ = " that are not in force, since the cluster has other versions of them, or has removed them: move the " +
	"files away to keep the cluster's, or change them once more and reload, for all nodes to have these"

// After returns the entries that are in force once Take has taken over a file.
func (s *Store[K, E]) After(path string, entries []*E) []*E {
	if s == nil {
		return entries
	}
	s.mu.Lock()
	try := &Store[K, E]{of: s.of, all: s.all, lost: s.lost,
		cfg: Config{Now: s.cfg.Now, Log: slog.New(slog.DiscardHandler)}}
	try.inForce.Store(s.inForce.Load())
	s.mu.Unlock()
	if s.On() {
		try.cfg.Note = func([]string) (func(), error) { return func() {}, nil }
	}
	try.Take(path, entries)
	return try.Over(entries)
}

// Overtaken has the log name the entries of the file that another node has changed at the same time, or before this one
// joined.
func (s *Store[K, E]) Overtaken(names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.warn(slices.DeleteFunc(names, func(name string) bool {
		line, is := s.all.Lines[name]
		return !s.of.Newest || !is || line == s.all.Known[name].Line
	}), differ, s.all.File)
}

// warn logs which entries of the file do not count.
func (s *Store[K, E]) warn(names []string, why, path string) {
	if len(names) > 0 {
		s.cfg.Log.Warn("the "+s.of.File+" has "+s.of.What+why, "file", path, "entries", s.shown(names))
	}
}

// shown is how messages name entries.
func (s *Store[K, E]) shown(names []string) []string {
	if s.of.Show != nil {
		for i, name := range names {
			names[i] = s.of.Show(name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// forget drops what was removed long ago from what is known, given the lines of the file.
func (s *Store[K, E]) forget(known map[string]Line, lines map[string]string) {
	maps.DeleteFunc(known, func(name string, is Line) bool {
		_, inFile := lines[name]
		return is.Line == "" && s.cfg.Now().Sub(is.Removed) > removedFor && !inFile
	})
}

// removed is what is known of an entry that is removed now.
func (s *Store[K, E]) removed(was Line) Line {
	gone := s.of.Change(was, nil, false)
	gone.Removed = s.cfg.Now().UTC()
	return gone
}

// change notes names, and replaces what is known, on the disk first. The caller has mu.
func (s *Store[K, E]) change(all contents, names []string) error {
	if len(names) > 0 && s.cfg.Note != nil {
		done, err := s.cfg.Note(names)
		if err != nil {
			return err
		}
		defer done()
	}
	all.Format = format
	old := s.all
	if err := s.set(all); err != nil {
		return err
	}
	if err := s.write(all); err != nil {
		return errors.Join(fmt.Errorf("writing down %s: %w", s.title(), err), s.set(old))
	}
	return nil
}

// Update changes the entries in force.
func (s *Store[K, E]) Update(dry bool, change func([]*E) ([]*E, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	entries, err := change(s.Over(nil))
	if err != nil || dry {
		return err
	}
	next := s.known()
	var names []string
	there := make(map[string]bool)
	for _, e := range entries {
		name := s.of.Name(s.of.ID(e))
		there[name] = true
		if s.of.Text(e) != next[name].Line {
			next[name], names = s.of.Change(next[name], e, false), append(names, name)
		}
	}
	s.forget(next, s.all.Lines)
	for name, was := range next {
		if was.Line != "" && !there[name] {
			next[name], names = s.removed(was), append(names, name)
		}
	}
	all := s.all
	all.Known = next
	return s.change(all, names)
}

// ErrNoneRemoved ends a change of a file that has nothing that was removed.
var ErrNoneRemoved = errors.New("there is nothing to be removed")

// DropRemoved has entries that were removed taken out of the file, if it can be written.
func (s *Store[K, E]) DropRemoved(path string, drop func(gone func(*E) bool) error) {
	err := drop(func(e *E) bool {
		now, is := s.Find(s.of.ID(e))
		return is && now == nil
	})
	if err != nil && !errors.Is(err, ErrNoneRemoved) {
		s.cfg.Log.Warn("the "+s.of.File+" has "+s.of.What+" yet that were removed; they are not valid", "file", path,
			"error", err)
	}
}

// All implements changes.Kind.
func (s *Store[K, E]) All(_ context.Context, each func(keys []string) error) error {
	s.mu.Lock()
	names := slices.Sorted(maps.Keys(s.all.Known))
	s.mu.Unlock()
	return each(names)
}

// at is what a value is authenticated with.
func (s *Store[K, E]) at(name string) string { return s.of.Kind + "/" + name }

// Get implements changes.Kind.
func (s *Store[K, E]) Get(_ context.Context, names []string) (map[string][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	values := make(map[string][]byte)
	for _, name := range names {
		if known, is := s.all.Known[name]; is {
			known.Dropped = ""
			text, err := json.Marshal(known)
			if err != nil {
				return nil, err
			}
			values[name] = s.cfg.Sealer.Seal(s.at(name), text)
		}
	}
	return values, nil
}

func (s *Store[K, E]) open(name string, value []byte) (known Line, e *E, err error) {
	text, err := s.cfg.Sealer.Open(s.at(name), value)
	if err == nil {
		err = json.Unmarshal(text, &known)
	}
	if err == nil {
		_, e, err = s.read(name, known)
	}
	return known, e, err
}

// Look implements changes.Kind. A final removal has the higher rank: nobody's older file brings an entry back. What is
// known of an end stays as long, since an older file may have the entry without it.
func (s *Store[K, E]) Look(name string, value []byte) (rank int, until time.Time, err error) {
	known, e, err := s.open(name, value)
	switch {
	case err != nil:
		return 0, until, err
	case e == nil:
		until = known.Removed.Add(removedFor)
		if !s.of.Newest {
			return 2, until, nil
		}
	case s.of.End != nil:
		if end := s.of.End(e); !end.IsZero() {
			until = end.Add(removedFor)
		}
	}
	return 1, until, nil
}

// Apply implements changes.Kind. What the engine has no more is known here yet.
func (s *Store[K, E]) Apply(_ context.Context, values map[string][]byte, stays func(name string) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, changed := s.known(), false
	for name, value := range values {
		if value == nil || stays(name) {
			continue
		}
		known, _, err := s.open(name, value)
		if err != nil {
			return err
		}
		if was, is := next[name]; !is || !was.same(known) {
			next[name], changed = known, true
		}
	}
	if !changed {
		return nil
	}
	s.forget(next, s.all.Lines)
	all := s.all
	all.Known = next
	return s.change(all, nil)
}
