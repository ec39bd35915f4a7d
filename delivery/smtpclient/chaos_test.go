package smtpclient

import (
	"context"
	"fmt"
	"io"
	"math/rand"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
)

// TestChaos sends messages to a host that refuses, leaves, breaks connections and babbles at random,
// and compares what each recipient was told with what the host knows it has taken:
// nobody is told of a delivery that wasn't, and nobody gets a message again who was told that it
// failed or was never tried.
func TestChaos(t *testing.T) {
	// rapid makes the cases outside of the bubble, for it uses the clock.
	rapid.Check(t, func(rt *rapid.T) {
		p := rapid.SampledFrom([]float64{0, 0, 0.01, 0.05, 0.2})
		storm := chaos{
			ehlo: rapid.SampledFrom([]string{ehloOnly, pipelining, chunking}).Draw(rt, "ehlo"),
			trouble: trouble{
				refuse: p.Draw(rt, "refuse"), drop: p.Draw(rt, "drop"), leave: p.Draw(rt, "leave"), babble: p.Draw(rt, "babble"),
				max: rapid.SampledFrom([]int{0, 0, 1, 5}).Draw(rt, "max"), exim: rapid.Bool().Draw(rt, "exim"),
			},
			seed:     rapid.Int64().Draw(rt, "seed"),
			messages: rapid.IntRange(1, 60).Draw(rt, "messages"),
			window:   rapid.IntRange(1, 20).Draw(rt, "window"),
			latency:  rapid.SampledFrom([]time.Duration{0, time.Millisecond}).Draw(rt, "latency"),
		}
		bubble.Test(t, func(t *testing.T) { storm.rage(t) })
		if t.Failed() {
			rt.Fatalf("%+v", storm)
		}
	})
}

type chaos struct {
	ehlo     string
	trouble  trouble
	seed     int64
	messages int
	window   int
	latency  time.Duration
}

// message is the i-th: the content names the sender, so that a host that mixes transactions up is
// found out.
func (s chaos) message(i int, rng *rand.Rand) *mail {
	var to []string
	for k := range 1 + rng.Intn(3) {
		to = append(to, fmt.Sprintf("%d-%d@example.com", i, k))
	}
	sender := fmt.Sprintf("s%d@example.org", i)
	content := strings.Repeat(".line\r\n", 1+rng.Intn(4)) + "for " + sender + "\r\n"
	if rng.Intn(10) == 0 {
		content = strings.Repeat("0123456789\r\n", 5000) + content
	}
	x := newMail(content, to...)
	x.Message.Sender = envelope.Address(sender)
	if rng.Intn(20) == 0 { // one whose body breaks off
		x.Body = func() (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(content[:len(content)/2])), nil
		}
	}
	return x
}

func (s chaos) rage(t *testing.T) {
	cfg := testConfig()
	cfg.Window = Window{Messages: s.window}
	m := newModel(s.ehlo)
	m.trouble, m.rng = s.trouble, rand.New(rand.NewSource(s.seed))
	client, server := wire(s.latency, 0)
	go m.serve(server)
	c, err := Handshake(context.Background(), client, cfg)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewSource(s.seed + 1))
	var mails []*mail
	for i := range s.messages {
		x := s.message(i, rng)
		if c.Send(&x.Transaction) {
			mails = append(mails, x)
		}
	}
	_ = c.quitWithin(context.Background())
	<-m.done
	s.audit(t, m, mails)
	if c.Len() != 0 {
		t.Error("Len", c.Len())
	}
	for _, w := range m.wrong {
		t.Error("the host saw", w)
	}
}

