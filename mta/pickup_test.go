package mta

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	"example.org/mta/lab/sink"
	"example.org/mta/submission/maildrop"
)

const left = "Subject: left\r\n\r\nwhile you were away\r\n"

// leaveLetter is what sendmail does while the relay is away.
func (w *world) leaveLetter(text string, sender envelope.Address, to ...envelope.Address) {
	w.t.Helper()
	d := maildrop.Dir(maildropDir(w.cfg.DataDir))
	if err := d.Put(maildrop.Envelope{Sender: sender, Recipients: to}, strings.NewReader(text), int64(len(text))); err != nil {
		w.t.Fatal(err)
	}
}

// TestWhatSendmailLeftGoesOut once the relay is back, and what the relay refuses comes back to its
// sender. What is left while it runs goes out, too.
func TestWhatSendmailLeftGoesOut(t *testing.T) {
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	w.until("the maildrop is made", func() bool { return dirIsThere(maildropDir(w.cfg.DataDir) + "/new") })
	w.suppress("gone@box.example")
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	w.leaveLetter(left, "ann@client.example", "bob@box.example", "gone@box.example")
	w.leaveLetter(left, "", "carl@box.example")
	w.leaveLetter("Subject: left\r\n\r\na NUL: \x00\r\n", "", "eve@box.example") // refused, and nobody to tell
	w.start()
	ms := w.arrived(3)
	byRecipient := make(map[string]string)
	for _, m := range ms {
		byRecipient[m.Recipients[0]] = string(m.Content)
	}
	if got := byRecipient["bob@box.example"]; !strings.Contains(got, fmt.Sprintf("from userid %d)", os.Getuid())) || !strings.Contains(got, "while you were away") {
		t.Errorf("arrived as\n%s", got)
	}
	if got := byRecipient["ann@client.example"]; !strings.Contains(got, "gone@box.example") || !strings.Contains(got, "5.7.1") && !strings.Contains(got, "5.1.") {
		t.Errorf("report:\n%s\nof %v", got, slices.Collect(maps.Keys(byRecipient)))
	}
	if byRecipient["carl@box.example"] == "" {
		t.Error("the report of somebody else did not go out")
	}
	w.until("the letters are gone", func() bool { return len(w.letters("new")) == 0 })
	if n := len(w.letters("broken")); n != 1 {
		t.Errorf("%d set aside, want the one that is refused and has no sender", n)
	}
	if why := w.pickup.trouble(); !strings.HasPrefix(why, "1 files in ") {
		t.Errorf("alarm %q", why)
	}
	w.leaveLetter(left, "ann@client.example", "dora@box.example")
	w.arrived(4)
}

// TestLetterWaitsWhileTheRelayTakesNoMail: our own trouble is no refusal.
func TestLetterWaitsWhileTheRelayTakesNoMail(t *testing.T) {
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	w.until("the maildrop is made", func() bool { return dirIsThere(maildropDir(w.cfg.DataDir) + "/new") })
	w.leaveLetter(left, "ann@client.example", "bob@box.example")
	p := newPickup(w.Relay, nil)
	p.session = func() (net.Conn, func()) {
		client, theirs := net.Pipe()
		theirs.Close()
		return client, func() {}
	}
	p.all(t.Context())
	if why := p.trouble(); !strings.Contains(why, "EOF") {
		t.Errorf("alarm %q", why)
	}
	w.arrived(1)
}

// TestTheMaildropIsMadeOnceItCanBe: what is in its way at the start keeps no mail in it for good.
func TestTheMaildropIsMadeOnceItCanBe(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		dir := filepath.Join(t.TempDir(), "maildrop")
		if err := os.WriteFile(dir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		p := &pickup{dir: maildrop.Dir(dir), now: time.Now, log: slog.New(slog.NewTextHandler(&log, nil))}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { p.run(ctx); close(ended) }()
		time.Sleep(3 * pickupEvery)
		if why := p.trouble(); !strings.Contains(why, "is not a directory of the relay's user") {
			t.Errorf("alarm %q", why)
		}
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		time.Sleep(pickupEvery)
		synctest.Wait()
		if why := p.trouble(); why != "" || !dirIsThere(dir+"/new") {
			t.Errorf("there is no maildrop; alarm %q", why)
		}
		cancel()
		<-ended
		if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
			t.Errorf("%d errors in the log, want 1:\n%s", n, &log)
		}
	})
}

