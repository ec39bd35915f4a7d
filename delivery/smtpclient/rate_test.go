package smtpclient

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
)

// roundTrips measures in virtual time how many round trips a message takes, and counts the writes.
func roundTrips(t *testing.T, ehlo string, start, limit Window, messages int) (perMessage, writes float64, final Window) {
	const rtt = 50 * time.Millisecond
	cfg := testConfig()
	cfg.Window, cfg.MaxWindow = start, limit
	m := newModel(ehlo)
	client, server := wire(rtt/2, 0)
	go m.serve(server)
	c, err := Handshake(context.Background(), client, cfg)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	var last *mail
	for i := range messages {
		last = newMail(smallContent, fmt.Sprintf("%d@example.com", i))
		c.Send(&last.Transaction)
	}
	// What leaves while they are being handed over may do so one by one, as the writer is quicker than
	// this loop or not: writes are counted from then on.
	synctest.Wait()
	c.mu.Lock()
	ahead := c.mu.begun
	c.mu.Unlock()
	before := server.writes()
	if got := last.fates(t); got != "answered 250" {
		t.Error(got)
	}
	took := time.Since(begin)
	_ = c.quitWithin(context.Background())
	<-m.done
	if len(m.taken) != messages {
		t.Errorf("%d of %d taken", len(m.taken), messages)
	}
	n := float64(messages)
	return float64(took) / float64(rtt) / n, float64(server.writes()-before) / (n - float64(ahead)), c.Window()
}

func TestRoundTripsPerMessage(t *testing.T) {
	for _, test := range []struct {
		name         string
		ehlo         string
		start, limit Window
		want         float64 // round trips a message
	}{
		{"lock-step", ehloOnly, Window{}, Window{}, 4},
		{"pipelining", pipelining, Window{}, Window{}, 1},
		{"chunking, window 1", chunking, Window{}, Window{Messages: 1}, 1},
		{"chunking, window 10", chunking, Window{Messages: 10}, Window{Messages: 10}, 0.1},
		{"chunking, window 64", chunking, Window{Messages: 64}, Window{}, 1. / 64},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				trips, writes, _ := roundTrips(t, test.ehlo, test.start, test.limit, 640)
				t.Logf("%.4f round trips and %.4f writes a message", trips, writes)
				if trips < test.want*0.99 || trips > test.want*1.02 {
					t.Errorf("%.4f round trips a message; want %.4f", trips, test.want)
				}
				// What answers one packet of replies leaves in one write, 32 KiB do so anyhow; the replies to a
				// window may come in two packets.
				if most := test.want * 2; writes > most {
					t.Errorf("%.4f writes a message; want %.4f", writes, test.want)
				}
			})
		})
	}
}

// An unknown host is trusted with twice as much every round trip.
func TestWindowGrows(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		got, _, final := roundTrips(t, chunking, Window{}, Window{}, 63+64)
		if trips := got * (63 + 64); trips > 8.01 { // 1 + 2 + 4 + ... + 32, and the rest
			t.Errorf("%.2f round trips", trips)
		}
		if final.Messages != 64 {
			t.Errorf("window %+v", final)
		}
	})
}

func TestPacedWindow(t *testing.T) {
	w := newPacedWindow(Window{}, Window{})
	if w.Window != firstWindow {
		t.Fatalf("starts at %+v", w.Window)
	}
	number := 0
	full := func() { // one message more, while the window is full
		number++
		w.begun(number, w.Messages, 0)
		w.succeeded(number, 1000)
	}
	for range 7 {
		full()
	}
	if w.Messages != 8 || w.Bytes != firstWindow.Bytes {
		t.Errorf("after 7 in a full window: %+v", w.Window)
	}
	number++
	w.begun(number, w.Messages-1, 0)
	w.succeeded(number, 1000)
	if w.Messages != 8 {
		t.Error("a window that isn't full has grown")
	}
	number++
	w.begun(number, 1, w.Bytes)
	w.succeeded(number, 1000)
	if w.Bytes != firstWindow.Bytes+1000 || w.Messages != 8 {
		t.Errorf("full by octets: %+v", w.Window)
	}
	w.troubled()
	if w.Messages != 4 || w.Bytes != firstWindow.Bytes {
		t.Errorf("after trouble: %+v", w.Window)
	}
	for range 4 {
		full()
	}
	if w.Messages != 5 {
		t.Errorf("careful: one more for each window taken: %+v", w.Window)
	}
	w.distrusted()
	if w.Messages != 1 {
		t.Errorf("distrusted: %+v", w.Window)
	}
	w.troubled()
	if w.Messages != 1 {
		t.Errorf("never under one: %+v", w.Window)
	}
	w = newPacedWindow(Window{Messages: 1000, Bytes: 1 << 40}, Window{Messages: 3})
	if w.Window != (Window{3, defaultMaxWin.Bytes}) {
		t.Errorf("limit: %+v", w.Window)
	}
	for i := range 100 {
		w.begun(i, 3, 1<<40)
		w.succeeded(i, 1<<20)
	}
	if w.Window != (Window{3, defaultMaxWin.Bytes}) {
		t.Errorf("limit: %+v", w.Window)
	}
	if !w.open(0, 1<<50) || w.open(3, 0) || w.open(1, w.Bytes) || !w.open(2, w.Bytes-1) {
		t.Error("open")
	}
}

// Big messages are held by the window's octets: what is in doubt at most is bounded.
func TestWindowOfBytes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.Window = Window{Messages: 64, Bytes: 60_000}
		cfg.MaxWindow = cfg.Window
		client, server := wire(0, 0)
		h := play(t, server, script(greeted(chunking)+"pause 1s\nreset\n"))
		c, err := Handshake(context.Background(), client, cfg)
		if err != nil {
			t.Fatal(err)
		}
		var mails []*mail
		for range 10 {
			m := newMail(string(make([]byte, 20_000)), "a@example.com")
			mails = append(mails, m)
			c.Send(&m.Transaction)
		}
		inDoubt := 0
		for _, m := range mails {
			if m.fates(t) == "ambiguous 421" {
				inDoubt++
			}
		}
		if inDoubt != 3 {
			t.Errorf("%d in doubt; want 3", inDoubt)
		}
		<-c.Ended()
		<-h.done
	})
}
