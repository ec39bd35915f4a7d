package queue

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/queue/vfs/vfstest"
)

var listedMessages = flag.Int("queue.listed", 0, "messages in TestCommitWhileListing; 3000000 take 2 GB")

// TestCommitWhileListing measures how long a commit takes while the whole queue is listed and counted, again and again:
// go test ./queue -run CommitWhileListing -v -queue.listed 3000000.
func TestCommitWhileListing(t *testing.T) {
	if *listedMessages == 0 {
		t.Skip("without -queue.listed")
	}
	q, err := Open(Config{Dir: "/q", FS: vfstest.Memory(), MinFree: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	release := time.Now().Add(time.Hour)
	for n := 0; n < *listedMessages; n += 1000 {
		b := &Batch{}
		for i := range 1000 {
			d := q.Begin()
			d.Write([]byte("Subject: x\r\n\r\n"))
			b.Drafts = append(b.Drafts, d)
			m := &envelope.Message{
				Sender: "a@example.com", Tenant: "acme", Campaign: fmt.Sprint(n / 1000 % 50), Release: release, Spread: time.Hour,
				Recipients: []envelope.Recipient{{Address: envelope.Address(fmt.Sprintf("r%d@d%d.example", n+i, i))}},
			}
			b.Messages = append(b.Messages, m)
		}
		if _, err := q.CommitBatch(b); err != nil {
			t.Fatal(err)
		}
	}
	for _, looks := range []struct {
		name string
		look func()
	}{
		{"nothing else", nil},
		{"listing by next attempt", func() { q.List(Filter{}, Page{Order: NextAttempt}) }},
		{"listing what is not there", func() {
			q.List(Filter{NewerThan: 24 * time.Hour, States: []State{StateDeferred}, Key: parking.Key{}}, Page{Limit: 10_000})
		}},
		{"summary by key", func() { q.Summary(Filter{States: []State{StateDeferred}}) }},
		{"counts by domain, sender, line", func() { q.CountDomains(); q.CountSenders(""); q.CountKeys() }},
	} {
		t.Logf("%-32s %s", looks.name, commitLatency(t, q, looks.look))
	}
}

// commitLatency commits for a while, 500 messages a second, and returns how long that took.
func commitLatency(t *testing.T, q *Queue, look func()) string {
	ctx, stop := context.WithCancel(context.Background())
	var looking sync.WaitGroup
	rounds := 0
	if look != nil {
		looking.Go(func() {
			for ctx.Err() == nil {
				look()
				rounds++
			}
		})
	}
	var took []time.Duration
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for range 2000 {
		<-tick.C
		d := q.Begin()
		d.Write([]byte("Subject: x\r\n\r\n"))
		m := &envelope.Message{Sender: "a@example.com", Tenant: "acme", Recipients: []envelope.Recipient{{Address: "r@d.example"}}, Release: time.Now().Add(time.Hour)}
		began := time.Now()
		if err := d.Commit(m); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	stop()
	looking.Wait()
	slices.Sort(took)
	at := func(p int) time.Duration { return took[len(took)*p/1000].Round(time.Microsecond) }
	return fmt.Sprintf("p50 %v, p99 %v, p99.9 %v, worst %v; %d rounds", at(500), at(990), at(999), took[len(took)-1].Round(time.Microsecond), rounds)
}
