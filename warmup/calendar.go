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
