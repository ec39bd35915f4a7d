package mta

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"example.org/mta/lab/sink"
	"example.org/mta/operator/api"
)

// A host that refuses the session says nothing about the message: it may be about us, and pass.
func TestRefusedSessionIsNoBounce(t *testing.T) {
	w := newWorld(t, sink.Config{Refusals: []sink.Refusal{{Phase: sink.Connect, Reply: "554 5.7.1 go away"}}}, `defaults { smtp_port = PORT }`)
	w.send("ann@client.example", letter, "bob@box.example")
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for {
		l, err := w.api.Queue.List(ctx, api.ListQuery{Filter: api.Filter{State: api.StateDeferred}, Page: api.Page{Limit: 1}})
		if err != nil || ctx.Err() != nil {
			t.Fatalf("not deferred: %v, queue %+v", err, w.queue.Stats())
		}
		if len(l.Messages) == 1 {
			if r := l.Messages[0].Recipients[0].Reply; r == nil || r.Text == "" {
				t.Errorf("the reason is %+v", r)
			}
			return
		}
		if s := w.queue.Stats(); s.Bounced > 0 {
			t.Fatalf("bounced: %+v", s)
		}
	}
}

// A burst of silent hosts and then 20 that answer, over TCP: each has its mail. The delay is printed. On a busy machine
// one that answers may be given up, too, and has its mail a second later.
func TestFirstMailBehindSilentHosts(t *testing.T) {
	const silent, answering = 400, 20
	w := newWorld(t, sink.Config{}, `
		defaults { smtp_port = PORT }
		delivery { max_connections = 100 }
		domain "*.answers.example" {
			retry_interval     = "1s"
			max_retry_interval = "2s"
		}
	`)
	answers := sink.New(sink.Config{Recorder: w.recorder})
	t.Cleanup(answers.Close)
	recipients := func(name string, n, network int) (to []string) {
		for i := range n {
			host, at := fmt.Sprintf("h%d.%s.example", i, name), netip.AddrFrom4([4]byte{127, byte(network), byte(i >> 8), byte(i)})
			if err := w.zone.Add(fmt.Sprintf("%s. A %v", host, at)); err != nil {
				t.Fatal(err)
			}
			l, err := net.Listen("tcp", net.JoinHostPort(at.String(), w.port))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() }) // the system takes connections, and nobody says anything
			if name == "answers" {
				go answers.Serve(l)
			}
			to = append(to, "bob@"+host)
		}
		return to
	}
	mute, good := recipients("mute", silent, 36), recipients("answers", answering, 37)
	w.send("ann@client.example", letter, mute...)
	began := time.Now()
	w.send("ann@client.example", letter, good...)
	w.arrived(answering)
	t.Logf("behind %d silent hosts the first mail for %d hosts took %v", silent, answering, time.Since(began).Round(time.Millisecond))
}
