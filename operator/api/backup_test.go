package api_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/operator/api"
	"example.org/mta/operator/audit"
)

// endless is a backup without an end.
type endless struct{ broken chan error }

func (e endless) Backup(_ context.Context, w io.Writer, _ api.BackupOptions) error {
	for {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			e.broken <- err
			return err
		}
	}
}

// oneConn is a listener with one connection.
type oneConn struct {
	net.Listener
	conns chan net.Conn
}

func (l oneConn) Accept() (net.Conn, error) {
	if c, ok := <-l.conns; ok {
		return c, nil
	}
	return nil, http.ErrServerClosed
}

func (oneConn) Close() error   { return nil }
func (oneConn) Addr() net.Addr { return &net.UnixAddr{} }

// noted puts everything on record.
type noted struct{ api.Audit }

func (noted) Add(audit.Line) error { return nil }

// TestBackupOfAClientThatHangs: it ends, since the queue deletes nothing until then.
func TestBackupOfAClientThatHangs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		backups := endless{make(chan error, 1)}
		s := api.NewServer(api.Config{Backups: backups, Audit: noted{}})
		here, there := net.Pipe()
		l := oneConn{conns: make(chan net.Conn, 1)}
		l.conns <- there
		go s.Serve(l)
		if _, err := io.WriteString(here, "GET /v1/backup HTTP/1.1\r\nHost: mta\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		for range 100 { // far less than a MiB in all
			if _, err := here.Read(make([]byte, 4096)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		began := time.Now()
		select {
		case err := <-backups.broken:
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("it ended with %v", err)
			}
		case <-time.After(time.Hour):
			t.Error("it has not ended")
		}
		if took := time.Since(began); took > 5*time.Minute {
			t.Errorf("it ended after %v", took)
		}
		here.Close()
		close(l.conns)
		s.Shutdown(t.Context())
	})
}
