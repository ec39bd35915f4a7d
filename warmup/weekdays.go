package warmup

import (
	"fmt"
	"strings"
	"time"
)

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
