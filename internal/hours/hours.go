// Package hours has windows of the day, such as "Mon-Fri 08:00-20:00", by the clocks of time zones.
package hours

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/mta/internal/settings"
)

// Window is hours of some days, in a zone. The zero Window is none.
type Window struct {
	// Hours are its days and hours: "Mon-Fri 08:00-20:00".
	Hours string
	// Zone is whose clock counts; with Recipient that of recipients whose zone is not known.
	Zone      *time.Location
	Recipient bool

	days     [7]bool // on which it opens
	from, to int     // minutes of the day; it ends on the next day unless from is before to
}

// IsZero reports whether there is no window.
func (w Window) IsZero() bool { return w.Zone == nil }

// String gives the form that is read.
func (w Window) String() string {
	switch {
	case w.IsZero():
		return ""
	case w.Recipient:
		return w.Hours + " recipient " + w.Zone.String()
	}
	return w.Hours + " " + w.Zone.String()
}

const remedy = `write hours and a zone, such as "08:00-20:00 Europe/Berlin", "Mon-Fri 08:00-20:00 Europe/Berlin", or ` +
	`"08:00-20:00 recipient Europe/Berlin": by the recipient's clock where it is known`

// UnmarshalText reads "[DAYS] HH:MM-HH:MM [recipient] ZONE".
func (w *Window) UnmarshalText(text []byte) error {
	wrong := func(why string) error {
		return settings.Wrong(remedy, "%s is not a window: %s", settings.Quoted(string(text)), why)
	}
	words := strings.Fields(string(text))
	if len(words) == 0 {
		*w = Window{}
		return nil
	}
	if n := len(words); n < 2 || n > 4 {
		return wrong("hours and a zone are required")
	}
	var x Window
	zone, err := Zone(words[len(words)-1])
	if err != nil {
		return wrong(err.Error())
	}
	x.Zone, words = zone, words[:len(words)-1]
	if n := len(words) - 1; words[n] == "recipient" {
		x.Recipient, words = true, words[:n]
	}
	if x.Hours = strings.Join(words, " "); len(words) == 2 {
		if !x.readDays(words[0]) {
			return wrong("its days are Mon, Tue, Wed, Thu, Fri, Sat, Sun, from one to another, or several: Mon-Wed,Fri")
		}
		words = words[1:]
	} else {
		x.days = [7]bool{true, true, true, true, true, true, true}
	}
	if len(words) != 1 || !x.readHours(words[0]) {
		return wrong("its hours go from one time of the day to a different one, as 08:00-20:00 or 00:00-24:00")
	}
	*w = x
	return nil
}

func (w *Window) readDays(list string) bool {
	for text := range strings.SplitSeq(list, ",") {
		if !w.readSpan(text) {
			return false
		}
	}
	return true
}

// readSpan adds a day, or those from one to another.
func (w *Window) readSpan(text string) bool {
	first, last, ok := strings.Cut(text, "-")
	if !ok {
		last = first
	}
	is := func(name string) func(time.Weekday) bool {
		return func(d time.Weekday) bool { return d.String()[:3] == name }
	}
	week := []time.Weekday{0, 1, 2, 3, 4, 5, 6}
	from, to := slices.IndexFunc(week, is(first)), slices.IndexFunc(week, is(last))
	if from < 0 || to < 0 {
		return false
	}
	for w.days[from] = true; from != to; w.days[from] = true {
		from = (from + 1) % len(week)
	}
	return true
}

func (w *Window) readHours(text string) (ok bool) {
	from, to, _ := strings.Cut(text, "-")
	if w.from, ok = minutes(from); ok {
		w.to, ok = minutes(to)
	}
	return ok && w.from != w.to && w.from < day
}

const day = 24 * 60

// minutes reads a time of the day.
func minutes(text string) (int, bool) {
	if text == "24:00" {
		return day, true
	}
	t, err := time.Parse("15:04", text)
	return 60*t.Hour() + t.Minute(), err == nil
}

// Open reports whether a time is within the window, by the clock of a zone. What the clock shows counts, so that a
// change to or from daylight saving moves no hours.
func (w *Window) Open(at time.Time, zone *time.Location) bool {
	at = at.In(zone)
	now, today := 60*at.Hour()+at.Minute(), at.Weekday()
	if w.from < w.to {
		return w.days[today] && w.from <= now && now < w.to
	}
	return w.days[today] && now >= w.from || w.days[(today+6)%7] && now < w.to
}

// Longest returns the longest time for which the window is closed, in whole minutes, on days of 24 hours.
func (w *Window) Longest() (longest time.Duration) {
	if w.IsZero() {
		return 0
	}
	since := time.Time{}
	for at := since; at.Before(time.Time{}.AddDate(0, 0, 14)); at = at.Add(time.Minute) {
		if w.Open(at, time.UTC) {
			since = at.Add(time.Minute)
		}
		longest = max(longest, at.Add(time.Minute).Sub(since))
	}
	return longest
}

// Opens returns when the window is open next, in whole minutes; at itself if it is open.
func (w *Window) Opens(at time.Time, zone *time.Location) time.Time {
	for next := at; ; next = next.Truncate(time.Minute).Add(time.Minute) {
		if w.Open(next, zone) || next.Sub(at) > 15*24*time.Hour { // hours of one day a week may fall into a gap
			return next
		}
	}
}

// Zones are those that were asked for: there are some 600. The zero value is ready, and safe for concurrent use.
type Zones struct{ known sync.Map } // of *time.Location, by name

// Clock returns the zone whose clock counts for a recipient in a zone, "" where that is not known.
func (z *Zones) Clock(w *Window, zone string) *time.Location {
	if !w.Recipient {
		return w.Zone
	}
	if of, err := z.Zone(zone); err == nil {
		return of
	}
	return w.Zone
}

// Zone is that of the package, without a file to read each time.
func (z *Zones) Zone(name string) (*time.Location, error) {
	if of, known := z.known.Load(name); known {
		return of.(*time.Location), nil
	}
	of, err := Zone(name)
	if err == nil {
		z.known.Store(of.String(), of)
	}
	return of, err
}

// Check returns an error for a name that is not that of a zone.
func Check(name string) error {
	_, err := Zone(name)
	return err
}

// Zone returns the zone of a name in the time zone database, such as Europe/Berlin.
func Zone(name string) (*time.Location, error) {
	if of, err := time.LoadLocation(name); err == nil && name != "" && name != "Local" {
		return of, nil
	}
	return nil, fmt.Errorf("%s is not a time zone", settings.Quoted(name))
}
