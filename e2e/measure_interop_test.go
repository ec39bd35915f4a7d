package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"example.org/mta/lab/bench"
)

// TestMeasurePipelinedModesWithRealServers sends under load to servers that others wrote, some of
// the recipients being refused, with CHUNKING and with PIPELINING alone: each recipient gets each
// message once, or its sender is told.
func TestMeasurePipelinedModesWithRealServers(t *testing.T) {
	besideOthers(t, fullSize())
	for _, mode := range []string{"auto", "pipelining"} {
		t.Run(mode, func(t *testing.T) { interop(t, mode, sized(t, 1000, 20)) })
	}
}

// interop sends that many messages to each server.
func interop(t *testing.T, mode string, perServer int) {
	// OpenSMTPD has neither extension: it gets the mail in lock-step.
	f := newFieldWith(t, "", fmt.Sprintf("domain \"*\" {\n  pipelining = %q\n  connection_limit = 10\n}\n", mode), postfix, exim, opensmtpd)
	servers := len(f.servers)
	// Of five messages to a server, three are for one, one for three of whom one is refused, and
	// one for somebody who is refused.
	to := func(n int) []string {
		domain := f.servers[n%servers].domain
		switch n / servers % 5 {
		case 3:
			return []string{fmt.Sprintf("user-%d-0@%s", n, domain), fmt.Sprintf("refused-%d-1@%s", n, domain), fmt.Sprintf("user-%d-2@%s", n, domain)}
		case 4:
			return []string{fmt.Sprintf("refused-%d-0@%s", n, domain)}
		}
		return []string{fmt.Sprintf("user-%d-0@%s", n, domain)}
	}
	l := &bench.Load{Messages: perServer * servers, Connections: 10, Size: 2048, Sender: "boss@" + f.servers[0].domain, To: to}
	submit(t, l, f.relay.addr)
	f.relay.drained(t, 4*time.Minute)
	took := time.Since(l.Began)

	ends := make(map[string]string)
	for _, e := range accounts(t, f.relay.dir) {
		if e.Type == "Delivery" || e.Type == "Bounce" {
			ends[e.Recipient] += e.Type
		}
	}
	want := make(map[string]map[string]bool) // server -> id and recipient
	for _, s := range f.servers {
		want[s.name] = make(map[string]bool)
	}
	for n := range l.Messages {
		for _, rcpt := range to(n) {
			end := "Delivery"
			if strings.HasPrefix(rcpt, "refused") {
				end = "Bounce"
			} else {
				want[f.servers[n%servers].name][fmt.Sprintf("%d %s", n, rcpt)] = true
			}
			if ends[rcpt] != end {
				t.Errorf("%s ends by %q in the accounting log, want one %s", rcpt, ends[rcpt], end)
			}
		}
	}
	for _, s := range f.servers {
		eventually(t, 3*time.Minute, func() error {
			if n := s.count(t); n < len(want[s.name]) {
				return fmt.Errorf("%s has %d messages, want at least %d", s.name, n, len(want[s.name]))
			}
			return nil
		})
		got := make(map[string]int)
		for _, m := range s.messages(t) {
			if id := m.field("X-Mta-Test-Id"); id != "" { // a report to the sender has none
				got[id+" "+m.recipient()]++
			}
		}
		for key := range want[s.name] {
			if got[key] != 1 {
				t.Errorf("%s has %d copies of %s", s.name, got[key], key)
			}
			delete(got, key)
		}
		if len(got) > 0 {
			t.Errorf("%s has what nobody was sent: %v", s.name, got)
		}
	}
	if !fullSize() || t.Failed() {
		return
	}
	var names []string
	for _, s := range f.servers {
		names = append(names, s.name)
	}
	publish(t, "Real servers as receivers, pipelining = "+mode, fmt.Sprintf(
		"%s, %d messages to each: all settled within %s, each recipient once, each refused one reported.\n",
		strings.Join(names, ", "), perServer, took.Round(100*time.Millisecond)), footnote(t))
}

// count is how many messages there are, without reading them.
func (s *server) count(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir(s.inbox + "/new")
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return len(entries)
}

// recipient is what Postfix, Exim or OpenSMTPD wrote down as the envelope's.
func (m stored) recipient() string {
	for _, name := range []string{"X-Original-To", "Envelope-to", "Delivered-To"} {
		if v := m.field(name); v != "" {
			return v
		}
	}
	return ""
}
