package mta

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	archive "example.org/mta/mta/backup"
	"example.org/mta/mta/config"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
	"example.org/mta/submission/maildrop"
	"example.org/mta/submission/template"
)

// Where things are in a backup.
const (
	backupQueue  = "queue/"
	backupLog    = "log"     // the accounting log
	backupConfig = "config/" // the configuration and the keys outside of the data directory, by their paths
)

// secretFiles are the secrets in the data directory.
var secretFiles = []string{"idempotency.key", "queue-token.key", "unsubscribe-secret", "return-path-secret", "login-secret"}

// Backup implements api.Backups: the queue at one instant, and the other stores right after it.
//
// Until the letters that sendmail has left are copied, none of them is picked up: each is in the backup once, as a letter or
// in the queue.
func (r *Relay) Backup(ctx context.Context, w io.Writer, o api.BackupOptions) error {
	pickUp, err := r.pickup.Halt(ctx)
	if err != nil {
		return err
	}
	defer pickUp()
	return r.backup(w, o, pickUp)
}

// backup calls pickUp when the letters are copied.
func (r *Relay) backup(w io.Writer, o api.BackupOptions, pickUp func()) error {
	cfg := r.policy.Load().Config
	letters, err := r.letters()
	if err != nil {
		return err
	}
	snapshot, err := r.queue.Snapshot()
	if err != nil {
		return err
	}
	defer snapshot.Close()
	m := archive.Manifest{
		Version: r.opts.Version, Hostname: cfg.Hostname, NodeID: cfg.NodeID, At: snapshot.At,
		Messages: snapshot.Messages, Recipients: snapshot.Recipients, Secrets: o.Secrets, Log: o.Log,
	}
	parts, err := r.backupParts(cfg, snapshot, o)
	if err != nil {
		return err
	}
	return archive.Write(w, m, func(yield func(archive.Part) bool) {
		for _, p := range letters {
			if !yield(p) {
				return
			}
		}
		pickUp()
		parts = archive.Sorted(parts)
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
func compressedSince(parts []archive.Part, dir string) (since []archive.Part) {
	now, err := filesOf(backupLog, dir)
	if err != nil {
		return []archive.Part{{Name: backupLog, Open: func() (io.ReadCloser, int64, error) { return nil, 0, err }}}
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

// backupParts are the files of a backup apart from the letters.
func (r *Relay) backupParts(cfg *config.Config, snapshot *queue.Snapshot, o api.BackupOptions) ([]archive.Part, error) {
	parts := append(r.statements(cfg), r.databases()...)
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
		folders[backupLog] = cfg.Accounting.Path
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

// backupLetters is where the letters are in a backup that sendmail has left.
const backupLetters = config.Maildrop + "/" + maildrop.New + "/"

// letters are those that wait in the maildrop. What users have put there besides is left out.
func (r *Relay) letters() (parts []archive.Part, err error) {
	dir := maildrop.Dir(filepath.Join(r.inForce().DataDir, config.Maildrop))
	_, err = dir.Names(r.now(), func(name string, _ int) {
		parts = append(parts, archive.Part{Name: backupLetters + name, Mode: 0o600, Open: func() (io.ReadCloser, int64, error) {
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
func templateParts(cfg *config.Config) (parts []archive.Part, err error) {
	if cfg.Templates.Path == "" {
		return nil, nil
	}
	files, err := template.Files(cfg.Templates.Path)
	for _, path := range files {
		parts = append(parts, archive.File(backupName(cfg, path), path))
	}
	return parts, err
}

// backupName is where a file is in a backup: at its place, if that is in the data directory.
func backupName(cfg *config.Config, path string) string {
	full, err := filepath.Abs(path)
	if err != nil {
		full = path
	}
	if data, err := filepath.Abs(cfg.DataDir); err == nil {
		if name, err := filepath.Rel(data, full); err == nil && filepath.IsLocal(name) {
			return filepath.ToSlash(name)
		}
	}
	return backupConfig + strings.TrimPrefix(filepath.ToSlash(full), "/")
}

// statements are the formats of the stores, apart from those that folders have among their files.
func (r *Relay) statements(cfg *config.Config) (parts []archive.Part) {
	for _, p := range r.data.Places(cfg) {
		name, err := filepath.Rel(cfg.DataDir, p.StatementPath())
		if err == nil && (!p.Folder || p.Name == queue.Format.Name) {
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

// secrets are the configuration, what it names, the account and certificates of ACME, and the secrets in the data directory.
func (r *Relay) secrets(cfg *config.Config) (parts []archive.Part, err error) {
	if len(cfg.ACME.Names) > 0 {
		if parts, err = filesOf(backupName(cfg, cfg.ACME.Path), cfg.ACME.Path); err != nil {
			return nil, err
		}
	}
	for _, name := range secretFiles {
		parts = append(parts, archive.File(name, filepath.Join(cfg.DataDir, name)))
	}
	outside := func(paths ...string) {
		for _, path := range paths {
			full, err := filepath.Abs(path)
			if path == "" || err != nil {
				continue
			}
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
	outside(cfg.Console.TLS.Certificate...)
	outside(cfg.Console.TLS.Key...)
	for _, p := range cfg.ClientPairs() {
		outside(p.Certificate, p.Key)
	}
	outside(cfg.Defaults.Traffic.TLSCA)
	for _, p := range cfg.Providers {
		outside(p.Traffic.TLSCA)
	}
	for _, d := range cfg.Domains {
		outside(d.Traffic.TLSCA)
	}
	for _, s := range cfg.Streams {
		outside(s.CA)
	}
	for _, d := range cfg.DKIMs {
		for _, key := range d.Keys {
			outside(key.File)
		}
	}
	return parts, nil
}
