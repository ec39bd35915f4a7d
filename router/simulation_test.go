package router

import (
	"container/heap"
	"container/list"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// The simulation behind the choice of the policy (design, section 6; docs/architecture.md has its
// table): a system of 100 workers in virtual time, and seven rules for who gets a free one. The
// production schedule itself has three of the rows; the others are written here, in the simplest
// way.
//
//	go test ./router -run Simulation -v -simulated 60m

const simulatedOnPage = 20 * time.Minute

var simulated = flag.Duration("simulated", simulatedOnPage, "virtual time in which messages arrive")

const (
	simWorkers = 100
	simBig     = 5000 // recipients of a big envelope
)

// policy says who gets a free worker.
type policy interface {
	add(e *entry)
	next(now time.Time, free int) (job, bool)
	done(j job)
}

// fcfs takes the oldest message that may have a worker.
type fcfs struct {
	order   *list.List // of *entry with waiting jobs, oldest first
	permits func(running, free int) bool
}

func newFCFS(permits func(running, free int) bool) policy {
	return &fcfs{order: list.New(), permits: permits}
}

func (p *fcfs) add(e *entry) {
	e.place = p.order.PushBack(e)
}

func (p *fcfs) next(_ time.Time, free int) (job, bool) {
	if free == 0 {
		return job{}, false
	}
	for el := p.order.Front(); el != nil; el = el.Next() {
		e := el.Value.(*entry)
		if !p.permits(e.running, free) {
			continue
		}
		e.waiting = e.waiting[1:]
		e.running++
		if len(e.waiting) == 0 {
			p.order.Remove(el)
		}
		return job{entry: e}, true
	}
	return job{}, false
}

func (p *fcfs) done(j job) { j.entry.running-- }

var policies = []struct {
	name string
	make func() policy
}{
	{"FCFS", func() policy { return newFCFS(func(int, int) bool { return true }) }},
	{"equal split (least-running alone)", func() policy { return newSchedule(Allowance{simWorkers, 1}, guard{}) }},
	{"FCFS, max 10", func() policy { return newFCFS(func(running, _ int) bool { return running < 10 }) }},
	{"Finch, max 2, k=10", func() policy {
		return newFCFS(Allowance{2, 10}.Permits)
	}},
	{"Finch, max 2, k=3", func() policy {
		return newFCFS(Allowance{2, 3}.Permits)
	}},
	{"ours: Finch, least-running first", func() policy { return newSchedule(Allowance{2, 10}, guard{}) }},
	{"ours, and the guard", func() policy {
		return newSchedule(Allowance{2, 10}, guard{age: 5 * time.Minute, workers: simWorkers / 10})
	}},
}

// arrival is a message of the simulated day.
type arrival struct {
	at         time.Duration
	recipients int
	work       []time.Duration // how long each job takes
}

// day makes the messages for a load, which is a share of what the workers can do: 90 % have one
// recipient, 10 % have 2 to 10, and one in 10,000 has 5,000. A job takes 0.3 s, one in a hundred
// takes 30 s: a name server that does not answer.
func day(seed uint64, load float64, length time.Duration, bigs bool) []arrival {
	rnd := rand.New(rand.NewPCG(seed, 7))
	const jobSeconds = 0.99*0.3 + 0.01*30
	const bigShare = 1.0 / 10000
	recipients := 0.9 + 0.1*6
	if bigs {
		recipients += bigShare * simBig
	}
	rate := load * simWorkers / (jobSeconds * recipients) // messages a second
	var out []arrival
	for at := 0.0; at < length.Seconds(); at += rnd.ExpFloat64() / rate {
		n := 1
		if rnd.Float64() < 0.1 {
			n = 2 + rnd.IntN(9)
		}
		if bigs && rnd.Float64() < bigShare {
			n = simBig
		}
		out = append(out, arrive(rnd, time.Duration(at*float64(time.Second)), n))
	}
	return out
}

func arrive(rnd *rand.Rand, at time.Duration, recipients int) arrival {
	a := arrival{at, recipients, make([]time.Duration, recipients)}
	for i := range a.work {
		a.work[i] = time.Duration(rnd.ExpFloat64() * 0.3 * float64(time.Second))
		if rnd.IntN(100) == 0 {
			a.work[i] = 30 * time.Second
		}
	}
	return a
}

// outcomeOf is what the messages of a day saw.
type outcomeOf struct {
	small []time.Duration // how long mail with one recipient waited for a worker
	big   []time.Duration // how long a big envelope took from its arrival to the end of its last job
	most  float64         // the largest share of the workers that one message had
	last  time.Duration   // when all was done
	jobs  int             // that have ended
}

// ending is a job's end.
type ending struct {
	at  time.Duration
	job job
	of  int // index of the arrival
}

type endings []ending

func (h endings) Len() int           { return len(h) }
func (h endings) Less(i, j int) bool { return h[i].at < h[j].at }
func (h endings) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *endings) Push(x any)        { *h = append(*h, x.(ending)) }
func (h *endings) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// simulate has a policy serve a day.
func simulate(p policy, messages []arrival) outcomeOf {
	var out outcomeOf
	var busy endings
	index := make(map[*entry]int)
	blank := make([]string, simBig)
	now, arrived, most := time.Duration(0), 0, 0
	for arrived < len(messages) || len(busy) > 0 {
		if len(busy) == 0 || arrived < len(messages) && messages[arrived].at <= busy[0].at {
			m := &messages[arrived]
			now = m.at
			e := &entry{waiting: blank[:m.recipients], arrived: t0.Add(now)}
			index[e] = arrived
			arrived++
			p.add(e)
		} else {
			end := heap.Pop(&busy).(ending)
			now = end.at
			p.done(end.job)
			out.jobs++
			if m := messages[end.of]; m.recipients == simBig && end.job.entry.running == 0 && len(end.job.entry.waiting) == 0 {
				out.big = append(out.big, now-m.at)
			}
		}
		for {
			j, ok := p.next(t0.Add(now), simWorkers-len(busy))
			if !ok {
				break
			}
			i := index[j.entry]
			m := &messages[i]
			if m.recipients == 1 {
				out.small = append(out.small, now-m.at)
			}
			most = max(most, j.entry.running)
			heap.Push(&busy, ending{now + m.work[len(j.entry.waiting)], j, i})
		}
	}
	out.most, out.last = float64(most)/simWorkers, now
	return out
}

