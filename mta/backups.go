package mta

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	archive "example.org/mta/mta/backup"
	"example.org/mta/mta/config"
	"example.org/mta/mta/control"
	"example.org/mta/queue"
	"example.org/mta/queue/vfs"
)

// Where things are in a backup.
const (
	backupQueue  = "queue/"
	backupLog    = "log/"    // the accounting log
	backupConfig = "config/" // the configuration and the keys outside of the data directory, by their paths
)

// secretFiles are the secrets in the data directory.
var secretFiles = []string{"idempotency.key", "queue-token.key", "unsubscribe-secret", "return-path-secret", "login-secret"}

// Backup implements control.Backups: the queue at one instant, and the other stores right after it.
func (r *Relay) Backup(_ context.Context, w io.Writer, o control.BackupOptions) error {
	cfg := r.policy.Load().Config
	snapshot, err := r.queue.Snapshot()
	if err != nil {
		return err
	}
	defer snapshot.Close()
	m := archive.Manifest{
		Version: r.opts.Version, Hostname: cfg.Hostname, NodeID: cfg.NodeID, At: snapshot.At,
		Messages: snapshot.Messages, Recipients: snapshot.Recipients, Secrets: o.Secrets, Log: o.Log,
	}
	parts := append(r.statements(cfg, o.Log), r.databases()...)
	for _, f := range snapshot.Files {
		parts = append(parts, archive.Part{Name: backupQueue + f.Name, Mode: 0o600, Open: func() (io.ReadCloser, int64, error) {
			from, err := snapshot.Open(f)
			return from, f.Size, err
		}})
	}
	for _, name := range []string{"history", "pauses.json", "keys-used.json"} {
		parts = append(parts, archive.File(name, filepath.Join(cfg.DataDir, name)))
	}
	folders := map[string]string{config.AuditLog: filepath.Join(cfg.DataDir, config.AuditLog), "inbound": filepath.Join(cfg.DataDir, "inbound")}
	if o.Log && cfg.Accounting.Enabled {
		folders["log"] = cfg.Accounting.Path
	}
	for name, path := range folders {
		some, err := filesOf(name, path)
		if err != nil {
			return err
		}
		parts = append(parts, some...)
	}
	if o.Secrets {
		parts = append(parts, r.secrets(cfg)...)
	}
	return archive.Write(w, m, archive.Sorted(parts))
}

// statements are the formats of the stores.
func (r *Relay) statements(cfg *config.Config, log bool) (parts []archive.Part) {
	for _, p := range r.opts.places(cfg) {
		name, err := filepath.Rel(cfg.DataDir, p.StatementPath())
		if cfg.Accounting.Enabled && p.Path == cfg.Accounting.Path {
			if name = backupLog + filepath.Base(p.StatementPath()); !log {
				continue
			}
		}
		if err == nil && !(p.Folder && p.Name != queue.Format.Name) { // the other folders have theirs among their files
			parts = append(parts, archive.File(filepath.ToSlash(name), p.StatementPath()))
		}
	}
	return parts
}

// databases are the bbolt files, each as one transaction sees it.
func (r *Relay) databases() (parts []archive.Part) {
	type copied interface {
		Backup() (io.ReadCloser, int64, error)
	}
	add := func(name string, c copied) {
		parts = append(parts, archive.Part{Name: name, Mode: 0o600, Open: c.Backup})
	}
	add("destdb", r.destinations)
	add("suppression.db", r.listed)
	if c, ok := r.warm.store.(copied); ok {
		add("warmup.db", c)
	}
	if r.streams != nil {
		add("streams.db", r.streams)
	}
	return parts
}

// filesOf lists the regular files of a folder, without its lock.
func filesOf(name, dir string) (parts []archive.Part, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if e.Type().IsRegular() && e.Name() != queue.LockName {
			parts = append(parts, archive.File(name+"/"+e.Name(), filepath.Join(dir, e.Name())))
		}
	}
	return parts, err
}

