package milter

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/emersion/go-milter"

	"example.org/mta/internal/fair"
)

const (
	// connections is how many a milter has at a time, in shares: other messages wait.
	connections = 100
	// openings is how many of them may be such that the milter doesn't answer yet: other relays may wait for it, too.
	openings = 8
	// again is when a connection is tried again for which there is no room.
	again = 20 * time.Millisecond
	// A crowd leaves work behind: as many timeouts as there were messages would do all of it, up to so many.
	longestStrain = 10
)

// turns decide whose message a milter gets next, and how many it has at a time. Connections are opened for nobody in
// particular. One on which the milter answers goes to the party that has used the least of its time: however many wait
// in front of the milter, who comes waits for its next answer alone. Goroutines: one for each connection that is being
// opened, which ends with the last message that waits, at the latest; and one for each whose client has left.
type turns struct {
	open    func(context.Context) (*link, error) // connects
	now     func() time.Time
	made    time.Time
	timeout time.Duration

	mu       sync.Mutex // guards what follows
	number   float64    // of connections that there may be
	calm     float64    // up to it, the number doubles while each message is decided; beyond, it grows by one
	parties  map[fair.Party]*party
	opening  int
	talking  int
	count    int // of turns, and of parties that came
	waiting  int
	waited   context.Context // ends when nobody waits any more
	cancel   context.CancelFunc
	lack     error     // why no connection could be opened last
	lacked   time.Time // when that was
	talked   time.Time // when a conversation ended last
	crowded  time.Time // when there were several last
	cut      time.Time // when the number became 1
	strained time.Time // until when the work that a crowd left behind may take
	late     time.Time // likewise of the last message that was alone
}

// party has messages that wait for the milter, or are with it.
type party struct {
	key   fair.Party
	line  []chan<- turn
	has   int           // conversations
	used  time.Duration // their ends less their begins, so far
	since int           // when it came, or had its last turn: a count
}

// claim is the bound of how much time a party may have more than another because it has used less, in timeouts.
const claim = 10

// cost is how much of the milter's time a party has used.
func (p *party) cost(at time.Duration) time.Duration { return p.used + time.Duration(p.has)*at }

// turn is what a message gets that waits.
type turn struct {
	link *link
	err  error
}

// link is a connection on which the milter answers.
type link struct {
	session *milter.ClientSession
	conn    *bounded
	of      *party
	began   time.Time
}

// outcome is what became of a conversation.
type outcome int

const (
	decided outcome = iota
	failed          // by an answer that is none
	silent          // no answer came in time, or the connection broke
	left            // the client is gone, or the relay ends
)

// take waits for a message's turn. Without a connection and an error ctx has ended.
func (t *turns) take(ctx context.Context, who fair.Party) (*link, error) {
	t.mu.Lock()
	p := t.parties[who]
	if p == nil {
		t.count++
		p = &party{key: who, since: t.count}
		if next := t.least(func(*party) bool { return true }); next != nil {
			p.used = next.cost(t.at()) // it has no claim from the time before
		}
		t.parties[who] = p
	}
	ready := make(chan turn, 1)
	p.line = append(p.line, ready)
	if t.waiting++; t.waiting == 1 {
		t.waited, t.cancel = context.WithCancel(context.Background())
	}
	t.start()
	t.mu.Unlock()
	select {
	case got := <-ready:
		return got.link, got.err
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(p.line, chan<- turn(ready))
	if i < 0 { // it came at this moment
		got := <-ready
		return got.link, got.err
	}
	t.leave(p, i)
	return nil, nil
}

// leave takes a message out of its line. mu is held.
func (t *turns) leave(p *party, i int) {
	p.line = slices.Delete(p.line, i, i+1)
	if t.waiting--; t.waiting == 0 {
		t.cancel()
	}
	t.forget(p)
}

func (t *turns) forget(p *party) {
	if len(p.line)+p.has == 0 {
		delete(t.parties, p.key)
	}
}

// room returns how many more conversations there may be, and how many of them a party may have. mu is held.
func (t *turns) room(p *party) (all, its int) {
	all = int(t.number) - t.talking
	if its = (fair.Usual*all - p.has) / (fair.Usual + 1); p.has == 0 {
		its = max(its, 1)
	}
	return all, min(its, all, len(p.line))
}

// next returns the party whose turn it is, nil if none may have a conversation more. mu is held.
func (t *turns) next() *party {
	return t.least(func(p *party) bool { _, its := t.room(p); return its > 0 })
}

// least returns the party that has used the least, of those that ok is true of. mu is held.
func (t *turns) least(ok func(*party) bool) (first *party) {
	at := t.at()
	for _, p := range t.parties {
		if ok(p) && (first == nil || cmp.Or(cmp.Compare(p.cost(at), first.cost(at)), p.since-first.since) < 0) {
			first = p
		}
	}
	return first
}

// at is the time as a duration.
func (t *turns) at() time.Duration { return t.now().Sub(t.made) }

// start opens connections for those who wait. mu is held.
func (t *turns) start() {
	wanted := 0
	for _, p := range t.parties {
		all, its := t.room(p)
		wanted = min(wanted+max(its, 0), all, openings)
	}
	for ; t.opening < wanted; t.opening++ {
		go t.connect(t.waited)
	}
}

// connect opens a connection, and gives it to the party whose turn it is then.
func (t *turns) connect(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout-t.timeout/8) // what it lacks is known to those who wait, then
	defer cancel()
	l, err := t.open(ctx)
	for full(err) && ctx.Err() == nil {
		t.note(err)
		select {
		case <-time.After(again):
		case <-ctx.Done():
		}
		l, err = t.open(ctx)
	}
	t.note(err)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.opening--
	p := t.next()
	switch {
	case err == nil && p != nil:
		l.of, l.began = p, t.now()
		p.has++
		p.used -= t.at()
		t.count++
		p.since = t.count
		if t.talking++; t.talking > 1 {
			t.crowded = l.began
		}
	case err == nil:
		l.conn.Close()
	}
	if p != nil && (err == nil || ctx.Err() == nil) { // whether it is the milter that is late, those who wait judge
		p.line[0] <- turn{l, err}
		t.leave(p, 0)
	}
	t.start()
}

