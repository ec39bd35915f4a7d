package intake

import (
	"strings"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/hours"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/settings"
)

// The fields by which a message is scheduled. They say what HOLDFOR and HOLDUNTIL of RFC 4865
// say: the library gives no way to offer parameters of MAIL that it doesn't know.
const (
	holdFor    = "X-Hold-For"    // a duration
	holdUntil  = "X-Hold-Until"  // date-time of RFC 3339, 5.6
	holdSpread = "X-Hold-Spread" // a duration: each recipient has its own time in a window of this length
)

// expiresField is when a message is given up, a date-time likewise.
const expiresField = "X-MTA-Expires-At"

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
		wait, ok := holdTime(pause.value)
		if !ok {
			return refuse(badHold.Refusal(holdFor + ": want a duration as 3600 or 1h, up to 999999999 seconds"))
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
		if spread, ok = holdTime(window.value); !ok || spread > envelope.MaxSpread {
			return refuse(badHold.Refusal(holdSpread + ": want a duration as 3600 or 1h, up to a day"))
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

// maxHold is the longest that HOLDFOR takes (RFC 4865, 3).
const maxHold = 999_999_999 * time.Second

// holdTime reads what HOLDFOR takes, a number of seconds, or a duration with units.
func holdTime(s string) (time.Duration, bool) {
	if strings.Trim(s, "0123456789") == "" && !strings.HasPrefix(s, "0") {
		s += "s"
	}
	d, err := settings.ParseDuration(s)
	return d, err == nil && d >= time.Second && d <= maxHold && d%time.Second == 0
}

// expiry is when the message is given up, in whole seconds; zero: after its max_age.
func (m *Message) expiry() (at time.Time, refused *reply.Reply) {
	field := &m.content.header.own[ownExpires]
	switch x := m.extras; {
	case x != nil && !x.Expires.IsZero():
		at = x.Expires
	case field.times > 0:
		var err error
		if at, err = time.Parse(time.RFC3339, field.value); err != nil || field.times > 1 {
			return at, badHold.Refusal(expiresField + ": want a time as 2030-01-31T12:00:00Z, once")
		}
	}
	if m.By.Return && (at.IsZero() || m.By.At.Before(at)) {
		at = m.By.At
	}
	if at.IsZero() {
		return at, nil
	}
	return at.Truncate(time.Second).UTC(), nil // nothing is sent later
}

// asks are the fields whose values are kept with the marks of a message.
var asks = [...]struct {
	own   int
	name  string
	extra func(*Extras) string
	valid func(string) error
	want  string
}{
	{ownTimezone, envelope.TimezoneField, func(x *Extras) string { return x.Timezone }, hours.Check,
		"one time zone, such as Europe/Berlin"},
	{ownPace, envelope.PaceField, func(x *Extras) string { return x.Pace }, settings.CheckRate,
		"one rate, such as 10000/h"},
}

// asked returns the marks of what the message asks for in these fields.
func (m *Message) asked() (marks []string, refused *reply.Reply) {
	for _, f := range asks {
		field := &m.content.header.own[f.own]
		value := field.value
		switch x := m.extras; {
		case x != nil && f.extra(x) != "":
			value = f.extra(x)
		case field.times == 0:
			continue
		case field.times > 1 || f.valid(value) != nil:
			return nil, badHold.Refusal(f.name + ": want " + f.want)
		}
		marks = append(marks, envelope.MarkOf(f.name, value))
	}
	return marks, nil
}

// ceilSecond rounds up: nothing is released early.
func ceilSecond(t time.Time) time.Time {
	whole := t.Truncate(time.Second)
	if whole.Before(t) {
		whole = whole.Add(time.Second)
	}
	return whole.UTC()
}
