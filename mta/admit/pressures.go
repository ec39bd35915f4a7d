package admit

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/admission"
)

// What can run out besides slots. Each is the name of a pressure, and the reason of its refusals.
const (
	Disk   = "disk"
	Memory = "memory"
	Sync   = "sync"
	CPU    = admission.CPU
)

// Where the pressures begin and where they refuse nearly everything.
const (
	memoryFrom, memoryTo = .8, .95
	syncFrom, syncTo     = 10, 50 // times the latency that is aimed at
	diskHorizon          = time.Minute
)

// pressures are the kinds that the settings have.
func (g *Gate) pressures(c *core) []admission.Pressure {
	target := c.SyncLatency.Seconds()
	all := []admission.Pressure{
		{Name: Sync, Read: func() float64 {
			return g.commits.latency(g.machine.Now()).Seconds()
		}, From: syncFrom * target, To: syncTo * target},
		{Name: Disk, Read: (&filling{room: g.machine.Room, now: g.machine.Now}).used, From: 0, To: 1},
		{Name: CPU, Read: g.cpu.lateness, From: lateFrom, To: lateTo},
	}
	if c.memory > 0 {
		all = append(all, admission.Pressure{
			Name: Memory, Read: func() float64 {
				return float64(g.machine.Memory()) / float64(c.memory)
			}, From: memoryFrom, To: memoryTo,
		})
	}
	return all
}

// filling compares the room on the disk with what has come in over the last minute.
type filling struct {
	room func() int64
	now  func() time.Time

	last time.Time
	had  int64
	pace float64 // octets a second by which the room shrinks, over diskHorizon
}

// used is 0 as long as another minute like the last one fits, and 1 when there is no room.
func (f *filling) used() float64 {
	now, room := f.now(), f.room()
	if d := now.Sub(f.last); !f.last.IsZero() && d > 0 {
		pace := max(float64(f.had-room), 0) / d.Seconds()
		f.pace += min(d.Seconds()/diskHorizon.Seconds(), 1) * (pace - f.pace)
	}
	f.last, f.had = now, room
	if need := f.pace * diskHorizon.Seconds(); need > 0 {
		return max(1-float64(room)/need, 0)
	}
	return 0
}

// commits knows how long commits take, those under way included: a disk that hangs ends none.
type commits struct {
	mu     sync.Mutex
	n      int
	begun  time.Duration // of those under way, added up, since base
	base   time.Time
	smooth float64 // seconds, of those that have ended
}

// longestBase bounds the age of base: a thousand times a hundred days is too long for a Duration.
const longestBase = time.Hour

func (c *commits) begin(t time.Time) {
	c.mu.Lock()
	if age := t.Sub(c.base); c.n == 0 {
		c.base, c.begun = t, 0
	} else if age > longestBase {
		c.base, c.begun = t, c.begun-time.Duration(c.n)*age
	}
	c.n++
	c.begun += t.Sub(c.base)
	c.mu.Unlock()
}

// end ends one that began at t. latency is 0 when it failed.
func (c *commits) end(t time.Time, latency time.Duration) {
	c.mu.Lock()
	c.n--
	c.begun -= t.Sub(c.base)
	if latency > 0 {
		const following = .02
		c.smooth += following * (latency.Seconds() - c.smooth)
	}
	c.mu.Unlock()
}

// latency returns how long commits take: the average of the last ones, or the age of those under
// way when that is longer.
func (c *commits) latency(now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := time.Duration(c.smooth * float64(time.Second))
	if c.n == 0 {
		c.smooth *= .9 // nobody commits: what it was is no reason to refuse anybody
		return d
	}
	return max(d, now.Sub(c.base)-c.begun/time.Duration(c.n))
}

const cgroupRoot = "/sys/fs/cgroup"

// ownGroups returns the groups of the process, as files like /proc/self/cgroup name them; "" where nobody knows.
func ownGroups() string {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	return string(own)
}

// limitOf reads how much memory the process may have by its control group and those above it, in octets: of
// version 2 (memory.max) and 1 (memory.limit_in_bytes) under root. It is 0 when that is not bounded.
func limitOf(root, groups string) (least int64) {
	eachGroup(root, groups, "memory", func(dir string) {
		for _, name := range []string{"memory.max", "memory.limit_in_bytes"} {
			if n := readLimit(filepath.Join(dir, name)); n > 0 && (least == 0 || n < least) {
				least = n
			}
		}
	})
	return least
}

// Throttled returns what reads how many periods of the quota of CPU there were in the control group of the process and
// those above it, and how many of them ended early because it was used up (cpu.stat of versions 1 and 2). It is for one
// goroutine, which reads ten times a second: the files stay open.
func Throttled() func() (early, all int64) { return throttled(cgroupRoot, ownGroups()) }

