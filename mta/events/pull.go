package events

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"example.org/mta/internal/fair"
	"example.org/mta/mta/accounting"
)

// Puller gives tenants their events when they ask for them, and has them wait for new ones.
//
// While somebody waits, one goroutine reads what is written, once for all: a record costs a look, however many wait.
type Puller struct {
	log   PullLog
	node  string
	scans *fair.Turns // of tenants: a scan of the log is work

	ctx     context.Context // ends the goroutine
	stop    context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	waiting  map[string]map[*waiter]struct{} // by tenant
	number   int                             // of all that wait
	reading  map[string]int                  // requests that read or are about to, by tenant
	watching bool                            // the goroutine runs
	at       Position                        // it has read everything before
}

// PullLog is a Log that can describe records that were deleted.
type PullLog interface {
	Log
	Gap(from, to Position, count int64) []byte
}

// waiter is a request that waits for an event.
type waiter struct{ wake chan struct{} } // closed with the first event

// Pull is a request for events of a tenant.
type Pull struct {
	Tenant string
	// After is the id of an event, the Next of an earlier page, "now", "@" and a time (RFC 3339) for the events since
	// then, or "" for the oldest.
	After string
	Limit int           // of events
	Brief bool          // a part of the log is looked through that takes little time
	Wait  time.Duration // how long to wait for an event if there is none
	Hurry <-chan struct{}
}

// Page is the answer.
type Page struct {
	Events [][]byte // records, without line ends
	Next   string   // the After of the next request
}

// Errors of Puller.
var (
	ErrAfter   = errors.New("not an event_id of this relay, nor the next of one of its pages")
	ErrWaiting = errors.New("too many requests wait for events")
)

const (
	pullOctets  = 64 << 20 // of the log that a request looks through
	briefOctets = 8 << 20  // likewise, of a brief one
	pageOctets  = 4 << 20  // of a page
	mostWaiting = 1000
	mostOfOne   = 16            // waiting requests of a tenant
	mostReading = 2 * mostOfOne // requests of a tenant that read or wait for a scan: others need the scans, too
	pauseAfter  = 64 << 10      // octets after which a scan can give way
	nowWord     = "now"
	fromHere    = "-next" // follows a position from which on events are wanted
	sinceMark   = "@"     // stands before the time since which they are
)

// NewPuller returns a Puller for the log of a node. Its scans take turns with whatever else scans stands for.
func NewPuller(log PullLog, node string, scans *fair.Turns) *Puller {
	p := &Puller{log: log, node: node, scans: scans, waiting: make(map[string]map[*waiter]struct{}),
		reading: make(map[string]int)}
	p.ctx, p.stop = context.WithCancel(context.Background())
	return p
}

// Close waits for the goroutine. Requests are to have ended before; those that come later are not woken.
func (p *Puller) Close() {
	if p == nil {
		return
	}
	p.mu.Lock()
	p.stop() // none begins any more
	p.mu.Unlock()
	p.running.Wait()
}

// Pull returns the tenant's events after a place, the oldest first. It waits for the first one, and looks through a
// bounded part of the log: a page can be empty, and the next request goes on from its Next. If records after the
// place were deleted, the first event is a Gap.
func (p *Puller) Pull(ctx context.Context, q Pull) (Page, error) {
	s := &pullScan{puller: p, q: &q, most: pullOctets}
	if q.Brief {
		s.most = briefOctets
	}
	if err := s.begin(q.After); err != nil {
		return Page{}, err
	}
	done, err := s.run(ctx)
	if err != nil || done || q.Wait <= 0 {
		return s.page(), err
	}
	w, err := p.enter(q.Tenant)
	if err != nil {
		return Page{}, err
	}
	defer func() { p.leave(q.Tenant, w) }()
	timeout := time.NewTimer(q.Wait)
	defer timeout.Stop()
	for {
		// What was written before enter is found here, and what comes later wakes us.
		if done, err := s.run(ctx); err != nil || done {
			return s.page(), err
		}
		select {
		case <-w.wake:
			w = p.again(q.Tenant, w)
			continue
		case <-timeout.C:
		case <-q.Hurry:
		case <-ctx.Done():
			return s.page(), ctx.Err()
		}
		p.advance(s, w)
		return s.page(), nil
	}
}

// begin reads an After.
func (s *pullScan) begin(after string) (err error) {
	p := s.puller
	if i := strings.LastIndex(after, sinceMark); i >= 0 {
		if s.since, err = time.Parse(time.RFC3339, after[i+1:]); err == nil {
			after = after[:i]
		}
	}
	switch {
	case after == "" && !s.since.IsZero():
		s.at, err = p.log.Since(s.since)
		return err
	case after == "":
		return nil
	case after == nowWord:
		s.at = p.log.Synced()
		return nil
	}
	id, next := strings.CutSuffix(after, fromHere)
	var node string
	if node, s.at, err = accounting.ParseEventID(id); err != nil || node != p.node || s.at.Compare(p.log.Synced()) > 0 {
		return ErrAfter
	}
	s.skip = !next
	return nil
}

// pullScan looks for a tenant's events.
type pullScan struct {
	puller *Puller
	q      *Pull
	at     Position  // everything before was looked at
	skip   bool      // the record at at, too
	since  time.Time // records of before are left out; zero once there was a later one
	most   int       // octets to look through
	events [][]byte
	size   int
	looked int // octets
	paused int // how many they were when it gave way last
}

// errPageFull ends a scan.
var errPageFull = errors.New("enough")

