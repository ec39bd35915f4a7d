package smtpclient

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
)

// What an idle connection hears ends it and harms nobody.
func TestIdle(t *testing.T) {
	for _, test := range []struct {
		name, script, want string
		err                error
	}{
		{"closed by the host", "pause 1h\nclose\n", "421 4.4.2 the host closed the connection", nil},
		{"421", "pause 1h\n< 421 4.4.2 idle too long\nclose\n", "421 4.4.2 idle too long", nil},
		{"out of step", "pause 1h\n< 250 ok\neof\n", `451 4.5.0 the host said "250 ok" without having been asked`, ErrOutOfStep},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				var closed int
				cfg := testConfig()
				cfg.Closed = func(*Conn) { closed++ }
				start := time.Now()
				c, h := connect(t, cfg, script(greeted(pipelining)+test.script))
				if !c.ready() || c.Len() != 0 {
					t.Error("not ready")
				}
				<-c.Ended()
				<-h.done
				if time.Since(start) < time.Hour {
					t.Error("ended too early")
				}
				if err := c.Err(); err == nil || err.Error() != test.want || test.err != nil && !errors.Is(err, test.err) {
					t.Errorf("Err %v; want %s", err, test.want)
				}
				if c.ready() || c.Send(&newMail("", "a@b").Transaction) || closed != 1 {
					t.Error("a connection that has ended takes mail, or Closed was not called once:", closed)
				}
			})
		})
	}
}

// The window is there to be filled from Done: one in, one out, in any mode.
func TestSendFromDone(t *testing.T) {
	for _, ehlo := range []string{ehloOnly, pipelining, chunking} {
		bubble.Test(t, func(t *testing.T) {
			c, m := serve(t, testConfig(), newModel(ehlo), 10*time.Millisecond)
			const all = 50
			var order []int
			done := make(chan struct{})
			var next int
			var send func()
			send = func() {
				for next < all && c.ready() {
					i := next
					next++
					x := newMail(smallContent, fmt.Sprintf("%d@example.com", i))
					x.Done = func(_ *Transaction, o Outcome) {
						if got := fatesOf(o); got != "answered 250" {
							t.Error(got)
						}
						if order = append(order, i); len(order) == all {
							close(done)
						}
						send()
					}
					c.Send(&x.Transaction)
				}
			}
			send()
			<-done
			for i, n := range order {
				if i != n {
					t.Errorf("Done in the order %v", order)
					break
				}
			}
			_ = c.quitWithin(context.Background())
			<-m.done
			if len(m.taken) != all || c.served() != all {
				t.Errorf("%d taken, %d served", len(m.taken), c.served())
			}
		})
	}
}

func TestTransactionCanBeSentAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, m := serve(t, testConfig(), newModel(chunking), time.Millisecond)
		x := newMail(smallContent, "a@example.com", "b@example.com")
		n := 0
		done := make(chan struct{})
		x.Done = func(again *Transaction, o Outcome) {
			if got := fatesOf(o); got != "answered 250, answered 250" {
				t.Error(got)
			}
			if n++; n == 5 {
				close(done)
				return
			}
			c.Send(again)
		}
		c.Send(&x.Transaction)
		<-done
		_ = c.quitWithin(context.Background())
		<-m.done
		if m.taken["a@example.com"] != 5 || m.taken["b@example.com"] != 5 {
			t.Errorf("taken: %v", m.taken)
		}
	})
}

func TestRecall(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, h := connect(t, testConfig(), script(greeted(ehloOnly)+"> MAIL*\npause 1s\n< 250 ok\n> RCPT*\n< 250 ok\n> DATA\n< 354 go\ncontent\n< 250 ok\n"+goodbye))
		a, b := newMail(smallContent, "a@example.com"), newMail(smallContent, "b@example.com")
		c.Send(&a.Transaction)
		c.Send(&b.Transaction)
		synctest.Wait()
		if c.Len() != 2 {
			t.Error("Len", c.Len())
		}
		c.Recall()
		if got := b.fates(t); got != "untried 421" || c.Len() != 1 {
			t.Error(got, c.Len())
		}
		if got := a.fates(t); got != "answered 250" {
			t.Error(got)
		}
		quit(t, c, h)
	})
}

