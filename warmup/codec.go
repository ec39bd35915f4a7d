package warmup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"example.org/mta/internal/format"
)

// stateVersion heads every encoded state. Version 1 had no pace of a provider and carried no outcomes
// from day to day; version 2 no stage of a provider by itself, version 3 no reports.
const stateVersion = 4

// Format is what this program knows of the formats of warm-ups. A format is the newest version of a state.
var Format = format.Store{Name: "warm-up", Vital: true, Reads: stateVersion, Writes: stateVersion,
	Unstated: stateVersion}

// CheckVersion returns an error that is format.ErrRefused for a stored state that a newer program has written: to
// that program it is sound, and so nothing must be concluded from it.
func CheckVersion(ip string, value []byte) error {
	if len(value) == 0 || value[0] <= stateVersion {
		return nil
	}
	return fmt.Errorf(
		"the warm-up of %s has version %d, and this program knows 1 to %d: start the newer one that has written it: %w",
		ip, value[0], stateVersion, format.ErrRefused)
}

// ErrCorrupt is what a stored state that can't be read gives. The IP sends nothing until an
// operator starts its warm-up again: what it has sent is not known.
var ErrCorrupt = errors.New("stored warm-up state can't be read")

// Append appends s in its stored form to b.
func (s *State) Append(b []byte) []byte {
	e := encoder{append(b, stateVersion)}
	for _, v := range []int64{int64(s.Begin), int64(s.Now), s.Hour, int64(s.Stage), int64(s.StageSince), s.StageSent,
		s.Caps.Hourly, s.Caps.Daily, int64(s.LastSent), int64(s.steered)} {
		e.int(v)
	}
	e.flags(s.Paused, s.Warm, s.spent)
	e.counter(&s.Total)
	e.bucket(s.tokens)
	e.bucket(s.peak)
	e.floats(s.P, s.pid.Integral, s.pid.Error)
	e.int(int64(len(s.Providers)))
	for i := range s.Providers {
		e.provider(&s.Providers[i])
	}
	e.int(int64(len(s.History)))
	for _, d := range s.History {
		e.int(int64(d.Stage))
		e.int(d.Cap)
		e.int(d.Sent)
		e.int(int64(d.Why))
		e.string(d.Provider)
	}
	return e.b
}

// Decode makes s what was appended to b.
func (s *State) Decode(b []byte) error {
	if len(b) == 0 || b[0] < 1 || b[0] > stateVersion {
		return ErrCorrupt
	}
	d := decoder{b: b[1:], version: b[0]}
	providers, history := s.Providers[:0], s.History[:0]
	*s = State{}
	for _, v := range []*Instant{&s.Begin, &s.Now} {
		*v = Instant(d.int())
	}
	s.Hour, s.Stage, s.StageSince, s.StageSent = d.int(), int(d.int()), Instant(d.int()), d.int()
	s.Caps = Caps{d.int(), d.int()}
	s.LastSent, s.steered = Instant(d.int()), Instant(d.int())
	d.flags(&s.Paused, &s.Warm, &s.spent)
	d.counter(&s.Total)
	s.tokens, s.peak = d.bucket(), d.bucket()
	s.P, s.pid.Integral, s.pid.Error = d.float(), d.float(), d.float()
	for n := d.count(maxProviders); n > 0; n-- {
		providers = append(providers, Provider{})
		d.provider(&providers[len(providers)-1])
	}
	for n := d.count(maxHistory); n > 0; n-- {
		history = append(history, Day{int(d.int()), d.int(), d.int(), Why(d.count(len(whys) - 1)), d.string()})
	}
	s.Providers, s.History = providers, history
	if d.bad || d.at < len(d.b) || !s.plausible() {
		return ErrCorrupt
	}
	return nil
}

// plausible keeps what was damaged in a file from becoming an endless loop or a negative count.
func (s *State) plausible() bool {
	ok := s.Now >= s.Begin && s.Hour >= 0 && s.Stage >= 0 && s.Stage < 1<<16 && s.Total.plausible()
	for i := range s.Providers {
		v := &s.Providers[i]
		ok = ok && v.Count.plausible() && v.pace > 0 && v.pace <= 1
	}
	return ok
}

func (c *Counter) plausible() bool {
	var sum int64
	for _, n := range c.minutes {
		if n < 0 {
			return false
		}
		sum += n
	}
	return c.Hour >= 0 && c.Day >= 0 && c.minute >= 0 && sum == c.Sliding
}

type encoder struct{ b []byte }

func (e *encoder) int(v int64) { e.b = binary.AppendVarint(e.b, v) }

func (e *encoder) floats(vs ...float64) {
	for _, v := range vs {
		e.b = binary.LittleEndian.AppendUint64(e.b, math.Float64bits(v))
	}
}

func (e *encoder) string(s string) {
	e.int(int64(len(s)))
	e.b = append(e.b, s...)
}

func (e *encoder) flags(fs ...bool) {
	var b byte
	for i, f := range fs {
		if f {
			b |= 1 << i
		}
	}
	e.b = append(e.b, b)
}

func (e *encoder) bucket(b bucket) { e.floats(b.tokens, b.depth) }

