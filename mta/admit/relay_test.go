package admit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/network"
	"example.org/mta/mta/admit"
	"example.org/mta/queue"
	"example.org/mta/queue/vfs"
	"example.org/mta/queue/vfs/vfstest"
	"example.org/mta/submission"
	"example.org/mta/submission/intake"
)

// slowFS is a disk that writes so many octets a second when it syncs, and takes 2 ms besides.
type slowFS struct {
	vfs.FS
	pace float64
}

func (f *slowFS) Create(name string) (vfs.File, error)    { return f.wrap(f.FS.Create(name)) }
func (f *slowFS) OpenWrite(name string) (vfs.File, error) { return f.wrap(f.FS.OpenWrite(name)) }

func (f *slowFS) wrap(inner vfs.File, err error) (vfs.File, error) {
	return &slowFile{File: inner, fs: f}, err
}

type slowFile struct {
	vfs.File
	fs    *slowFS
	dirty atomic.Int64
}

func (f *slowFile) WriteAt(p []byte, off int64) (int, error) {
	f.dirty.Add(int64(len(p)))
	return f.File.WriteAt(p, off)
}

func (f *slowFile) Sync() error {
	time.Sleep(2*time.Millisecond + time.Duration(float64(f.dirty.Swap(0))/f.fs.pace*float64(time.Second)))
	return f.File.Sync()
}

// clientConn is a pipe that comes from this machine.
type clientConn struct{ net.Conn }

func (clientConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4000} }

// queueOf stores what submission takes.
type queueOf struct{ *queue.Queue }

func (q queueOf) Begin(owner intake.Owner, size int64) intake.Draft {
	d := q.Queue.Begin()
	d.Expect(owner, size)
	return d
}

// outcome is what became of a tier's messages.
type outcome struct {
	mu             sync.Mutex
	offered, taken int
	took           []time.Duration // from MAIL to 250
	slowest        time.Duration   // reply to MAIL
	refusals       map[string]int  // by the start of the reply
}

// relay is submission on a queue on a slow disk, and a gate between; one server for each listener.
type relay struct {
	q       *queue.Queue
	gate    *admit.Gate
	servers map[listener]*network.Handover
	sent    atomic.Int64 // messages; each is another one to the gate
}

// listener is for the mail of a tenant.
type listener struct {
	tenant string
	tier   uint8
}

// client has an SMTP session.
type client struct {
	*textproto.Conn
	relay *relay
}

func (r *relay) dial(l listener) *client {
	ours, theirs := net.Pipe()
	r.servers[l].Give(clientConn{theirs})
	c := &client{textproto.NewConn(ours), r}
	c.ReadResponse(220)
	c.cmd("EHLO client.example")
	return c
}

func (c *client) cmd(line string) (code int, text string) {
	if c.PrintfLine("%s", line) != nil {
		return 0, "lost"
	}
	code, text, _ = c.ReadResponse(0)
	return code, text
}

// send submits a message, and returns the reply that decided, and how long MAIL took.
func (c *client) send(content string) (code int, text string, mail time.Duration) {
	began := time.Now()
	if code, text = c.cmd(fmt.Sprintf("MAIL FROM:<a@sender.example> SIZE=%d", c.relay.sent.Add(1))); code != 250 {
		return code, text, time.Since(began)
	}
	mail = time.Since(began)
	c.cmd("RCPT TO:<b@rcpt.example>")
	if code, text = c.cmd("DATA"); code != 354 {
		return code, text, mail
	}
	code, text = c.cmd(content + "\r\n.")
	return code, text, mail
}

