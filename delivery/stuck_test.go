package delivery

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/delivery/smtpclient"
	"example.org/mta/internal/bubble"
	"example.org/mta/internal/reply"
	"example.org/mta/lab/sink"
)

// sleeper is a session that settles nothing until it is cut; it may go on sending meanwhile.
type sleeper struct {
	fakeSession
	sends bool
	began time.Time

	mu   sync.Mutex
	held []*smtpclient.Transaction
	cut  time.Time // when Close was called
}

func (s *sleeper) Send(t *smtpclient.Transaction) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = append(s.held, t)
	return s.cut.IsZero()
}

func (s *sleeper) BytesSent() int64 {
	if s.sends {
		return int64(time.Since(s.began) / time.Minute)
	}
	return 0
}

func (s *sleeper) Finish() {}

func (s *sleeper) Close() {
	s.mu.Lock()
	held, again := s.held, !s.cut.IsZero()
	if s.held = nil; !again {
		s.cut = time.Now()
	}
	s.mu.Unlock()
	if again {
		return
	}
	go func() {
		lost := smtpclient.Result{Fate: smtpclient.Failed, Reply: reply.Local(421, reply.Enhanced{4, 4, 2}, "", "cut")}
		for _, t := range held {
			t.Done(t, smtpclient.Outcome{Results: []smtpclient.Result{lost}})
		}
		s.closed(nil)
	}()
}

func (s *sleeper) wasCut() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.cut.IsZero()
}

// A busy connection on which nothing moves is cut after a quarter of an hour, whatever it waits for, and
// its mail comes back; one that sends is not.
func TestStuckConnectionIsCut(t *testing.T) {
	for _, sends := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			var log safeBuffer
			var made atomic.Pointer[sleeper]
			w := newWorld(t, func(c *Config) {
				c.Log = slog.New(slog.NewTextHandler(&log, nil))
				c.handshake = func(_ context.Context, nc net.Conn, cfg smtpclient.Config) (session, error) {
					nc.Close()
					made.Store(&sleeper{fakeSession: fakeSession{closed: cfg.Closed}, sends: sends, began: time.Now()})
					return made.Load(), nil
				}
			})
			defer w.end()
			w.send(routeTo("a", tier(w.host("mx", sink.Config{}))), 1)
			time.Sleep(stuckAfter - 2*time.Second)
			stuck := made.Load()
			if stuck.wasCut() {
				t.Fatal("it was cut before its time")
			}
			time.Sleep(5 * time.Second)
			switch {
			case sends:
				if stuck.wasCut() {
					t.Error("a connection that sends was cut")
				}
			case !stuck.wasCut():
				t.Error("a connection on which nothing moves was not cut")
			default:
				if res := w.awaitResults(1, time.Second)[0]; res.Reply.OK() || !res.Reply.Temporary() {
					t.Errorf("result %+v", res)
				}
				if !strings.Contains(log.String(), "connection is stuck and is cut") {
					t.Errorf("the log has %q", log.String())
				}
			}
		})
	}
}
