package mta

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.org/mta/internal/envelope"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/config"
	"example.org/mta/submission/maildrop"
)

const left = "Subject: left\r\n\r\nwhile you were away\r\n"

// leaveLetter is what sendmail does while the relay is away.
func (w *world) leaveLetter(text string, sender envelope.Address, to ...envelope.Address) {
	w.t.Helper()
	d := maildrop.Dir(w.maildropDir())
	if err := d.Put(maildrop.Envelope{Sender: sender, Recipients: to}, strings.NewReader(text), int64(len(text))); err != nil {
		w.t.Fatal(err)
	}
}

// TestWhatSendmailLeftGoesOut once the relay is back, and what the relay refuses comes back to its
// sender. What is left while it runs goes out, too.
func TestWhatSendmailLeftGoesOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	w.until("the maildrop is made", func() bool { return dirIsThere(w.maildropDir() + "/new") })
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
	if why := w.pickup.Trouble(); !strings.HasPrefix(why, "1 files in ") {
		t.Errorf("alarm %q", why)
	}
	w.leaveLetter(left, "ann@client.example", "dora@box.example")
	w.arrived(4)
}

// TestLettersNeedNoLogin: the maildrop is for who may write there, whatever the listeners demand.
func TestLettersNeedNoLogin(t *testing.T) {
	t.Parallel()
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
			t.Parallel()
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
			w.until("the maildrop is made", func() bool { return dirIsThere(w.maildropDir() + "/new") })
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
	all, err := filepath.Glob(filepath.Join(w.maildropDir(), part, "*"))
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

func (w *world) maildropDir() string { return filepath.Join(w.cfg.DataDir, config.Maildrop) }
