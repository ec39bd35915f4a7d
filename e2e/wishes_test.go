package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"example.org/mta/lab/sink"
)

// wishes is a relay amid sites that do all kinds of things.
type wishes struct {
	*relay
	t     *testing.T
	port  string // of all hosts
	taken *sink.Recorder
	grey  atomic.Bool // the greylisting host refuses
	said  string      // by the last command
}

// TestWishes runs the script of an hour's operations, and looks after each command whether the wish has come true.
func TestWishes(t *testing.T) {
	parallel(t)
	w := newWishes(t)
	for _, to := range []string{"a@dead.example", "b@grey.example", "c@full.example"} {
		w.send("", to)
	}
	w.waits("unreachable", "a@dead.example")
	w.waits("greylisted", "b@grey.example")
	w.waits("mailbox", "c@full.example")

	came := map[string]func(){
		"why mail waits, at a glance": func() {
			w.has("3 wait: ", "unreachable hosts (dead.example", "greylisting (mx.grey.example", "full mailboxes (mx.full.example")
		},
		"why the mail for a domain waits": func() { w.has("127.34.0.9", "refused") },
		"the dead domain's mail goes to its new host, what waits included": func() {
			w.mta(t, "queue", "retry", "--domain", "dead.example", "--now")
			w.arrives("a@dead.example")
			w.send("", "a2@dead.example")
			w.arrives("a2@dead.example")
		},
		"a provider is in trouble: only a little mail for it, for an hour": func() {
			for i := range 5 {
				w.send("", fmt.Sprintf("d%d@big.example", i))
			}
			w.send("", "d@other.example") // overtakes them
			w.arrives("d@other.example")
			w.waits("limit", "d4@big.example")
			if n := w.delivered("@big.example"); n > 1 {
				t.Errorf("%d messages to the provider have left, want one at most in half an hour", n)
			}
		},
		"everything that comes for a mistyped domain bounces": func() {
			w.send("", "e@typo.example")
			w.records("AdminBounce", "e@typo.example")
		},
		"a customer's new mail waits for a look at it": func() {
			w.send("acme", "f@other.example")
			w.waits("held", "f@other.example")
			w.mta(t, "queue", "release", "--tenant", "acme")
			w.arrives("f@other.example")
		},
		"an address is taken out of its pool": func() {
			for i := range 20 {
				w.send("", fmt.Sprintf("g%d@far%d.example", i, i))
			}
			for i := range 20 {
				if d := w.arrives(fmt.Sprintf("g%d@far%d.example", i, i)); d.Client.Addr().String() != "127.34.1.1" {
					t.Errorf("%s came from %s, which has weight 0", d.Recipient, d.Client.Addr())
				}
			}
		},
		"the hosts that asked to come again are tried now": func() { w.arrives("b@grey.example") },
		"mail that a full mailbox keeps is given up":       func() { w.records("AdminBounce", "c@full.example") },
		"a campaign goes on slowly, while it runs": func() {
			for i := range 5 {
				w.sendWith("X-MTA-Campaign: autumn\r\n", fmt.Sprintf("h%d@autumn.example", i))
			}
			w.waits("pace", "h4@autumn.example")
			if n := w.delivered("@autumn.example"); n > 1 {
				t.Errorf("%d messages of the campaign have left, want one at most in half an hour", n)
			}
		},
		"why mail bounced today": func() { w.has("550 5.1.1 no such user here", "InvalidRecipient") },
	}
	for _, part := range strings.Split(readFile(t, "testdata/wishes.sh"), "\n\n")[1:] {
		wish, command, _ := strings.Cut(strings.TrimPrefix(part, "# "), "\n")
		check := came[wish]
		if delete(came, wish); check == nil || strings.Count(strings.TrimSpace(command), "\n") > 0 {
			t.Errorf("%q has no check, or more than one command", wish)
			continue
		}
		switch wish {
		case "the hosts that asked to come again are tried now":
			w.grey.Store(false)
		case "why mail bounced today":
			w.send("", "nobody@other.example")
			w.records("Bounce", "nobody@other.example")
		}
		w.run(strings.ReplaceAll(command, "mx.new.example", "mx.new.example:"+w.port)) // hosts here have another than 25
		t.Logf("%s\n$ %s\n%s", wish, strings.TrimSpace(command), w.said)
		check()
	}
	for wish := range came {
		t.Errorf("the script lacks %q", wish)
	}
}

