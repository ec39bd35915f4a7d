package datadir

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"example.org/mta/internal/format"
	"example.org/mta/internal/smallfile"
	"example.org/mta/mta/config"
	"example.org/mta/queue"
	"example.org/mta/queue/store"
	"example.org/mta/queue/vfs"
)

// Staged is a backup that was unpacked and checked, beside the place where it belongs.
type Staged struct {
	Manifest
	cfg    *config.Config
	dir    string
	queue  *format.Use
	placed bool // a part of it may be in its place
}

// StageRestore unpacks a backup into the data directory of a configuration, under a name with which no relay starts,
// and checks it. An error that is format.ErrRefused says that this version does not read it. A directory that a relay
// uses, or has used, is refused.
func StageRestore(cfg *config.Config, version string, from io.Reader) (*Staged, error) {
	if err := noRelay(cfg); err != nil {
		return nil, err
	}
	s := &Staged{cfg: cfg, dir: filepath.Join(cfg.DataDir, Restoring)}
	if err := os.MkdirAll(cfg.DataDir, 0o751); err != nil {
		return nil, err
	}
	if left, err := os.ReadDir(cfg.DataDir); err != nil || len(left) > 1 { // a part may be in its place
		if err := errors.Join(err, NotRestoring(cfg)); err != nil {
			return nil, err
		}
	}
	if err := os.RemoveAll(s.dir); err != nil { // of a restore that was interrupted
		return nil, err
	}
	m, err := UnpackBackup(from, s.dir)
	if err == nil {
		s.Manifest = *m
		there := *cfg
		there.DataDir, there.Accounting.Path = s.dir, filepath.Join(s.dir, inLog)
		var set *format.Set
		if set, err = Formats(&there, version); err == nil {
			s.queue = set.Of(store.Format.Name)
			err = s.free()
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.Discard())
	}
	return s, nil
}

// noRelay refuses a data directory that holds the mail of a relay.
func noRelay(cfg *config.Config) error {
	if _, err := os.Stat(Queue(cfg)); err == nil {
		return cmp.Or(idle(cfg), fmt.Errorf("%s has a queue, whose mail would be lost: move the directory away, or "+
			"name another data_dir", cfg.DataDir))
	}
	return nil
}

// idle refuses a data directory with a queue that a relay uses.
func idle(cfg *config.Config) error {
	lock, err := vfs.OS().Lock(filepath.Join(Queue(cfg), store.LockName))
	if errors.Is(err, vfs.ErrLocked) {
		return fmt.Errorf("%s is in use by a relay: stop it first", cfg.DataDir)
	}
	if err != nil {
		return err
	}
	return lock.Close()
}

// free refuses a data directory that has something of what was unpacked, before a part of that is in place.
func (s *Staged) free() error {
	if err := noRelay(s.cfg); err != nil {
		return err
	}
	entries, err := os.ReadDir(s.dir)
	for _, e := range entries {
		if e.Name() == config.Maildrop { // the package makes it; letters have names of their own
			continue
		}
		path := filepath.Join(s.cfg.DataDir, e.Name())
		if _, there := os.Lstat(path); !errors.Is(there, fs.ErrNotExist) {
			return errors.Join(there,
				fmt.Errorf("%s is there already: move %s away, or name another data_dir", path, s.cfg.DataDir))
		}
	}
	return err
}

// Discard removes what was unpacked, unless a part of it may be in its place: without the rest no relay must start.
func (s *Staged) Discard() error {
	if s.placed {
		return nil
	}
	return os.RemoveAll(s.dir)
}

// Letters counts what sendmail had left and the relay had not picked up.
func (s *Staged) Letters() (n int) {
	for _, f := range s.Files {
		if strings.HasPrefix(f.Name, inLetters) {
			n++
		}
	}
	return n
}

// HeldLetters is the folder in the data directory where letters are after a restore with hold: an operator moves them
// to the folder "new" beside it.
const HeldLetters = config.Maildrop + "/held"

