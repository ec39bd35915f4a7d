package overload

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/mta/admission"
)

// experiment is the published one: two nodes of 26 slots that serve 1,300 a second together.
const experiment = `t,event,value
0,nodes,2
0,slots,26
0,capacity,1300
0,mix,1:25,2:25,3:25,4:25
0,rps,1000
60,rps,3000
120,rps,6500
180,rps,1000
240,rps,1850
300,end,
`

// short is one node, and a minute.
const short = `t,event,value
0,slots,26
0,capacity,650
0,mix,1:25,2:25,3:25,4:25
0,rps,500
20,rps,1500
60,end,
`

func run(t testing.TB, trace string, opts Options) []Row {
	t.Helper()
	events, err := ParseTrace(strings.NewReader(trace))
	if err != nil {
		t.Fatal(err)
	}
	var rows []Row
	if opts.Timeout == 0 {
		opts.Timeout = 500 * time.Millisecond
	}
	if err := Run(events, opts, func(r *Row) error { rows = append(rows, *r); return nil }); err != nil {
		t.Fatal(err)
	}
	return rows
}

// ratios are those of the rows from one time to another, sorted.
func between(rows []Row, from, to float64) (ratios []float64, goodput float64) {
	n := 0.
	for _, r := range rows {
		if r.T > from && r.T <= to {
			ratios = append(ratios, r.Ratio())
			goodput += r.Goodput()
			n++
		}
	}
	slices.Sort(ratios)
	return ratios, goodput / n
}

func quantile(sorted []float64, q float64) float64 { return sorted[int(q*float64(len(sorted)-1))] }

// step is a part of a trace with a steady load.
type step struct{ from, to, ideal float64 }

// look measures a step, from 5 s after its begin.
func look(rows []Row, s step) (mean, span, goodput float64) {
	ratios, goodput := between(rows, s.from+5, s.to)
	for _, r := range ratios {
		mean += r / float64(len(ratios))
	}
	return mean, quantile(ratios, .95) - quantile(ratios, .05), goodput
}

func utilisation() admission.Law { return new(admission.Utilisation) }

func TestA8_A14_PublishedExperiment(t *testing.T) {
	for seed := range uint64(2) {
		rows := run(t, experiment, Options{Seed: seed, Law: utilisation})
		for _, s := range []step{{0, 60, 0}, {60, 120, 1 - 1300./3000}, {120, 180, .8}, {180, 240, 0}, {240, 300, 1 - 1300./1850}} {
			mean, span, goodput := look(rows, s)
			if math.Abs(mean-s.ideal) > .02 {
				t.Errorf("seed %d, from %.0f s: %.3f refused, want %.3f", seed, s.from, mean, s.ideal)
			}
			if span > .06 && s.from < 240 || span > .09 { // of 1,850/s chance alone spans 5 points
				t.Errorf("seed %d, from %.0f s: the ratio spans %.3f", seed, s.from, span)
			}
			if goodput < .97 {
				t.Errorf("seed %d, from %.0f s: goodput %.3f", seed, s.from, goodput)
			}
			settled, _ := between(rows, s.from+4, s.from+6)
			if m := quantile(settled, .5); math.Abs(m-s.ideal) > .05 {
				t.Errorf("seed %d: 5 s after %.0f s the ratio is %.3f, want %.3f", seed, s.from, m, s.ideal)
			}
		}
	}
}

func TestA7_GoodputAndTheLineInOverload(t *testing.T) {
	for _, factor := range []float64{1.4, 2, 3, 5} {
		trace := `t,event,value
0,nodes,2
0,slots,26
0,capacity,1300
0,rps,` + num(1300*factor) + `
40,end,
`
		rows := run(t, trace, Options{Law: utilisation})
		_, _, goodput := look(rows, step{0, 40, 0})
		late, admitted := 0, 0
		for _, r := range rows[10:] {
			late += r.TimedOut
			admitted += r.Admitted
		}
		if goodput < .95 || float64(late) > .12*float64(admitted) {
			t.Errorf("%.1f times the capacity: goodput %.3f, %d of %d timed out", factor, goodput, late, admitted)
		}
	}
}

