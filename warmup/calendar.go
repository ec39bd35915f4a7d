package warmup

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// DayStart is the time of day at which the days of a warm-up start, "08:00 Europe/Berlin"; "" is that of its
// begin.
type DayStart string

// DayStartForm says how one is written.
const DayStartForm = `write a time and a zone of the tz database, as "08:00 Europe/Berlin" or "00:00 UTC"`

// Check returns what is wrong with it, nil when nothing is.
func (d DayStart) Check() error {
	_, _, err := d.parse()
	return err
}

func (d DayStart) parse() (clock time.Time, zone *time.Location, err error) {
	at, name, _ := strings.Cut(string(d), " ")
	if clock, err = time.Parse("15:04", at); err != nil {
		return clock, nil, fmt.Errorf("%q is not a time of day", at)
	}
	if name == "" {
		return clock, nil, errors.New("it has no time zone")
	}
	if zone, err = time.LoadLocation(name); err != nil {
		return clock, nil, fmt.Errorf("there is no time zone %q", name)
	}
	return clock, zone, nil
}

// Zone is that of the time of day, UTC without one.
func (d DayStart) Zone() *time.Location {
	if _, zone, err := d.parse(); err == nil {
		return zone
	}
	return time.UTC
}

// On gives the start of the day that has t's date, where t is a day and no time: 00:00 UTC.
func (d DayStart) On(t time.Time) time.Time {
	clock, zone, err := d.parse()
	if err != nil {
		return t
	}
	return time.Date(t.Year(), t.Month(), t.Day(), clock.Hour(), clock.Minute(), 0, 0, zone)
}

// last gives the start of the day that t belongs to.
func (d DayStart) last(t time.Time) time.Time {
	start := d.On(t.In(d.Zone()))
	if start.After(t) {
		start = start.AddDate(0, 0, -1)
	}
	return start
}

// begins is when warm-ups by the plan begin at the soonest.
func (p *Plan) begins() Instant {
	if p.Begin.IsZero() {
		return 0
	}
	return Instant(p.Begin.UnixMilli())
}

// dayStart is when the first day of a warm-up started that begins now: that day is a part of one where days
// start at another time.
func (p *Plan) dayStart(now Instant) Instant {
	if p.DayStarts == "" {
		return now
	}
	return now - (now-Instant(p.DayStarts.last(now.Time()).UnixMilli()))%p.day()
}

// First gives the start of the first day of a warm-up that is to begin now.
func (p *Plan) First(now time.Time) time.Time {
	return p.dayStart(max(p.begins(), Instant(now.UnixMilli()))).Time()
}

// errNotBegun is why a warm-up sends nothing before its plan begins.
var errNotBegun = errors.New("its plan has not begun")

// Forecast is a day to come, if each one until then is good. Without a limit there are no caps from then on; the last
// of those that have one is the first of the days on which it stays.
type Forecast struct {
	Day   time.Time `json:"day"`                   // its start, in the zone of the plan's day_starts
	Stage int       `json:"stage"`                 // in force then
	Limit int64     `json:"stage_limit,omitempty"` // the day's cap; absent: there are none from then on
}

// Forecast returns what the days allow from one on that starts on a stage, counted from 1. The last has no cap,
// where the plan lifts them in the end, or those that stay.
func (p *Plan) Forecast(start time.Time, stage int) []Forecast {
	var days []Forecast
	day := time.Duration(p.day()) * time.Millisecond
	if p.DayStarts != "" {
		start = start.In(p.DayStarts.Zone())
	}
	add := func(stage int, limit int64) {
		days = append(days, Forecast{start, min(stage+1, len(p.Stages)), limit})
		start = start.Add(day)
	}
	for i := max(0, stage-1); i < len(p.Stages)+p.easing(); i++ {
		add(i, p.stage(i).Daily)
	}
	if p.Finish {
		add(len(p.Stages), 0)
	}
	return days
}

// Weekdays are the days of the week on which there is mail; the zero value is all of them.
type Weekdays struct {
	on   [7]bool
	some bool
}

// ParseWeekdays reads days such as "mon-fri" or "tue,thu"; "" is all.
func ParseWeekdays(text string) (w Weekdays, err error) {
	if text == "" {
		return w, nil
	}
	for _, part := range strings.Split(strings.ToLower(text), ",") {
		from, to, ranged := strings.Cut(strings.TrimSpace(part), "-")
		if !ranged {
			to = from
		}
		first, last := weekdayOf(from), weekdayOf(to)
		if first < 0 || last < 0 {
			return w, fmt.Errorf("%q: write days as mon-fri or tue,thu", text)
		}
		for day := first; ; day = (day + 1) % 7 {
			w.on[day], w.some = true, true
			if day == last {
				break
			}
		}
	}
	return w, nil
}

// weekdayOf gives the day of a name of three letters, -1 for any other.
func weekdayOf(name string) time.Weekday {
	for day := time.Sunday; day <= time.Saturday; day++ {
		if strings.ToLower(day.String()[:3]) == name {
			return day
		}
	}
	return -1
}

// All reports whether there is mail on each day.
func (w Weekdays) All() bool { return !w.some }

// Has reports whether there is mail on a day.
func (w Weekdays) Has(day time.Time) bool { return !w.some || w.on[day.Weekday()] }

// After returns the day with mail that comes n such days after the first one from a day on.
func (w Weekdays) After(day time.Time, n int) time.Time {
	for ; ; day = day.AddDate(0, 0, 1) {
		switch {
		case !w.Has(day):
		case n == 0:
			return day
		default:
			n--
		}
	}
}

// Count returns how many days with mail there are from a day to another.
func (w Weekdays) Count(day, last time.Time) (n int) {
	for ; !day.After(last); day = day.AddDate(0, 0, 1) {
		if w.Has(day) {
			n++
		}
	}
	return n
}

// String lists the days: "Mon, Tue".
func (w Weekdays) String() string {
	var names []string
	for i := range 7 {
		if day := time.Weekday((i + 1) % 7); w.on[day] {
			names = append(names, day.String()[:3])
		}
	}
	return strings.Join(names, ", ")
}
