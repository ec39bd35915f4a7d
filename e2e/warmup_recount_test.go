package e2e

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

// warmCaps bound an hour and a day.
type warmCaps struct{ hourly, daily int }

// warmStage is what a test's plan allows on a day: all, and of it to each provider.
type warmStage struct {
	warmCaps
	providers map[string]warmCaps
}

// recount counts what providers saw from a warming source, by the windows of its plan.
type recount struct {
	begin  time.Time
	hour   time.Duration
	stages []warmStage // of each day, the last one for all days after
	seen   []rcptSeen
	pulse  *pulse
}

// all names the count of all providers together.
const allProviders = "all"

// by counts what came in each window of a length, by provider and of all.
func (c *recount) by(window time.Duration) map[string]map[int]int {
	counts := map[string]map[int]int{allProviders: {}}
	for _, r := range c.seen {
		i := int(r.at.Sub(c.begin) / window)
		name := counted(r.provider)
		if counts[name] == nil {
			counts[name] = make(map[int]int)
		}
		counts[name][i]++
		counts[allProviders][i]++
	}
	return counts
}

func (c *recount) stage(day int) *warmStage { return &c.stages[min(day, len(c.stages)-1)] }

// caps are those of a provider, or of all, on a day.
func (s *warmStage) caps(name string) warmCaps {
	if own, ok := s.providers[name]; ok {
		return own
	}
	return s.warmCaps
}

// within demands that no hour and no day has more than a cap, nor any 60 minutes more than 1.1 of the
// highest cap of their hours; and that no hours from the begin on have more than their caps together,
// which is so on the slowest machine too: what comes late makes an hour fuller, and those before it
// emptier.
func (c *recount) within(t *testing.T) {
	t.Helper()
	c.below(t, "hour", c.hour, func(h int, name string) int { return c.stage(h / 24).caps(name).hourly })
	c.below(t, "day", 24*c.hour, func(d int, name string) int { return c.stage(d).caps(name).daily })
	c.sliding(t)
}

func (c *recount) below(t *testing.T, word string, window time.Duration, limit func(i int, name string) int) {
	t.Helper()
	for name, counts := range c.by(window) {
		sum, allowed := 0, 0
		for i := range slices.Max(slices.Collect(maps.Keys(counts))) + 1 {
			n, most := counts[i], limit(i, name)
			if sum, allowed = sum+n, allowed+most; sum > allowed {
				t.Errorf("up to %s %d: %d to %s, and the caps together are %d", word, i, sum, name, allowed)
			}
			if n > most {
				inTime(t, "%s %d: %d to %s, and its cap is %d", word, i, n, name, most)
			}
		}
	}
}

// inTime is Errorf for what is true only if the machine keeps up with a plan's short hours: it is
// demanded when MTA_WARMUP asks for a test of that length, and told otherwise.
func inTime(t *testing.T, format string, args ...any) {
	t.Helper()
	if warmDuration(t, 0) > 0 {
		t.Errorf(format, args...)
	} else {
		t.Logf("not demanded of a short run: "+format, args...)
	}
}

// sliding looks at each 60 minutes that end with a recipient, less the time for which the machine stood
// still in them: by so much may one have come later than it was authorised.
func (c *recount) sliding(t *testing.T) {
	t.Helper()
	most, at := 0., 0.
	still := c.standstills()
	for name := range c.by(c.hour) {
		var times []time.Duration
		for _, r := range c.seen {
			if name == allProviders || counted(r.provider) == name {
				times = append(times, r.at.Sub(c.begin))
			}
		}
		first := 0
		for i, now := range times {
			hour := int(now / c.hour)
			for i > first && times[first] <= now-c.hour+max(still[hour], still[hour-1]) {
				first++
			}
			caps := c.stage(hour / 24).caps(name)
			if share := float64(i-first+1) / float64(caps.hourly); share > most {
				most, at = share, float64(now)/float64(c.hour)
			}
		}
	}
	t.Logf("most in any 60 minutes: %.3f caps, at hour %.2f", most, at)
	if most > 1.10 {
		inTime(t, "%.3f caps in the 60 minutes before hour %.2f, more than 1.10", most, at)
	}
}

