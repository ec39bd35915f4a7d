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
	switch name {
	case "sendgrid":
		p.Health.MinSample = 0
	case "sparkpost":
		p.Health.MinFill = .9
	}
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

// sendgrid is the hourly schedule of SendGrid's automated warm-up, days 0 to 41, as read in November 2026:
// "Automated IP warmup hourly send schedule", twilio.com/docs/sendgrid/ui/sending-email/warming-up-an-ip-address.
// It has no daily cap of its own and advances by time alone.
func sendgrid() []Stage {
	hourly := []int64{20, 28, 39, 55, 77, 108, 151, 211, 295, 413, 579, 810, 1000, 1587, 2222, 3111, 4356, 6098, 8583, 11_953,
		16_734, 23_427, 32_798, 45_917, 64_284, 89_998, 125_997, 176_395, 246_953, 345_735, 484_029, 677_640, 948_696, 1_328_175,
		1_859_444, 2_603_222, 3_644_511, 5_102_316, 7_143_242, 10_000_539, 14_000_754, 19_601_056}
	s := make([]Stage, len(hourly))
	for i, h := range hourly {
		s[i] = Stage{Caps: Caps{Hourly: h, Daily: 24 * h}}
	}
	return s
}

// sparkpost is the daily schedule of 29 days that SparkPost advised. Its own page is gone since SparkPost
// became Bird; the manuals of senders who followed it print it still: Adcrux's "IP warm-up strategy", read in
// November 2026. A stage wants nine tenths of its volume, as its automated warm-up is said to have done.
func sparkpost() []Stage {
	days := []float64{200, 500, 1e3, 2e3, 5e3, 10e3, 20e3, 40e3, 50e3, 75e3, 100e3, 150e3, 200e3, 250e3, 325e3, 400e3, 500e3,
		600e3, 750e3, 1e6, 1.25e6, 1.75e6, 2e6, 3e6, 4.25e6, 5e6, 6e6, 7.5e6, 10e6}
	s := make([]Stage, len(days))
	for i, n := range days {
		s[i] = daily(n, 1./8)
	}
	return s
}

// mailtrap is the table of Mailtrap's help page "IP Warmup", help.mailtrap.io/article/98-ip-warmup, as it is
// rounded there, read in November 2026.
func mailtrap() []Stage {
	table := []Caps{{60, 300}, {80, 390}, {100, 510}, {130, 660}, {170, 860}, {220, 1100}, {290, 1400}, {380, 1900}, {490, 2400},
		{640, 3200}, {830, 4100}, {1100, 5400}, {1400, 7000}, {1800, 9100}, {2400, 11_800}, {3100, 15_400}, {4000, 20_000},
		{5200, 26_000}, {6700, 33_700}, {8800, 43_900}, {11_400, 57_000}}
	s := make([]Stage, len(table))
	for i, c := range table {
		s[i].Caps = c
	}
	return s
}

// ses45 reaches the 50,000 a day that Amazon SES reaches in the 45 days of its standard dedicated addresses
// (SES Developer Guide, "Warming up dedicated IP addresses"), growing evenly from 50: the volumes of the
// days between are ours.
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