func newWishes(t *testing.T) *wishes {
	t.Helper()
	w := &wishes{t: t, taken: sink.NewRecorder(sink.Deliveries, 0)}
	w.grey.Store(true)
	const addr = "127.34.0.1" // of all hosts but the dead one
	port := commonPort(t, addr, "127.34.0.9")
	w.port = port
	mailHost(t, net.JoinHostPort(addr, port), sink.Config{Recorder: w.taken, Hook: w.answer})
	zone := "mx.new.example. 60 IN A " + addr + "\n"
	names := []string{"grey", "full", "big", "typo", "other", "home", "autumn"}
	for i := range 20 {
		names = append(names, fmt.Sprintf("far%d", i))
	}
	for _, name := range names {
		zone += fmt.Sprintf("%[1]s.example. 60 IN MX 10 mx.%[1]s.example.\nmx.%[1]s.example. 60 IN A %[2]s\n", name, addr)
	}
	zone += "dead.example. 60 IN A 127.34.0.9\n"
	w.relay = newRelay(t, serveNames(t, sink.MustZone(zone)), port, takingAll+`tenant "acme" {}
source "out-1" { address = "127.34.1.1" }
source "out-2" { address = "127.34.1.2" }
provider "big" { mx = ["mx.big.example"] }
`)
	writeFile(t, w.config, strings.NewReplacer(`retry_interval     = "1s"`, `retry_interval     = "3h"`,
		`max_retry_interval = "2s"`, `max_retry_interval = "4h"`).Replace(readFile(t, w.config)))
	w.start(t)
	if err := os.Symlink(binary, filepath.Join(w.dir, "mta")); err != nil {
		t.Fatal(err)
	}
	return w
}

// answer is the hosts' to RCPT.
func (w *wishes) answer(c sink.Command) (a sink.Answer) {
	switch {
	case c.Phase != sink.Rcpt:
	case strings.Contains(c.Line, "@grey.example") && w.grey.Load():
		a.Reply = "451 4.7.1 Greylisted, please come again"
	case strings.Contains(c.Line, "@full.example"):
		a.Reply = "452 4.2.2 The mailbox is over quota"
	case strings.Contains(c.Line, "nobody@"):
		a.Reply = "550 5.1.1 no such user here"
	}
	return a
}

// run runs a line of the script.
func (w *wishes) run(line string) {
	w.t.Helper()
	w.said = runClient(w.t, "", "env", "PATH="+w.dir+":"+os.Getenv("PATH"), "MTA_CONFIG="+w.config, "sh", "-euc", line)
}

func (w *wishes) has(texts ...string) {
	w.t.Helper()
	for _, text := range texts {
		if !strings.Contains(w.said, text) {
			w.t.Errorf("lacks %q:\n%s", text, w.said)
		}
	}
}

// send submits a message of a tenant.
func (w *wishes) send(tenant, to string) {
	w.t.Helper()
	fields := ""
	if tenant != "" {
		fields = "X-MTA-Tenant: " + tenant + "\r\n"
	}
	w.sendWith(fields, to)
}

func (w *wishes) sendWith(fields, to string) {
	w.t.Helper()
	s, err := dialSession(w.addr)
	if err != nil {
		w.t.Fatal(err)
	}
	defer s.close()
	content := "Subject: a wish\r\nMessage-ID: <" + to + ">\r\n" + fields + "\r\n"
	if _, err := s.send("sender@home.example", []string{to}, content); err != nil {
		w.t.Fatal(err)
	}
}

// waits waits until a recipient waits for a class of reason.
func (w *wishes) waits(reason, to string) {
	w.t.Helper()
	eventually(w.t, patience, func() error {
		if list := w.mta(w.t, "queue", "list", "--waits-for", reason, "--recipient", to); !strings.Contains(list, to) {
			return fmt.Errorf("%s does not wait for %s:\n%s%s", to, reason, w.mta(w.t, "status"), w.mta(w.t, "queue", "list"))
		}
		return nil
	})
}

// records waits until the accounting log has a record of a type for a recipient.
func (w *wishes) records(kind, to string) {
	w.t.Helper()
	eventually(w.t, patience, func() error {
		if log := w.mta(w.t, "log", "--recipient", to); !strings.Contains(log, kind) {
			return fmt.Errorf("no %s:\n%s", kind, log)
		}
		return nil
	})
}

// arrives waits until a host has taken the mail to a recipient.
func (w *wishes) arrives(to string) (d sink.Delivery) {
	w.t.Helper()
	eventually(w.t, patience, func() error {
		for _, d = range w.taken.Deliveries() {
			if d.Recipient == to {
				return nil
			}
		}
		return errors.New("nothing has come to " + to)
	})
	return d
}

// delivered counts what came to a domain.
func (w *wishes) delivered(domain string) (n int) {
	for _, d := range w.taken.Deliveries() {
		if strings.HasSuffix(d.Recipient, domain) {
			n++
		}
	}
	return n
}
