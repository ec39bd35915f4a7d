package mta

import (
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/lab/sink"
	"example.org/mta/mta/listen"
)

// mailboxes is a host that knows nobody whose name begins with "no", has trouble with "later", has no word for
// "silent" and refuses to talk about "policy".
type mailboxes struct {
	mu    sync.Mutex
	rcpts []string // of RCPT commands
	lines []string // of MAIL, DATA and BDAT commands
}

func (b *mailboxes) hook(c sink.Command) sink.Answer {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch c.Phase {
	case sink.Mail, sink.Data:
		b.lines = append(b.lines, c.Line)
	case sink.Rcpt:
		b.rcpts = append(b.rcpts, c.Line)
		switch to := strings.TrimPrefix(c.Line, "TO:<"); {
		case strings.HasPrefix(to, "no"):
			return sink.Answer{Reply: "550 5.1.1 <" + to[:strings.IndexByte(to, '>')] + ">: User unknown in virtual mailbox table"}
		case strings.HasPrefix(to, "later"):
			return sink.Answer{Reply: "450 4.2.0 greylisted"}
		case strings.HasPrefix(to, "policy"):
			return sink.Answer{Reply: "554 5.7.1 your address is blocked here"}
		case strings.HasPrefix(to, "silent"):
			return sink.Answer{Mute: true}
		}
	}
	return sink.Answer{}
}

// take returns what was said since the last take.
func (b *mailboxes) take() (rcpts, lines string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	rcpts, lines = strings.Join(b.rcpts, "|"), strings.Join(b.lines, "|")
	b.rcpts, b.lines = nil, nil
	return rcpts, lines
}

// A recipient whose host says that the mailbox does not exist is refused at RCPT, in the host's words, and all
// others pass; only hosts of the domains that the configuration names are asked.
func TestS16_MailboxesAreVerifiedAtRCPT(t *testing.T) {
	var b mailboxes
	w := newWorld(t, sink.Config{Hook: b.hook}, `
		defaults { smtp_port = PORT }
		domain "box.example" { verify_recipients = "mailbox" }
	`)
	listener := w.listeners.Addresses(listen.SMTP)[0]
	check := func(to string, want int, words string) {
		t.Helper()
		if code, text := w.rcptAt(listener, to); code != want || !strings.Contains(text, words) {
			t.Errorf("%s: %d %q, want %d %q", to, code, text, want, words)
		}
	}
	check("nobody@box.example", 550, "5.1.1 no such mailbox, its host says: 550 5.1.1 <nobody@box.example>: User unknown in virtual mailbox table")
	check("ann@box.example", 250, "")
	rcpts, lines := b.take()
	if rcpts != "TO:<nobody@box.example>|TO:<ann@box.example>" || strings.Contains(lines, "DATA") || strings.Contains(lines, "BDAT") || !strings.HasPrefix(lines, "FROM:<>") {
		t.Errorf("the host heard %s, and %s", rcpts, lines)
	}
	check("nobody@box.example", 550, "5.1.1") // remembered
	check("ann@box.example", 250, "")
	check("later@box.example", 250, "")
	check("policy@box.example", 250, "")
	check("nobody@client.example", 250, "") // of the same host, and nobody's to ask
	if rcpts, _ := b.take(); rcpts != "TO:<later@box.example>|TO:<policy@box.example>" {
		t.Errorf("the host heard %s", rcpts)
	}

	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { check("nowhere@box.example", 550, "5.1.1") })
	}
	all.Wait()
	if rcpts, _ := b.take(); rcpts != "TO:<nowhere@box.example>" {
		t.Errorf("20 clients at once: the host heard %s", rcpts)
	}
	w.send("a@client.example", letter, "ann@box.example")
	w.arrived(1)
	if s := w.callouts.Stats(); s.Asked != 5 || s.Refused != 22 {
		t.Errorf("%+v", s)
	}

	w.rewrite("routed", strings.ReplaceAll(`
		listener "smtp" { address = "127.0.0.1:0" }
		domain "box.example" {
			route             = ["smtp://127.0.0.1:PORT"]
			verify_recipients = "mailbox"
		}`, "PORT", w.port))
	if _, err := w.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	listener = w.listeners.Addresses(listen.SMTP)[0]
	b.take()
	check("nobody@box.example", 550, "5.1.1")
	if rcpts, _ := b.take(); rcpts != "TO:<nobody@box.example>" {
		t.Errorf("after a change of the route the host heard %q", rcpts)
	}

	w.rewrite("callouts", strings.ReplaceAll(`defaults { smtp_port = PORT }`, "PORT", w.port)+"\nlistener \"smtp\" { address = \"127.0.0.1:0\" }")
	if _, err := w.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("nobody@box.example", 250, "") // nobody wants it any more
}

// A host that does not answer keeps a client waiting for five seconds, and the recipient passes.
func TestMailboxOfASilentHostPasses(t *testing.T) {
	t.Parallel()
	var b mailboxes
	w := newWorld(t, sink.Config{Hook: b.hook}, `
		defaults { smtp_port = PORT }
		domain "box.example" { verify_recipients = "mailbox" }
	`)
	began := time.Now()
	if code, text := w.rcptAt(w.listeners.Addresses(listen.SMTP)[0], "silent@box.example"); code != 250 {
		t.Errorf("%d %s", code, text)
	}
	if took := time.Since(began); took < 4*time.Second {
		t.Errorf("it passed after %v", took)
	}
}
