// Package admit joins the controller of package admission to this relay: it gives each message a
// priority, measures what can run out, holds back clients that come back at once, and keeps account
// of what was refused, and why.
//
// Goroutines: none but that of [Gate.Run], and one that measures while it runs.
package admit

import (
	"context"
	"crypto/rand"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/admission"
	"example.org/mta/submission/intake"
)

// The modes.
const (
	Utilisation = "utilisation"
	PID         = "pid"
	Off         = "off"
)

// Settings are an operator's.
type Settings struct {
	Mode        string
	SyncLatency time.Duration // what a commit may take before fewer are let in at once
	MemoryLimit int64         // octets; 0: that of the cgroup, where there is one
}

// Machine is what the gate measures and stands on.
type Machine struct {
	Now    func() time.Time
	Room   func() int64 // octets that the disk takes before everything is refused
	Memory func() int64 // octets that the process has
	Slots  int          // commits at a time for which there is memory
	// Throttled returns how many periods of a quota of CPU there were, and how many of them ended early because it
	// was used up. Nil: there is no quota.
	Throttled func() (early, all int64)
}

const (
	mostSlots  = 1024
	firstSlots = 32
	leastSlots = 8
	longest    = 1000                   // messages that wait for a slot; more are refused at DATA
	lineTime   = 2 * time.Second        // that the last of them waits
	line       = 250 * time.Millisecond // of work that waits in overload; the most important goes first
	// that a complete message waits for a slot: its client would give up, and send it twice
	patience   = 30 * time.Second
	remembered = 100_000 // first attempts
	tooOften   = 5       // refusals in a row after which a session ends
)

// Gate admits messages. It implements intake.Admission.
type Gate struct {
	machine Machine
	core    atomic.Pointer[core]
	kinds   *admission.Sorter
	first   *admission.Memory // of attempts, where clients can't prove them
	fair    admission.Fair
	returns returns
	commits commits
	account account
	cpu     cpu
}

// core is what one version of the settings has made.
type core struct {
	Settings
	controller *admission.Controller // nil when off
	memory     int64                 // limit in force, 0 without one
}

// New makes a gate that admits everything until it runs.
func New(s Settings, m Machine) *Gate {
	var key [32]byte
	rand.Read(key[:])
	g := &Gate{machine: m, kinds: admission.NewSorter(key), first: admission.NewMemory(remembered)}
	g.account.init(m.Now())
	g.Set(s)
	return g
}

// Set brings settings into force. The controller begins anew if they are others.
func (g *Gate) Set(s Settings) {
	if old := g.core.Load(); old != nil && old.Settings == s {
		return
	}
	c := &core{Settings: s, memory: s.MemoryLimit}
	if c.memory == 0 {
		c.memory = limitOf(cgroupRoot, ownGroups())
	}
	if s.Mode != Off {
		most := float64(max(min(g.machine.Slots*4/5, mostSlots), 1)) // those ahead get a quarter more
		c.controller = admission.New(admission.Config{
			Law:       lawOf(s.Mode),
			Pressures: g.pressures(c),
			Tuner: &admission.Tuner{
				Least: min(leastSlots, most), Most: most, Start: min(firstSlots, most),
				Ceiling: s.SyncLatency, Good: s.SyncLatency / 2, Blind: g.cpu.short.Load,
			},
			Line: longest, Patience: lineTime,
			Now: g.machine.Now, Starved: g.cpu.short.Load,
			Within: func(tier int, part float64) (int, float64) {
				return g.fair.Within(g.machine.Now(), tier, part)
			},
		})
	}
	g.core.Store(c)
}

func lawOf(mode string) admission.Law {
	if mode == PID {
		// The published law, with the gain that is stable: see docs/admission.md.
		return &admission.PID{Kp: .1, Ki: .1}
	}
	return &admission.Utilisation{Line: line}
}

// Run calibrates until ctx ends.
func (g *Gate) Run(ctx context.Context) {
	t := time.NewTicker(admission.Period)
	defer t.Stop()
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { g.cpu.watch(ctx) })
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			g.tick()
		}
	}
}

func (g *Gate) tick() {
	var early, all int64
	if g.machine.Throttled != nil {
		early, all = g.machine.Throttled()
	}
	g.cpu.look(g.machine.Now(), early, all)
	if c := g.core.Load(); c.controller != nil {
		c.controller.Calibrate()
	}
	g.account.turn(g.machine.Now())
}

