package datadir

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"example.org/mta/internal/format"
	"example.org/mta/mta/config"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
	"example.org/mta/queue/store"
	"example.org/mta/submission/maildrop"
	"example.org/mta/submission/request"
)

// Where things are in a backup.
const (
	inQueue  = "queue/"
	inLog    = "log"     // the accounting log
	inConfig = "config/" // the configuration and the keys outside of the data directory, by their paths
)

// secretFiles are the secrets in the data directory.
var secretFiles = []string{"idempotency.key", "queue-token.key", "unsubscribe-secret",
	"return-path-secret", "login-secret", "cluster-secrets", "cluster-keys", "cluster-users",
	"cluster-console-users"}

// Backup is a relay whose state is backed up.
type Backup struct {
	Version, ConfigFile string
	InForce             func() *config.Config
	Places              func(*config.Config) []format.Place
	Queue               *queue.Queue
	Databases           map[string]Copied // by the names of their files in the data directory
	Letters             maildrop.Dir
	// Halt keeps letters in the maildrop until resume is called.
	Halt func(ctx context.Context) (resume func(), err error)
	Now  func() time.Time
}

// Copied is a file that one transaction sees as a whole.
type Copied interface {
	Backup() (io.ReadCloser, int64, error)
}

// Backup implements api.Backups: the queue at one instant, and the other stores right after it.
//
// Until the letters that sendmail has left are copied, none of them is picked up: each is in the backup once, as a
// letter or in the queue.
func (r *Backup) Backup(ctx context.Context, w io.Writer, o api.BackupOptions) error {
	pickUp, err := r.Halt(ctx)
	if err != nil {
		return err
	}
	defer pickUp()
	cfg := r.InForce()
	letters, err := r.letters()
	if err != nil {
		return err
	}
	snapshot, err := r.Queue.Snapshot()
	if err != nil {
		return err
	}
	defer snapshot.Close()
	m := Manifest{
		Version: r.Version, Hostname: cfg.Hostname, NodeID: cfg.NodeID, At: snapshot.At,
		Messages: snapshot.Messages, Recipients: snapshot.Recipients, Secrets: o.Secrets, Log: o.Log,
	}
	parts, err := r.parts(cfg, snapshot, o)
	if err != nil {
		return err
	}
	return WriteBackup(w, m, func(yield func(Part) bool) {
		for _, p := range letters {
			if !yield(p) {
				return
			}
		}
		pickUp()
		parts = SortedParts(parts)
		for _, p := range parts {
			if !yield(p) {
				return
			}
		}
		if !o.Log {
			return
		}
		for _, p := range compressedSince(parts, cfg.Accounting.Path) {
			if !yield(p) {
				return
			}
		}
	})
}

// compressedSince lists the files of the accounting log that replaced some of parts, perhaps before their turn.
func compressedSince(parts []Part, dir string) (since []Part) {
	now, err := filesOf(inLog, dir)
	if err != nil {
		return []Part{{Name: inLog, Open: func() (io.ReadCloser, int64, error) { return nil, 0, err }}}
	}
	had := make(map[string]bool)
	for _, p := range parts {
		had[p.Name] = true
	}
	for _, p := range now {
		if plain, compressed := strings.CutSuffix(p.Name, ".zst"); compressed && had[plain] && !had[p.Name] {
			since = append(since, p)
		}
	}
	return since
}

// parts are the files of a backup apart from the letters.
func (r *Backup) parts(cfg *config.Config, snapshot *queue.Snapshot, o api.BackupOptions) ([]Part, error) {
	parts := append(r.statements(cfg), r.databases()...)
	for _, f := range snapshot.Files {
		parts = append(parts, Part{Name: inQueue + f.Name, Mode: 0o600, Open: func() (io.ReadCloser, int64, error) {
			from, err := snapshot.Open(f)
			return from, f.Size, err
		}})
	}
	for _, name := range []string{"history", "pauses.json", "weights.json", "keys-used.json", "cluster-templates"} {
		parts = append(parts, PartOf(name, filepath.Join(cfg.DataDir, name)))
	}
	folders := map[string]string{config.AuditLog: filepath.Join(cfg.DataDir, config.AuditLog),
		"inbound": filepath.Join(cfg.DataDir, "inbound")}
	if o.Log && cfg.Accounting.Enabled {
		folders[inLog] = cfg.Accounting.Path
	}
	for name, path := range folders {
		some, err := filesOf(name, path)
		if err != nil {
			return nil, err
		}
		parts = append(parts, some...)
	}
	templates, err := templateParts(cfg)
	if err != nil {
		return nil, err
	}
	parts = append(parts, templates...)
	if o.Secrets {
		secrets, err := r.secrets(cfg)
		if err != nil {
			return nil, err
		}
		parts = append(parts, secrets...)
	}
	return parts, nil
}

