package intake

import (
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
)

// The fields by which a message is scheduled. They say what HOLDFOR and HOLDUNTIL of RFC 4865
// say: the library gives no way to offer parameters of MAIL that it doesn't know.
const (
	holdFor    = "X-Hold-For"    // seconds
	holdUntil  = "X-Hold-Until"  // date-time of RFC 3339, 5.6
	holdSpread = "X-Hold-Spread" // seconds: each recipient has its own time in a window of this length
)

// plan returns when the message is released, and over which window, when it was submitted now and may
// be held so long at most. Zero times mean at once. A reply refuses the message: what asked to be
// held must never leave early because we could not read for how long.
func (f *ownFields) plan(now time.Time,
	longest time.Duration) (release time.Time, spread time.Duration, refused *reply.Reply) {
	until, pause, window := &f[ownHoldUntil], &f[ownHoldFor], &f[ownHoldSpread]
	if until.times+pause.times+window.times == 0 {
		return time.Time{}, 0, nil
	}
	refuse := func(r *reply.Reply) (time.Time, time.Duration, *reply.Reply) { return time.Time{}, 0, r }
	switch {
	case longest <= 0:
		return refuse(noScheduling.Refusal())
	case until.times > 1 || pause.times > 1 || window.times > 1:
		return refuse(badHold.Refusal("a field is given twice"))
	case until.times+pause.times > 1:
		return refuse(badHold.Refusal("give " + holdFor + " or " + holdUntil + ", not both"))
	}
	release = now
	if pause.times > 0 {
		wait, ok := holdSeconds(pause.value)
		if !ok {
			return refuse(badHold.Refusal(holdFor + ": want seconds, 1 to 999999999"))
		}
		release = now.Add(wait)
	}
	if until.times > 0 {
		at, err := time.Parse(time.RFC3339, until.value)
		if err != nil {
			return refuse(badHold.Refusal(holdUntil + ": want a time as 2030-01-31T12:00:00Z"))
		}
		release = at
	}
	if window.times > 0 {
		var ok bool
		if spread, ok = holdSeconds(window.value); !ok || spread > envelope.MaxSpread {
			return refuse(badHold.Refusal(holdSpread + ": want seconds, 1 to 86400"))
		}
	}
	return within(now, longest, release, spread)
}

// within is a plan that may be carried out: no time in the past, none beyond the longest.
func within(now time.Time, longest time.Duration, release time.Time,
	spread time.Duration) (time.Time, time.Duration, *reply.Reply) {
	if longest <= 0 {
		return time.Time{}, 0, noScheduling.Refusal()
	}
	if release.Before(now) {
		release = now // its time has passed on the way
	}
	if release.Add(spread).Sub(now) > longest {
		return time.Time{}, 0, heldTooLong.Refusal(int64(longest / time.Second))
	}
	if release.Equal(now) && spread == 0 {
		return time.Time{}, 0, nil
	}
	return ceilSecond(release), spread, nil
}

// holdSeconds reads what HOLDFOR takes: one to nine digits, the first not 0.
func holdSeconds(s string) (time.Duration, bool) {
	if len(s) == 0 || len(s) > 9 || s[0] == '0' {
		return 0, false
	}
	n := 0
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return time.Duration(n) * time.Second, true
}

// ceilSecond rounds up: nothing is released early.
func ceilSecond(t time.Time) time.Time {
	whole := t.Truncate(time.Second)
	if whole.Before(t) {
		whole = whole.Add(time.Second)
	}
	return whole.UTC()
}
