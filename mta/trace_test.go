package mta

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/internal/testca"
	"example.org/mta/lab/sink"
	"example.org/mta/operator/api"
)

// watching is somebody who watches until the test ends.
type watching struct {
	t     *testing.T
	lines chan api.TraceLine
	seen  []api.TraceLine
}

// watch returns when the watch has begun.
func (w *world) watch(q api.TraceQuery) *watching {
	v := &watching{t: w.t.(*testing.T), lines: make(chan api.TraceLine, 10_000)}
	ctx, cancel := context.WithCancel(context.Background())
	begun, ended := make(chan struct{}), make(chan struct{})
	var once sync.Once
	go func() {
		defer close(ended)
		w.tracer.Trace(ctx, q, func(l api.TraceLine) error { v.lines <- l; return nil }, func() { once.Do(func() { close(begun) }) })
	}()
	w.t.Cleanup(func() { cancel(); <-ended })
	<-begun
	return v
}

// until collects lines up to the first that has words in it.
func (v *watching) until(words string) []api.TraceLine {
	v.t.Helper()
	timeout := time.After(limit)
	for {
		select {
		case l := <-v.lines:
			v.seen = append(v.seen, l)
			if strings.Contains(l.Text, words) {
				return v.seen
			}
		case <-timeout:
			v.t.Fatalf("no line with %q in\n%s", words, said(v.seen))
		}
	}
}

func said(lines []api.TraceLine) string {
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "%s %s\n", l.Direction, l.Text)
	}
	return b.String()
}

// servedBy is for a host that has a certificate of an authority, for mx.box.example.
func servedBy(t *testing.T, ca *testca.Authority) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{*ca.Issue(t, []string{"mx.box.example"})}}
}

func TestTraceShowsConversationsWithoutCredentials(t *testing.T) {
	const user, password = "robin", "correct-horse-battery"
	ca := testca.New(t)
	w := newWorld(t, sink.Config{TLS: servedBy(t, ca), Auth: func(u, p string) bool { return u == user && p == password }}, fmt.Sprintf(`
		defaults { smtp_port = PORT }
		domain "box.example" {
			route = ["smtp://mx.box.example:PORT"]
			tls_ca = %q
			username = %q
			password = %q
		}`, ca.File(t), user, password))
	v := w.watch(api.TraceQuery{})
	w.send("ann@client.example", letter, "bob@box.example")
	w.arrived(1)
	lines := v.until("250 2.0.0 ")
	text := said(lines)
	for _, want := range []string{"< 220 ", "> EHLO relay.example", "> AUTH PLAIN ***", "< 235 ", "> MAIL FROM:<ann@client.example>", "> RCPT TO:<bob@box.example>"} {
		if !strings.Contains(text, want) {
			t.Errorf("no line %q in\n%s", want, text)
		}
	}
	secret := base64.StdEncoding.EncodeToString([]byte("\x00" + user + "\x00" + password))
	for _, never := range []string{password, base64.StdEncoding.EncodeToString([]byte(password)), secret, "Subject: hello", "two dots"} {
		if strings.Contains(text, never) {
			t.Errorf("%q is shown in\n%s", never, text)
		}
	}
	for _, l := range lines {
		if l.Session == "" || l.Host == "" || l.Site == "" || l.Source != "default" || l.Time.IsZero() {
			t.Fatalf("line %+v lacks something", l)
		}
		if inTransaction := strings.HasPrefix(l.Text, "MAIL"); inTransaction && l.Message == "" {
			t.Errorf("line %+v without its message", l)
		}
	}
}

// TestTraceSeesOpenConnections: who begins to watch late sees what goes over a connection that
// stands, and content when he asks for it.
func TestTraceSeesOpenConnections(t *testing.T) {
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	w.send("ann@client.example", letter, "bob@box.example")
	w.await("bob@box.example", "Delivery")
	v := w.watch(api.TraceQuery{Site: "MX.box.example", Recipient: "@box.example", Content: true})
	plain := w.watch(api.TraceQuery{Recipient: "eve@box.example"})
	other := w.watch(api.TraceQuery{Recipient: "nobody@box.example"})
	elsewhere := w.watch(api.TraceQuery{Site: "elsewhere.example"})
	w.send("ann@client.example", letter, "eve@box.example")
	w.arrived(2)
	text := said(v.until("250 2.0.0 "))
	if strings.Contains(text, "EHLO") || !strings.Contains(text, "RCPT TO:<eve@box.example>") || !strings.Contains(text, "Subject: hello") {
		t.Errorf("on the open connection was said\n%s", text)
	}
	if text := said(plain.until("250 2.0.0 ")); strings.Contains(text, "Subject") || !strings.Contains(text, "RCPT TO:<eve@box.example>") {
		t.Errorf("without content was said\n%s", text)
	}
	if n := len(other.lines) + len(elsewhere.lines); n > 0 {
		t.Errorf("%d lines were shown to those who asked for others", n)
	}
}

// TestTraceOfClients shows sessions of clients, those that are open already too, by listener and
// address, and to nobody else.
func TestTraceOfClients(t *testing.T) {
	w := newWorld(t, sink.Config{}, `
		defaults { smtp_port = PORT }
		listener "other" { address = "127.0.0.1:0" }`)
	hosts := w.watch(api.TraceQuery{})
	other := w.watch(api.TraceQuery{Clients: true, Listener: "other"})
	far := w.watch(api.TraceQuery{Clients: true, Client: netip.MustParsePrefix("192.0.2.0/24")})
	near := w.watch(api.TraceQuery{Clients: true, Client: netip.MustParsePrefix("127.0.0.0/8")})
	w.send("ann@client.example", letter, "bob@box.example")
	lines := near.until("closing connection")
	if l := lines[0]; l.Listener != "smtp" || !strings.HasPrefix(l.Client, "127.0.0.1:") || l.Session == "" || l.Host != "" || l.Direction != ">" {
		t.Errorf("first line %+v", l)
	}
	text := said(lines)
	if !strings.Contains(text, "RCPT TO:<bob@box.example>") || !strings.Contains(text, "octets of content") || strings.Contains(text, "Subject") {
		t.Errorf("shown\n%s", text)
	}
	for _, l := range hosts.until("MAIL FROM:<ann@client.example>") {
		if l.Client != "" {
			t.Errorf("who watches hosts sees a client: %+v", l)
		}
	}
	if n := len(other.lines) + len(far.lines); n != 0 {
		t.Errorf("%d lines of a session that was not asked for", n)
	}
}
