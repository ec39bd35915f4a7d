package warmup

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// presets are the stages of the plans that come with the relay.
var presets = map[string][]Stage{
	// 250 a day at first, and 1.6 times as much each day.
	"standard": growing(14, func(day float64) float64 { return 250 * math.Pow(1.6, day) }),

	// The hourly schedule of SendGrid's automated warm-up, days 0 to 41, as read in November 2026:
	// "Automated IP warmup hourly send schedule", twilio.com/docs/sendgrid/ui/sending-email/warming-up-an-ip-address.
	// It has no daily cap of its own and advances by time alone.
	"sendgrid": ofHours(20, 28, 39, 55, 77, 108, 151, 211, 295, 413, 579, 810, 1000, 1587, 2222, 3111, 4356,
		6098, 8583, 11_953,
		16_734, 23_427, 32_798, 45_917, 64_284, 89_998, 125_997, 176_395, 246_953, 345_735, 484_029, 677_640,
		948_696, 1_328_175,
		1_859_444, 2_603_222, 3_644_511, 5_102_316, 7_143_242, 10_000_539, 14_000_754, 19_601_056),

	// The daily schedule of 29 days that SparkPost advised. Its own page is gone since SparkPost became Bird;
	// the manuals of senders who followed it print it still: Adcrux's "IP warm-up strategy", read in November
	// 2026. A stage wants nine tenths of its volume, as its automated warm-up is said to have done.
	"sparkpost": ofDays(200, 500, 1e3, 2e3, 5e3, 10e3, 20e3, 40e3, 50e3, 75e3, 100e3, 150e3, 200e3, 250e3,
		325e3, 400e3, 500e3,
		600e3, 750e3, 1e6, 1.25e6, 1.75e6, 2e6, 3e6, 4.25e6, 5e6, 6e6, 7.5e6, 10e6),

	// The table of Mailtrap's help page "IP Warmup", help.mailtrap.io/article/98-ip-warmup, as it is rounded
	// there, read in November 2026.
	"mailtrap": {
		{Caps: Caps{60, 300}}, {Caps: Caps{80, 390}}, {Caps: Caps{100, 510}}, {Caps: Caps{130, 660}},
		{Caps: Caps{170, 860}},
		{Caps: Caps{220, 1100}}, {Caps: Caps{290, 1400}}, {Caps: Caps{380, 1900}}, {Caps: Caps{490, 2400}},
		{Caps: Caps{640, 3200}},
		{Caps: Caps{830, 4100}}, {Caps: Caps{1100, 5400}}, {Caps: Caps{1400, 7000}}, {Caps: Caps{1800, 9100}},
		{Caps: Caps{2400, 11_800}},
		{Caps: Caps{3100, 15_400}}, {Caps: Caps{4000, 20_000}}, {Caps: Caps{5200, 26_000}}, {Caps: Caps{6700, 33_700}},
		{Caps: Caps{8800, 43_900}}, {Caps: Caps{11_400, 57_000}},
	},

	// The 50,000 a day that Amazon SES reaches in the 45 days of its standard dedicated addresses (SES
	// Developer Guide, "Warming up dedicated IP addresses"), growing evenly from 50: the volumes of the days
	// between are ours.
	"ses45": growing(45, func(day float64) float64 { return 50 * math.Pow(1000, day/44) }),

	// 1,000 more each day.
	"linear": growing(30, func(day float64) float64 { return 1000 * (day + 1) }),
}

// PresetNames lists the plans that Preset knows, sorted.
func PresetNames() []string { return slices.Sorted(maps.Keys(presets)) }

// Preset gives a new plan of that name.
func Preset(name string) (*Plan, error) {
	stages, ok := presets[name]
	if !ok {
		return nil, fmt.Errorf("there is no plan %q: the presets are %v", name, PresetNames())
	}
	p := DefaultPlan()
	p.Name, p.Stages, p.Finish = name, slices.Clone(stages), true
	switch name {
	case "sendgrid":
		p.Health.MinSample = 0
	case "sparkpost":
		p.Health.MinFill = .9
	}
	return &p, nil
}

// ofDays makes stages of days' volumes, with an eighth of the day in any hour.
func ofDays(volumes ...float64) []Stage {
	all := make([]Stage, len(volumes))
	for i, n := range volumes {
		n = math.Round(n)
		all[i].Caps = Caps{Hourly: int64(max(1, math.Round(n/8))), Daily: int64(n)}
	}
	return all
}

// growing makes stages of the volume of a day that is counted from 0.
func growing(n int, volume func(day float64) float64) []Stage {
	all := make([]float64, n)
	for i := range all {
		all[i] = volume(float64(i))
	}
	return ofDays(all...)
}

// ofHours makes stages of hours' volumes, where the day has no cap.
func ofHours(volumes ...int64) []Stage {
	all := make([]Stage, len(volumes))
	for i, n := range volumes {
		all[i].Caps = Caps{Hourly: n, Daily: 24 * n}
	}
	return all
}

// How fast a plan may grow that is made from a volume and a day.
const (
	firstDay  = 250. // what an address that nobody knows may send, as in "standard"
	slowest   = 1.2  // growth a day: a slower one earns nothing more
	usual     = 1.6  // that of "standard"
	steepest  = 2.
	spareDays = .2 // of the days, for those that hold a stage
)

// Ramp is a plan's stages on the way to the last, and how it came to them.
type Ramp struct {
	Stages []Stage // an eighth of the day in any hour
	Growth float64 // a day
	Spare  int     // days that are left for those that hold a stage
	Steep  bool    // there are too few days to grow as usual
}

// NewRamp finds how a volume a day is reached on the last of so many days: with days to spare where there are
// enough, neither slower nor faster than is of use. The error says how many days it takes at least.
func NewRamp(volume int64, days int) (*Ramp, error) {
	first := min(firstDay, float64(volume))
	ratio := float64(volume) / first
	stages := func(growth float64) int { return 1 + int(math.Ceil(math.Log(ratio)/math.Log(growth)-1e-9)) }
	n := min(max(int(math.Floor(float64(days)*(1-spareDays))), stages(usual)), stages(slowest), days)
	if least := stages(steepest); n < least {
		return nil, &TooFewDays{Days: days, Least: least}
	}
	r := &Ramp{Growth: 1, Spare: days - n, Steep: n < stages(usual)}
	if n > 1 {
		r.Growth = math.Pow(ratio, 1/float64(n-1))
	}
	r.Stages = growing(n, func(day float64) float64 { return first * math.Pow(r.Growth, day) })
	return r, nil
}

// TooFewDays is the error of a ramp that would be too steep.
type TooFewDays struct{ Days, Least int }

// Error implements error.
func (e *TooFewDays) Error() string {
	return fmt.Sprintf("it takes %d days at least, twice as much on each as on the one before, and there are %d",
		e.Least, e.Days)
}