// inLetters is where the letters are in a backup that sendmail has left.
const inLetters = config.Maildrop + "/" + maildrop.New + "/"

// letters are those that wait in the maildrop. What users have put there besides is left out.
func (r *Backup) letters() (parts []Part, err error) {
	dir := r.Letters
	_, err = dir.Names(r.Now(), func(name string, _ int) {
		parts = append(parts, Part{Name: inLetters + name, Mode: 0o600, Open: func() (io.ReadCloser, int64, error) {
			from, size, err := dir.File(name)
			if errors.Is(err, maildrop.ErrBroken) {
				err = fs.ErrNotExist
			}
			return from, size, err
		}})
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return parts, err
}

// templateParts are the tenants' templates.
func templateParts(cfg *config.Config) (parts []Part, err error) {
	if cfg.Templates.Path == "" {
		return nil, nil
	}
	files, err := request.TemplateFiles(cfg.Templates.Path)
	for _, path := range files {
		parts = append(parts, PartOf(nameOf(cfg, path), path))
	}
	return parts, err
}

// nameOf is where a file is in a backup: at its place, if that is in the data directory.
func nameOf(cfg *config.Config, path string) string {
	full, err := filepath.Abs(path)
	if err != nil {
		full = path
	}
	if data, err := filepath.Abs(cfg.DataDir); err == nil {
		if name, err := filepath.Rel(data, full); err == nil && filepath.IsLocal(name) {
			return filepath.ToSlash(name)
		}
	}
	return inConfig + strings.TrimPrefix(filepath.ToSlash(full), "/")
}

// statements are the formats of the stores, apart from those that folders have among their files.
func (r *Backup) statements(cfg *config.Config) (parts []Part) {
	for _, p := range r.Places(cfg) {
		name, err := filepath.Rel(cfg.DataDir, p.StatementPath())
		if err == nil && (!p.Folder || p.Name == store.Format.Name) {
			parts = append(parts, PartOf(filepath.ToSlash(name), p.StatementPath()))
		}
	}
	return parts
}

// databases are the bbolt files.
func (r *Backup) databases() (parts []Part) {
	for name, d := range r.Databases {
		parts = append(parts, Part{Name: name, Mode: 0o600, Open: d.Backup})
	}
	return parts
}

// filesOf lists the regular files of a folder, without its lock.
func filesOf(name, dir string) (parts []Part, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if e.Type().IsRegular() && e.Name() != store.LockName {
			parts = append(parts, PartOf(name+"/"+e.Name(), filepath.Join(dir, e.Name())))
		}
	}
	return parts, err
}

// secrets are the configuration, what it names, the account and certificates of ACME, and the secrets in the data
// directory.
func (r *Backup) secrets(cfg *config.Config) (parts []Part, err error) {
	if len(cfg.ACME.Names) > 0 {
		if parts, err = filesOf(nameOf(cfg, cfg.ACME.Path), cfg.ACME.Path); err != nil {
			return nil, err
		}
	}
	for _, name := range secretFiles {
		parts = append(parts, PartOf(name, filepath.Join(cfg.DataDir, name)))
	}
	outside := func(paths ...string) {
		for _, path := range paths {
			full, err := filepath.Abs(path)
			if path == "" || err != nil {
				continue
			}
			parts = append(parts, PartOf(inConfig+strings.TrimPrefix(filepath.ToSlash(full), "/"), full))
		}
	}
	outside(r.ConfigFile, cfg.Users.File, cfg.Keys.File, cfg.Console.Users, cfg.Cluster.SecretsKey)
	outside(slices.Concat(cfg.Console.TLS.Certificate, cfg.Console.TLS.Key)...) // also while it is off
	for _, f := range cfg.PEMFiles() {
		outside(f.Path)
	}
	for _, d := range cfg.DKIMs {
		for _, key := range d.Keys {
			outside(key.File)
		}
	}
	return parts, nil
}
