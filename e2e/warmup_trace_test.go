package e2e

import (
	"strings"
	"testing"
	"time"

	"example.org/mta/warmup"
	"example.org/mta/warmup/simulate"
)

// traceCap is the hourly cap of the trace's plan, and of its first provider.
const (
	traceCap    = 360
	traceBigCap = 150
)

// traceDemand is what a trace offers in each hour, in caps; the first hour has none.
var traceDemand = []float64{0, .5, 2, .2, 1.5}

// traceStep is how often it offers, in the plan's seconds.
const traceStep = 10

// warmTrace makes a trace of that demand, over and over, for some hours. Each provider has its own
// share of it.
func warmTrace(hours int) []simulate.Event {
	shares := map[string]float64{"big": .5, "mid": .2, "small": .3}
	var trace []simulate.Event
	owed := make(map[string]float64)
	for t := int64(3600); t < int64(hours)*3600; t += traceStep {
		h := int(t/3600-1)%(len(traceDemand)-1) + 1
		for i, p := range warmProviders {
			owed[p] += traceDemand[h] * traceCap * shares[p] * traceStep / 3600
			if n := float64(int(owed[p])); n > 0 {
				at := t + int64(3*i) // not at one instant: whoever comes last there may be refused
				trace = append(trace, simulate.Event{T: at, Kind: simulate.Offer, Provider: counted(p), Value: n})
				owed[p] -= n
			}
		}
	}
	return append(trace, simulate.Event{T: int64(hours) * 3600, Kind: simulate.End})
}

// TestSimulatorAgreesWithTheRelay gives one trace to the simulator and, faster by a factor, to the
// relay, and compares what each sends in each hour: within 2 % of the cap, and never above it.
//
// Where what has no room is diverted, a message that comes some of the plan's seconds late may miss its
// token; that is told apart only where these are as long as they are to a plan of 60 s.
func TestSimulatorAgreesWithTheRelay(t *testing.T) {
	t.Parallel() // the parts take turns
	hour, hours := 2*time.Second, len(traceDemand)
	if lasts := warmDuration(t, 0); lasts >= time.Duration(hours)*time.Minute {
		hour, hours = time.Minute, int(lasts/time.Minute)
		t.Run("divert", func(t *testing.T) { compareWithSimulator(t, hour, hours, false) })
	}
	t.Run("hold", func(t *testing.T) { compareWithSimulator(t, hour, hours, true) })
}

func compareWithSimulator(t *testing.T, hour time.Duration, hours int, hold bool) {
	parallel(t)
	trace := warmTrace(hours)
	stages := []warmStage{{warmCaps{traceCap, 24 * traceCap}, map[string]warmCaps{"big": {traceBigCap, 24 * traceBigCap}}}}
	simulated := simulatedHours(t, trace, stages, hold)

	g := newWarmGround(t, warmSettings{hour: hour, hold: hold, plan: planText(stages)})
	c := g.recount(t, hour, stages)
	for _, e := range trace {
		c.wait(t, float64(e.T)/3600)
		if e.Kind == simulate.Offer {
			g.mailer.offer(strings.Replace(e.Provider, "other", "small", 1), int(e.Value))
		}
	}
	g.mailer.finish(t)
	c.wait(t, float64(hours))
	c.count(g)
	c.within(t)
	for _, name := range []string{"big", "mid", "other", allProviders} {
		live := c.by(hour)[name]
		most := stages[0].caps(name).hourly
		var relay, simulator []int
		for h := range hours {
			got, want := live[h], simulated[name][h]
			relay, simulator = append(relay, got), append(simulator, want)
			if diff := got - want; (diff > most/50 || -diff > most/50) && !c.stood(t, h) {
				inTime(t, "%s, hour %d: the relay sent %d, the simulator says %d", name, h, got, want)
			}
			if want > most {
				t.Errorf("%s, hour %d: the simulator says %d, and the cap is %d", name, h, want, most)
			}
		}
		t.Logf("%-5s relay %v, simulator %v", name, relay, simulator)
	}
	g.relay.drained(t, patience+10*hour)
	g.judgeDelivery(t, false)
}

// simulatedHours gives what the simulator sends of a trace in each hour, by provider.
func simulatedHours(t *testing.T, trace []simulate.Event, stages []warmStage, hold bool) map[string]map[int]int {
	t.Helper()
	plan := warmup.DefaultPlan()
	plan.Name = "live"
	if hold {
		plan.Overflow = warmup.Hold
	}
	plan.Health.MinSample, plan.Health.Pause.Sample = 0, 0
	for _, s := range stages {
		stage := warmup.Stage{Caps: warmup.Caps{Hourly: int64(s.hourly), Daily: int64(s.daily)}, Providers: make(map[string]warmup.Caps)}
		for name, p := range s.providers {
			stage.Providers[name] = warmup.Caps{Hourly: int64(p.hourly), Daily: int64(p.daily)}
		}
		plan.Stages = append(plan.Stages, stage)
	}
	sent := map[string]map[int]int{allProviders: {}}
	if _, err := simulate.Run(&plan, trace, simulate.Options{Seed: 1, Interval: 3600}, func(r *simulate.Row) {
		if sent[r.Provider] == nil {
			sent[r.Provider] = make(map[int]int)
		}
		sent[r.Provider][int(r.T/3600)] += int(r.Sent)
		sent[allProviders][int(r.T/3600)] += int(r.Sent)
	}); err != nil {
		t.Fatal(err)
	}
	return sent
}
