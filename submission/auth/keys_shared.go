package auth

import (
	"cmp"
	"context"
	"encoding/hex"
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

// removedFor is how long a removal is known: a node that joins later with an older keys file brings the key back.
const removedFor = 90 * 24 * time.Hour

// Sealer encrypts and authenticates what goes through a database: whoever can write that must not be able to make keys.
type Sealer interface {
	Seal(at string, plain []byte) []byte
	Open(at string, value []byte) ([]byte, error)
}

// SharedKeysConfig is what a SharedKeys works with.
type SharedKeysConfig struct {
	Path string // of its file
	// Sealer and Note are those of the cluster. Without them nothing is shared, and what was shared before counts.
	Sealer Sealer
	Note   func(keys []string) (done func(), err error) // that are about to change
	Now    func() time.Time
	Log    *slog.Logger
}

// SharedKeys are the API keys that the nodes of a cluster share, with those that were removed. They count before the
// keys file, whose changes they take over: so a key that was removed elsewhere is not valid, whatever the file has,
// which the relay may not be allowed to write. It implements changes.Kind, and is safe for concurrent use; nil has no
// keys.
type SharedKeys struct {
	cfg SharedKeysConfig
	mu  sync.Mutex // guards what follows
	all sharedKeys
	// lost: both copies of the file were, and the keys file has not been read since.
	lost bool
	// inForce is the keys of all; nil: removed.
	inForce atomic.Pointer[map[KeySum]*Key]
}

// sharedKeys are the contents of the file, by sums in hexadecimal digits.
type sharedKeys struct {
	Format int                  `json:"format"`
	File   string               `json:"file"`  // the keys file that was read last
	Lines  map[string]string    `json:"lines"` // of that
	Known  map[string]sharedKey `json:"known"`
}

// sharedKey is a line of a keys file, or when it was removed.
type sharedKey struct {
	Line    string    `json:"line,omitempty"`
	Removed time.Time `json:"removed,omitzero"`
	// Dropped is the line that was known when it went from this node's keys file, and may be put back there: a removal
	// by a command is final. Other nodes don't get it.
	Dropped string `json:"dropped,omitempty"`
}

func (k sharedKey) same(o sharedKey) bool { return k.Line == o.Line }

// endsBefore reports whether the key of a dropped line has an earlier end; zero: none.
func (k sharedKey) endsBefore(end time.Time) bool {
	if strings.TrimSpace(k.Dropped) == "" {
		return false
	}
	old, err := parseKey(k.Dropped)
	return err == nil && !old.Expires.IsZero() && (end.IsZero() || old.Expires.Before(end))
}

const sharedFormat = 1

// OpenSharedKeys reads the file. All that is in it is noted: rows that were lost, or are encrypted under an older key,
// are replaced.
func OpenSharedKeys(cfg SharedKeysConfig) (*SharedKeys, error) {
	s := &SharedKeys{cfg: cfg}
	f := smallfile.Twin[sharedKeys]{
		Path: cfg.Path, Name: "the API keys of the cluster", Write: s.write, Now: cfg.Now(), Log: cfg.Log,
		Lost: func() (all sharedKeys, then, remedy string) {
			s.lost = true
			return sharedKeys{Format: sharedFormat}, "they are read again from the cluster's database",
				"without a cluster look through the keys file: mta key list"
		},
	}
	all, err := f.Read()
	if err == nil && all.Format > sharedFormat {
		err = errSharedFormat(all.Format)
	}
	if err == nil {
		err = s.set(all)
	}
	if err == nil && cfg.Note != nil && len(all.Known) > 0 {
		var done func()
		if done, err = cfg.Note(slices.Sorted(maps.Keys(all.Known))); err == nil {
			done()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the API keys of the cluster, %s: %w", cfg.Path, err)
	}
	return s, nil
}

func errSharedFormat(n int) error {
	return fmt.Errorf("it has format %d, and this program knows %d: use the program that wrote it", n, sharedFormat)
}

func (s *SharedKeys) write(all sharedKeys) error {
	if all.Format != sharedFormat {
		return errSharedFormat(all.Format)
	}
	return smallfile.WriteTwin(s.cfg.Path, 0o600, all)
}

// set brings contents into force. The caller has mu, or nobody else has s.
func (s *SharedKeys) set(all sharedKeys) error {
	keys := make(map[KeySum]*Key, len(all.Known))
	for name, known := range all.Known {
		k, sum, err := parseShared(name, known)
		if err != nil {
			return err
		}
		keys[sum] = k
	}
	all.Format = sharedFormat
	s.all = all
	s.inForce.Store(&keys)
	return nil
}

// parseShared returns a key, nil for one that was removed.
func parseShared(name string, known sharedKey) (k *Key, sum KeySum, err error) {
	text, err := hex.DecodeString(name)
	if err != nil || len(text) != len(sum) {
		return nil, sum, errors.New("want the SHA-256 of a token as its key")
	}
	copy(sum[:], text)
	switch {
	case known.Line == "" && !known.Removed.IsZero():
		return nil, sum, nil
	case strings.TrimSpace(known.Line) == "":
		return nil, sum, errors.New("it is neither a key nor removed")
	}
	if k, err = parseKey(known.Line); err == nil && (k.Sum != sum || k.String() != known.Line) {
		err = errors.New("it is not the API key of its key")
	}
	return k, sum, err
}

// Empty reports whether nothing is known, as after the file was lost.
func (s *SharedKeys) Empty() bool { return len(*s.inForce.Load()) == 0 }

// On reports whether keys are shared at present: then they are changed here, not in the keys file.
func (s *SharedKeys) On() bool { return s != nil && s.cfg.Note != nil }

// changed reports whether keys are changed here: what was shared counts before the file without a cluster, too.
func (s *SharedKeys) changed() bool { return s != nil && (s.On() || !s.Empty()) }

// find returns a key, nil if it was removed; false if nothing is known of it.
func (s *SharedKeys) find(sum KeySum) (*Key, bool) {
	if s == nil {
		return nil, false
	}
	k, is := (*s.inForce.Load())[sum]
	return k, is
}

// Of finds the key in force of a token, given a keys file; nil when there is none.
func (s *SharedKeys) Of(token string, file *KeyTable) *Key {
	if k, is := s.find(KeySumOf(token)); is {
		return k
	}
	return file.Of(token)
}

// Over returns the keys in force, given those of the keys file, the oldest first.
func (s *SharedKeys) Over(file []*Key) (all []*Key) {
	if s == nil {
		return file
	}
	for _, k := range file {
		if _, is := s.find(k.Sum); !is {
			all = append(all, k)
		}
	}
	for _, k := range *s.inForce.Load() {
		if k != nil {
			all = append(all, k)
		}
	}
	slices.SortFunc(all, func(a, b *Key) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID(), b.ID()))
	})
	return all
}