// end ends a conversation, and reports whether the milter had no other mail from its begin to its end.
func (t *turns) end(l *link, how outcome) (alone bool) {
	l.conn.Close()
	t.mu.Lock()
	defer t.mu.Unlock()
	now, p := t.now(), l.of
	if t.talking > 1 {
		t.crowded = now
	}
	crowd := t.crowded.After(l.began)
	switch {
	case how == decided && t.number < t.calm:
		t.number = min(t.number+1, t.calm)
	case how == decided:
		t.number = min(t.number+1/t.number, connections)
	case how == silent && !crowd:
		t.late = now.Add(t.timeout) // others that it keeps from a connection can't know whose fault that is
	case how == silent:
		work := now.Add(time.Duration(min(t.talking, longestStrain)) * t.timeout)
		if work.After(t.strained) {
			t.strained = work
		}
		if !l.began.Before(t.cut) { // it is not one of the crowd for which that was done
			if t.number > 1 {
				t.calm = t.number / 2
			}
			t.number, t.cut = 1, now
		}
	}
	t.talking--
	t.talked = now
	p.has--
	at := t.at()
	p.used += at
	for _, other := range t.parties {
		other.used += max(0, p.cost(at)-other.cost(at)-claim*t.timeout)
	}
	t.forget(p)
	t.start()
	return !crowd && !t.strained.After(l.began)
}

// linger ends a conversation when the milter answers, or its time is over, where nobody waits for the answer: it works
// on the message all the same.
func (t *turns) linger(l *link) {
	_ = l.conn.SetDeadline(time.Now().Add(t.timeout))
	go func() {
		_, _ = l.conn.Conn.Read(make([]byte, 1))
		t.end(l, left)
	}()
}

// unserved returns why a message that has waited since then has no connection, which err may name: the relay lacked
// something, other mail was with the milter, or else the milter is away.
func (t *turns) unserved(since time.Time, err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case lacking(err):
		return unready{err}
	case errors.As(err, new(away)):
		return err
	case err == nil && t.lack != nil && !t.lacked.Before(since):
		return unready{t.lack}
	case t.talking > 0 || t.talked.After(since) || t.strained.After(since) || t.late.After(since):
		return errBusy
	}
	return away{cmp.Or(err, late(context.DeadlineExceeded))}
}

// note notes what the relay lacked for a connection.
func (t *turns) note(err error) {
	if lacking(err) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.lack, t.lacked = err, t.now()
	}
}

// lacks are what this relay lacks for a connection.
var lacks = []error{syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS, syscall.ENOMEM}

// lacking reports whether the relay, not the milter, is why there is no connection. A look-up that fails can hide that.
func lacking(err error) bool {
	return errors.As(err, new(*net.DNSError)) ||
		slices.ContainsFunc(lacks, func(lack error) bool { return errors.Is(err, lack) })
}

// full reports whether there can be room for a connection soon: here, or in the backlog of the milter, for which a
// socket on this machine refuses at once.
func full(err error) bool {
	return !errors.As(err, new(*net.DNSError)) && (lacking(err) || errors.Is(err, syscall.EAGAIN) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, syscall.ETIMEDOUT))
}