// filled demands that each of the hours has what the cap allows.
func (c *recount) filled(t *testing.T, name string, from, to int) {
	t.Helper()
	hours := c.by(c.hour)[name]
	for h := from; h < to; h++ {
		most := c.stage(h / 24).caps(name).hourly
		if full(hours[h], most) || c.stood(t, h) {
			continue
		}
		inTime(t, "%s, hour %d: only %d of %d", name, h, hours[h], most)
	}
}

// standstills gives the longest time for which the machine stood still, by the hour in which it went on.
func (c *recount) standstills() map[int]time.Duration {
	c.pulse.mu.Lock()
	defer c.pulse.mu.Unlock()
	still := make(map[int]time.Duration)
	for i := 1; i < len(c.pulse.beats); i++ {
		h := int(c.pulse.beats[i].Sub(c.begin) / c.hour)
		still[h] = max(still[h], c.pulse.beats[i].Sub(c.pulse.beats[i-1]))
	}
	return still
}

// stood reports whether the machine stood still in an hour, or at the end of the one before, for so long
// that nobody can fill it. A short hour of a test has no time for that.
func (c *recount) stood(t *testing.T, h int) bool {
	t.Helper()
	from := c.begin.Add(time.Duration(h)*c.hour - c.hour/10)
	worst := c.pulse.worst(from, from.Add(c.hour*11/10))
	if worst < c.hour/40 {
		return false
	}
	t.Logf("hour %d is not judged: the machine stood still for %v of its %v", h, worst.Round(time.Millisecond), c.hour)
	return true
}

// list gives the counts of all hours in a row.
func (c *recount) list(name string) []int {
	hours := c.by(c.hour)[name]
	var list []int
	for h := 0; h <= slices.Max(slices.Collect(maps.Keys(hours))); h++ {
		list = append(list, hours[h])
	}
	return list
}

// most gives the most that came within any span of that length.
func (c *recount) most(span time.Duration) (most int) {
	first := 0
	for i, r := range c.seen {
		for !c.seen[first].at.After(r.at.Add(-span)) {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// count takes what has been seen by now.
func (c *recount) count(g *warmGround) { c.seen = g.rcpts.from(g.dedicated) }

// wait waits until that many hours since the begin have passed.
func (c *recount) wait(t *testing.T, hours float64) {
	t.Helper()
	then := c.begin.Add(time.Duration(hours * float64(c.hour)))
	if late := time.Since(then); late > c.hour/4 {
		inTime(t, "hour %.1f of the plan was %v ago: this machine is too slow for the test", hours, late)
	}
	<-time.After(time.Until(then))
}

// names lists the providers that were seen, and all.
func (c *recount) names() []string { return slices.Sorted(maps.Keys(c.by(c.hour))) }

// full reports whether n is at least 98 % of a cap, or at most 2 short of a small one.
func full(n, most int) bool {
	if most < 100 {
		return n >= most-2
	}
	return float64(n) >= .98*float64(most)
}

// pulse beats at an interval, with a write to the disk, and remembers when a beat was late:
// what it can't do in time, nobody on this machine can.
type pulse struct {
	mu    sync.Mutex // guards beats
	beats []time.Time
}

func newPulse(t *testing.T, every time.Duration) *pulse {
	t.Helper()
	p := &pulse{}
	file, err := os.Create(filepath.Join(scratch(t), "pulse"))
	if err != nil {
		t.Fatal(err)
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for tick := time.Tick(every); ; {
			select {
			case <-done:
				return
			case <-tick:
			}
			_, _ = file.WriteAt([]byte{1}, 0)
			_ = file.Sync()
			p.mu.Lock()
			p.beats = append(p.beats, time.Now())
			p.mu.Unlock()
		}
	}()
	t.Cleanup(func() { close(done); <-ended; file.Close() })
	return p
}

// between counts the beats between two moments.
func (p *pulse) between(from, to time.Time) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.beats {
		if b.After(from) && b.Before(to) {
			n++
		}
	}
	return n
}

// worst gives the longest time between two beats that ends in a span of time.
func (p *pulse) worst(from, to time.Time) (longest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := 1; i < len(p.beats); i++ {
		if b := p.beats[i]; b.After(from) && b.Before(to) {
			longest = max(longest, b.Sub(p.beats[i-1]))
		}
	}
	return longest
}