func TestClose(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, h := connect(t, testConfig(), script(greeted(pipelining)+"> MAIL*\n> RCPT*\n> DATA\neof\n"))
		a, b := newMail(smallContent, "a@example.com"), newMail(smallContent, "b@example.com")
		c.Send(&a.Transaction)
		c.Send(&b.Transaction)
		synctest.Wait()
		c.Close()
		<-c.Ended()
		<-h.done
		if a.fates(t) != "failed 421" || b.fates(t) != "untried 421" || !errors.Is(c.Err(), ErrClosed) {
			t.Error(a.fates(t), b.fates(t), c.Err())
		}
		c.Close() // again does nothing
	})
}

func TestQuitIsBoundedByItsContext(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, h := connect(t, testConfig(), script(greeted(pipelining)+"> MAIL*\n> RCPT*\n> DATA\n< 250 ok\n< 250 ok\n< 354 go\ncontent\n> QUIT\neof\n"))
		a := newMail(smallContent, "a@example.com")
		c.Send(&a.Transaction)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := c.quitWithin(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		<-h.done
		if a.fates(t) != "ambiguous 421" {
			t.Error(a.fates(t))
		}
	})
}

// A host that stops reading is given up when one block takes too long.
func TestHostThatDoesNotRead(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		client, server := wire(0, 4096)
		h := play(t, server, script(greeted(pipelining)+"> MAIL*\n> RCPT*\n> DATA\n< 250 ok\n< 250 ok\n< 354 go\npause 10m\nreset\n"))
		c, err := Handshake(context.Background(), client, testConfig())
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		m := newMail(strings.Repeat("0123456789abcd\r\n", 1<<14), "a@example.com")
		c.Send(&m.Transaction)
		if got := m.fates(t); got != "failed 421" {
			t.Error(got)
		}
		if took := time.Since(start); took < 3*time.Minute || took > 4*time.Minute {
			t.Errorf("given up after %v", took)
		}
		<-c.Ended()
		<-h.done
	})
}

// A host that refuses by closing while we write: its last words count, and not the broken pipe.
func TestLastWords(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		client, server := wire(time.Millisecond, 4096)
		h := play(t, server, script(greeted(chunking)+"> MAIL*\n< 250 ok\n< 250 ok\n< 421 4.7.0 too much from you\nclose\n"))
		c, err := Handshake(context.Background(), client, testConfig())
		if err != nil {
			t.Fatal(err)
		}
		m := newMail(strings.Repeat("0123456789abcd\r\n", 1<<14), "a@example.com")
		c.Send(&m.Transaction)
		if got := m.fates(t); got != "answered 421" {
			t.Error(got)
		}
		<-c.Ended()
		<-h.done
		if c.Err() == nil || !strings.Contains(c.Err().Error(), "too much from you") {
			t.Error(c.Err())
		}
	})
}

// A content that was written only in part can't be in doubt.
func TestPartialWriteIsNotInDoubt(t *testing.T) {
	for _, test := range []struct {
		room int // octets that leave before the connection breaks
		want string
	}{
		{90, "failed 421"},
		{1 << 20, "ambiguous 421"},
	} {
		bubble.Test(t, func(t *testing.T) {
			client, server := wire(0, 0)
			h := play(t, server, script(greeted(chunking)+"pause 1m\nreset\n"))
			c, err := Handshake(context.Background(), client, testConfig())
			if err != nil {
				t.Fatal(err)
			}
			client.out.Lock()
			client.out.room = test.room
			client.out.Unlock()
			m := newMail(smallContent, "a@example.com")
			c.Send(&m.Transaction)
			if got := m.fates(t); got != test.want {
				t.Errorf("room for %d: %s; want %s", test.room, got, test.want)
			}
			<-c.Ended()
			<-h.done
		})
	}
}

