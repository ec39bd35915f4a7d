package milter

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
)

// cpu is a processor that does all work by turns, as that of a milter with a thread for each connection does: work that
// nobody waits for any more, too.
type cpu chan struct{}

func (c cpu) scan(conn net.Conn, work time.Duration) {
	if negotiated(conn, 6, 0, 0x7f) != nil {
		return
	}
	go deaf(conn)
	for range 20 {
		c <- struct{}{}
		time.Sleep(work / 20)
		<-c
	}
	conn.Write([]byte{0, 0, 0, 1, 'r'})
}

// moment is one until which something lasts.
type moment struct{ atomic.Int64 }

func (m *moment) set(after time.Duration) { m.Store(time.Now().Add(after).UnixNano()) }
func (m *moment) ahead() bool             { return time.Now().UnixNano() < m.Load() }

// tell asks about a message of a tenant, and returns the begin of the answer: "" for mail that passes unchecked.
func tell(ms *Milters, ctx context.Context, tenant string) string {
	got := text(ms.Of("smtp").Filter(ctx, of(tenant)).Refused)
	return got[:min(9, len(got))]
}

// Scans share a processor, and a crowd of them are all late. That is no failure of the milter: nothing passes
// unchecked. The milter gets as many as it can decide on, and others' mail is among that.
func TestOverload(t *testing.T) {
	for _, work := range []time.Duration{300 * time.Millisecond, time.Second} {
		bubble.Test(t, func(t *testing.T) {
			c := make(cpu, 1)
			ms := with(func(conn net.Conn) { c.scan(conn, work) }, Settings{Accept: true, Timeout: 10 * time.Second})
			var done atomic.Bool
			var all sync.WaitGroup
			var decided [2]atomic.Int64
			from := func(i int, tenant string, wait time.Duration) {
				all.Go(func() {
					for !done.Load() {
						switch got := tell(ms, t.Context(), tenant); got {
						case "":
							t.Errorf("mail of %s passes unchecked: %s", tenant, ms.Trouble())
							done.Store(true)
						case "550 5.7.1":
							decided[i].Add(1)
						}
						time.Sleep(wait)
					}
				})
			}
			for range 100 {
				from(0, "evil", 0)
			}
			from(1, "acme", 500*time.Millisecond)
			time.Sleep(10 * time.Minute)
			done.Store(true)
			all.Wait()
			t.Logf("%v: %d and %d", work, decided[0].Load(), decided[1].Load())
			if n := decided[0].Load() + decided[1].Load(); n < int64(5*time.Minute/work) {
				t.Errorf("of work of %v the milter does only %d", work, n)
			}
			if n := decided[1].Load(); n < 50 {
				t.Errorf("of the other tenant's only %d", n)
			}
			time.Sleep(5 * time.Minute)
			synctest.Wait()
		})
	}
}

// A milter that hangs for good has failed when its answer to a message alone is late: mail passes, as on_error says.
func TestHangs(t *testing.T) {
	for name, serve := range map[string]func(net.Conn){
		"takes no connection": deaf,
		"answers nothing":     func(c net.Conn) { negotiated(c, 6, 0, 0x7f); deaf(c) },
	} {
		for _, tenants := range []int{1, 20} {
			bubble.Test(t, func(t *testing.T) {
				ms := with(serve, Settings{Accept: true, Timeout: 10 * time.Second})
				var passed atomic.Int64
				var all sync.WaitGroup
				ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
				for i := range 40 {
					all.Go(func() {
						for ctx.Err() == nil {
							if tell(ms, ctx, string(rune('a'+i%tenants))) == "" {
								passed.Add(1)
							}
							time.Sleep(time.Second)
						}
					})
				}
				time.Sleep(4 * time.Minute)
				early := passed.Load()
				time.Sleep(2 * time.Minute)
				n := passed.Load()
				if early == 0 || n < early+20*60 {
					t.Errorf("%s, %d tenants: in 4 minutes %d passed, then %d", name, tenants, early, n-early)
				}
				if got := ms.Trouble(); !strings.Contains(got, "messages have passed milter scan unchecked, the last at 2000-01-01T00:0") {
					t.Errorf("trouble: %q", got)
				}
				t.Logf("%s, %d tenants: in 4 minutes %d passed, then %d", name, tenants, early, n-early)
				stop()
				all.Wait()
				time.Sleep(time.Minute)
				synctest.Wait()
			})
		}
	}
}

