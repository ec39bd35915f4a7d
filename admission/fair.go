package admission

import (
	"maps"
	"math"
	"slices"
	"sync"
	"time"
)

// Fair gives submissions their cohorts, so that the tenants of a tier share it max-min: the one threshold of
// the tier leaves each tenant as much as each other one, and what a tenant does not use goes on to the others.
//
// A cohort is how many of its tenant's submissions a second come before a submission, counted on a logarithmic
// scale: a threshold at 100 a second admits a fifth of a tenant that offers 500, and all of one that offers 40.
// Turns are the order within a tenant. Fair may be used by many goroutines at once.
type Fair struct {
	mu    sync.Mutex
	flows map[flowKey]*flow
	swept time.Time
}

type flowKey struct {
	tier   int
	tenant string
}

// flow is what a tenant has offered at a tier lately.
type flow struct {
	began, last time.Time
	faded       float64 // submissions: each counts for less the longer it is ago
	draws       uint32

	recent []asked // the oldest first
	order  []Turn  // the same, sorted
}

type asked struct {
	turn Turn
	at   time.Time
}

const (
	fadeTime  = 2 * time.Second // the memory of rates
	forgotten = 5 * time.Second // without a submission
	mostFlows = 10_000

	// Those who wait come back every ten seconds or so. The order of a longer time ago would have too many who
	// have been served since.
	turnTime  = time.Second
	fewTurns  = 8
	mostTurns = 512

	leastAhead = 1. / 64                        // a second: the first cohort has what has no more before it
	perDouble  = float64(Cohorts-1) / doublings // cohorts for twice as much
	doublings  = 20                             // from the first cohort to the last: 16,384 a second
)

// Turn is the place of a submission in the order of its tenant; the lower comes first.
type Turn int64

// newcomers is after all times.
const newcomers Turn = 1 << 62

// Returned is the turn of a submission that was refused before: by the time of its first attempt, before all
// new ones.
func Returned(first time.Time) Turn { return Turn(first.UnixMilli()) }

// Priority counts a submission of a tenant, and returns its priority, and the last one of its tenant: once
// admitted, all of a tenant are equal.
func (f *Fair) Priority(now time.Time, tier int, tenant string, turn Turn) (p, last Priority) {
	f.mu.Lock()
	defer f.mu.Unlock()
	tier = min(max(tier, 0), Tiers-1)
	l := f.flow(now, flowKey{tier, tenant})
	before := l.place(now, turn)
	l.count(now)
	rate := l.rate(now)
	return Of(tier, cohortOf(before*rate)), Of(tier, cohortOf(rate))
}

// Passes returns the part of a tenant's submissions that a threshold admits: levels below one wholly, of
// that level a part.
func (f *Fair) Passes(now time.Time, tier int, tenant string, level int, part float64) float64 {
	cohort := level - tier*Cohorts
	switch {
	case cohort < 0:
		return 0
	case cohort >= Cohorts:
		return 1
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	from, to := aheadOf(cohort), aheadOf(cohort+1)
	return min((from+part*(to-from))/max(f.flow(now, flowKey{tier, tenant}).rate(now), leastAhead), 1)
}

// Within returns the threshold that admits a part of what the tenants of a tier offer at present: the first level that
// it does not admit whole, and the part of it that it does. The last priorities would make it too low while the rate of
// a tenant rises, since they are of the rate that was known when they were given.
func (f *Fair) Within(now time.Time, tier int, part float64) (level int, of float64) {
	rates, left := f.rates(now, tier), 0.
	for _, r := range rates {
		left += part * r
	}
	each := 0. // what a tenant may have
	for i, r := range rates {
		if each = left / float64(len(rates)-i); each <= r {
			break
		}
		left -= r
	}
	if part >= 1 || len(rates) == 0 {
		return (tier + 1) * Cohorts, 0
	}
	cohort := min(cohortOf(each), Cohorts-1)
	from, to := aheadOf(cohort), aheadOf(cohort+1)
	return tier*Cohorts + cohort, (each - from) / (to - from)
}

// rates returns what the tenants of a tier offer a second, the smallest first.
func (f *Fair) rates(now time.Time, tier int) (rates []float64) {
	f.mu.Lock()
	for k, l := range f.flows {
		if k.tier == tier {
			rates = append(rates, l.rate(now))
		}
	}
	f.mu.Unlock()
	slices.Sort(rates)
	return rates
}

// flow returns a tenant's flow, a new one where it has offered nothing lately. mu is held.
func (f *Fair) flow(now time.Time, k flowKey) *flow {
	if past(f.swept, now) {
		maps.DeleteFunc(f.flows, func(_ flowKey, l *flow) bool { return l.idle(now) })
		f.swept = now
	}
	l := f.flows[k]
	if l == nil && len(f.flows) >= mostFlows {
		k.tenant = "" // they share one
		l = f.flows[k]
	}
	if l == nil || l.idle(now) {
		l = &flow{began: now, last: now}
		if f.flows == nil {
			f.flows = make(map[flowKey]*flow)
		}
		f.flows[k] = l
	}
	return l
}

// idle reports whether nothing was offered lately, or the clock was set back.
func (l *flow) idle(now time.Time) bool { return past(l.last, now) }

// past reports whether a time is not of the last moments. Submissions at the same time can come a little out of order,
// since each reads the clock before it waits for mu.
func past(t, now time.Time) bool { return now.Sub(t).Abs() >= forgotten }

func (l *flow) count(now time.Time) {
	l.faded = l.faded*fade(now.Sub(l.last)) + 1
	if now.After(l.last) {
		l.last = now
	}
}

// rate is how many submissions a second the tenant offers at present.
func (l *flow) rate(now time.Time) float64 {
	seen := max(now.Sub(l.began), time.Second) // a shorter time gives no rate
	return l.faded * fade(now.Sub(l.last)) / (fadeTime.Seconds() * (1 - fade(seen)))
}

func fade(d time.Duration) float64 { return math.Exp(-max(d, 0).Seconds() / fadeTime.Seconds()) }

// place notes a turn, and returns the part of the tenant's submissions of the last moment that came before it.
// Those of the same turn are spread evenly: none of them is first. However few there are to compare with, the
// places of all are spread evenly from 0 to 1, since the next one is as likely to be anywhere among them.
func (l *flow) place(now time.Time, t Turn) float64 {
	for len(l.recent) >= mostTurns || len(l.recent) > fewTurns && now.Sub(l.recent[0].at) > turnTime {
		i, _ := slices.BinarySearch(l.order, l.recent[0].turn)
		l.order, l.recent = slices.Delete(l.order, i, i+1), l.recent[1:]
	}
	before, _ := slices.BinarySearch(l.order, t)
	after, _ := slices.BinarySearch(l.order, t+1)
	l.draws++
	draw := float64(l.draws*golden) / (1 << 32)
	place := (float64(before) + draw*float64(after-before+1)) / float64(len(l.order)+1)
	l.order, l.recent = slices.Insert(l.order, after, t), append(l.recent, asked{t, now})
	return place
}

// cohortOf returns the cohort of what has so many a second before it, and aheadOf the fewest that what
// is in a cohort has.
func cohortOf(ahead float64) int {
	if ahead <= leastAhead {
		return 0
	}
	return int(math.Log2(ahead/leastAhead) * perDouble)
}

func aheadOf(cohort int) float64 {
	if cohort == 0 {
		return 0
	}
	return leastAhead * math.Exp2(float64(cohort)/perDouble)
}