// take takes over what has changed in the keys file.
func (s *SharedKeys) take(path string, keys []*Key) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.changed() {
		return
	}
	lines, ends, was := make(map[string]string, len(keys)), make(map[string]time.Time), s.all.Lines
	for _, k := range keys {
		name := hex.EncodeToString(k.Sum[:])
		lines[name], ends[name] = k.String(), k.Expires
	}
	first := s.all.File != path
	if first {
		was = nil // what another file lacks was not removed
	}
	if s.lost { // what the cluster knows of these lines is not known here yet
		was, s.lost = lines, false
	}
	if len(lines) == 0 && len(was) > 1 {
		s.cfg.Log.Error("the keys file has lost all its keys, and they stay valid, since the cluster knows them: "+
			"'mta key remove' removes them", "file", path, "kept", len(was))
		return
	}
	next := maps.Clone(s.all.Known)
	if next == nil {
		next = make(map[string]sharedKey)
	}
	var changed, removed []string
	for name, line := range lines {
		k := sharedKey{Line: line}
		known, is := next[name]
		switch {
		case was[name] == line || k.same(known):
		case known.Line == "" && is && (first || known.Dropped == ""):
			removed = append(removed, name[:idSize])
		case known.Line != "" && was[name] == "": // the file may be older than what is known
		default:
			if known.endsBefore(ends[name]) {
				k.Line = known.Dropped // the file doesn't have the end that a command has given it
			}
			next[name], changed = k, append(changed, name)
		}
	}
	if len(removed) > 0 {
		slices.Sort(removed)
		s.cfg.Log.Warn("the keys file has API keys again that were removed, and they are not valid: 'mta key add' "+
			"makes others", "file", path, "keys", removed)
	}
	for name := range was {
		if _, is := lines[name]; !is && next[name].Line != "" {
			next[name] = sharedKey{Removed: s.cfg.Now().UTC(), Dropped: next[name].Line}
			changed = append(changed, name)
		}
	}
	if len(changed) == 0 && s.all.File == path && maps.Equal(was, lines) {
		return
	}
	all := sharedKeys{sharedFormat, path, lines, next}
	if err := s.change(all, changed); err != nil { // it counts here yet, and is tried again after the next change
		s.cfg.Log.Error("a change of the keys file is not known to the cluster", "file", path, "error", err)
		all.File, all.Lines = s.all.File, s.all.Lines
		_ = s.set(all)
	}
}