// counter writes the minutes as runs: most are zero in an IP that sends little, and all are that come
// after Sliding is reached.
func (e *encoder) counter(c *Counter) {
	e.int(c.Hour)
	e.int(c.Day)
	e.int(c.Sliding)
	e.int(c.minute)
	left := c.Sliding
	for i := 0; i < len(c.minutes); i++ {
		v := c.minutes[i]
		e.int(v)
		if left -= v; v != 0 {
			continue
		}
		run := i
		if left == 0 {
			run = len(c.minutes) - 1
		}
		for run+1 < len(c.minutes) && c.minutes[run+1] == 0 {
			run++
		}
		e.int(int64(run - i))
		i = run
	}
}

func (e *encoder) provider(v *Provider) {
	e.string(v.Name)
	e.int(v.Caps.Hourly)
	e.int(v.Caps.Daily)
	e.counter(&v.Count)
	e.bucket(v.tokens)
	e.floats(v.Factor, v.Rate, v.Demand)
	e.int(v.Waiting)
	e.outcomes(&v.Today)
	b := &v.block
	for _, n := range []int64{int64(b.state), int64(b.until), int64(b.pause), b.probeLeft, int64(b.seen), int64(b.bad),
		int64(b.recentN)} {
		e.int(n)
	}
	e.b = binary.LittleEndian.AppendUint64(e.b, b.recent)
	e.outcomes(&v.carried)
	e.floats(v.pace)
	e.int(v.usual)
	e.int(v.slowed)
	e.outcomes(&v.fresh)
	e.int(int64(v.behind))
	e.string(v.block.network)
	e.int(int64(len(v.reports)))
	for _, r := range v.reports {
		e.int(r.day)
		e.int(r.complaints)
		e.floats(r.rate)
		e.flags(r.today)
	}
}

func (e *encoder) outcomes(o *Outcomes) {
	for _, n := range [...]int64{o.Delivered, o.HardBounces, o.Deferred, o.Refused, o.Complaints} {
		e.int(n)
	}
}

// decoder reads from at on. The slice itself stays: moving it would cost more than the reading.
type decoder struct {
	b       []byte
	at      int
	version byte
	bad     bool
}

// fail makes everything that follows fail, too.
func (d *decoder) fail() { d.bad, d.at = true, len(d.b) }

func (d *decoder) int() int64 {
	if d.at < len(d.b) && d.b[d.at] < 0x80 { // one byte, as most are
		v := d.b[d.at]
		d.at++
		return int64(v>>1) ^ -int64(v&1)
	}
	v, n := binary.Varint(d.b[d.at:])
	if n <= 0 {
		d.fail()
		return 0
	}
	d.at += n
	return v
}

// count reads a number from 0 to most.
func (d *decoder) count(most int) int {
	v := d.int()
	if v < 0 || v > int64(most) {
		d.fail()
		return 0
	}
	return int(v)
}

func (d *decoder) word() uint64 {
	if len(d.b)-d.at < 8 {
		d.fail()
		return 0
	}
	v := binary.LittleEndian.Uint64(d.b[d.at:])
	d.at += 8
	return v
}

func (d *decoder) float() float64 {
	v := math.Float64frombits(d.word())
	if math.IsNaN(v) || math.IsInf(v, 0) {
		d.bad = true
		return 0
	}
	return v
}

func (d *decoder) string() string {
	n := d.count(len(d.b))
	if n > len(d.b)-d.at {
		d.fail()
		return ""
	}
	s := d.b[d.at : d.at+n]
	d.at += n
	return string(s)
}

func (d *decoder) flags(fs ...*bool) {
	if d.at >= len(d.b) {
		d.fail()
		return
	}
	for i, f := range fs {
		*f = d.b[d.at]>>i&1 == 1
	}
	d.at++
}

func (d *decoder) bucket() bucket { return bucket{d.float(), d.float()} }

func (d *decoder) counter(c *Counter) {
	c.Hour, c.Day, c.Sliding, c.minute = d.int(), d.int(), d.int(), d.int()
	for i := 0; i < len(c.minutes) && !d.bad; i++ {
		c.minutes[i] = d.int()
		if c.minutes[i] == 0 {
			i += d.count(len(c.minutes) - 1 - i)
		}
	}
}

func (d *decoder) provider(v *Provider) {
	v.Name = d.string()
	v.Caps = Caps{d.int(), d.int()}
	d.counter(&v.Count)
	v.tokens = d.bucket()
	v.Factor, v.Rate, v.Demand = d.float(), d.float(), d.float()
	v.Waiting = d.int()
	v.Today = d.outcomes()
	b := &v.block
	b.state, b.until, b.pause, b.probeLeft = blockState(d.count(int(probing))), Instant(d.int()),
		Instant(d.int()), d.int()
	b.seen, b.bad, b.recentN = int(d.int()), int(d.int()), d.count(64)
	b.recent = d.word()
	if v.pace = 1; d.version == 1 {
		return
	}
	v.carried = d.outcomes()
	v.pace, v.usual, v.slowed = d.float(), d.int(), d.int()
	v.fresh = d.outcomes()
	if d.version > 2 {
		v.behind = d.count(1 << 16)
	}
	if d.version < 4 {
		return
	}
	v.block.network = d.string()
	v.reports = make([]reported, d.count(maxReports))
	for i := range v.reports {
		r := &v.reports[i]
		r.day, r.complaints, r.rate = d.int(), d.int(), d.float()
		d.flags(&r.today)
	}
}

func (d *decoder) outcomes() Outcomes {
	return Outcomes{Delivered: d.int(), HardBounces: d.int(), Deferred: d.int(), Refused: d.int(), Complaints: d.int()}
}
