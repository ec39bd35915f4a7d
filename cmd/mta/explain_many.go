package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"example.org/mta/internal/short"
	"example.org/mta/operator/api"
)

// Of a pool of a thousand sources a page shows some, and counts the others: what a few have to wait for
// is what the others wait for. --json has all of them.
const (
	mostSources = 8  // in the picture
	mostLines   = 5  // of warm-ups, lanes, rates and actions each
	mostHosts   = 12 // in the picture
)

// firstOf gives the first most of a list, and how many are left out; one more is shown rather than
// counted.
func firstOf[T any](all []T, most int) (some []T, more int) {
	if len(all) <= most+1 {
		return all, 0
	}
	return all[:most], len(all) - most
}

// lanes prints what waits within delivery, the longest first.
func (c *cli) lanes(b *strings.Builder, all []api.Lane) {
	byLength := slices.Clone(all)
	slices.SortStableFunc(byLength, func(x, y api.Lane) int {
		return cmp.Compare(y.Waiting+y.Running, x.Waiting+x.Running)
	})
	some, more := firstOf(byLength, mostLines)
	for i := range some {
		fact(b, "delivery", "%s", c.lane(&some[i]))
	}
	if more == 0 {
		return
	}
	waiting, running := 0, 0
	for _, l := range byLength[len(some):] {
		waiting += l.Waiting
		running += l.Running
	}
	fact(b, "delivery", "%d waiting, %d on connections, %d more sources", waiting, running, more)
}

func (c *cli) lane(l *api.Lane) string {
	text := fmt.Sprintf("%d waiting, %d on connections, source %s", l.Waiting, l.Running, l.Source)
	if l.Opening > 0 {
		text += fmt.Sprintf(", %d more being opened", l.Opening)
	}
	if l.Waiting > 0 {
		text += ", for " + short.Age(c.now().Sub(l.Oldest))
		if l.Why != "" {
			text += ": " + l.Why + c.look().More(l.Until)
		}
	}
	return text
}

// warming prints where the warm-ups of sources stand.
func warming(b *strings.Builder, sources []api.DestinationSource) {
	var all []string
	for _, s := range sources {
		if s.Warmup != "" {
			all = append(all, s.Name+": "+s.Warmup)
		}
	}
	some, more := firstOf(all, mostLines)
	for _, text := range some {
		fact(b, "warm-up", "%s", text)
	}
	if more > 0 {
		fact(b, "warm-up", "%d more sources: mta warmup list", more)
	}
}

// shortSum shortens a sum of limits, one for each source.
func shortSum(text string) string {
	terms, rest, _ := cutLast(text, ": ")
	all := strings.Split(terms, " + ")
	some, more := firstOf(all, mostLines)
	if more == 0 {
		return text
	}
	return fmt.Sprintf("%s + %d more: %s", strings.Join(some, " + "), more, rest)
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