// TestLettersNeedNoLogin: the maildrop is for who may write there, whatever the listeners demand.
func TestLettersNeedNoLogin(t *testing.T) {
	cert, key, _ := certificateFiles(t, "relay.example")
	path := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(path, []byte(userLine(t, "ann", "tenant=acme")), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, demand := range map[string]string{
		"login": `auth {
			mechanisms = ["PLAIN"]
			required = true
		}`,
		"nobody by address": `relay_from = []`,
		"TLS":               "",
		"a proxy":           `proxy_from = ["127.0.0.0/8"]`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
			w.rewrite("users", fmt.Sprintf(`
				defaults { smtp_port = %s }
				resolver { servers = [%q] }
				users { file = %q }
				tenant "house" {}
				listener "submission" {
					address = "127.0.0.1:0"
					tenant  = "house"
					tls {
						certificate = %q
						key         = %q
						implicit    = %v
					}
					%s
				}`, w.port, w.cfg.Resolver.Servers[0], path, cert, key, name == "TLS", demand))
			if _, err := w.Reload(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.until("the maildrop is made", func() bool { return dirIsThere(maildropDir(w.cfg.DataDir) + "/new") })
			w.leaveLetter(left, "ann@client.example", "bob@box.example")
			w.arrived(1)
			if r := w.await("bob@box.example", "Reception"); r.Tenant != "house" {
				t.Errorf("the letter is of tenant %q, want that of the first listener", r.Tenant)
			}
		})
	}
}

func dirIsThere(path string) bool { _, err := os.Stat(path); return err == nil }

func (w *world) letters(part string) []string {
	all, err := filepath.Glob(filepath.Join(maildropDir(w.cfg.DataDir), part, "*"))
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// TestUsersTakeTurnsInTheMaildrop: the letter of one user is taken beside the first hundred files of another, who
// has left hundreds; and what is wrong with those has few lines in the log.
func TestUsersTakeTurnsInTheMaildrop(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("takes root, to be two users")
	}
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	w.until("the maildrop is made", func() bool { return dirIsThere(maildropDir(w.cfg.DataDir) + "/new") })
	var log bytes.Buffer
	p := newPickup(w.Relay, nil)
	p.dir, p.log = maildrop.Dir(t.TempDir()), slog.New(slog.NewTextHandler(&log, nil))
	if err := p.dir.Make(); err != nil {
		t.Fatal(err)
	}
	const files = 3 * pickupTurn
	for i := range files {
		path := filepath.Join(string(p.dir), "new", fmt.Sprint("junk", i))
		if err := errors.Join(os.WriteFile(path, nil, 0o644), os.Chown(path, 4711, 4711)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.dir.Put(maildrop.Envelope{Sender: "ann@client.example", Recipients: []envelope.Address{"bob@box.example"}}, strings.NewReader(left), int64(len(left))); err != nil {
		t.Fatal(err)
	}
	rest := func() int {
		all, err := os.ReadDir(filepath.Join(string(p.dir), "new"))
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	if more := p.turn(t.Context()); !more || rest() != files-pickupTurn {
		t.Errorf("after one turn %d files are left, want %d, all of one user (more: %v)", rest(), files-pickupTurn, more)
	}
	w.arrived(1)
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
	if err := unix.Mount("tmpfs", top, "tmpfs", 0, fmt.Sprintf("size=%d", maildrop.KeepFree/2)); err != nil {
		t.Skipf("can't mount a file system: %v", err)
	}
	defer unix.Unmount(top, unix.MNT_DETACH)
	p := pickup{dir: maildrop.Dir(top)}
	if err := p.dir.Make(); err != nil {
		t.Fatal(err)
	}
	used := map[int]*maildrop.Use{4711: {LetterOctets: 30 << 20, PartlyOctets: 4 << 20}, 4712: {LetterOctets: 33 << 20}}
	if why := p.filledBy(used); !strings.Contains(why, "id 4711 has 34 MiB") {
		t.Errorf("alarm %q", why)
	}
	p.dir = maildrop.Dir(t.TempDir())
	if err := p.dir.Make(); err != nil {
		t.Fatal(err)
	}
	if why := p.filledBy(used); !p.dir.Short() && why != "" {
		t.Errorf("alarm with room on the disk: %q", why)
	}
}