func (s chaos) audit(t *testing.T, m *model, mails []*mail) {
	inDoubt := 0
	for i, x := range mails {
		if x.settled != 1 {
			t.Fatalf("message %d: Done was called %d times", i, x.settled)
		}
		o := <-x.outcomes
		some := false
		for k, r := range o.Results {
			n := m.taken[string(x.recipient(k).Address)]
			delivered := r.Fate == Answered && r.Reply.OK()
			some = some || r.Fate != Excess
			switch {
			case r.Reply.Code == 0 || r.Fate > Excess:
				t.Errorf("message %d: result %+v", i, r)
			case delivered && n != 1, !delivered && r.Fate != Ambiguous && n != 0, n > 1:
				t.Errorf("message %d, recipient %d: told %v %v, and the host has it %d times", i, k, r.Fate, r.Reply, n)
			}
			if r.Fate == Ambiguous {
				inDoubt++
				break
			}
		}
		if !some {
			t.Errorf("message %d: all recipients are in excess", i)
		}
	}
	if most := max(s.window, 1); s.ehlo != chunking && inDoubt > 1 || inDoubt > max(most, 64) {
		t.Errorf("%d messages in doubt", inDoubt)
	}
}

// FuzzHost lets a host say anything: it must cost bounded memory, no panic, no goroutine, and
// nothing may be taken for delivered without a reply to the content.
func FuzzHost(f *testing.F) {
	for _, ehlo := range []string{ehloOnly, pipelining, chunking} {
		hello := "220 mx\r\n" + strings.ReplaceAll(strings.ReplaceAll(ehlo, "< ", ""), "\n", "\r\n")
		f.Add([]byte(hello), []byte("250 ok\r\n250 ok\r\n354 go\r\n250 ok\r\n"))
		f.Add([]byte(hello), []byte("250 ok\r\n250 ok\r\n250 ok\r\n250 reset\r\n250 ok\r\n550 no\r\n503 no\r\n"))
		f.Add([]byte(hello), []byte("550 no\r\n250-ok\r\n250 ok\r\n421 bye\r\n"))
	}
	f.Fuzz(func(t *testing.T, greeting, replies []byte) {
		bubble.Test(t, func(t *testing.T) {
			client, server := wire(0, 0)
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			go func() {
				_, _ = server.Write(greeting)
				_, _ = io.Copy(io.Discard, server)
			}()
			c, err := Handshake(ctx, client, testConfig())
			if err != nil {
				server.Close()
				return
			}
			var mails []*mail
			for i := range 3 {
				x := newMail(smallContent, fmt.Sprintf("a%d@example.com", i), fmt.Sprintf("b%d@example.com", i))
				if c.Send(&x.Transaction) {
					mails = append(mails, x)
				}
			}
			_, _ = server.Write(replies)
			synctest.Wait()
			server.Close()
			_ = c.quitWithin(ctx)
			for i, x := range mails {
				if x.settled != 1 {
					t.Fatalf("message %d: Done was called %d times", i, x.settled)
				}
				for _, r := range (<-x.outcomes).Results {
					if r.Reply.Code == 0 || r.Fate > Excess {
						t.Errorf("message %d: %+v", i, r)
					}
				}
			}
		})
	})
}

func FuzzReply(f *testing.F) {
	f.Add([]byte("250-a\r\n250 2.1.0 b\r\n550 x\n"))
	f.Add([]byte("250\r\n999 \r\n"))
	f.Add([]byte("550-5.1.1 a\r\n550 5.1.1\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := replyReader{src: strings.NewReader(string(in))}
		for {
			raw, err := r.next()
			if err != nil {
				return
			}
			got := raw.reply("X")
			if got.Code < 200 || got.Code > 599 || len(got.Text) > maxText+1 || len(raw.raw) > maxReply {
				t.Fatalf("%q: %+v", in, got)
			}
			if got.Enhanced[0] != 0 && int(got.Enhanced[0]) != got.Code/100 {
				t.Fatalf("%q: class %+v", in, got)
			}
			for _, c := range got.Text {
				if c < ' ' && c != '\n' || c == 0x7f {
					t.Fatalf("%q: control character in %q", in, got.Text)
				}
			}
			_ = parseCapabilities(raw)
		}
	})
}