func quantile(d []time.Duration, q float64) float64 {
	if len(d) == 0 {
		return 0
	}
	d = slices.Clone(d)
	slices.Sort(d)
	return d[min(len(d)-1, int(q*float64(len(d))))].Seconds()
}

// row is one policy's line of the table.
type row struct {
	small50, small99, big50 [2]float64 // at normal load and in overload, seconds
	last                    [2]float64
	idleBig50, idleMost     float64
}

func TestSimulation(t *testing.T) {
	loads := [2][]arrival{day(1, 0.83, *simulated, true), day(2, 1.2, *simulated, true)}
	alone := []arrival{arrive(rand.New(rand.NewPCG(5, 5)), 0, simBig)}
	var table strings.Builder
	fmt.Fprintf(&table, "%d workers, messages arriving for %s; seconds\n", simWorkers, *simulated)
	fmt.Fprintf(&table, "| %-34s | 83 %%: small p50 / p99, big p50 | 120 %%: small p50 / p99, big p50 | idle: big p50, most | all done |\n", "policy")
	rows := make(map[string]row)
	for _, p := range policies {
		var r row
		for i, d := range loads {
			o := simulate(p.make(), d)
			checkCounts(t, p.name, d, o)
			r.small50[i], r.small99[i], r.big50[i] = quantile(o.small, .5), quantile(o.small, .99), quantile(o.big, .5)
			r.last[i] = o.last.Seconds()
		}
		idle := simulate(p.make(), alone)
		r.idleBig50, r.idleMost = quantile(idle.big, .5), idle.most
		rows[p.name] = r
		fmt.Fprintf(&table, "| %-34s | %6.2f / %6.2f, %6.0f | %6.1f / %6.1f, %6.0f | %4.0f, %3.0f %% | %.0f, %.0f |\n", p.name,
			r.small50[0], r.small99[0], r.big50[0], r.small50[1], r.small99[1], r.big50[1], r.idleBig50, 100*r.idleMost, r.last[0], r.last[1])
	}
	t.Log("\n" + table.String())
	checkShape(t, rows)
	checkPage(t, table.String())
}

