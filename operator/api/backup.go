package api

import (
	"context"
	"io"
	"net/http"
	"time"
)

// BackupOptions says what a backup has besides the relay's state.
type BackupOptions struct {
	Secrets bool `q:"secrets" help:"with the configuration, keys and secrets"`
	Log     bool `q:"log" help:"with the accounting log"`
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
func (s *Server) archive(w http.ResponseWriter, patience time.Duration, brokeOff string, write func(io.Writer) error) error {
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

// Backup writes a backup of the relay to w.
func (c *Client) Backup(ctx context.Context, w io.Writer, o BackupOptions) error {
	return opBackup.copy(ctx, c, w, "the archive", o)
}
