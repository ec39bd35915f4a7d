package api

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Age is a duration in the units of an operator: written as "90s", "15m", "1h30m", "2d", "1w".
type Age time.Duration

var ageUnits = []struct {
	name string
	unit time.Duration
}{{"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}}

// ParseAge reads the written form.
func ParseAge(s string) (Age, error) {
	bad := fmt.Errorf("%q is not an age: write it as 90s, 15m, 2h30m, 3d or 1w", s)
	total := time.Duration(0)
	for rest := s; rest != "" || s == ""; {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		n, err := strconv.ParseInt(rest[:digits], 10, 32)
		if err != nil || digits == len(rest) {
			return 0, bad
		}
		unit := unitOf(rest[digits : digits+1])
		if unit == 0 || time.Duration(n) > (1<<63-1-total)/unit {
			return 0, bad
		}
		total += time.Duration(n) * unit
		rest = rest[digits+1:]
	}
	return Age(total), nil
}

func unitOf(name string) time.Duration {
	for _, u := range ageUnits {
		if u.name == name {
			return u.unit
		}
	}
	return 0
}

// String gives the written form in full, to the second: "1d2h", "45s", "0s".
func (a Age) String() string {
	d := time.Duration(a).Truncate(time.Second)
	if d <= 0 {
		return "0s"
	}
	var b strings.Builder
	for _, u := range ageUnits {
		if u.name == "w" && d%u.unit != 0 {
			continue // 8d reads better than 1w1d
		}
		if n := d / u.unit; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, u.name)
			d -= n * u.unit
		}
	}
	return b.String()
}

// MarshalText writes the age into JSON.
func (a Age) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads it from there.
func (a *Age) UnmarshalText(text []byte) error {
	v, err := ParseAge(string(text))
	*a = v
	return err
}