// checkPage compares the table with the one in the manual.
func checkPage(t *testing.T, table string) {
	if *simulated != simulatedOnPage || runtime.GOARCH != "amd64" { // others may round differently
		return
	}
	page, err := os.ReadFile("../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(table) {
		if strings.HasPrefix(line, "|") && !strings.Contains(string(page), line) {
			t.Errorf("docs/architecture.md has another table; this is missing:\n%s", line)
		}
	}
}

// checkCounts recounts from the messages what the simulation says it has done.
func checkCounts(t *testing.T, name string, messages []arrival, o outcomeOf) {
	t.Helper()
	jobs, small, big := 0, 0, 0
	for _, m := range messages {
		jobs += m.recipients
		switch m.recipients {
		case 1:
			small++
		case simBig:
			big++
		}
	}
	if o.jobs != jobs || len(o.small) != small || len(o.big) != big || big == 0 {
		t.Errorf("%s: %d of %d jobs, %d of %d small messages, %d of %d big ones", name, o.jobs, jobs, len(o.small), small, len(o.big), big)
	}
}

// checkShape holds what the choice of the policy rests on (docs/control.md, S2 and Turns).
func checkShape(t *testing.T, rows map[string]row) {
	ours, first, finch, split := rows["ours: Finch, least-running first"], rows["FCFS"], rows["Finch, max 2, k=10"], rows["equal split (least-running alone)"]
	for _, c := range []struct {
		what string
		ok   bool
	}{
		{"S2: small mail waits at most 1 s (p99) beside big envelopes at 83 % load", ours.small99[0] <= 1},
		{"S2: FCFS lets it wait much longer", first.small99[0] > 10},
		{"S2: big envelopes take at most 2.2 times as long as with FCFS", ours.big50[0] <= 2.2*first.big50[0]},
		{"in overload Finch's rule alone is hardly better than FCFS for small mail", finch.small50[1] > 0.5*first.small50[1]},
		{"in overload least-running first keeps small mail quick", ours.small50[1] < 0.2*finch.small50[1]},
		{"at the price of the big envelopes, in overload only", ours.big50[1] > finch.big50[1]},
		{"a message alone can use 91 % of the workers", ours.idleMost == 0.91},
		{"alone, it is nearly as quick as with FCFS", ours.idleBig50 <= 1.3*first.idleBig50},
		{"a fixed maximum wastes an idle system", rows["FCFS, max 10"].idleBig50 > 4*ours.idleBig50},
		{"the allowance costs small mail nothing", ours.small99[1] <= 1.1*split.small99[1]+0.1},
		{"the guard buys big envelopes time in overload", rows["ours, and the guard"].big50[1] < ours.big50[1]},
	} {
		if !c.ok {
			t.Errorf("does not hold: %s", c.what)
		}
	}
	for name, r := range rows {
		if name != "FCFS, max 10" && (r.last[1] > 1.15*first.last[1]) {
			t.Errorf("%s: all done after %.0f s, FCFS after %.0f s: throughput should be about the same", name, r.last[1], first.last[1])
		}
	}
}
