package dispatch

import (
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/queue"
	"example.org/mta/queue/vfs/vfstest"
)

// BenchmarkNextThrottled is the next message of 1,000,000 that wait for tokens, of ten tenants and three tiers: whose
// turn it is, taking it out of the queue, and letting it wait again at the end of its line.
func BenchmarkNextThrottled(b *testing.B) {
	const messages, rcpts = 1_000_000, 1
	q, err := queue.Open(queue.Config{Dir: "/q", FS: vfstest.Memory(), SegmentSize: 64 << 20, MinFree: 1, Log: slog.New(slog.DiscardHandler),
		MaxAge: func() time.Duration { return 5 * 24 * time.Hour }})
	if err != nil {
		b.Fatal(err)
	}
	defer q.Close()
	h := newThrottledLines(tokens("acme", "big"))
	for i := range messages / rcpts {
		m := &envelope.Message{Received: time.Now(), Sender: "a@client.example", Tenant: fmt.Sprint("t", i%10), Tier: uint8(2 + i%3)}
		for j := range rcpts {
			m.Recipients = append(m.Recipients, envelope.Recipient{Address: envelope.Address(fmt.Sprintf("r%d@x.example", j))})
		}
		d := q.Begin()
		io.WriteString(d, "Subject: x\r\n\r\nHello.\r\n")
		if err := d.Commit(m); err != nil {
			b.Fatal(err)
		}
		l, err := q.Next(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		line := h.line(parking.Line{Key: h.Key, Tenant: l.Message.Tenant, Tier: envelope.TierOf(l.Message.Tier)}, 1)
		q.Park(l.Message.ID, indexes(l.Recipients), line.line, time.Time{})
	}
	if n := q.ParkedInLines(h.Key); n != messages {
		b.Fatalf("%d wait", n)
	}
	b.ReportAllocs()
	for b.Loop() {
		line := h.next("", q.Parked)
		for _, l := range q.Take(line.line, 1) {
			q.Park(l.Message.ID, indexes(l.Recipients), line.line, time.Time{})
		}
		h.took(line)
	}
}