// change notes names, and replaces what is known, on the disk first. The caller has mu.
func (s *SharedKeys) change(all sharedKeys, names []string) error {
	if len(names) > 0 && s.cfg.Note != nil {
		done, err := s.cfg.Note(names)
		if err != nil {
			return err
		}
		defer done()
	}
	all.Format = sharedFormat
	old := s.all
	if err := s.set(all); err != nil {
		return err
	}
	if err := s.write(all); err != nil {
		return errors.Join(fmt.Errorf("writing down the API keys of the cluster: %w", err), s.set(old))
	}
	return nil
}

// update changes the keys in force.
func (s *SharedKeys) update(dry bool, change func(*KeyTable) (*KeyTable, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	table := &KeyTable{shared: true}
	table, err := table.change(nil, s.Over(nil)...)
	if err == nil {
		table, err = change(table)
	}
	if err != nil || dry {
		return err
	}
	next, now := maps.Clone(s.all.Known), s.cfg.Now().UTC()
	if next == nil {
		next = make(map[string]sharedKey)
	}
	var names []string
	there := make(map[string]bool)
	for _, k := range table.keys {
		name := hex.EncodeToString(k.Sum[:])
		there[name] = true
		if is := (sharedKey{Line: k.String()}); !is.same(next[name]) {
			next[name], names = is, append(names, name)
		}
	}
	for name, was := range next {
		_, inFile := s.all.Lines[name]
		switch {
		case was.Line != "" && !there[name]:
			next[name], names = sharedKey{Removed: now}, append(names, name)
		case was.Line == "" && now.Sub(was.Removed) > removedFor && !inFile:
			delete(next, name)
		}
	}
	return s.change(sharedKeys{File: s.all.File, Lines: s.all.Lines, Known: next}, names)
}

// All implements changes.Kind.
func (s *SharedKeys) All(_ context.Context, each func(keys []string) error) error {
	s.mu.Lock()
	names := slices.Sorted(maps.Keys(s.all.Known))
	s.mu.Unlock()
	return each(names)
}

// at is what a value is authenticated with.
func at(name string) string { return "key/" + name }

// Get implements changes.Kind.
func (s *SharedKeys) Get(_ context.Context, names []string) (map[string][]byte, error) {
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
			values[name] = s.cfg.Sealer.Seal(at(name), text)
		}
	}
	return values, nil
}

func (s *SharedKeys) open(name string, value []byte) (known sharedKey, k *Key, err error) {
	text, err := s.cfg.Sealer.Open(at(name), value)
	if err == nil {
		err = json.Unmarshal(text, &known)
	}
	if err == nil {
		k, _, err = parseShared(name, known)
	}
	return known, k, err
}

// Look implements changes.Kind. A removal has the higher rank: nobody's older file brings a key back. What is known of
// an end stays as long, since an older file may have the key without it.
func (s *SharedKeys) Look(name string, value []byte) (rank int, until time.Time, err error) {
	known, k, err := s.open(name, value)
	switch {
	case err != nil:
		return 0, until, err
	case k == nil:
		return 2, known.Removed.Add(removedFor), nil
	case !k.Expires.IsZero():
		until = k.Expires.Add(removedFor)
	}
	return 1, until, nil
}

// Apply implements changes.Kind. What the engine has no more is known here yet.
func (s *SharedKeys) Apply(_ context.Context, values map[string][]byte, stays func(name string) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, changed := maps.Clone(s.all.Known), false
	if next == nil {
		next = make(map[string]sharedKey)
	}
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
	return s.change(sharedKeys{File: s.all.File, Lines: s.all.Lines, Known: next}, nil)
}

// ReadSharedKeys reads the file of SharedKeys for who only looks: there may be none.
func ReadSharedKeys(path string) (*SharedKeys, error) {
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	s := new(SharedKeys)
	var all sharedKeys
	if err == nil {
		_, err = smallfile.Unmarshal(text, &all)
	}
	if err == nil && all.Format != sharedFormat {
		err = errSharedFormat(all.Format)
	}
	if err == nil {
		err = s.set(all)
	}
	if err != nil {
		return nil, fmt.Errorf("the API keys of the cluster, %s: %w", path, err)
	}
	return s, nil
}