// TestA6_TheRelayServesTheMostImportant has a relay whose disk takes some 300 messages a second, and
// three times that offered, from its start on: tier 1, which fits, is accepted at once, the others
// are shed from the last, what was accepted is in the queue, and the line does not grow.
func TestA6_TheRelayServesTheMostImportant(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const (
			pace   = 400_000 // octets a second; a message takes some 1,300
			rate   = 900.
			lasts  = 12 * time.Second
			longed = 250 * time.Millisecond
		)
		var listeners []listener
		for _, tier := range []uint8{1, 3, 3, 4, 4} {
			listeners = append(listeners, listener{"t", tier})
		}
		q, got := overloaded(t, pace, rate, lasts, listeners)
		accepted := 0
		of := func(tier uint8) *outcome { return got[listener{"t", tier}] }
		for l, o := range got {
			accepted += o.taken
			slices.Sort(o.took)
			t.Logf("tier %d: %d of %d accepted, p99 %v, refused %v", l.tier, o.taken, o.offered, o.took[len(o.took)*99/100], o.refusals)
		}
		if one := of(1); float64(one.taken) < .995*float64(one.offered) || one.took[len(one.took)*99/100] > longed {
			t.Errorf("tier 1: %d of %d accepted, p99 %v", one.taken, one.offered, one.took[len(one.took)*99/100])
		}
		if of(3).taken*of(4).offered < of(4).taken*of(3).offered {
			t.Error("tier 4 was shed less than tier 3")
		}
		if d := of(4).slowest; d > 5*time.Millisecond {
			t.Errorf("a reply to MAIL took %v", d)
		}
		if s := q.Stats(); s.Queued != int64(accepted) {
			t.Errorf("%d messages were accepted, %d are in the queue", accepted, s.Queued)
		}
		if accepted < int(.7*300*lasts.Seconds()) {
			t.Errorf("%d messages were accepted", accepted)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
}

// overloaded has a relay whose disk writes so many octets a second, and messages offered to its listeners, so many
// a second together.
func overloaded(t *testing.T, pace, rate float64, lasts time.Duration, listeners []listener) (*queue.Queue, map[listener]*outcome) {
	q, err := queue.Open(queue.Config{Dir: "/q", FS: &slowFS{vfstest.Memory(), pace}})
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{q: q, servers: make(map[listener]*network.Handover), gate: admit.New(
		admit.Settings{Mode: admit.Utilisation, SyncLatency: 100 * time.Millisecond},
		admit.Machine{
			Now: time.Now, Room: func() int64 { return 1 << 40 }, Memory: func() int64 { return 1 << 20 }, Slots: 4096,
		})}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.gate.Run(ctx) })
	got := make(map[listener]*outcome)
	var servers []*submission.Server
	for _, l := range listeners {
		if got[l] != nil {
			continue
		}
		got[l] = &outcome{refusals: make(map[string]int)}
		s := submission.New(submission.Config{
			Intake:    intake.Config{Hostname: "relay.example", Store: queueOf{q}, Admission: r.gate, Tier: l.tier, TierCeiling: l.tier, Tenant: l.tenant},
			RelayFrom: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		})
		in := network.NewHandover()
		r.servers[l], servers = in, append(servers, s)
		running.Go(func() { s.Serve(in) })
	}
	offer(r, got, rate, lasts, listeners)
	for _, s := range servers {
		s.Shutdown(t.Context())
	}
	stop()
	running.Wait()
	return q, got
}

// TestA16_TheRelayServesTenantsAlike offers mail of two tenants of one tier, three times what the disk takes.
func TestA16_TheRelayServesTenantsAlike(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		listeners := []listener{{"one", 3}, {"two", 3}}
		q, got := overloaded(t, 400_000, 900, 8*time.Second, listeners)
		one, two := got[listeners[0]], got[listeners[1]]
		share := float64(one.taken) / float64(one.taken+two.taken)
		t.Logf("%d of %d and %d of %d are accepted", one.taken, one.offered, two.taken, two.offered)
		if share < .45 || share > .55 || one.taken+two.taken < int(.7*300*8) {
			t.Errorf("%d and %d messages are accepted of two equal tenants", one.taken, two.taken)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
}

// offer submits messages at random times, to random listeners.
func offer(r *relay, got map[listener]*outcome, rate float64, lasts time.Duration, listeners []listener) {
	var all sync.WaitGroup
	random := rand.New(rand.NewPCG(1, 2))
	var mu sync.Mutex
	idle := make(map[listener][]*client)
	for end := time.Now().Add(lasts); time.Now().Before(end); {
		time.Sleep(time.Duration(random.ExpFloat64() / rate * float64(time.Second)))
		l := listeners[random.IntN(len(listeners))]
		content := "Subject: x\r\n\r\n" + strings.Repeat("x", 500+random.IntN(500))
		all.Go(func() {
			mu.Lock()
			var c *client
			if n := len(idle[l]); n > 0 {
				c, idle[l] = idle[l][n-1], idle[l][:n-1]
			}
			mu.Unlock()
			if c == nil {
				c = r.dial(l)
			}
			began, o := time.Now(), got[l]
			code, text, mail := c.send(content)
			o.mu.Lock()
			o.slowest = max(o.slowest, mail)
			if o.offered++; code == 250 {
				o.taken++
				o.took = append(o.took, time.Since(began))
			} else {
				o.refusals[text[:min(len(text), 30)]]++
			}
			o.mu.Unlock()
			if code == 421 || code == 0 {
				c.Close()
				return
			}
			mu.Lock()
			idle[l] = append(idle[l], c)
			mu.Unlock()
		})
	}
	all.Wait()
	for _, clients := range idle {
		for _, c := range clients {
			c.Close()
		}
	}
}
