package warmup

import (
	"fmt"
	"math"
	"slices"
)

// presets makes the stages of the plans that come with the relay.
var presets = map[string]func() []Stage{
	"standard":  standard,
	"sendgrid":  sendgrid,
	"sparkpost": sparkpost,
	"mailtrap":  mailtrap,
	"ses45":     ses45,
	"linear":    linear,
}

// PresetNames lists the plans that Preset knows, sorted.
func PresetNames() []string {
	names := make([]string, 0, len(presets))
	for name := range presets {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Preset gives a new plan of that name.
func Preset(name string) (*Plan, error) {
	stages, ok := presets[name]
	if !ok {
		return nil, fmt.Errorf("there is no plan %q: the presets are %v", name, PresetNames())
	}
	p := DefaultPlan()
	p.Name, p.Stages, p.Finish = name, stages(), true
	return &p, nil
}

// daily makes a stage whose hour is a share of its day.
func daily(n, share float64) Stage {
	d := math.Round(n)
	return Stage{Caps: Caps{Hourly: int64(math.Max(1, math.Round(d*share))), Daily: int64(d)}}
}

// standard grows from 250 a day by 1.6 a day over 14 stages, an eighth of the day in any hour.
func standard() []Stage {
	s := make([]Stage, 14)
	for i := range s {
		s[i] = daily(250*math.Pow(1.6, float64(i)), 1./8)
	}
	return s
}

// sendgrid is SendGrid's automated schedule: an hourly cap that grows by 1.4 a day from 20, and
// no daily one of its own. Day 41 is the last, 19.6 million an hour.
func sendgrid() []Stage {
	s := make([]Stage, 42)
	for i := range s {
		h := int64(math.Round(20 * math.Pow(1.4, float64(i))))
		s[i] = Stage{Caps: Caps{Hourly: h, Daily: 24 * h}}
	}
	return s
}

// sparkpost has the steps of 1, 2, 5 that SparkPost advised. It is after that advice, no copy of
// a table.
func sparkpost() []Stage {
	days := []float64{200, 500, 1e3, 2e3, 5e3, 10e3, 20e3, 40e3, 70e3, 100e3, 150e3, 250e3, 400e3, 600e3, 1e6}
	s := make([]Stage, len(days))
	for i, n := range days {
		s[i] = daily(n, 1./8)
	}
	return s
}

// mailtrap grows by 1.3 a day from 300 to 57,000 on day 21, a fifth of the day in any hour.
func mailtrap() []Stage {
	s := make([]Stage, 21)
	for i := range s {
		s[i] = daily(math.Min(300*math.Pow(1.3, float64(i)), 57_000), .2)
	}
	return s
}

// ses45 reaches the 50,000 a day that Amazon SES reaches in 45 days, growing evenly from 50.
func ses45() []Stage {
	s := make([]Stage, 45)
	for i := range s {
		s[i] = daily(50*math.Pow(1000, float64(i)/44), 1./8)
	}
	return s
}

// linear adds 1,000 a day for 30 days.
func linear() []Stage {
	s := make([]Stage, 30)
	for i := range s {
		s[i] = daily(1000*float64(i+1), 1./8)
	}
	return s
}