// A milter takes few connections at a time, and a tenant has messages that take nearly all of the time each. Others'
// mail waits for the milter's next answer alone, and for none of that tenant's in front of it.
func TestSlowMailOfOthers(t *testing.T) {
	for _, workers := range []int{1, 4} {
		bubble.Test(t, func(t *testing.T) {
			backlog := make(chan net.Conn, 200)
			for range workers {
				go func() {
					for c := range backlog {
						if negotiated(c, 6, 0, 0) == nil {
							macros := make([]byte, 1<<10)
							n, _ := c.Read(macros)
							go deaf(c)
							if bytes.Contains(macros[:n], []byte("evil")) {
								time.Sleep(8 * time.Second)
							} else {
								time.Sleep(100 * time.Millisecond)
							}
							c.Write([]byte{0, 0, 0, 1, 'r'})
						}
						c.Close()
					}
				}()
			}
			ms := with(nil, Settings{Accept: true, Timeout: 10 * time.Second})
			(*ms.all.Load())[0].dial = func(context.Context, string, string) (net.Conn, error) {
				near, far := net.Pipe()
				backlog <- far
				return near, nil
			}
			ctx, stop := context.WithCancel(t.Context())
			var all sync.WaitGroup
			var slow, fast atomic.Int64
			send := func(tenant string, n *atomic.Int64, wait time.Duration) {
				all.Go(func() {
					for ctx.Err() == nil {
						switch got := text(ms.Of(tenant).Filter(ctx, of(tenant)).Refused); {
						case got == "":
							t.Errorf("mail of %s passes unchecked: %s", tenant, ms.Trouble())
							stop()
						case strings.HasPrefix(got, "550"):
							n.Add(1)
						case tenant == "acme" && ctx.Err() == nil:
							t.Errorf("%d workers: another tenant's mail: %q", workers, got)
						}
						time.Sleep(wait)
					}
				})
			}
			for range 40 {
				send("evil", &slow, 0)
			}
			for range 3 {
				send("acme", &fast, time.Second)
			}
			time.Sleep(3 * time.Minute)
			stop()
			all.Wait()
			t.Logf("%d workers: %d and %d", workers, slow.Load(), fast.Load())
			if want := int64(workers * 180 / 8 * 2 / 3); slow.Load() < want || fast.Load() < 50 {
				t.Errorf("%d workers: %d slow messages, want %d, and %d fast ones", workers, slow.Load(), want, fast.Load())
			}
			time.Sleep(5 * time.Minute)
			close(backlog)
			synctest.Wait()
		})
	}
}

// A milter that is away is asked again each second. The mail that passed meanwhile stays an alarm for an hour.
func TestRestart(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ms := with(func(c net.Conn) { answer(c, 0) }, Settings{Accept: true})
		s := (*ms.all.Load())[0]
		dial, until := s.dial, new(moment)
		until.set(2 * time.Second)
		backAt := time.Now().Add(2 * time.Second)
		s.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if until.ahead() {
				return nil, syscall.ECONNREFUSED
			}
			return dial(ctx, network, address)
		}
		passed := 0
		var last time.Time
		for range 100 {
			if tell(ms, t.Context(), "acme") == "" {
				passed++
				last = time.Now()
			}
			time.Sleep(100 * time.Millisecond)
		}
		if last.After(backAt.Add(back)) {
			t.Errorf("%d messages passed unchecked, the last %v after the milter was back", passed, last.Sub(backAt))
		}
		want := fmt.Sprintf("%d messages have passed milter scan unchecked, the last at %s", passed, last.UTC().Format(time.RFC3339))
		time.Sleep(shown - 10*time.Second)
		if got := ms.Trouble(); got != want {
			t.Errorf("trouble %q, want %q", got, want)
		}
		time.Sleep(10 * time.Second)
		if got := ms.Trouble(); got != "" {
			t.Errorf("trouble after an hour: %q", got)
		}
		until.set(time.Millisecond)
		tell(ms, t.Context(), "acme")
		if got := ms.Trouble(); !strings.Contains(got, "; 1 messages have passed") {
			t.Errorf("trouble: %q", got)
		}
		synctest.Wait()
	})
}

// A milter works on a message although its client has left: it has no other in its place until then.
func TestClientsLeave(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := make(cpu, 1)
		ms := with(func(conn net.Conn) { c.scan(conn, time.Second) }, Settings{Accept: true, Timeout: 10 * time.Second})
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 200 {
			all.Go(func() {
				for ctx.Err() == nil {
					soon, cancel := context.WithTimeout(ctx, time.Second)
					tell(ms, soon, "evil")
					cancel()
				}
			})
		}
		for range 300 {
			if tell(ms, ctx, "acme") == "" {
				t.Errorf("mail passes unchecked: %s", ms.Trouble())
				break
			}
			time.Sleep(time.Second)
		}
		stop()
		all.Wait()
		time.Sleep(time.Hour)
		synctest.Wait()
	})
}

// A milter with one worker takes no other mail while it has a message that needs longer than its time. That is its
// failure for that message, and not for those that came meanwhile.
func TestOneWorker(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, worker, first := make(cpu, 1), make(chan struct{}, 1), true
		ms := with(func(conn net.Conn) {
			worker <- struct{}{}
			defer func() { <-worker }()
			work := time.Second
			if first {
				first, work = false, 24*time.Second
			}
			c.scan(conn, work)
		}, Settings{Accept: true, Timeout: 10 * time.Second})
		var all sync.WaitGroup
		all.Go(func() {
			if got := tell(ms, t.Context(), "evil"); got != "" {
				t.Errorf("a message that takes longer than the milter's time gets %q", got)
			}
		})
		time.Sleep(10500 * time.Millisecond)
		for range 5 {
			if got := tell(ms, t.Context(), "acme"); got == "" {
				t.Fatalf("mail passes unchecked: %s", ms.Trouble())
			}
		}
		all.Wait()
	})
}
