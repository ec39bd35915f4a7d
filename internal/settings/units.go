package settings

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// malformed is what is wrong with the text of a value, and how it is written. It never quotes more than
// the value itself.
type malformed struct{ what, remedy string }

func (e *malformed) Error() string { return e.what }

// Wrong gives an error about the text of a value, for UnmarshalText and Schema.Checks, together with its
// remedy, "" for none.
func Wrong(remedy, format string, args ...any) error {
	return &malformed{fmt.Sprintf(format, args...), remedy}
}

// none is how the absence of a limit is written.
const none = "none"

// Size is a number of octets, written as "50MiB".
type Size int64

var sizeUnits = []unit{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

const sizeRemedy = `write a number and a unit, such as "50MiB"; the units are B, KiB, MiB, GiB, TiB`

// UnmarshalText reads "50MiB", or a bare number of octets.
func (s *Size) UnmarshalText(text []byte) error {
	in := string(text)
	digits, name := splitNumber(in)
	name = cmp.Or(name, "B")
	n, err := quantity(digits, name, sizeUnits)
	if err != nil {
		remedy := sizeRemedy
		if guess := binaryUnit(name); guess != "" && err == errWhichUnit {
			remedy = fmt.Sprintf("did you mean %q?", digits+guess)
		}
		return Wrong(remedy, "%s is not a size%s", Quoted(in), because(err))
	}
	*s = Size(n)
	return nil
}

// binaryUnit guesses which unit is meant by the decimal or short form of its name.
func binaryUnit(name string) string {
	short := strings.ToUpper(strings.TrimRight(strings.TrimSpace(name), "bBi"))
	if len(short) == 1 && strings.Contains("KMGT", short) {
		return short + "iB"
	}
	return ""
}

// String gives the size in the largest unit that is exact.
func (s Size) String() string { return inUnits(int64(s), sizeUnits) }

// ByteRate is octets a second, written as "1KiB/s".
type ByteRate int64

// UnmarshalText reads "1KiB/s".
func (r *ByteRate) UnmarshalText(text []byte) error {
	const remedy = `write a size per second, such as "1KiB/s"`
	in := string(text)
	amount, ok := strings.CutSuffix(in, "/s")
	if !ok {
		return Wrong(remedy, "%s is not a data rate", Quoted(in))
	}
	var s Size
	if err := s.UnmarshalText([]byte(amount)); err != nil {
		return Wrong(remedy, "%s is not a data rate", Quoted(in))
	}
	*r = ByteRate(s)
	return nil
}

// String gives the form that is read.
func (r ByteRate) String() string { return Size(r).String() + "/s" }

// Rate is so many events in a time, written as "100/s", "50/min", "10000/d". The zero Rate,
// "none", means no limit.
type Rate struct {
	Count int           // at least 1 when there is a limit
	Per   time.Duration // a second, minute, hour or day
}

var rateUnits = []struct {
	names []string
	per   time.Duration
}{
	{[]string{"s", "sec", "second"}, time.Second},
	{[]string{"min", "m", "minute"}, time.Minute},
	{[]string{"h", "hour"}, time.Hour},
	{[]string{"d", "day"}, 24 * time.Hour},
}

// UnmarshalText reads "100/s" or "none".
func (r *Rate) UnmarshalText(text []byte) error {
	const remedy = `write a number per s, min, h or d, such as "100/s", or "none" for no limit`
	in := string(text)
	if in == none {
		*r = Rate{}
		return nil
	}
	digits, name, _ := strings.Cut(in, "/")
	for _, u := range rateUnits {
		for _, known := range u.names {
			if name != known {
				continue
			}
			n, err := strconv.ParseInt(digits, 10, 32)
			if err != nil || n < 1 || digits[0] == '+' {
				return Wrong(remedy, "%s is not a rate: the number must be from 1 to %d", Quoted(in), math.MaxInt32)
			}
			*r = Rate{int(n), u.per}
			return nil
		}
	}
	return Wrong(remedy, "%s is not a rate", Quoted(in))
}

// CheckRate returns an error for a text that is not a rate.
func CheckRate(text string) error { return new(Rate).UnmarshalText([]byte(text)) }

// String gives the form that is read.
func (r Rate) String() string {
	for _, u := range rateUnits {
		if u.per == r.Per && r.Count > 0 {
			return fmt.Sprintf("%d/%s", r.Count, u.names[0])
		}
	}
	return none
}

// Mode is the permissions of a file, written in octal as "0660".
type Mode uint32

// UnmarshalText reads "0660".
func (m *Mode) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 8, 32)
	if err != nil || n > 0o777 {
		return Wrong(`write it in octal, such as "0660"`, "%s is not a file mode", Quoted(string(text)))
	}
	*m = Mode(n)
	return nil
}

