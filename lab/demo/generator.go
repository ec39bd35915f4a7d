package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	webclient "example.org/mta/client"
)

// generator hands letters to the relay as applications would, from several connections, each waiting
// for the answer to one letter before it begins the next. Every other one sends by SMTP, the rest by HTTP.
//
// Its goroutines, one for each connection, end with the last letter or with the context; run
// waits for them.
type generator struct {
	addr        string            // of the SMTP listener
	web         *webclient.Client // tries each request once. Nil: all letters go by SMTP
	writer      *writer
	ledger      *ledger
	messages    int
	connections int
	pace        *rate.Limiter
	patience    time.Duration // before a letter is sent again of which the relay said "later"

	next    atomic.Int64
	waits   atomic.Int64 // letters that the relay answered by "later", each time
	refused atomic.Int64 // letters that it refused for good
	byHTTP  atomic.Int64 // letters that it accepted by HTTP
}

func (g *generator) run(ctx context.Context) error {
	var wait sync.WaitGroup
	errs := make([]error, g.connections)
	for i := range g.connections {
		if i%2 == 1 && g.web != nil {
			wait.Go(func() { g.workByHTTP(ctx) })
			continue
		}
		wait.Go(func() { errs[i] = g.work(ctx) })
	}
	wait.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return errors.Join(errs...)
}

// work sends letters until there are no more.
func (g *generator) work(ctx context.Context) error {
	var c *client
	defer func() {
		if c != nil {
			c.quit()
		}
	}()
	for {
		n := int(g.next.Add(1)) - 1
		if n >= g.messages || g.pace.Wait(ctx) != nil {
			return nil
		}
		l := g.writer.letter(n)
		g.ledger.begin(&l)
		for {
			if c == nil {
				var err error
				if c, err = dialClient(ctx, g.addr); err != nil {
					return fmt.Errorf("connecting to the relay: %w", err)
				}
			}
			again, err := g.send(c, &l)
			if err != nil {
				c.close()
				c = nil
			}
			if !again {
				break
			}
			if !pause(ctx, g.patience) {
				return nil
			}
		}
	}
}

// workByHTTP sends letters until there are no more.
func (g *generator) workByHTTP(ctx context.Context) {
	for {
		n := int(g.next.Add(1)) - 1
		if n >= g.messages || g.pace.Wait(ctx) != nil {
			return
		}
		l := g.writer.letter(n)
		g.ledger.begin(&l)
		for g.post(ctx, &l) {
			if !pause(ctx, g.patience) {
				return
			}
		}
	}
}

// post submits l and notes what came of it. again asks for another try: under its Idempotency-Key the letter
// counts once, even if the answer to the last try was lost.
func (g *generator) post(ctx context.Context, l *letter) (again bool) {
	envelope := webclient.Envelope{From: l.sender, IdempotencyKey: l.id()}
	for _, r := range l.recipients {
		envelope.To = append(envelope.To, r.address)
	}
	_, err := g.web.SendRaw(ctx, envelope, []byte(g.writer.content(l, time.Now())))
	var answer *webclient.Error
	switch answered := errors.As(err, &answer); {
	case err == nil:
		g.byHTTP.Add(1)
		g.ledger.enter(l, accepted, time.Now())
	case answered && !answer.Temporary():
		g.refused.Add(1)
	case ctx.Err() != nil:
		g.ledger.enter(l, unsure, time.Now())
	default:
		g.waits.Add(1)
		return true
	}
	return false
}

// send submits l and notes what came of it. again asks for another try; after an error the
// connection is of no more use.
func (g *generator) send(c *client, l *letter) (again bool, err error) {
	begun, err := c.send(l, g.writer.content(l, time.Now()))
	var refusal *textproto.Error
	switch {
	case err == nil:
		g.ledger.enter(l, accepted, time.Now())
		return false, nil
	case errors.As(err, &refusal) && refusal.Code < 500:
		g.waits.Add(1)
		return true, err
	case errors.As(err, &refusal):
		g.refused.Add(1)
		return false, err
	case begun:
		g.ledger.enter(l, unsure, time.Now())
		return false, err
	}
	return true, err
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// client is a submission session; it pipelines the envelope (RFC 2920).
type client struct {
	conn net.Conn
	r    *textproto.Reader
	w    *bufio.Writer
	stop func() bool
}

func dialClient(ctx context.Context, addr string) (*client, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &client{conn: conn, r: textproto.NewReader(bufio.NewReader(conn)), w: bufio.NewWriter(conn)}
	c.stop = context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now().Add(2 * time.Second)) })
	if _, _, err := c.r.ReadResponse(220); err != nil {
		c.close()
		return nil, err
	}
	if err := c.command("EHLO app.acme.example\r\n", 250); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// command sends and reads one reply.
func (c *client) command(text string, code int) error {
	if _, err := io.WriteString(c.w, text); err != nil {
		return err
	}
	if err := c.w.Flush(); err != nil {
		return err
	}
	_, _, err := c.r.ReadResponse(code)
	return err
}

// send gives the relay a letter; begun says whether its content was under way, so that without
// a reply nobody knows.
func (c *client) send(l *letter, content string) (begun bool, err error) {
	fmt.Fprintf(c.w, "MAIL FROM:<%s> SIZE=%d\r\n", l.sender, len(content))
	for _, r := range l.recipients {
		fmt.Fprintf(c.w, "RCPT TO:<%s>\r\n", r.address)
	}
	io.WriteString(c.w, "DATA\r\n")
	if err := c.w.Flush(); err != nil {
		return false, err
	}
	// All replies are read before one of them is judged. A refusal ends the session: when DATA was
	// accepted for the other recipients, that is the way not to send to them alone.
	var refusal error
	for i := range len(l.recipients) + 2 {
		code := 250
		if i == len(l.recipients)+1 {
			code = 354
		}
		_, _, err := c.r.ReadResponse(code)
		switch {
		case err == nil:
		case !isRefusal(err):
			return false, err
		case refusal == nil:
			refusal = err
		}
	}
	if refusal != nil {
		return false, refusal
	}
	io.WriteString(c.w, content)
	return true, c.command(".\r\n", 250)
}

func isRefusal(err error) bool {
	var refusal *textproto.Error
	return errors.As(err, &refusal)
}

func (c *client) quit() {
	_ = c.command("QUIT\r\n", 221)
	c.close()
}

func (c *client) close() {
	c.stop()
	c.conn.Close()
}
