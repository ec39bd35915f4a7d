package warmup

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"
)

// Report is what is known of a day's complaints, from a feedback loop or a provider's own figures.
type Report struct {
	Day        time.Time // in UTC; its time doesn't matter
	Complaints int64
	Rate       float64 // in the place of Complaints, their share of the mail, from 0 to 1
}

// Reported takes a report about a provider into account. Another one for the same day takes its place.
func Reported(provider string, r Report) Action {
	return Action{apply: func(s *State, p *Plan) error { return s.report(p, provider, &r) }}
}

// Complained takes n complaints about mail of a day into account, from a feedback loop. They add to what was reported
// of that day; an operator's report that comes later takes their place.
func Complained(provider string, day time.Time, n int64) Action {
	return Action{apply: func(s *State, p *Plan) error {
		provider := cmp.Or(provider, Other)
		r := Report{Day: day, Complaints: n}
		if i := s.Find(p, provider); i >= 0 {
			for _, x := range s.Providers[i].reports {
				if x.day == day.Unix()/86_400 {
					r.Complaints, r.Rate = r.Complaints+x.complaints, x.rate
				}
			}
		}
		return s.report(p, provider, &r)
	}}
}

// ErrReport is what a report gives that can't be true.
var ErrReport = errors.New("the report can't be used")

// reported is a day's report that was counted.
type reported struct {
	day        int64 // since 1970
	complaints int64
	rate       float64
	today      bool // it came since the day of the warm-up began
}

// maxReports is how many days are remembered, and how old a report may be.
const maxReports = 14

// report counts complaints today, whichever day they are of: that one has been judged.
func (s *State) report(p *Plan, provider string, r *Report) error {
	day, today := r.Day.Unix()/86_400, s.Now.Time().Unix()/86_400
	switch {
	case day > today:
		return fmt.Errorf("%w: %s is in the future", ErrReport, r.Day.Format(time.DateOnly))
	case today-day >= maxReports:
		return fmt.Errorf("%w: %s is more than %d days ago", ErrReport, r.Day.Format(time.DateOnly), maxReports-1)
	case r.Complaints < 0 || !(r.Rate >= 0 && r.Rate <= 1):
		return fmt.Errorf("%w: it has %d complaints, and a share of %v", ErrReport, r.Complaints, r.Rate)
	}
	v := &s.Providers[s.Provider(p, provider)]
	kept, more := v.reports[:0], r.Complaints
	for _, x := range v.reports {
		if x.day == day {
			more -= x.complaints
		} else if x.day <= today && today-x.day < maxReports { // those after today are of a clock that was ahead
			kept = append(kept, x)
		}
	}
	v.reports = append(kept, reported{day, r.Complaints, r.Rate, true})
	v.Today.Complaints = max(0, v.Today.Complaints+more)
	v.fresh.Complaints = max(0, v.fresh.Complaints+more)
	s.slow(p, v)
	return nil
}

// told is how many of today's recipients the highest rate means that was reported today.
func (v *Provider) told() int64 {
	rate := 0.
	for _, r := range v.reports {
		if r.today {
			rate = max(rate, r.rate)
		}
	}
	return int64(math.Round(rate * float64(v.Today.Sum()+v.carried.Sum())))
}
