package mta

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"example.org/mta/lab/sink"
	"example.org/mta/mta/listen"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
)

// clients counts messages by the address that the provider saw, and names each source by EHLO.
func clients(ms []sink.Message) map[string]int {
	seen := make(map[string]int)
	for _, m := range ms {
		seen[m.Client.Addr().Unmap().String()+" "+m.Helo]++
	}
	return seen
}

func TestMailLeavesFromThePresentSources(t *testing.T) {
	w := newWorld(t, sink.Config{}, `
		defaults { smtp_port = PORT }
		source "two" {
			address = "127.0.0.2"
			ehlo    = "two.example"
		}
		source "three" {
			address = "127.0.0.3"
			ehlo    = "three.example"
		}
		source "gone" { address = "192.0.2.77" }`)
	for i := range 60 {
		w.send("ann@client.example", letter, fmt.Sprintf("u%d@box.example", i))
	}
	seen := clients(w.arrived(60))
	if len(seen) != 2 || seen["127.0.0.2 two.example"] < 10 || seen["127.0.0.3 three.example"] < 10 {
		t.Errorf("mail came from %v", seen)
	}
	if !w.sources.Missing("gone") || w.sources.Missing("two") {
		t.Error("the wrong sources are left out")
	}
}

func TestMailWaitsForItsSources(t *testing.T) {
	var moved atomic.Bool
	bind := func(netip.Addr) error {
		if moved.Load() {
			return syscall.EADDRNOTAVAIL
		}
		return nil
	}
	w := newWorldWith(t, Options{Bind: bind}, sink.Config{}, `
		defaults { smtp_port = PORT }
		source "moved" { address = "127.0.0.9" }`)
	set := func(on bool) {
		moved.Store(on)
		w.sources.Check()
	}
	set(true)
	w.send("ann@client.example", letter, "bob@box.example")
	w.await("bob@box.example", "TransientFailure")
	l, err := w.queue.List(queue.Filter{Domain: "box.example"}, queue.Page{Limit: 1})
	if err != nil || len(l.Items) != 1 {
		t.Fatalf("queued %+v, %v", l.Items, err)
	}
	rc := l.Items[0].Recipients[0]
	if want := `451 4.3.5 this machine has the address of no source of pool "default": moved`; rc.Last.String() != want {
		t.Errorf("it waits because %q, want %q", rc.Last.String(), want)
	}
	if wait := time.Until(rc.Next); wait < 4*time.Minute || wait > 10*time.Minute {
		t.Errorf("it is looked at again in %v", wait)
	}
	set(false)
	if _, err := w.api.Queue.Change(context.Background(), api.Change{Action: api.Retry, All: true}); err != nil {
		t.Fatal(err)
	}
	if ms := w.arrived(1); ms[0].Client.Addr().Unmap() != netip.MustParseAddr("127.0.0.9") {
		t.Errorf("it came from %v", ms[0].Client)
	}
}

func TestMailLeavesThroughProxies(t *testing.T) {
	socks, err := sink.SOCKS5Proxy(netip.MustParseAddr("127.0.0.7"), "relay", "s3cret", 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(socks.Close)
	haproxy, err := sink.HAProxy()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(haproxy.Close)
	w := newWorld(t, sink.Config{}, fmt.Sprintf(`
		defaults { smtp_port = PORT }
		source "socks" {
			ehlo           = "socks.example"
			proxy          = "socks5://%s"
			proxy_username = "relay"
			proxy_password = "s3cret"
		}
		source "haproxy" {
			address = "127.0.0.8"
			ehlo    = "haproxy.example"
			proxy   = "haproxy://%s"
		}`, socks.Addr, haproxy.Addr))
	for i := range 40 {
		w.send("ann@client.example", letter, fmt.Sprintf("u%d@box.example", i))
	}
	seen := clients(w.arrived(40))
	if len(seen) != 2 || seen["127.0.0.7 socks.example"] < 5 || seen["127.0.0.8 haproxy.example"] < 5 {
		t.Errorf("mail came from %v", seen)
	}
	if r := haproxy.Requests()[0]; r.From != netip.MustParseAddr("127.0.0.8") || r.To.String() != "127.0.0.1:"+w.port {
		t.Errorf("the header said %+v", r)
	}
}

func TestABrokenProxyIsNoFaultOfTheHost(t *testing.T) {
	w := newWorld(t, sink.Config{}, `
		defaults { smtp_port = PORT }
		source "proxied" { proxy = "socks5://127.0.0.1:1" }
		source "direct" { address = "127.0.0.2" }
		pool "proxied" { shared = ["proxied"] }
		pool "default" { shared = ["direct"] }
		tenant "proxied" { pool = "proxied" }
		listener "proxied" {
			address = "127.0.0.1:0"
			tenant  = "proxied"
		}`)
	w.sendTo(w.listeners.Addresses(listen.SMTP)[1], "ann@client.example", letter, "bob@box.example")
	w.await("bob@box.example", "TransientFailure")
	l, err := w.queue.List(queue.Filter{Recipient: "bob@box.example"}, queue.Page{Limit: 1})
	if err != nil || len(l.Items) != 1 {
		t.Fatalf("queued %+v, %v", l.Items, err)
	}
	if got := l.Items[0].Recipients[0].Last.Text; !strings.HasSuffix(got, "socks5 proxy 127.0.0.1:1: connect: connection refused") {
		t.Errorf("it waits because %q", got)
	}
	w.send("ann@client.example", letter, "eve@box.example")
	if got := w.arrived(1)[0]; got.Recipients[0] != "eve@box.example" {
		t.Errorf("arrived %v", got.Recipients)
	}
}