// Admit implements intake.Admission.
func (g *Gate) Admit(r intake.AdmitRequest) (intake.Admitted, *intake.Refused) {
	c := g.core.Load()
	if c.controller == nil {
		return nil, nil
	}
	now, first := g.machine.Now(), r.First
	var attempt []string
	if first.IsZero() && c.controller.Status().Share > 0 {
		attempt = attemptOf(&r)
		first = g.first.First(now, attempt...)
	}
	p, last := g.fair.Priority(now, int(r.Tier), r.Tenant, g.turn(&r, first, now))
	g.account.asked(p.Tier())
	ticket, refusal := c.controller.Admit(p)
	if refusal != nil {
		return nil, g.refuse(&r, p, refusal.Reason)
	}
	ticket = ticket.Lowered(admission.Of(p.Tier(), admission.Cohorts-1)).Of(r.Tenant)
	if level := c.controller.Status().Level; level < admission.Levels && !cut(last, level) {
		ticket = ticket.Ahead()
	}
	return &pass{gate: g, core: c, ticket: ticket, request: r, attempt: attempt}, nil
}

// cut reports whether a threshold refuses some of a tenant's messages, or nearly, by its last priority.
func cut(last admission.Priority, level int) bool {
	const nearly = 6 // cohorts: half of what is cut
	return int(last)+nearly >= level
}

// soonest is how soon an attempt comes that counts as the first one: no client was asked to come back so soon.
const soonest = time.Second

// turn is the place of a message in the order of its tenant: what comes back is in the order of first
// attempts, and before what is new, whose kinds take turns by the hour.
func (g *Gate) turn(r *intake.AdmitRequest, first, now time.Time) admission.Turn {
	if !first.IsZero() && now.Sub(first) >= soonest {
		return admission.Returned(first)
	}
	kind := r.Campaign
	if kind == "" {
		kind = r.Sender.Domain()
	}
	return g.kinds.Turn(r.Tenant, kind, now)
}

// attemptOf identifies a message that comes back: SMTP has no name for it before its content, and a
// size that was declared is the best that there is.
func attemptOf(r *intake.AdmitRequest) []string {
	return []string{r.Network.String(), string(r.Sender), string(r.Recipient), strconv.FormatInt(r.Size, 10)}
}

// refuse counts a refusal, and returns the reply to the client and its delay.
func (g *Gate) refuse(r *intake.AdmitRequest, p admission.Priority, reason string) *intake.Refused {
	now := g.machine.Now()
	out := &intake.Refused{Disk: reason == Disk, Close: r.Refused >= tooOften}
	hold := time.Duration(0)
	if r.First.IsZero() {
		hold = g.returns.refused(now, attemptOf(r))
	}
	if r.First.IsZero() || r.Refused > 0 { // by HTTP, who does not ask again on its connection waits by itself
		hold = max(hold, g.cpu.hold(now, p.Tier()))
	}
	if hold > 0 {
		out.Hold = func(ctx context.Context) { g.returns.hold(ctx, hold) }
	}
	g.account.refused(Refusal{
		Time: now, Client: r.Peer.Addr(), Sender: r.Sender, Tenant: r.Tenant, Tier: p.Tier(), Cohort: p.Cohort(),
		Reason: reason, Held: hold,
	})
	return out
}

// pass is the admission of one message.
type pass struct {
	gate    *Gate
	core    *core
	ticket  admission.Ticket
	request intake.AdmitRequest
	attempt []string // remembered; nil when it is not
}

// Drop implements intake.Admitted.
func (p *pass) Drop() { p.ticket.Drop() }

// Full implements intake.Admitted.
func (p *pass) Full() *intake.Refused {
	refusal := p.ticket.Full()
	if refusal == nil {
		return nil
	}
	refused := p.gate.refuse(&p.request, p.ticket.Priority(), refusal.Reason)
	p.request.Refused++ // DATA can be tried again in the same transaction
	return refused
}

// Commit implements intake.Admitted.
func (p *pass) Commit(ctx context.Context, tier uint8, commit func() error) (*intake.Refused, error) {
	t := p.ticket.Lowered(admission.Of(int(tier), p.ticket.Priority().Cohort()))
	if !t.Enter() {
		waiting, done := context.WithTimeout(ctx, patience)
		refusal := t.Wait(waiting)
		done()
		if refusal != nil {
			return p.gate.refuse(&p.request, t.Priority(), refusal.Reason), nil
		}
	}
	g, began := p.gate, p.gate.machine.Now()
	g.commits.begin(began)
	latency := time.Duration(0)
	defer func() { t.Done(latency); g.commits.end(began, latency) }()
	if err := commit(); err != nil {
		return nil, err
	}
	latency = max(g.machine.Now().Sub(began), 1)
	g.cpu.stored.Add(1)
	if p.attempt != nil {
		g.first.Forget(p.attempt...)
		g.returns.taken(p.attempt)
	}
	return nil, nil
}
