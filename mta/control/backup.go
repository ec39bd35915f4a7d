package control

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// BackupOptions says what a backup has besides the relay's state.
type BackupOptions struct {
	Secrets bool // the configuration, keys and secrets
	Log     bool // the accounting log
}

// Backups is what the server asks for backups.
type Backups interface {
	// Backup writes a backup. An error before its first octet is reported as one.
	Backup(ctx context.Context, w io.Writer, o BackupOptions) error
}

var backupParams = []string{"secrets", "log"}

func (s *Server) backup(w http.ResponseWriter, r *http.Request, q *query) error {
	o := BackupOptions{Secrets: q.flag("secrets"), Log: q.flag("log")}
	if q.err != nil {
		return q.err
	}
	w.Header().Set("Content-Type", "application/x-tar")
	begun := &begunWriter{w: w}
	err := s.config.Backups.Backup(r.Context(), begun, o)
	if err != nil && begun.begun {
		s.config.Events.Error("a backup broke off", "error", err)
		panic(http.ErrAbortHandler) // the client must not take a part for the whole
	}
	return err
}

// begunWriter knows whether anything was written.
type begunWriter struct {
	w     io.Writer
	begun bool
}

func (b *begunWriter) Write(p []byte) (int, error) {
	b.begun = true
	return b.w.Write(p)
}

// Backup writes a backup of the relay to w.
func (c *Client) Backup(ctx context.Context, w io.Writer, o BackupOptions) error {
	body, err := c.do(ctx, "GET", "/v1/backup", url.Values{"secrets": {fmt.Sprint(o.Secrets)}, "log": {fmt.Sprint(o.Log)}}, nil)
	if err != nil {
		return err
	}
	defer body.Close()
	if _, err := io.Copy(w, body); err != nil {
		return fmt.Errorf("reading the backup: %w", err)
	}
	return nil
}