// secrets are the configuration, what it names, and the secrets in the data directory.
func (r *Relay) secrets(cfg *config.Config) (parts []archive.Part) {
	for _, name := range secretFiles {
		parts = append(parts, archive.File(name, filepath.Join(cfg.DataDir, name)))
	}
	seen := map[string]bool{"": true}
	outside := func(paths ...string) {
		for _, path := range paths {
			full, err := filepath.Abs(path)
			if path == "" || err != nil || seen[full] {
				continue
			}
			seen[full] = true
			parts = append(parts, archive.File(backupConfig+strings.TrimPrefix(filepath.ToSlash(full), "/"), full))
		}
	}
	outside(r.opts.ConfigFile, cfg.Users.File, cfg.Keys.File, cfg.Console.Users)
	for _, l := range cfg.Listeners {
		outside(l.TLS.Certificate...)
		outside(l.TLS.Key...)
		outside(l.TLS.ClientCA)
	}
	for _, a := range cfg.APIs {
		outside(a.TLS.Certificate...)
		outside(a.TLS.Key...)
	}
	for _, p := range cfg.ClientPairs() {
		outside(p.Certificate, p.Key)
	}
	for _, d := range cfg.DKIMs {
		for _, key := range d.Keys {
			outside(key.File)
		}
	}
	return parts
}

// Staged is a backup that was unpacked and checked, beside the place where it belongs.
type Staged struct {
	archive.Manifest
	cfg *config.Config
	dir string
}

// StageRestore unpacks a backup into the data directory of a configuration, under a name that no relay looks at, and
// checks it. An error that is format.ErrRefused says that this version does not read it. A directory that a relay uses,
// or has used, is refused.
func StageRestore(cfg *config.Config, version string, from io.Reader) (*Staged, error) {
	if err := noRelay(cfg); err != nil {
		return nil, err
	}
	s := &Staged{cfg: cfg, dir: filepath.Join(cfg.DataDir, ".restoring")}
	if err := os.MkdirAll(cfg.DataDir, 0o751); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(s.dir); err != nil { // of a restore that was interrupted
		return nil, err
	}
	m, err := archive.Unpack(from, s.dir)
	if err == nil {
		s.Manifest = *m
		there := *cfg
		there.DataDir, there.Accounting.Path = s.dir, filepath.Join(s.dir, "log")
		_, err = Formats(&there, version)
	}
	if err != nil {
		return nil, errors.Join(err, s.Discard())
	}
	return s, nil
}

// noRelay refuses a data directory that holds anything of a relay.
func noRelay(cfg *config.Config) error {
	if _, err := os.Stat(queueDir(cfg)); err == nil {
		lock, err := vfs.OS().Lock(filepath.Join(queueDir(cfg), queue.LockName))
		if errors.Is(err, vfs.ErrLocked) {
			return fmt.Errorf("%s is in use by a relay: stop it, and move the directory away", cfg.DataDir)
		}
		if err != nil {
			return err
		}
		lock.Close()
		return fmt.Errorf("%s has a queue, whose mail would be lost: move the directory away, or name another data_dir", cfg.DataDir)
	}
	return nil
}

// Discard removes what was unpacked.
func (s *Staged) Discard() error { return os.RemoveAll(s.dir) }

// Restore puts the backup into its place. With hold, no mail leaves before an operator releases it.
func (s *Staged) Restore(hold bool) error {
	if hold && s.Recipients > 0 {
		if err := holdAll(filepath.Join(s.dir, "queue"), s.cfg); err != nil {
			return fmt.Errorf("holding the mail: %w", err)
		}
	}
	if err := s.give(); err != nil {
		return err
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		to := filepath.Join(s.cfg.DataDir, e.Name())
		if e.Name() == strings.TrimSuffix(backupLog, "/") {
			to = s.cfg.Accounting.Path
		}
		if e.Name() == strings.TrimSuffix(backupQueue, "/") {
			continue // comes last: without it, no relay has started on a part
		}
		if err := os.Rename(filepath.Join(s.dir, e.Name()), to); err != nil {
			return err
		}
	}
	if err := os.Rename(filepath.Join(s.dir, "queue"), queueDir(s.cfg)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(s.Discard(), vfs.OS().SyncDir(s.cfg.DataDir))
}

// give makes the files those of the relay's user, where root restores.
func (s *Staged) give() error {
	if os.Geteuid() != 0 || s.cfg.User == "" {
		return nil
	}
	u, err := user.Lookup(s.cfg.User)
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
	return filepath.WalkDir(s.dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chown(path, uid, gid)
	})
}

func holdAll(dir string, cfg *config.Config) error {
	q, err := queue.Open(queue.Config{Dir: dir, SegmentSize: int64(cfg.Queue.SegmentSize), LargeBody: int64(cfg.Queue.LargeBody), MinFree: 1})
	if err != nil {
		return err
	}
	_, err = q.Change(queue.Selector{All: true}, queue.Hold, false)
	return errors.Join(err, q.Close())
}