func throttled(root, groups string) func() (early, all int64) {
	var files []*os.File
	eachGroup(root, groups, "cpu", func(dir string) {
		if f, err := os.Open(filepath.Join(dir, "cpu.stat")); err == nil {
			files = append(files, f)
		}
	})
	text := make([]byte, 4<<10)
	return func() (early, all int64) {
		for _, f := range files {
			n, _ := f.ReadAt(text, 0)
			for line := range bytes.Lines(text[:n]) {
				name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
				n, err := strconv.ParseInt(string(value), 10, 64)
				switch {
				case err != nil:
				case string(name) == "nr_periods":
					all += n
				case string(name) == "nr_throttled":
					early += n
				}
			}
		}
		return early, all
	}
}

// eachGroup calls do with the folders of the groups that a file like /proc/self/cgroup names, and of those above
// them, as far as they have a controller.
func eachGroup(root, groups, controller string, do func(dir string)) {
	for line := range strings.Lines(groups) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 {
			continue
		}
		dir := root
		switch {
		case slices.Contains(strings.Split(parts[1], ","), controller):
			dir = filepath.Join(root, controller)
		case parts[1] != "":
			continue
		}
		for path := filepath.Clean("/" + parts[2]); ; path = filepath.Dir(path) {
			do(filepath.Join(dir, path))
			if path == "/" {
				break
			}
		}
	}
}

// noLimit is what version 1 has in place of "max", rounded to pages.
const noLimit = 1 << 62

func readLimit(path string) int64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // "max" is no number
	if err != nil || n >= noLimit {
		return 0
	}
	return n
}

// cpu knows whether CPU is what the process lacks: accepting and refusing take it from each other then.
type cpu struct {
	early, all int64       // periods of the quota that ended early, of all; of look alone
	taken      int64       // messages, at the last look
	looked     time.Time   // last
	short      atomic.Bool // it lacks
	stored     atomic.Int64

	mu     sync.Mutex    // guards the rest
	late   time.Duration // of the timers that were due since the last look, added up
	timers int           // how many these were
	usual  float64       // how late timers are, seconds
	pace   float64       // refusals a second
	next   time.Time     // when the next refusal leaves
}

const (
	usedUp = .8 // of the periods of a quota

	timerEvery    = 20 * time.Millisecond
	latest        = time.Second // more says no more
	lateFollowing = .3
	// seconds: other processes have the CPU. A quota that is used up makes timers late by half of that
	lateShort = .05
	lateFrom  = .1 // where the pressure begins
	lateTo    = .5

	paceFollowing = .1
	refusalsATake = .15 // for each message that is taken: with its connection, a refusal takes as much CPU
	leastPace     = 20
	holdATier     = 5 * time.Second // that tier 2 is held at most; tier 3 twice that. Tiers 0 and 1 come again at once
)

// watch measures how late timers are, until ctx ends. Those that were due while none could fire are as late as they
// would have been.
func (c *cpu) watch(ctx context.Context) {
	t := time.NewTicker(timerEvery)
	defer t.Stop()
	for due := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		now := time.Now()
		due = latestOf(due, now.Add(-latest))
		for ; !due.After(now); due = due.Add(timerEvery) {
			c.fired(now.Sub(due))
		}
	}
}

func latestOf(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func (c *cpu) fired(late time.Duration) {
	c.mu.Lock()
	c.late += late
	c.timers++
	c.mu.Unlock()
}

// look takes in how many periods of the quota there were, and how many of them ended early because it was used up.
func (c *cpu) look(now time.Time, early, all int64) {
	periods, ended := all-c.all, early-c.early
	spent := c.all > 0 && periods > 0 && float64(ended) >= usedUp*float64(periods)
	c.early, c.all = early, all
	taken, d := c.stored.Load(), now.Sub(c.looked).Seconds()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timers > 0 {
		c.usual += lateFollowing * (c.late.Seconds()/float64(c.timers) - c.usual)
	}
	c.late, c.timers = 0, 0
	if !c.looked.IsZero() && d > 0 {
		c.pace += paceFollowing * (refusalsATake*float64(taken-c.taken)/d - c.pace)
	}
	c.looked, c.taken = now, taken
	c.short.Store(spent || c.usual > lateShort)
}

// lateness is how late timers are, in seconds.
func (c *cpu) lateness() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.usual
}

// hold returns how long the reply to a refused message of a tier is held: the refusals leave one by one, at a pace at
// which they take little of the CPU. Its client can send nothing meanwhile.
func (c *cpu) hold(now time.Time, tier int) time.Duration {
	longest := time.Duration(tier-1) * holdATier
	if !c.short.Load() || longest <= 0 {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := c.next.Sub(now); d < 0 || d > admission.Tiers*holdATier { // or the clock was set back
		c.next = now
	}
	d := c.next.Sub(now)
	if d > longest {
		return longest
	}
	c.next = c.next.Add(time.Duration(float64(time.Second) / max(c.pace, leastPace)))
	return d
}
