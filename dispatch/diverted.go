package dispatch

import (
	"sync"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/mta/wiring"
	"example.org/mta/queue"
	"example.org/mta/warmup"
)

// diversion is the reason why mail that a warming source could have taken left from a shared source.
type diversion uint8

const (
	notDiverted   diversion = iota // a dedicated source took it
	CameFaster                     // than the plan takes it, and had no patience
	CameTooFast                    // for its patience
	ExceededCap                    // of that day
	LostPatience                   // after it had waited
	FoundNoWay                     // since its site is suspended for all dedicated sources
	wasExcepted                    // from the dedicated sources
	diversionKind                  // their number
)

// Diversions counts recipients by what became of them.
type Diversions [diversionKind]int64

// Offered is how much of it a dedicated source could have taken.
func (d *Diversions) Offered() (n int64) {
	for why, k := range d {
		if diversion(why) != wasExcepted {
			n += k
		}
	}
	return n
}

// divertedMail counts, for each pool and hour of the last day, where the mail went that its warming sources could
// have taken. It is of this run of the relay.
type divertedMail struct {
	mu    sync.Mutex // guards pools
	pools map[string]*[divertedHours]divertedHour
}

const divertedHours = 25 // a day and the hour in progress

type divertedHour struct {
	hour int64 // since 1970
	Diversions
}

func hourOf(t time.Time) int64 { return t.Unix() / 3600 }

// add counts n recipients.
func (x *divertedMail) add(pool string, why diversion, n int64, now time.Time) {
	if n == 0 {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.pools == nil {
		x.pools = make(map[string]*[divertedHours]divertedHour)
	}
	p := x.pools[pool]
	if p == nil {
		p = new([divertedHours]divertedHour)
		x.pools[pool] = p
	}
	hour := hourOf(now)
	h := &p[hour%divertedHours]
	if h.hour != hour {
		*h = divertedHour{hour: hour}
	}
	h.Diversions[why] += n
}

// since adds up pools from a time on, to the hour; it is a day ago at most.
func (x *divertedMail) since(pools []string, from time.Time) (all Diversions) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, name := range pools {
		p := x.pools[name]
		if p == nil {
			continue
		}
		for _, h := range p {
			if h.hour < hourOf(from) {
				continue
			}
			for why, n := range h.Diversions {
				all[why] += n
			}
		}
	}
	return all
}

// firstAttempts counts the recipients of a job that were attempted and never had been.
func firstAttempts(recipients []queue.Pending, results []delivery.Result) (n int64) {
	for i := range results {
		if results[i].Attempted && find(recipients, results[i].Recipient).Attempts == 0 {
			n++
		}
	}
	return n
}

// diversion returns why mail takes a shared source of a pool. shut is that it can
// take no dedicated one since they are suspended at its site.
func (s *splitter) diversion(pool *wiring.Pool, m mail, p warmup.Patience, shut bool) diversion {
	switch {
	case !pool.Takes(m.Message):
		return wasExcepted
	case shut:
		return FoundNoWay
	case p.Turn && p.Left <= 0 && p.Total > 0:
		return LostPatience
	case warmup.Fit(s.line(pool, &m), int64(m.n), 24*time.Hour) < int64(m.n):
		return ExceededCap
	case p.Left <= 0:
		return CameFaster
	}
	return CameTooFast
}

// DivertedSince adds up what became of the mail of a warm-up's pools.
func (d *Dispatcher) DivertedSince(key string, from time.Time) Diversions {
	return d.diverted.since(d.Policy().WarmupPools(key), from)
}
