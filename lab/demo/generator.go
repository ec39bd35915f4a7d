package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/smtp"
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
		wait.Go(func() { errs[i] = g.work(ctx, i%2 == 1 && g.web != nil) })
	}
	wait.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return errors.Join(errs...)
}

// work sends letters until there are no more.
func (g *generator) work(ctx context.Context, byHTTP bool) error {
	var c *smtp.Client
	defer func() {
		if c != nil {
			c.Quit()
			c.Close()
		}
	}()
	for {
		n := int(g.next.Add(1)) - 1
		if n >= g.messages || g.pace.Wait(ctx) != nil {
			return nil
		}
		l := g.writer.letter(n)
		g.ledger.begin(&l)
		for again := true; again; {
			var err error
			switch {
			case byHTTP:
				again = g.post(ctx, &l)
			case c == nil:
				if c, err = dial(ctx, g.addr); err != nil {
					return fmt.Errorf("connecting to the relay: %w", err)
				}
				continue
			default:
				if again, err = g.send(c, &l); err != nil {
					c.Close()
					c = nil
				}
			}
			if again && !pause(ctx, g.patience) {
				return nil
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
func (g *generator) send(c *smtp.Client, l *letter) (again bool, err error) {
	begun, err := transmit(c, l, g.writer.content(l, time.Now()))
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
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// dial begins a submission session, which is cut off two seconds after ctx ends.
func dial(ctx context.Context, addr string) (c *smtp.Client, err error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now().Add(2 * time.Second)) })
	if c, err = smtp.NewClient(conn, "relay.acme.example"); err == nil {
		err = c.Hello("app.acme.example")
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

// transmit gives the relay a letter; begun says whether its content was under way, so that without
// a reply nobody knows. A refusal ends the session.
func transmit(c *smtp.Client, l *letter, content string) (begun bool, err error) {
	err = c.Mail(l.sender)
	for i := 0; i < len(l.recipients) && err == nil; i++ {
		err = c.Rcpt(l.recipients[i].address)
	}
	if err != nil {
		return false, err
	}
	body, err := c.Data()
	if err != nil {
		return false, err
	}
	io.WriteString(body, content)
	return true, body.Close()
}
