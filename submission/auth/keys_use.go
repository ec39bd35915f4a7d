package auth

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/internal/format"
	"example.org/mta/internal/smallfile"
)

// KeyUseFormat is what this program knows of the formats of the file with the last uses of keys.
var KeyUseFormat = format.Store{Name: "last uses of API keys", Reads: useVersion, Writes: useVersion,
	Unstated: useVersion}

// writeUse is how exact the last use of a key is, and how often uses are written: a request in between costs
// a comparison. A kill loses the last of them.
const writeUse = time.Minute

// uses knows when each key was used last, by its id, and keeps that in a file of its own: the relay may have
// no right to write the keys file, and need not to.
type uses struct {
	path string // "": kept in memory only
	log  *slog.Logger

	soon later // writes

	mu sync.Mutex // guards by
	by map[string]*lastUse
}

// lastUse is the time in Unix seconds, 0 for never.
type lastUse struct{ at atomic.Int64 }

// useFile is the file's JSON.
type useFile struct {
	Version int                  `json:"version"`
	Used    map[string]time.Time `json:"used"`
}

const useVersion = 1

// ReadKeyUse gives when keys were used last, by id, as far as the relay has written it. A file that is not there
// is of keys that nobody used.
func ReadKeyUse(path string) (map[string]time.Time, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var f useFile
	if _, err := smallfile.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, errDamaged, err)
	}
	if f.Version != useVersion {
		return nil, fmt.Errorf("%s: its format is version %d, and this mta reads version %d", path,
			f.Version, useVersion)
	}
	return f.Used, nil
}

// errDamaged is a file that is not what was written.
var errDamaged = errors.New("it is damaged")

// openUses begins with what was written. A file that is damaged is set aside. One of another version is left as it is:
// nothing is written over what a newer relay may need.
func openUses(path string, log *slog.Logger) *uses {
	u := &uses{path: path, log: log, by: make(map[string]*lastUse)}
	u.soon.after, u.soon.do, u.soon.closed = writeUse, u.write, path == ""
	if path == "" {
		return u
	}
	used, err := ReadKeyUse(path)
	if errors.Is(err, errDamaged) {
		aside, moved := smallfile.SetAside(path, time.Now())
		log.Error("the last uses of API keys were damaged: they are counted from now on", "kept", aside, "error",
			errors.Join(err, moved))
		err = moved
	}
	if err != nil {
		log.Warn("the last uses of API keys can't be read: they are counted from now on, and not written", "error", err,
			"remedy", "remove the file, and restart the relay")
		u.soon.closed = true
	}
	for id, at := range used {
		u.of(id).at.Store(at.Unix())
	}
	return u
}

// of gives the last use of a key.
func (u *uses) of(id string) *lastUse {
	u.mu.Lock()
	defer u.mu.Unlock()
	l := u.by[id]
	if l == nil {
		l = new(lastUse)
		u.by[id] = l
	}
	return l
}

// keep forgets the keys that are not in force.
func (u *uses) keep(keys []*Key) {
	ids := make(map[string]bool, len(keys))
	for _, k := range keys {
		ids[k.ID()] = true
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.by, func(id string, _ *lastUse) bool { return !ids[id] })
}

// note records that a key was used.
func (u *uses) note(l *lastUse, now time.Time) {
	at, was := now.Unix(), l.at.Load()
	if at-was < int64(writeUse/time.Second) || !l.at.CompareAndSwap(was, at) {
		return
	}
	u.soon.soon()
}

// last gives when a key was used last, the zero time when it never was.
func (u *uses) last(id string) time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	if l := u.by[id]; l != nil {
		if at := l.at.Load(); at != 0 {
			return time.Unix(at, 0).UTC()
		}
	}
	return time.Time{}
}

// write replaces the file.
func (u *uses) write() {
	u.mu.Lock()
	f := useFile{useVersion, make(map[string]time.Time, len(u.by))}
	for id, l := range u.by {
		if at := l.at.Load(); at != 0 {
			f.Used[id] = time.Unix(at, 0).UTC()
		}
	}
	u.mu.Unlock()
	if err := smallfile.WriteObject(u.path, 0o640, f); err != nil {
		u.log.Warn("the last uses of API keys can't be written: they are written again with the next use", "error", err)
	}
}
