package maildrop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	"example.org/mta/lab/sink"
	"golang.org/x/sys/unix"
)

const left = "Subject: left\r\n\r\nwhile you were away\r\n"

// receiver takes letters by SMTP, as the relay does.
type receiver struct {
	t     *testing.T
	sink  *sink.Server
	conns *sink.PipeListener
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{t, sink.New(sink.Config{}), sink.NewPipeListener()}
	go r.sink.Serve(r.conns)
	t.Cleanup(r.sink.Close)
	return r
}

// pickup takes letters of an empty maildrop to the receiver.
func (r *receiver) pickup() *Pickup {
	r.t.Helper()
	p := NewPickup(Config{
		Dir: Dir(r.t.TempDir()), Now: time.Now, Trusted: func() time.Time { return time.Time{} }, Log: slog.New(slog.DiscardHandler),
		Session: func() (net.Conn, func()) {
			c, err := r.conns.Dial(r.t.Context())
			if err != nil {
				r.t.Error(err)
			}
			return c, func() { c.Close() }
		},
		Hostname: func() string { return "relay.example" }, MaxAge: func() time.Duration { return time.Hour },
		Report: func(*envelope.Message, []Refusal, io.Reader) error {
			r.t.Error("a letter is refused")
			return nil
		},
	})
	if err := p.c.Dir.Make(); err != nil {
		r.t.Fatal(err)
	}
	return p
}

// messages counts those that came.
func (r *receiver) messages() int64 { return r.sink.Stats().Messages }

func isThere(path string) bool { _, err := os.Stat(path); return err == nil }

// TestLetterWaitsWhileTheRelayTakesNoMail: our own trouble is no refusal.
func TestLetterWaitsWhileTheRelayTakesNoMail(t *testing.T) {
	taken := newReceiver(t)
	p := taken.pickup()
	if err := p.c.Dir.Put(Envelope{Sender: "ann@client.example", Recipients: []envelope.Address{"bob@box.example"}}, strings.NewReader(left), int64(len(left))); err != nil {
		t.Fatal(err)
	}
	session := p.c.Session
	p.c.Session = func() (net.Conn, func()) {
		client, theirs := net.Pipe()
		theirs.Close()
		return client, func() {}
	}
	p.all(t.Context())
	if why := p.Trouble(); !strings.Contains(why, "EOF") {
		t.Errorf("alarm %q", why)
	}
	p.c.Session = session
	p.all(t.Context())
	if why := p.Trouble(); why != "" || taken.messages() != 1 {
		t.Errorf("%d messages arrived; alarm %q", taken.messages(), why)
	}
}

// TestTheMaildropIsMadeOnceItCanBe: what is in its way at the start keeps no mail in it for good.
func TestTheMaildropIsMadeOnceItCanBe(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		dir := filepath.Join(t.TempDir(), "maildrop")
		if err := os.WriteFile(dir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		p := NewPickup(Config{Dir: Dir(dir), Now: time.Now, Log: slog.New(slog.NewTextHandler(&log, nil))})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { p.Run(ctx); close(ended) }()
		time.Sleep(3 * lookEvery)
		if why := p.Trouble(); !strings.Contains(why, "is not a directory of the relay's user") {
			t.Errorf("alarm %q", why)
		}
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lookEvery)
		synctest.Wait()
		if why := p.Trouble(); why != "" || !isThere(dir+"/new") {
			t.Errorf("there is no maildrop; alarm %q", why)
		}
		cancel()
		<-ended
		if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
			t.Errorf("%d errors in the log, want 1:\n%s", n, &log)
		}
	})
}

// TestUsersTakeTurnsInTheMaildrop: the letter of one user is taken beside the first hundred files of another, who
// has left hundreds; and what is wrong with those has few lines in the log.
func TestUsersTakeTurnsInTheMaildrop(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("takes root, to be two users")
	}
	var log bytes.Buffer
	taken := newReceiver(t)
	p := taken.pickup()
	p.c.Log = slog.New(slog.NewTextHandler(&log, nil))
	const files = 3 * turnSize
	for i := range files {
		path := filepath.Join(string(p.c.Dir), "new", fmt.Sprint("junk", i))
		if err := errors.Join(os.WriteFile(path, nil, 0o644), os.Chown(path, 4711, 4711)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.c.Dir.Put(Envelope{Sender: "ann@client.example", Recipients: []envelope.Address{"bob@box.example"}}, strings.NewReader(left), int64(len(left))); err != nil {
		t.Fatal(err)
	}
	rest := func() int {
		all, err := os.ReadDir(filepath.Join(string(p.c.Dir), "new"))
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	if more := p.turn(t.Context()); !more || rest() != files-turnSize {
		t.Errorf("after one turn %d files are left, want %d, all of one user (more: %v)", rest(), files-turnSize, more)
	}
	if taken.messages() != 1 {
		t.Errorf("%d messages arrived, want 1", taken.messages())
	}
	p.all(t.Context())
	if n := rest(); n != 0 {
		t.Errorf("%d files are left", n)
	}
	if n := strings.Count(log.String(), "level=ERROR"); n > 3*(asideLogged+1) {
		t.Errorf("%d errors in the log for %d files", n, files)
	}
}

// TestTheAlarmNamesWhoFillsTheMaildrop, when its disk is nearly full.
func TestTheAlarmNamesWhoFillsTheMaildrop(t *testing.T) {
	top := t.TempDir()
	if err := unix.Mount("tmpfs", top, "tmpfs", 0, fmt.Sprintf("size=%d", KeepFree/2)); err != nil {
		t.Skipf("can't mount a file system: %v", err)
	}
	defer unix.Unmount(top, unix.MNT_DETACH)
	p := NewPickup(Config{Dir: Dir(top)})
	if err := p.c.Dir.Make(); err != nil {
		t.Fatal(err)
	}
	used := map[int]*Use{4711: {LetterOctets: 30 << 20, PartlyOctets: 4 << 20}, 4712: {LetterOctets: 33 << 20}}
	if why := p.filledBy(used); !strings.Contains(why, "id 4711 has 34 MiB") {
		t.Errorf("alarm %q", why)
	}
	p.c.Dir = Dir(t.TempDir())
	if err := p.c.Dir.Make(); err != nil {
		t.Fatal(err)
	}
	if why := p.filledBy(used); !p.c.Dir.Short() && why != "" {
		t.Errorf("alarm with room on the disk: %q", why)
	}
}
