package api

import (
	"context"
	"io"
	"net/http"
	"time"
)

// BackupOptions says what a backup has besides the relay's state.
type BackupOptions struct {
	Secrets bool `q:"secrets" flag:"with-secrets" help:"with the configuration, keys and secrets"`
	Log     bool `q:"log" flag:"with-log" help:"with the accounting log"`
}

// Backups is what the server asks for backups.
type Backups interface {
	// Backup writes a backup. An error before its first octet is reported as one.
	Backup(ctx context.Context, w io.Writer, o BackupOptions) error
}

func (s *Server) backup(w http.ResponseWriter, r *http.Request, o BackupOptions) error {
	return s.archive(w, backupPatience, "a backup broke off", func(w io.Writer) error {
		return s.config.Backups.Backup(r.Context(), w, o)
	})
}

// backupPatience is how long a client of a backup may take nothing: meanwhile the queue deletes no file.
const backupPatience = time.Minute

// archive answers with a tar archive as it is written. It logs brokeOff if that fails after the first octet.
func (s *Server) archive(w http.ResponseWriter, patience time.Duration, brokeOff string,
	write func(io.Writer) error) error {
	w.Header().Set("Content-Type", "application/x-tar")
	begun := &begunWriter{w: w, conn: http.NewResponseController(w), patience: patience}
	err := write(begun)
	if err != nil && begun.begun {
		s.config.Events.Error(brokeOff, "error", err)
		panic(http.ErrAbortHandler) // the client must not take a part for the whole
	}
	return err
}

// begunWriter knows whether anything was written, and fails for a client that takes nothing.
type begunWriter struct {
	w        io.Writer
	conn     *http.ResponseController
	begun    bool
	patience time.Duration
}

func (b *begunWriter) Write(p []byte) (int, error) {
	b.begun = true
	_ = b.conn.SetWriteDeadline(time.Now().Add(b.patience)) // a client within this process has none
	n, err := b.w.Write(p)
	_ = b.conn.SetWriteDeadline(time.Time{})
	return n, err
}

// StoreFormat is the format of one of the relay's stores.
type StoreFormat struct {
	Store  string `json:"store"`  // its name
	Path   string `json:"path"`   // its folder or file
	Format int    `json:"format"` // the format that is written
	Reads  int    `json:"reads"`  // the oldest format that the relay reads
	Writes int    `json:"writes"` // the format that is written once the upgrade is finished
	// the version that has stated the format and can be put back; absent when none can
	BackTo string `json:"back_to,omitempty"`
}

// Upgrade is how far an upgrade of the relay is.
type Upgrade struct {
	Version string `json:"version"`                  // of the relay
	Mode    string `json:"mode" words:"manual,auto"` // the setting upgrade
	// the upgrade is not finished: the version before can be put back
	Pending bool          `json:"pending"`
	Stores  []StoreFormat `json:"stores"` // all that have a format
}

// FinishUpgrade asks for the newest formats from now on.
type FinishUpgrade struct {
	Intent
}

// UpgradeFinished is the stores whose format has changed, as they were before.
type UpgradeFinished struct {
	Effect
	Stores []StoreFormat `json:"stores"` // the stores whose format has changed, as they were before
}

// Upgrades is what the server asks of the relay about upgrades.
type Upgrades interface {
	Upgrade(context.Context) (Upgrade, error)
	FinishUpgrade(context.Context, FinishUpgrade) (UpgradeFinished, error)
}
