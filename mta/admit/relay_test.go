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
	"example.org/mta/internal/handover"
	"example.org/mta/mta/admit"
	"example.org/mta/queue"
	"example.org/mta/queue/vfs"
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

func (q queueOf) Begin(size int64) intake.Draft {
	d := q.Queue.Begin()
	d.Expect(size)
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

// relay is submission on a queue on a slow disk, and a gate between; one server for each tier.
type relay struct {
	q       *queue.Queue
	gate    *admit.Gate
	servers map[uint8]*handover.Listener
	sent    atomic.Int64 // messages; each is another one to the gate
}

// client has an SMTP session.
type client struct {
	*textproto.Conn
	relay *relay
}

func (r *relay) dial(tier uint8) *client {
	ours, theirs := net.Pipe()
	r.servers[tier].Give(clientConn{theirs})
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
			lasts  = 30 * time.Second
			longed = 250 * time.Millisecond
		)
		q, err := queue.Open(queue.Config{Dir: "/q", FS: &slowFS{vfs.Memory(), pace}})
		if err != nil {
			t.Fatal(err)
		}
		r := &relay{q: q, servers: make(map[uint8]*handover.Listener), gate: admit.New(
			admit.Settings{Mode: admit.Utilisation, SyncLatency: 100 * time.Millisecond},
			admit.Machine{
				Now: time.Now, Room: func() int64 { return 1 << 40 }, Memory: func() int64 { return 1 << 20 }, Slots: 4096,
				Mail: func() (due, off int64) { return 0, 0 },
			})}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { r.gate.Run(ctx) })
		got := make(map[uint8]*outcome)
		var servers []*submission.Server
		for _, tier := range []uint8{1, 3, 4} {
			got[tier] = &outcome{refusals: make(map[string]int)}
			s := submission.New(submission.Config{Intake: intake.Config{Hostname: "relay.example", Store: queueOf{q}, Admission: r.gate, Tier: tier, TierCeiling: tier, Tenant: "t"}, RelayFrom: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
			l := handover.New()
			r.servers[tier], servers = l, append(servers, s)
			running.Go(func() { s.Serve(l) })
		}
		offer(r, got, rate, lasts)
		for _, s := range servers {
			s.Shutdown(t.Context())
		}
		stop()
		running.Wait()
		accepted := 0
		for tier, o := range got {
			accepted += o.taken
			slices.Sort(o.took)
			t.Logf("tier %d: %d of %d accepted, p99 %v, refused %v", tier, o.taken, o.offered, o.took[len(o.took)*99/100], o.refusals)
		}
		if one := got[1]; float64(one.taken) < .995*float64(one.offered) || one.took[len(one.took)*99/100] > longed {
			t.Errorf("tier 1: %d of %d accepted, p99 %v", one.taken, one.offered, one.took[len(one.took)*99/100])
		}
		if got[3].taken*got[4].offered < got[4].taken*got[3].offered {
			t.Error("tier 4 was shed less than tier 3")
		}
		if d := got[4].slowest; d > 5*time.Millisecond {
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

// offer submits messages at random times. A fifth is of tier 1.
func offer(r *relay, got map[uint8]*outcome, rate float64, lasts time.Duration) {
	var all sync.WaitGroup
	random := rand.New(rand.NewPCG(1, 2))
	tiers := []uint8{1, 3, 3, 4, 4}
	var mu sync.Mutex
	idle := make(map[uint8][]*client)
	for end := time.Now().Add(lasts); time.Now().Before(end); {
		time.Sleep(time.Duration(random.ExpFloat64() / rate * float64(time.Second)))
		tier := tiers[random.IntN(len(tiers))]
		content := "Subject: x\r\n\r\n" + strings.Repeat("x", 500+random.IntN(500))
		all.Go(func() {
			mu.Lock()
			var c *client
			if n := len(idle[tier]); n > 0 {
				c, idle[tier] = idle[tier][n-1], idle[tier][:n-1]
			}
			mu.Unlock()
			if c == nil {
				c = r.dial(tier)
			}
			began, o := time.Now(), got[tier]
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
			idle[tier] = append(idle[tier], c)
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