func TestA9_A10_FewAndMany(t *testing.T) {
	for _, test := range []struct {
		name, trace string
		step
		off, span float64
	}{
		{"10/s, ten times that offered", "0,slots,2\n0,capacity,10\n0,rps,100\n200,end,", step{0, 200, .9}, .03, .30},
		{"10/s on 20 slots", "0,slots,20\n0,capacity,10\n0,rps,100\n200,end,", step{0, 200, .9}, .03, .30},
		{"10/s, twice that", "0,slots,2\n0,capacity,10\n0,rps,20\n400,end,", step{0, 400, .5}, .07, .60}, // ten in a period
		{"4,000/s, 2.5 times that", "0,slots,26\n0,capacity,4000\n0,rps,10000\n30,end,", step{0, 30, .6}, .02, .04},
		{"4,000/s, five times that", "0,slots,26\n0,capacity,4000\n0,rps,20000\n20,end,", step{0, 20, .8}, .02, .03},
	} {
		mean, span, _ := look(run(t, "t,event,value\n"+test.trace+"\n", Options{Seed: 1, Law: utilisation, Timeout: 2 * time.Second}), test.step)
		if math.Abs(mean-test.ideal) > test.off || span > test.span {
			t.Errorf("%s: %.3f refused, a span of %.3f; want %.2f within %.2f, and %.2f", test.name, mean, span, test.ideal, test.off, test.span)
		}
	}
}

func TestA6_TiersUnderTwiceTheLoad(t *testing.T) {
	rows := run(t, `t,event,value
0,nodes,2
0,slots,26
0,capacity,1300
0,mix,0:10,3:60,4:30
0,rps,2600
60,end,
`, Options{Law: utilisation})
	var all Row
	for _, r := range rows[10:] {
		for i := range r.Tiers {
			all.Tiers[i].Offered += r.Tiers[i].Offered
			all.Tiers[i].Rejected += r.Tiers[i].Rejected
			all.Tiers[i].TimedOut += r.Tiers[i].TimedOut
		}
	}
	if r := all.Tiers[0].Ratio(); r > .005 {
		t.Errorf("%.4f of tier 0 refused, which alone would fit", r)
	}
	if r := all.Tiers[4].Ratio(); r < .97 {
		t.Errorf("%.4f of tier 4 refused, the last", r)
	}
}

func TestA15_OneTenantAtOneTier(t *testing.T) {
	for _, test := range []struct{ factor, ideal float64 }{{2.3, 1 - 1/2.3}, {5, .8}} {
		rows := run(t, `t,event,value
0,nodes,2
0,slots,26
0,capacity,1300
0,mix,3:1
0,tenants,1
0,rps,`+num(1300*test.factor)+`
60,end,
`, Options{Law: utilisation})
		mean, _, goodput := look(rows, step{0, 60, 0})
		if math.Abs(mean-test.ideal) > .05 || goodput < .95 {
			t.Errorf("at %.1f times the capacity: %.3f of the only tenant's mail refused, want %.3f; goodput %.3f", test.factor, mean, test.ideal, goodput)
		}
	}
}

func TestACapacityThatHalves(t *testing.T) {
	rows := run(t, `t,event,value
0,nodes,2
0,slots,26
0,capacity,1300
0,rps,2600
40,capacity,650
80,capacity,1300
120,end,
`, Options{Law: utilisation})
	for _, s := range []step{{0, 40, .5}, {40, 80, .75}, {80, 120, .5}} {
		if mean, _, goodput := look(rows, s); math.Abs(mean-s.ideal) > .03 || goodput < .95 {
			t.Errorf("from %.0f s: %.3f refused, want %.2f; goodput %.3f", s.from, mean, s.ideal, goodput)
		}
	}
}

// TestTheTunerInAPlant lets the tuner find the limit where the law sheds the rest.
func TestTheTunerInAPlant(t *testing.T) {
	rows := run(t, `t,event,value
0,slots,64
0,capacity,1300
0,rps,4000
400,end,
`, Options{Law: utilisation, Tune: true})
	_, _, goodput := look(rows[200:], step{100, 400, 0})
	mean := 0.
	for _, r := range rows[200:] {
		mean += r.Limit / float64(len(rows)-200)
	}
	if mean < 32 || mean > 83 || goodput < .85 {
		t.Errorf("the limit is %.0f on average where the machine has 64 hands; goodput %.3f", mean, goodput)
	}
}

