package mta

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/lab/sink"
	"example.org/mta/queue"
)

// jumpingClock is a clock that is set by years.
type jumpingClock struct{ ahead atomic.Int64 }

func (c *jumpingClock) Now() time.Time          { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *jumpingClock) set(ahead time.Duration) { c.ahead.Store(int64(ahead)) }

// TestTortureClockThatJumps sets the clock of a whole relay by years, ahead and back, while mail comes in, is
// deferred and delivered, and the relay is started again now and then. With the clock right at last, each message
// is delivered: none waits for a time that lies years ahead.
func TestTortureClockThatJumps(t *testing.T) {
	t.Parallel()
	rounds := 4
	if os.Getenv("MTA_TORTURE") != "" {
		rounds = 30
	}
	seed := uint64(time.Now().UnixNano())
	if s, err := strconv.ParseUint(os.Getenv("MTA_TORTURE_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("%d rounds, seed %d", rounds, seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	clock := &jumpingClock{}
	w := newWorldWith(t, Options{now: clock.Now}, sink.Config{Refusals: []sink.Refusal{sink.TemporaryFailures(0.3)}}, `
		defaults {
			smtp_port = PORT
			retry_interval = "1s"
			max_retry_interval = "2s"
			max_age = "36500d" # else a clock that is ahead ends mail and the reports about it
		}`)
	var ids []string
	submit := func() {
		for range 10 {
			id := fmt.Sprintf("clock-%d@client.example", len(ids))
			ids = append(ids, id)
			w.send("ann@client.example", "Message-ID: <"+id+">\r\n\r\nhello\r\n", "bob@box.example")
		}
	}
	for round := range rounds {
		clock.set(time.Duration(rng.IntN(21)-10) * 365 * 24 * time.Hour)
		if round == 0 {
			clock.set(10 * 365 * 24 * time.Hour)
		}
		submit()
		<-time.After(time.Duration(rng.IntN(1500)) * time.Millisecond)
		if rng.IntN(2) == 0 {
			if err := w.stop(); err != nil {
				t.Fatal(err)
			}
			w.start()
		}
		submit()
	}
	clock.set(10 * 365 * 24 * time.Hour)
	submit()
	<-time.After(500 * time.Millisecond)
	clock.set(0) // what was deferred by then must not wait for ten years
	submit()
	began := time.Now()
	for w.queue.Stats().Queued > 0 {
		if time.Since(began) > limit {
			l, _ := w.queue.List(queue.Filter{}, queue.Page{Limit: 5})
			t.Fatalf("after %v with the clock right %d recipients are still queued: %+v", time.Since(began), w.queue.Stats().Queued, l.Items)
		}
		<-time.After(50 * time.Millisecond)
	}
	t.Logf("%d messages had left %v after the clock was right", len(ids), time.Since(began).Round(time.Millisecond))
	var taken strings.Builder
	for _, m := range w.recorder.Messages() {
		taken.Write(m.Content)
	}
	text := taken.String()
	for _, id := range ids {
		if !strings.Contains(text, "<"+id+">") {
			t.Errorf("%s was not delivered", id)
		}
	}
}
