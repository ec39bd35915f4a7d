package bench

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Load is messages that are submitted over several connections at once, and the account of when each
// was. Message n has the X-Mta-Test-Id n.
//
// A message that the server answers by "later" is submitted again, so that it is one message all the
// same. One whose connection was lost after its content is not: nobody knows whether it was taken.
type Load struct {
	Messages    int
	Connections int
	Size        int // octets of content, about
	Rate        int // messages a second; 0: as fast as they are taken
	// PerConnection is how many messages go on a connection; 0 is any number.
	PerConnection int
	TLS           bool // by STARTTLS, whatever the certificate; sessions are resumed
	Sender        string
	To            func(n int) []string // of message n; called from many goroutines

	// What became of it, by message; to be read after Run.
	Began time.Time
	Took  time.Duration   // until the last was accepted
	Sent  []time.Duration // since Began: the end of the content was sent
	Heard []time.Duration // since Began: the 250 was read; 0: it never was
	IDs   []string        // what the 250 called the message

	Later  atomic.Int64 // answers of 4xx, and connections lost before the content's end
	unsure atomic.Int64 // recipients of messages of which nobody knows

	next, accepted atomic.Int64
	lines          []byte // that contents are made of, unless Run is to make them
	secured        *tls.Config
}

const (
	defaultSender = "sender@client.example"
	// laterPause is between an answer of 4xx and the next try.
	laterPause = 100 * time.Millisecond
	// maxLater is how many answers of 4xx to one message are borne.
	maxLater = 600
)

// Run submits all messages to the server at addr. It is called once.
func (l *Load) Run(ctx context.Context, addr string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.Sender = cmp.Or(l.Sender, defaultSender)
	l.Sent, l.Heard, l.IDs = make([]time.Duration, l.Messages), make([]time.Duration, l.Messages),
		make([]string, l.Messages)
	if l.lines == nil {
		l.lines = lines(l.Size)
	}
	if l.TLS {
		l.secured = &tls.Config{InsecureSkipVerify: true, ServerName: "relay.example",
			ClientSessionCache: tls.NewLRUClientSessionCache(l.Connections)}
	}
	l.Began = time.Now()
	var all sync.WaitGroup
	errs := make([]error, l.Connections)
	for i := range errs {
		all.Go(func() {
			if errs[i] = l.feed(ctx, addr); errs[i] != nil {
				cancel() // one that gives up is enough
			}
		})
	}
	all.Wait()
	l.Took = time.Since(l.Began)
	return first(errs)
}

// first gives the error that made the others end.
func first(errs []error) error {
	var canceled error
	for _, err := range errs {
		switch {
		case errors.Is(err, context.Canceled):
			canceled = err
		case err != nil:
			return err
		}
	}
	return canceled
}

// Accepted is how many messages have been accepted so far.
func (l *Load) Accepted() int { return int(l.accepted.Load()) }

// Recipients is how many deliveries the load makes.
func (l *Load) Recipients() (n int64) {
	for i := range l.Messages {
		n += int64(len(l.To(i)))
	}
	return n
}

func (l *Load) unsureRecipients() int64 { return l.unsure.Load() }

// feed sends messages down one connection, or several in turn when the server ends them, until there
// are no more.
func (l *Load) feed(ctx context.Context, addr string) error {
	c := &client{load: l, addr: addr}
	defer c.close()
	for {
		n := int(l.next.Add(1)) - 1
		if n >= l.Messages {
			c.quit()
			return nil
		}
		if !l.pace(ctx, n) {
			return ctx.Err()
		}
		if err := l.submit(ctx, c, n); err != nil {
			return fmt.Errorf("message %d: %w", n, err)
		}
	}
}

// submit sends message n until it is accepted, or in doubt.
func (l *Load) submit(ctx context.Context, c *client, n int) error {
	to := l.To(n)
	for try := 1; ; try++ {
		err := c.send(ctx, n, to)
		if err == nil {
			l.accepted.Add(1)
			return nil
		}
		c.close()
		var refused refusal
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &refused) && refused.line[0] == '5', try == maxLater:
			return err
		case errors.Is(err, errInDoubt):
			l.unsure.Add(int64(len(to)))
			return nil
		}
		l.Later.Add(1)
		if !pause(ctx, laterPause) {
			return ctx.Err()
		}
	}
}

// pace waits until it is message n's time.
func (l *Load) pace(ctx context.Context, n int) bool {
	if l.Rate == 0 {
		return ctx.Err() == nil
	}
	return pause(ctx, time.Until(l.Began.Add(time.Duration(n)*time.Second/time.Duration(l.Rate))))
}

// pause waits, and reports whether ctx still goes on.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// headSize is about what appendHead makes.
const headSize = 200

const (
	// lineSize is how long a line is.
	lineSize = 78
	// manyLines is how many octets there are at least: contents that are stored together differ.
	manyLines = 4 << 20
)

// lines makes random lines for contents of a size: they compress as little as an attached picture.
func lines(size int) []byte {
	b := make([]byte, max(manyLines, size)/lineSize*lineSize)
	random := rand.NewChaCha8([32]byte{})
	_, _ = random.Read(b) // never fails
	for i, c := range b {
		b[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[c%64]
	}
	for end := lineSize; end <= len(b); end += lineSize {
		copy(b[end-2:], "\r\n")
	}
	return b
}

// body is what message n has after its header section.
func (l *Load) body(n int) []byte {
	size := max(0, l.Size-headSize) / lineSize * lineSize
	at := 0
	if most := (len(l.lines) - size) / lineSize; most > 0 {
		at = n * (size/lineSize + 1) % most * lineSize
	}
	return l.lines[at : at+size]
}