func TestThePublishedLawFlips(t *testing.T) {
	high, _, _ := strings.Cut(experiment, "120,rps")
	rows := run(t, high+"120,end,\n", Options{Law: func() admission.Law { return admission.Published() }})
	_, span, goodput := look(rows, step{60, 120, 0})
	if span < .2 || goodput > .9 {
		t.Errorf("it spans %.2f at a goodput of %.2f: the docs claim that it is unstable", span, goodput)
	}
}

func TestSameSeedSameBytes(t *testing.T) {
	out := func(seed uint64) string {
		var b strings.Builder
		c := NewCSV(&b, true)
		for _, r := range run(t, short, Options{Seed: seed, Law: utilisation}) {
			if err := c.Write(&r); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	a := out(1)
	if a != out(1) {
		t.Error("the same seed gave other rows")
	}
	if a == out(2) {
		t.Error("another seed gave the same rows")
	}
	if head, _, _ := strings.Cut(a, "\n"); head != "t,offered,admitted,served,rejected,timed_out,ratio,threshold,goodput,tier0,tier1,tier2,tier3,tier4,tier5" {
		t.Errorf("header %s", head)
	}
	if n := strings.Count(a, "\n"); n != 121 {
		t.Errorf("%d lines for 60 s", n)
	}
}

// TestRowsAreWhatHappened recounts: whatever is offered ends in one way.
func TestRowsAreWhatHappened(t *testing.T) {
	var all Counts
	for _, r := range run(t, short, Options{Law: utilisation}) {
		all.Offered += r.Offered
		all.Admitted += r.Admitted
		all.Rejected += r.Rejected
		all.Served += r.Served
		all.TimedOut += r.TimedOut
	}
	if all.Offered != all.Admitted+all.Rejected {
		t.Errorf("%d offered, %d admitted, %d rejected", all.Offered, all.Admitted, all.Rejected)
	}
	if open := all.Admitted - all.Served - all.TimedOut; open < 0 || open > 26*4 {
		t.Errorf("%d admitted, %d served, %d timed out: %d at the end", all.Admitted, all.Served, all.TimedOut, open)
	}
}

func TestBadTraces(t *testing.T) {
	for trace, want := range map[string]string{
		"":                               "trace: it is empty",
		"t,event,value\n":                "trace: it has no events",
		"time,event,value\n":             `trace, line 1: the header must be "t,event,value"`,
		"t,event,value\n0,rps":           "trace, line 2: 2 fields, want 3: t,event,value",
		"t,event,value\nx,rps,1":         `trace, line 2: t is "x", want seconds from 0 to 604800`,
		"t,event,value\n0,rps,-1":        `trace, line 2: value of rps is "-1", want a number from 0 to 1e+06`,
		"t,event,value\n0,rps,NaN":       `trace, line 2: value of rps is "NaN", want a number from 0 to 1e+06`,
		"t,event,value\n0,load,1":        `trace, line 2: event "load" is not known; there are rps, capacity, slots, nodes, mix, tenants and end`,
		"t,event,value\n0,mix,9:1":       `trace, line 2: mix has "9:1", want TIER:SHARE as in 0:10,3:60,4:30`,
		"t,event,value\n0,mix,3:0":       "trace, line 2: shares of mix are all 0",
		"t,event,value\n5,rps,1\n4,end,": "trace, line 3: t goes back from 5 to 4: sort by time",
		"t,event,value\n0,rps,1\n":       `trace: the last event must be "end"`,
		"t,event,value\n0,rps,1\n1,end,": `trace: no event sets "capacity"`,
	} {
		if _, err := ParseTrace(strings.NewReader(trace)); err == nil || err.Error() != want {
			t.Errorf("%q: %v; want %s", trace, err, want)
		}
	}
}

func FuzzParseTrace(f *testing.F) {
	f.Add(experiment)
	f.Add("t,event,value\n1e300,mix,0:NaN\n")
	f.Fuzz(func(t *testing.T, text string) {
		events, err := ParseTrace(strings.NewReader(text))
		if input := (*InputError)(nil); err != nil && !errors.As(err, &input) {
			t.Fatal(err)
		}
		for i := 1; i < len(events); i++ {
			if events[i].T < events[i-1].T {
				t.Fatal("out of order")
			}
		}
	})
}

func num(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