// Flights: how many writes a message takes in each mode, QUIT included in the last.
func TestWritesPerFlight(t *testing.T) {
	for _, test := range []struct {
		ehlo   string
		writes int
	}{
		{ehloOnly, 10*4 + 1}, // MAIL, RCPT, DATA, content; QUIT
		{pipelining, 10 + 1}, // the first envelope; then content and next envelope
		{chunking, 1},        // all of them
	} {
		bubble.Test(t, func(t *testing.T) {
			client, server := wire(time.Millisecond, 0)
			cfg := testConfig()
			cfg.Window = Window{Messages: 10}
			m := newModel(test.ehlo)
			go m.serve(server)
			c, err := Handshake(context.Background(), client, cfg)
			if err != nil {
				t.Fatal(err)
			}
			before := server.writes()
			for i := range 10 {
				x := newMail(smallContent, fmt.Sprintf("%d@example.com", i))
				// Until the last is handed over the writer is kept in the first.
				if i == 0 {
					ready := make(chan struct{})
					body := x.Body
					x.Body = func() (io.ReadCloser, error) { <-ready; return body() }
					defer func() { close(ready) }()
					if test.ehlo != chunking {
						x.Body = body
					} else {
						time.AfterFunc(time.Second, func() { ready <- struct{}{} })
					}
				}
				c.Send(&x.Transaction)
			}
			c.Finish()
			<-c.Ended()
			<-m.done
			if got := server.writes() - before; got != test.writes {
				t.Errorf("%s: %d writes; want %d", c.Mode(), got, test.writes)
			}
			if len(m.taken) != 10 {
				t.Errorf("%d taken", len(m.taken))
			}
		})
	}
}

func TestTrace(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var lines []string
		add := func(x *Transaction, s string) {
			mu.Lock()
			defer mu.Unlock()
			if x != nil {
				s = x.Context.(string) + " " + s
			}
			lines = append(lines, s)
		}
		c, h := connect(t, testConfig(), script(greeted(pipelining)+"> MAIL*\n> RCPT*\n> DATA\n< 250-2.1.0 ok\n< 250 2.1.0 ok\n< 250 ok\n< 354 go\ncontent\n< 250 ok\n"+goodbye))
		c.SetTrace(&Trace{
			Line:    func(x *Transaction, d Direction, line []byte) { add(x, fmt.Sprintf("%s %s", d, line)) },
			Content: func(x *Transaction, p []byte) { add(x, fmt.Sprintf("| %q", p)) },
		})
		m := newMail("a\r\n.b\r\n", "a@example.com")
		m.Context = "m1"
		c.Send(&m.Transaction)
		m.fates(t)
		quit(t, c, h)
		want := `m1 > MAIL FROM:<s@example.org> SIZE=7
m1 > RCPT TO:<a@example.com>
m1 > DATA
m1 < 250-2.1.0 ok
m1 < 250 2.1.0 ok
m1 < 250 ok
m1 < 354 go
m1 | "a\r\n..b\r\n"
m1 | ".\r\n"
m1 < 250 ok
> QUIT
< 221 bye`
		if got := strings.Join(lines, "\n"); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}

// Memory that outside bytes can claim is bounded, and a reply keeps only so much.
func TestReplyText(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		long := strings.Repeat("< 550-5.7.1 "+strings.Repeat("y", 400)+"\n", 20)
		c, h := connect(t, testConfig(), script(greeted(ehloOnly)+"> MAIL*\n< 550-5.7.1 see\n< 550-5.7.1 \x1b[2J\xff\x00there\n< 550 5.7.2 and\n> MAIL*\n"+long+"< 550 end\n"+goodbye))
		a, b := newMail(smallContent, "a@example.com"), newMail(smallContent, "a@example.com")
		c.Send(&a.Transaction)
		c.Send(&b.Transaction)
		a.fates(t)
		b.fates(t)
		quit(t, c, h)
		r := (<-a.outcomes).Results[0].Reply
		if r.Text != "see\n?[2J??there\n5.7.2 and" || r.Status().String() != "5.7.1" || r.Command != "MAIL" || r.Local {
			t.Errorf("%#v", r)
		}
		if n := len((<-b.outcomes).Results[0].Reply.Text); n > maxText+1 {
			t.Errorf("%d octets of text", n)
		}
	})
}