// putLetters puts letters into the maildrop, which may be there, or beside those that the relay picks up.
func (s *Staged) putLetters(hold bool) error {
	from := filepath.Join(s.dir, filepath.FromSlash(inLetters))
	letters, err := os.ReadDir(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	to := filepath.Join(s.cfg.DataDir, filepath.FromSlash(inLetters))
	if hold {
		to = filepath.Join(s.cfg.DataDir, filepath.FromSlash(HeldLetters))
	}
	return errors.Join(moveLetters(letters, from, to), os.RemoveAll(filepath.Join(s.dir, config.Maildrop)))
}

// moveLetters moves letters from one folder to another, durably.
func moveLetters(letters []fs.DirEntry, from, to string) error {
	if err := os.MkdirAll(to, 0o700); err != nil { // a start of the relay gives others the rights that they need
		return err
	}
	for _, folder := range []string{filepath.Dir(to), to} {
		if err := smallfile.Inherit(folder); err != nil {
			return err
		}
	}
	for _, l := range letters {
		if err := os.Rename(filepath.Join(from, l.Name()), filepath.Join(to, l.Name())); err != nil {
			return err
		}
	}
	return errors.Join(vfs.OS().SyncDir(to), vfs.OS().SyncDir(filepath.Dir(to)))
}

// Restore puts the backup into its place. With hold, no mail leaves before an operator releases it. After an error
// either nothing is in its place, or no relay starts there.
func (s *Staged) Restore(hold bool) error {
	if err := s.free(); err != nil {
		return err
	}
	if hold && s.Recipients > 0 {
		if _, err := holdAll(filepath.Join(s.dir, inQueue), s.queue, s.cfg); err != nil {
			return fmt.Errorf("holding the mail: %w", err)
		}
	}
	if err := give(s.cfg, s.dir); err != nil {
		return err
	}
	s.placed = true
	if err := s.place(hold); err != nil {
		return fmt.Errorf("%w: a part may be in its place, and no relay starts there: move %s away and restore again",
			err, s.cfg.DataDir)
	}
	s.placed = false
	return errors.Join(s.Discard(), vfs.OS().SyncDir(s.cfg.DataDir))
}

// place moves all files to where they belong, durably.
func (s *Staged) place(hold bool) error {
	if err := s.putLetters(hold); err != nil {
		return err
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.Rename(filepath.Join(s.dir, e.Name()), filepath.Join(s.cfg.DataDir, e.Name())); err != nil {
			return err
		}
	}
	return vfs.OS().SyncDir(s.cfg.DataDir)
}

// give makes the files in a folder those of the relay's user, where root restores: the configuration's, or the owner of
// the data directory.
func give(cfg *config.Config, dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	if cfg.User != "" {
		u, err := user.Lookup(cfg.User)
		if err != nil {
			return err
		}
		uid, err := strconv.Atoi(u.Uid)
		if err != nil {
			return err
		}
		gid, err := strconv.Atoi(u.Gid)
		if err != nil {
			return err
		}
		if err := os.Chown(cfg.DataDir, uid, gid); err != nil {
			return err
		}
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == cfg.DataDir {
			return err
		}
		return smallfile.Inherit(path) // a folder comes before what is in it
	})
}

// holdAll holds all mail of a queue, and returns for how many recipients. It writes the queue in its format, so that
// the program of before still reads it.
func holdAll(dir string, in *format.Use, cfg *config.Config) (held int, err error) {
	q, err := queue.Open(queue.Config{
		Dir: dir, Format: in.Number, SegmentSize: int64(cfg.Queue.SegmentSize), LargeBody: config.LargeBody, MinFree: 1,
	})
	if err != nil {
		return 0, err
	}
	_, err = q.Change(queue.Selector{All: true}, queue.Hold, false)
	held = int(q.Stats().Held)
	return held, errors.Join(err, q.Close())
}

// MayRejoin refuses a data directory that a relay uses, whose mail another node has adopted, or that has no queue.
func MayRejoin(cfg *config.Config) error {
	if err := notAdopted(cfg.DataDir); err != nil {
		return err
	}
	if _, err := os.Stat(Queue(cfg)); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s has no queue: is it mounted? A relay with an empty data directory joins after "+
			"'mta cluster forget'", cfg.DataDir)
	}
	return idle(cfg)
}

// HoldAll holds all mail of a relay that is not running, for so many recipients, and so many letters that sendmail has
// left.
func HoldAll(cfg *config.Config, version string) (held, letters int, err error) {
	set, err := Formats(cfg, version)
	if err == nil {
		held, err = holdAll(Queue(cfg), set.Of(store.Format.Name), cfg)
	}
	if err != nil {
		return 0, 0, err
	}
	from := filepath.Join(cfg.DataDir, filepath.FromSlash(inLetters))
	left, err := os.ReadDir(from)
	if err == nil && len(left) > 0 {
		err = moveLetters(left, from, filepath.Join(cfg.DataDir, filepath.FromSlash(HeldLetters)))
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return held, len(left), err
}

// Give gives all files of a data directory to the relay's user, where root has made them.
func Give(cfg *config.Config) error { return give(cfg, cfg.DataDir) }