// run reads on to the end of the log. It reports whether the page is to be sent.
func (s *pullScan) run(ctx context.Context) (done bool, err error) {
	if !s.puller.admit(s.q.Tenant) {
		return false, ErrWaiting
	}
	defer s.puller.dismiss(s.q.Tenant)
	turn, err := s.puller.scans.Begin(ctx, s.q.Tenant)
	if err != nil {
		return false, err
	}
	defer turn.End()
	log := s.puller.log
	for {
		to := log.Synced()
		if s.at.Compare(to) >= 0 {
			return len(s.events) > 0, nil
		}
		at, err := log.ReadFrom(ctx, s.at, to, func(at, next Position, line []byte) error {
			if s.looked-s.paused >= pauseAfter {
				s.paused = s.looked
				if err := turn.Next(ctx); err != nil {
					return err
				}
			}
			return s.take(at, next, line)
		})
		var missing *accounting.MissingError
		switch {
		case errors.Is(err, errPageFull):
			return true, nil
		case errors.As(err, &missing):
			s.events = append(s.events, log.Gap(missing.From, missing.Next(), 0))
			s.at, s.skip = missing.To, false
			continue
		case err != nil:
			return false, err
		}
		if s.at.Compare(at) < 0 {
			s.at, s.skip = at, false
		}
		return len(s.events) > 0, nil
	}
}

// take keeps a record of the tenant.
func (s *pullScan) take(at, next Position, line []byte) error {
	if s.skip && at == s.at {
		s.at, s.skip = next, false
		return nil
	}
	if len(s.events) == s.q.Limit || s.size >= pageOctets || s.looked >= s.most {
		s.at = at
		return errPageFull
	}
	s.looked += len(line) + 1
	r, ok := scan(line)
	if ok && !s.since.IsZero() {
		if ok = !r.time().Before(s.since); ok {
			s.since = time.Time{}
		}
	}
	if ok && string(r.tenant) == s.q.Tenant {
		s.events = append(s.events, bytes.Clone(line))
		s.size += len(line)
	}
	s.at, s.skip = next, false
	return nil
}

// page is what was found. Its Next names the last event, if it is also the last record that was looked at.
func (s *pullScan) page() Page {
	next := accounting.EventID(s.puller.node, s.at)
	if !s.skip {
		next += fromHere
	}
	if !s.since.IsZero() {
		next += sinceMark + s.since.UTC().Format(time.RFC3339Nano)
	}
	return Page{Events: s.events, Next: next}
}

// admit counts a request of a tenant that is to read, unless too many do.
func (p *Puller) admit(tenant string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reading[tenant] >= mostReading {
		return false
	}
	p.reading[tenant]++
	return true
}

func (p *Puller) dismiss(tenant string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reading[tenant]--; p.reading[tenant] == 0 {
		delete(p.reading, tenant)
	}
}

// enter adds a request to those that wait.
func (p *Puller) enter(tenant string) (*waiter, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.number >= mostWaiting || len(p.waiting[tenant]) >= mostOfOne {
		return nil, ErrWaiting
	}
	p.number++
	if !p.watching && p.ctx.Err() == nil {
		p.watching, p.at = true, p.log.Synced()
		changed, stop := p.log.Watch()
		p.running.Go(func() { p.watch(changed, stop) })
	}
	return p.add(tenant), nil
}

// add needs the lock.
func (p *Puller) add(tenant string) *waiter {
	w := &waiter{make(chan struct{})}
	if p.waiting[tenant] == nil {
		p.waiting[tenant] = make(map[*waiter]struct{})
	}
	p.waiting[tenant][w] = struct{}{}
	return w
}

// again has a request that was woken wait anew.
func (p *Puller) again(tenant string, w *waiter) *waiter {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(tenant, w)
	return p.add(tenant)
}

func (p *Puller) leave(tenant string, w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(tenant, w)
	p.number--
}

func (p *Puller) drop(tenant string, w *waiter) {
	if delete(p.waiting[tenant], w); len(p.waiting[tenant]) == 0 {
		delete(p.waiting, tenant)
	}
}

// advance moves a scan that found nothing past what was read for all since then.
func (p *Puller) advance(s *pullScan, w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-w.wake:
	default:
		if s.at.Compare(p.at) < 0 {
			s.at, s.skip = p.at, false
		}
	}
}

// watch reads what is written and wakes those who wait for it, until nobody waits.
func (p *Puller) watch(changed <-chan struct{}, stop func()) {
	defer stop()
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-changed:
		case <-tick.C: // nobody may wait any more
		case <-p.ctx.Done():
			return
		}
		p.mu.Lock()
		from := p.at
		if p.number == 0 {
			p.watching = false
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		to := p.log.Synced()
		if from.Compare(to) >= 0 {
			continue
		}
		_, err := p.log.ReadFrom(p.ctx, from, to, p.wake)
		p.mu.Lock()
		if p.at = to; err != nil { // those who wait find out by themselves
			for tenant := range p.waiting {
				p.wakeAll(tenant)
			}
		}
		p.mu.Unlock()
	}
}

// wake has those who wait for a record's tenant read it.
func (p *Puller) wake(_, _ Position, line []byte) error {
	if r, ok := scan(line); ok && len(r.tenant) > 0 {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.wakeAll(string(r.tenant))
	}
	return nil
}

// wakeAll needs the lock.
func (p *Puller) wakeAll(tenant string) {
	for w := range p.waiting[tenant] {
		close(w.wake)
	}
	delete(p.waiting, tenant)
}

// watchEvery is how soon the goroutine ends that nobody needs any more.
const watchEvery = time.Second

// Waiting is how many requests wait for an event.
func (p *Puller) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.number
}