// String gives the form that is read.
func (m Mode) String() string { return fmt.Sprintf("%04o", uint32(m)) }

// Secret is text that must not be printed. Its String is a mask; convert it to string where it
// is used.
type Secret string

const mask = "********"

// String gives a mask, or "" when there is no secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return mask
}

// GoString gives a mask too, so that no way of formatting shows the secret.
func (s Secret) GoString() string { return strconv.Quote(s.String()) }

// MarshalText gives a mask too.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

var timeUnits = []unit{
	{"d", int64(24 * time.Hour)}, {"h", int64(time.Hour)}, {"m", int64(time.Minute)},
	{"s", int64(time.Second)}, {"ms", int64(time.Millisecond)},
}

// weeks are read and not printed: "7d" says it as well.
var readableTimeUnits = append([]unit{{"w", int64(7 * 24 * time.Hour)}}, timeUnits...)

const durationRemedy = `write numbers with units, such as "30s", "5m", "1h30m" or "5d"; the units are ms, s, m, h, d, w`

// ParseDuration reads "5d", "1h30m" and the like; "0" and "none" are not times.
func ParseDuration(in string) (time.Duration, error) {
	if in == none || in == "0" {
		return 0, nil
	}
	var sum int64
	rest := in
	for rest != "" {
		digits, after := splitNumber(rest)
		name := after[:len(after)-len(strings.TrimLeft(after, "abcdefghijklmnopqrstuvwxyz"))]
		n, err := quantity(digits, name, readableTimeUnits)
		if err == nil && n > math.MaxInt64-sum {
			err = errTooLarge
		}
		if err != nil {
			return 0, Wrong(durationRemedy, "%s is not a duration%s", Quoted(in), because(err))
		}
		sum += n
		rest = after[len(name):]
	}
	if in == "" {
		return 0, Wrong(durationRemedy, `"" is not a duration`)
	}
	return time.Duration(sum), nil
}

// FormatDuration gives the form that ParseDuration reads; less than a millisecond is cut off.
func FormatDuration(d time.Duration) string {
	if d < time.Millisecond {
		return "0"
	}
	var b strings.Builder
	rest := int64(d)
	for _, u := range timeUnits {
		if n := rest / u.worth; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, u.name)
			rest -= n * u.worth
		}
	}
	return b.String()
}

// Retry is the waits after temporary failures: First doubling each time, or else List one after
// the other and then its last one for good.
type Retry struct {
	First time.Duration
	List  []time.Duration
}

// String gives "10m, doubling" or "10m, 30m, 2h", for people.
func (r Retry) String() string {
	if len(r.List) == 0 {
		return FormatDuration(r.First) + ", doubling"
	}
	parts := make([]string, len(r.List))
	for i, d := range r.List {
		parts[i] = FormatDuration(d)
	}
	return strings.Join(parts, ", ")
}

type unit struct {
	name  string
	worth int64
}

var (
	errTooLarge  = fmt.Errorf("it is too large")
	errNoNumber  = fmt.Errorf("a whole number is required")
	errNoUnit    = fmt.Errorf("the unit is missing")
	errWhichUnit = fmt.Errorf("unknown unit")
)

// because appends the reason where it says more than the sentence before.
func because(err error) string { return ": " + err.Error() }

func splitNumber(s string) (digits, rest string) {
	i := 0
	for i < len(s) && '0' <= s[i] && s[i] <= '9' {
		i++
	}
	return s[:i], s[i:]
}

func quantity(digits, name string, units []unit) (int64, error) {
	if digits == "" {
		return 0, errNoNumber
	}
	if name == "" {
		return 0, errNoUnit
	}
	for _, u := range units {
		if u.name != name {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n > math.MaxInt64/u.worth {
			return 0, errTooLarge
		}
		return n * u.worth, nil
	}
	return 0, errWhichUnit
}

// inUnits prints n in the largest unit that divides it.
func inUnits(n int64, units []unit) string {
	for _, u := range units {
		if n >= u.worth && n%u.worth == 0 {
			return strconv.FormatInt(n/u.worth, 10) + u.name
		}
	}
	return "0"
}

// Quoted shortens what a message quotes: a configuration can hold lines of any length.
func Quoted(s string) string {
	const most = 60
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return strconv.Quote(s)
}
