package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mta/internal/sink"
)

// load is messages that are submitted over several connections at once, and the account of when
// each was. Message n has the id n.
type load struct {
	messages    int
	connections int
	size        int // octets of content, about
	rate        int // messages a second; 0: as fast as they are taken
	sender      string
	to          func(n int) []string

	next  atomic.Int64
	began time.Time
	took  time.Duration // until the last was accepted
	done  []time.Time   // when the content's end was sent, by message
}

// submit sends all messages, and fails the test when one is not taken.
func (l *load) submit(t *testing.T, addr string) {
	t.Helper()
	l.done = make([]time.Time, l.messages)
	if l.sender == "" {
		l.sender = "sender@client.example"
	}
	body := "\r\n" + strings.Repeat(strings.Repeat("x", 76)+"\r\n", max(0, l.size-200)/78)
	var all sync.WaitGroup
	errs := make(chan error, l.connections)
	l.began = time.Now()
	for range l.connections {
		all.Go(func() { errs <- l.feed(addr, body) })
	}
	all.Wait()
	l.took = time.Since(l.began)
	close(errs)
	for err := range errs {
		if err != nil {
			t.Fatalf("submitting: %v", err)
		}
	}
}

// feed sends messages down one connection until there are no more: each envelope in one flight,
// its content in another.
func (l *load) feed(addr, body string) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	in, out := bufio.NewReader(conn), bufio.NewWriterSize(conn, 64<<10)
	fmt.Fprint(out, "EHLO client.example\r\n")
	if err := exchange(in, out, "220", "250"); err != nil {
		return err
	}
	for {
		n := int(l.next.Add(1)) - 1
		if n >= l.messages {
			return nil
		}
		l.pace(n)
		_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
		codes := []string{"250"}
		fmt.Fprintf(out, "MAIL FROM:<%s>\r\n", l.sender)
		for _, rcpt := range l.to(n) {
			fmt.Fprintf(out, "RCPT TO:<%s>\r\n", rcpt)
			codes = append(codes, "250")
		}
		fmt.Fprint(out, "DATA\r\n")
		if err := exchange(in, out, append(codes, "354")...); err != nil {
			return err
		}
		fmt.Fprintf(out, "Date: Sat, 21 Nov 2026 04:00:00 +0000\r\nFrom: sender@client.example\r\nTo: you@site.example\r\n"+
			"Message-ID: <%[1]d@client.example>\r\nX-Mta-Test-Id: %[1]d\r\nSubject: number %[1]d\r\n%[2]s.\r\n", n, body)
		l.done[n] = time.Now()
		if err := exchange(in, out, "250"); err != nil {
			return err
		}
	}
}

func (l *load) pace(n int) {
	if l.rate > 0 {
		time.Sleep(time.Until(l.began.Add(time.Duration(n) * time.Second / time.Duration(l.rate))))
	}
}

// exchange sends what was written and wants these replies, in order.
func exchange(in *bufio.Reader, out *bufio.Writer, codes ...string) error {
	if err := out.Flush(); err != nil {
		return err
	}
	for _, code := range codes {
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return fmt.Errorf("wanting %s: %w", code, err)
			}
			if !strings.HasPrefix(line, code) {
				return fmt.Errorf("wanting %s: got %q", code, line)
			}
			if line[3] == ' ' {
				break
			}
		}
	}
	return nil
}

// recipients is how many deliveries the load makes.
func (l *load) recipients() (n int64) {
	for i := range l.messages {
		n += int64(len(l.to(i)))
	}
	return n
}

// arrived waits until every recipient has every message of the load, and fails the test for
// what comes twice or not at all. It gives the deliveries in the order of their coming.
func (g *ground) arrived(t *testing.T, l *load, limit time.Duration) []sink.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	want := l.recipients()
	if err := g.taken.Wait(ctx, want); err != nil {
		t.Fatalf("%d of %d recipients have their mail after %v", g.taken.Tally().Unique, want, limit)
	}
	all := g.taken.Deliveries()
	copies := make(map[string]int, len(all))
	for _, d := range all {
		copies[d.ID+" "+d.Recipient]++
	}
	for n := range l.messages {
		for _, rcpt := range l.to(n) {
			if c := copies[strconv.Itoa(n)+" "+rcpt]; c != 1 {
				t.Errorf("%s has %d copies of message %d", rcpt, c, n)
			}
		}
	}
	if int64(len(all)) != want {
		t.Errorf("%d deliveries, want %d", len(all), want)
	}
	return all
}

// steadyRate is deliveries a second between the first fifth and the last tenth of them: without
// the start, when connections are made, and the end, when they run dry.
func steadyRate(all []sink.Delivery) float64 {
	from, to := len(all)/5, len(all)*9/10
	return float64(to-from) / all[to].At.Sub(all[from].At).Seconds()
}
