package main

import (
	"fmt"
	"strings"
	"time"

	"example.org/mta/operator/listing"
	"example.org/mta/warmup"
)

// zoneOf is the zone in which a plan's days have their dates: that of its day_starts, or this machine's.
func zoneOf(dayStarts warmup.DayStart) *time.Location {
	if dayStarts == "" {
		return time.Local
	}
	return dayStarts.Zone()
}

// dateOf is the date of a plan's day.
func dateOf(day time.Time, dayStarts warmup.DayStart) string {
	return day.In(zoneOf(dayStarts)).Format("Mon 2 Jan")
}

// mostForecast is how many days of a forecast are shown before its end.
const mostForecast = 10

// forecastLines returns what the days to come allow, a line each: the next ones and the last.
func forecastLines(days []warmup.Forecast, dayStarts warmup.DayStart, more bool) string {
	if len(days) == 0 {
		return ""
	}
	var b strings.Builder
	if b.WriteString("\nif each day is good"); more {
		b.WriteString(" from now on")
	}
	b.WriteString(":\n")
	for i, d := range days {
		if left := len(days) - i; len(days) > mostForecast+3 && i >= mostForecast && left > 2 {
			if i == mostForecast {
				fmt.Fprintf(&b, "  ... %s\n", plural(left-2, "day"))
			}
			continue
		}
		fmt.Fprintf(&b, "  %s\n", forecastLine(d, dayStarts))
	}
	return b.String()
}

func forecastLine(d warmup.Forecast, dayStarts warmup.DayStart) string {
	limit := "no more caps"
	if d.Limit > 0 {
		limit = listing.Thousands(d.Limit)
	}
	return dateOf(d.Day, dayStarts) + ": " + limit
}
