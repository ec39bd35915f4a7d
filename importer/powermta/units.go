package powermta

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"example.org/mta/internal/settings"
)

var timeUnits = map[string]time.Duration{
	"s": time.Second, "sec": time.Second, "m": time.Minute, "min": time.Minute,
	"h": time.Hour, "hr": time.Hour, "d": 24 * time.Hour, "day": 24 * time.Hour,
}

// unlimited reports whether a value ends a limit. Values are in whatever case, as names are.
func unlimited(text string) bool { return strings.EqualFold(text, "unlimited") }

// never reports whether a time never comes.
func never(text string) bool { return strings.EqualFold(text, "never") }

// duration reads "4d12h".
func (d *directive) duration(text string) (time.Duration, error) {
	text = strings.ToLower(text)
	if text == "0" {
		return 0, nil
	}
	var sum time.Duration
	for rest := text; rest != "" || text == ""; {
		digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
		rest = rest[len(digits):]
		name := rest[:len(rest)-len(strings.TrimLeft(rest, "abcdefghijklmnopqrstuvwxyz"))]
		rest = rest[len(name):]
		n, err := strconv.ParseInt(digits, 10, 64)
		unit, known := timeUnits[name]
		switch {
		case name == "w":
			unit, known = 7*24*time.Hour, true
		case name == "":
			return 0, d.fault("%s: %s is not a time: the unit is missing; write s, m, h or d behind each number",
				d.name, short(text))
		}
		if err != nil || !known {
			return 0, d.fault("%s: %s is not a time: write numbers with the units s, m, h or d, such as 4d12h",
				d.name, short(text))
		}
		if n > int64(math.MaxInt64/2/unit) || sum+time.Duration(n)*unit < sum {
			return 0, d.fault("%s: %s is too long: write a shorter time", d.name, short(text))
		}
		sum += time.Duration(n) * unit
	}
	return sum, nil
}

// rate is so many in a time. The zero rate means no limit.
type rate struct {
	count int64
	per   time.Duration
}

// rate reads "100/h", "3/5m", "unlimited"; stopped: it is "0", which lets nothing through.
func (d *directive) rate(text string) (r rate, stopped bool, err error) {
	switch {
	case unlimited(text):
		return rate{}, false, nil
	case text == "0":
		return rate{}, true, nil
	}
	wrong := d.fault("%s: %s is not a rate: write a number per s, m, h or d, such as 100/h or 3/5m",
		d.name, short(text))
	amount, per, ok := strings.Cut(strings.ToLower(strings.ReplaceAll(text, " ", "")), "/")
	if !ok {
		return r, false, wrong
	}
	n, err := strconv.ParseInt(amount, 10, 32)
	if err != nil || n < 0 || amount[0] == '+' {
		return r, false, wrong
	}
	digits := per[:len(per)-len(strings.TrimLeft(per, "0123456789"))]
	unit, known := timeUnits[per[len(digits):]]
	times := int64(1)
	if digits != "" {
		times, err = strconv.ParseInt(digits, 10, 16)
	}
	if err != nil || !known || times < 1 {
		return r, false, wrong
	}
	return rate{n, time.Duration(times) * unit}, n == 0, nil
}

// rateUnits are those that mta has.
var rateUnits = []struct {
	name string
	per  time.Duration
}{{"s", time.Second}, {"min", time.Minute}, {"h", time.Hour}, {"d", 24 * time.Hour}}

// text writes the rate as mta reads it, rounded down where it must be: exact is false then. "": less than one a day.
func (r rate) text() (text string, exact bool) {
	for _, u := range rateUnits {
		if n := float64(r.count) * float64(u.per) / float64(r.per); n >= 1 && n == math.Trunc(n) && n <= math.MaxInt32 {
			return fmt.Sprintf("%d/%s", int64(n), u.name), true
		}
	}
	for _, u := range rateUnits {
		if n := int64(float64(r.count) * float64(u.per) / float64(r.per)); n >= 10 || n >= 1 && u.name == "d" {
			return fmt.Sprintf("%d/%s", min(n, math.MaxInt32), u.name), false
		}
	}
	return "", false
}

// perDay compares rates.
func (r rate) perDay() float64 { return float64(r.count) * float64(24*time.Hour) / float64(r.per) }

// octets reads "10K", "50M"; 0 is "unlimited".
func (d *directive) octets(text string) (int64, error) {
	if unlimited(text) || text == "0" {
		return 0, nil
	}
	digits := text[:len(text)-len(strings.TrimLeft(text, "0123456789"))]
	n, err := strconv.ParseInt(digits, 10, 64)
	shift, known := map[string]int{"": 0, "b": 0, "k": 10, "kb": 10, "m": 20, "mb": 20, "g": 30, "gb": 30,
		"t": 40}[strings.ToLower(text[len(digits):])]
	if err != nil || !known || n > math.MaxInt64>>(shift+1) {
		return 0, d.fault("%s: %s is not a size: write a number with K, M or G, such as 10K", d.name, short(text))
	}
	return n << shift, nil
}

// number reads a whole number; 0 is "unlimited".
func (d *directive) number(text string) (int, error) {
	if unlimited(text) {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return 0, d.fault("%s: %s is not a number: write a whole one, or unlimited", d.name, short(text))
	}
	return int(n), nil
}

// yes reads a boolean.
func (d *directive) yes(text string) (bool, error) {
	switch strings.ToLower(text) {
	case "yes", "true", "on", "1":
		return true, nil
	case "no", "false", "off", "0":
		return false, nil
	}
	return false, d.fault("%s: %s is neither yes nor no: write one of these", d.name, short(text))
}

func span(d time.Duration) string { return settings.FormatDuration(d) }