func TestOutcomeHasOneTransactionsResults(t *testing.T) {
	x := newMail("", "a@b", "c@d", "e@f")
	x.Recipients = []int{2, 0}
	x.begin()
	if len(x.results) != 2 || x.recipient(0).Address != "e@f" || x.recipient(1).Address != envelope.Address("a@b") {
		t.Error("recipients are not those asked for")
	}
}

// Exim counts RSETs beyond one a message. With many recipients unknown, each of which costs one,
// the connection must last all the same.
func TestResetsAreSpared(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.Window = Window{Messages: 4}
		m := newModel(chunking)
		m.trouble.exim = true
		m.unknown = "nobody"
		c, _ := serve(t, cfg, m, time.Millisecond)
		var mails []*mail
		for i := range 300 {
			to := fmt.Sprintf("%d@example.com", i)
			if i%3 == 0 {
				to = "nobody@example.com"
			}
			x := newMail(smallContent, to)
			mails = append(mails, x)
			c.Send(&x.Transaction)
		}
		for i, x := range mails {
			want := "answered 250"
			if i%3 == 0 {
				want = "answered 550"
			}
			if got := x.fates(t); got != want {
				t.Fatalf("message %d: %s; want %s", i, got, want)
			}
		}
		if err := c.quitWithin(context.Background()); err != nil {
			t.Error(err)
		}
		<-m.done
	})
}

// loud is a connection of the operating system that says when so many octets were written in one go.
type loud struct {
	*net.TCPConn
	octets int
	wrote  chan struct{}
}

func (l loud) Write(p []byte) (int, error) {
	n, err := l.TCPConn.Write(p)
	if n >= l.octets {
		l.wrote <- struct{}{}
	}
	return n, err
}

// TestAClosedConnectionSendsNothingMore of what the operating system has in its buffers.
func TestAClosedConnectionSendsNothingMore(t *testing.T) {
	small := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
	}}
	listen, err := small.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listen.Close()
	got := make(chan string)
	closed := make(chan struct{})
	go func() {
		nc, err := listen.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		defer nc.Close()
		in := bufio.NewReader(nc)
		for _, say := range []string{"220 mx", "250 mx", "250 ok", "250 ok", "354 go"} {
			if _, err := io.WriteString(nc, say+"\r\n"); err != nil {
				t.Error(err)
			}
			if say != "354 go" {
				_, _ = in.ReadString('\n')
			}
		}
		<-closed
		rest, _ := io.ReadAll(in)
		got <- string(rest)
	}()
	nc, err := net.Dial("tcp", listen.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	tcp := nc.(*net.TCPConn)
	_ = tcp.SetWriteBuffer(1 << 20)
	const lines = 350 // they leave in one flight, which the host's buffer is too small for
	wire := loud{tcp, 70 * lines, make(chan struct{}, 1)}
	c, err := Handshake(t.Context(), wire, testConfig())
	if err != nil {
		t.Fatal(err)
	}
	m := newMail(strings.Repeat(strings.Repeat("x", 70)+"\r\n", lines), "a@example.com")
	if !c.Send(&m.Transaction) {
		t.Fatal("Send refused")
	}
	<-wire.wrote
	c.Close()
	<-c.Ended()
	close(closed)
	if rest := <-got; strings.HasSuffix(rest, "\r\n.\r\n") {
		t.Errorf("the host has got all %d octets", len(rest))
	}
	if fates := m.fates(t); fates != "ambiguous 421" {
		t.Errorf("the recipient is %s", fates)
	}
}
