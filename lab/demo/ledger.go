package demo

import (
	"bufio"
	"bytes"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"time"
)

// fate is what is known of one recipient of one letter.
type fate uint8

const (
	accepted fate = 1 << iota // the relay said 250
	unsure                    // the connection died before the relay could say so
	bounced                   // the sender has got a report of failure
)

// ledger is the demo's own account of every recipient of every letter, apart from what the
// relay says of itself. It is safe for use by many goroutines.
type ledger struct {
	mu struct { // guards what follows
		sync.Mutex
		letters    map[int]*entry
		accepted   int // letters
		recipients int64
		bounced    int64
		byProvider []count
		reports    int64 // that reached the senders, of all kinds
		strange    int64 // reports about a recipient that nobody wrote to, or a second one
	}
}

type entry struct {
	recipients []recipient
	fates      []fate
	at         time.Time // of the 250
}

type count struct{ accepted, bounced int64 }

func newLedger(providers int) *ledger {
	g := &ledger{}
	g.mu.letters = make(map[int]*entry)
	g.mu.byProvider = make([]count, providers)
	return g
}

// begin opens the account of l before it is handed to the relay: a report can be here before
// the 250 has been read.
func (g *ledger) begin(l *letter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.letters[l.number] = &entry{recipients: l.recipients, fates: make([]fate, len(l.recipients))}
}

// enter notes what became of handing l to the relay.
func (g *ledger) enter(l *letter, f fate, at time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.mu.letters[l.number]
	e.at = at
	for i := range e.fates {
		e.fates[i] |= f
	}
	if f != accepted {
		return
	}
	g.mu.accepted++
	g.mu.recipients += int64(len(l.recipients))
	for _, r := range l.recipients {
		g.mu.byProvider[r.provider].accepted++
	}
}

// report reads a report that reached a sender (RFC 3464) and notes whom it is about.
func (g *ledger) report(content []byte) {
	number, failed := parseReport(content)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.reports++
	e := g.mu.letters[number]
	for _, address := range failed {
		if !g.bounce(e, address) {
			g.mu.strange++
		}
	}
}

// bounce notes one failed recipient; false when e has no such one, or no longer. g.mu is held.
func (g *ledger) bounce(e *entry, address string) bool {
	if e == nil {
		return false
	}
	for i, r := range e.recipients {
		if strings.EqualFold(r.address, address) && e.fates[i]&bounced == 0 {
			e.fates[i] |= bounced
			g.mu.bounced++
			g.mu.byProvider[r.provider].bounced++
			return true
		}
	}
	return false
}

// parseReport finds the letter's number (-1 when there is none) and the recipients that failed.
func parseReport(content []byte) (number int, failed []string) {
	number = -1
	lines := textproto.NewReader(bufio.NewReader(bytes.NewReader(content)))
	address := ""
	for {
		line, err := lines.ReadLine()
		if err != nil {
			return number, failed
		}
		key, value, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		value = strings.TrimSpace(value)
		switch strings.ToLower(key) {
		case "final-recipient":
			_, address, _ = strings.Cut(value, ";")
			address = strings.TrimSpace(address)
		case "action":
			if strings.EqualFold(value, "failed") && address != "" {
				failed = append(failed, address)
			}
		case "x-mta-test-id":
			if n, err := strconv.Atoi(strings.TrimPrefix(value, "demo-")); err == nil {
				number = n
			}
		}
	}
}

// sums gives the totals, and the counts by provider.
func (g *ledger) sums() (letters int, recipients, bounced int64, byProvider []count) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.accepted, g.mu.recipients, g.mu.bounced, append([]count(nil), g.mu.byProvider...)
}
