package submission

import (
	"bytes"
	"strings"
	"time"

	"mta/internal/envelope"
	"mta/internal/reply"
)

// The fields by which a message is scheduled. They say what HOLDFOR and HOLDUNTIL of RFC 4865
// say: the library gives no way to offer parameters of MAIL that it doesn't know. They are this
// relay's business, so they are taken out of the message.
const (
	holdFor    = "X-Hold-For"    // seconds
	holdUntil  = "X-Hold-Until"  // date-time of RFC 3339, 5.6
	holdSpread = "X-Hold-Spread" // seconds: each recipient has its own time in a window of this length
)

// maxHoldValue bounds what is kept of a field's value, in octets; what is longer is malformed.
const maxHoldValue = 128

// hold is what a message's fields say of when it is to be released.
type hold struct {
	values [3]string // of the fields above, in that order
	given  [3]bool
	twice  bool    // a field was given more than once
	last   *string // the value that a continuation line adds to; nil: not in one of these fields
}

var holdFields = [3][]byte{[]byte(holdFor), []byte(holdUntil), []byte(holdSpread)}

// take reports whether the field is one of ours, and notes its value.
func (h *hold) take(name, value []byte) bool {
	for i, f := range holdFields {
		if !bytes.EqualFold(name, f) {
			continue
		}
		h.twice = h.twice || h.given[i]
		h.given[i] = true
		h.last = &h.values[i]
		h.add(value)
		return true
	}
	return false
}

// add takes a part of the value of the field that is being read.
func (h *hold) add(part []byte) {
	if len(*h.last) <= maxHoldValue {
		*h.last = strings.TrimSpace(*h.last + " " + string(bytes.TrimSpace(part[:min(len(part), maxHoldValue)])))
	}
}

func (h *hold) asked() bool { return h.given != [3]bool{} }

// plan says when the message is released, and over which window, when it was submitted now and may
// be held so long at most. Zero times mean at once. A reply refuses the message: what asked to be
// held must never leave early because we could not read for how long.
func (h *hold) plan(now time.Time, longest time.Duration) (release time.Time, spread time.Duration, refused *reply.Reply) {
	if !h.asked() {
		return time.Time{}, 0, nil
	}
	refuse := func(r reply.Reply) (time.Time, time.Duration, *reply.Reply) { return time.Time{}, 0, &r }
	switch {
	case longest <= 0:
		return refuse(noScheduling.reply())
	case h.twice:
		return refuse(badHold.reply("a field is given twice"))
	case h.given[0] && h.given[1]:
		return refuse(badHold.reply("give " + holdFor + " or " + holdUntil + ", not both"))
	}
	release = now
	if h.given[0] {
		wait, ok := holdSeconds(h.values[0])
		if !ok {
			return refuse(badHold.reply(holdFor + ": want seconds, 1 to 999999999"))
		}
		release = now.Add(wait)
	}
	if h.given[1] {
		at, err := time.Parse(time.RFC3339, h.values[1])
		if err != nil {
			return refuse(badHold.reply(holdUntil + ": want a time as 2030-01-31T12:00:00Z"))
		}
		release = at
	}
	if h.given[2] {
		var ok bool
		if spread, ok = holdSeconds(h.values[2]); !ok || spread > envelope.MaxSpread {
			return refuse(badHold.reply(holdSpread + ": want seconds, 1 to 86400"))
		}
	}
	if release.Before(now) {
		release = now // its time has passed on the way
	}
	if release.Add(spread).Sub(now) > longest {
		return refuse(heldTooLong.reply(int64(longest / time.Second)))
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
