package postfix

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"example.org/mta/importer"
)

var timeUnits = map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour,
	'w': 7 * 24 * time.Hour}

// parseTime reads "300s"; without a unit it has the parameter's own.
func parseTime(s string, unit byte) (time.Duration, error) {
	digits := s
	if s != "" && (s[len(s)-1] < '0' || s[len(s)-1] > '9') {
		digits, unit = s[:len(s)-1], s[len(s)-1]
	}
	n, err := strconv.ParseInt(digits, 10, 32)
	per, ok := timeUnits[unit]
	if err != nil || n < 0 || !ok {
		return 0, fmt.Errorf("%q is not a time: write a whole number and s, m, h, d or w", importer.Short(s))
	}
	if n > int64(100*365*24*time.Hour/per) {
		return 0, fmt.Errorf("%q is more than a hundred years: write a shorter time", importer.Short(s))
	}
	return time.Duration(n) * per, nil
}

// duration returns a time; unit is that of a number without one.
func (s scope) duration(name string, unit byte) (d time.Duration, at importer.Origin, set bool) {
	value, at, set := s.text(name)
	if value == "" {
		return 0, at, set
	}
	d, err := parseTime(value, unit)
	if err != nil {
		s.im.spoil(at, "%s: %v", name, err)
	}
	return d, at, set
}

// number returns a whole number that is not negative.
func (s scope) number(name string) (n int, at importer.Origin, set bool) {
	value, at, set := s.text(name)
	if value == "" {
		return 0, at, set
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 0 || n > 1<<31-1 {
		s.im.spoil(at, "%s: %q is not a whole number: write one such as 20", name, importer.Short(value))
		return 0, at, set
	}
	return n, at, set
}

// flag returns whether a parameter is yes.
func (s scope) flag(name string) (yes bool, at importer.Origin) {
	value, at, _ := s.text(name)
	switch strings.ToLower(value) {
	case "yes":
		return true, at
	case "no", "":
		return false, at
	}
	s.im.spoil(at, "%s: %q is neither yes nor no: write one of these", name, importer.Short(value))
	return false, at
}

// list splits a value at commas and white space, but not within braces.
func list(s string) []string { return split(s, ", \t\r\n") }

// split splits at separators, but not within braces.
func split(s, separators string) (items []string) {
	depth, start := 0, -1
	end := func(i int) {
		if start >= 0 {
			items = append(items, s[start:i])
			start = -1
		}
	}
	for i := range len(s) {
		switch c := s[i]; {
		case depth == 0 && strings.IndexByte(separators, c) >= 0:
			end(i)
			continue
		case c == '{':
			depth++
		case c == '}' && depth > 0:
			depth--
		}
		if start < 0 {
			start = i
		}
	}
	end(len(s))
	return items
}

// rateText writes one message in each delay as a rate, never a higher one.
func rateText(delay time.Duration) string {
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{time.Second, "s"}, {time.Minute, "min"}, {time.Hour, "h"}} {
		if delay <= u.unit && u.unit%delay == 0 {
			return fmt.Sprintf("%d/%s", u.unit/delay, u.name)
		}
	}
	return fmt.Sprintf("%d/d", max(1, 24*time.Hour/delay))
}

// services are the names of ports that mail has.
var services = map[string]string{"smtp": "25", "smtps": "465", "submissions": "465",
	"submission": "587", "ssmtp": "465"}

// portOf reads a port or a service's name.
func portOf(s string) (string, error) {
	if p, ok := services[s]; ok {
		return p, nil
	}
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return "", fmt.Errorf(
			"port %q is neither a number from 1 to 65535 nor the name of a mail service: write one of these",
			importer.Short(s))
	}
	return strconv.Itoa(int(n)), nil
}

// splitPort takes "host:port", "[host]:port" or "host" apart.
func splitPort(s string) (host, port string) {
	if h, p, err := net.SplitHostPort(s); err == nil {
		return h, p
	}
	return s, ""
}
