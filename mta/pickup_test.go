package mta

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mta/internal/envelope"
	"mta/internal/sink"
	"mta/submission/maildrop"
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
	listener := p.address
	p.address = func() string { return "127.0.0.1:1" }
	p.all(t.Context())
	if why := p.trouble(); !strings.Contains(why, "connection refused") {
		t.Errorf("alarm %q", why)
	}
	p.address = listener
	w.arrived(1)
}

func dirIsThere(path string) bool { _, err := os.Stat(path); return err == nil }

func (w *world) letters(part string) []string {
	all, err := filepath.Glob(filepath.Join(maildropDir(w.cfg.DataDir), part, "*"))
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}
