package mta

import (
	"fmt"
	"sync"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/mta/wiring"
	"example.org/mta/queue"
	"example.org/mta/warmup"
)

// diversion is what became of mail that a warming source could have taken.
type diversion uint8

const (
	notDiverted   diversion = iota // a dedicated source took it
	cameFaster                     // than the plan takes it, and had no patience
	cameTooFast                    // for its patience
	hadNoRoom                      // that day
	lostPatience                   // after it had waited
	foundNoWay                     // since its site is suspended for all dedicated sources
	wasExcepted                    // from the dedicated sources
	diversionKind                  // their number
)

// diversions counts recipients by what became of them.
type diversions [diversionKind]int64

// offered is how much of it a dedicated source could have taken.
func (d *diversions) offered() (n int64) {
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
	diversions
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
	h.diversions[why] += n
}

// since adds up pools from a time on, to the hour; it is a day ago at most.
func (x *divertedMail) since(pools []string, from time.Time) (all diversions) {
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
			for why, n := range h.diversions {
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

// diversion says why mail takes a shared source of a pool, whose patience ends in left. shut is that it can
// take no dedicated one since they are suspended at its site.
func (s *splitter) diversion(pool *wiring.Pool, m mail, left time.Duration, shut bool) diversion {
	switch {
	case !pool.Takes(m.Message):
		return wasExcepted
	case shut:
		return foundNoWay
	case m.turn && left <= 0 && pool.Patience(m.Tenant, int(m.Tier)) > 0:
		return lostPatience
	case !s.fits(pool, m, 24*time.Hour):
		return hadNoRoom
	case left <= 0:
		return cameFaster
	}
	return cameTooFast
}

// adviceFrom is the share of the mail, in per cent, that must have come too fast before that is worth a word.
const adviceFrom = 10

// advice is what an operator can do about a day that will not be filled, "" for nothing.
func (d *diversions) advice(s *warmup.Status) string {
	fast, all := d[cameFaster]+d[cameTooFast], d.offered()
	open := s.Outlook == warmup.Undecided.String() || s.Outlook == warmup.StayedFill.String()
	if !open || s.SentDay >= s.StageLimit || 100*fast < adviceFrom*all || fast == 0 {
		return ""
	}
	more := ""
	if d[cameTooFast] > d[cameFaster] {
		more = "more "
	}
	return fmt.Sprintf("%d %% of the mail came faster than the plan takes it: give it %spatience", 100*fast/all, more)
}

// divertedSince adds up what became of the mail of a warm-up's pools.
func (w *warming) divertedSince(key string, from time.Time) diversions {
	w.mu.Lock()
	pools := w.pools[key]
	w.mu.Unlock()
	return w.diverted.since(pools, from)
}
