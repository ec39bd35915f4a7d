package admit

import (
	"sync"
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
