package simulate

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"example.org/mta/warmup"
)

func parse(t *testing.T, plan string) *warmup.Plan {
	t.Helper()
	p, err := warmup.ParsePlan(strings.NewReader(plan))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// steadily offers n messages every step seconds until end.
func steadily(provider string, n float64, step, end int64) (trace []Event) {
	for t := int64(0); t < end; t += step {
		trace = append(trace, Event{T: t, Kind: Offer, Provider: provider, Value: n})
	}
	return append(trace, Event{T: end, Kind: End})
}

// simulate gives the rows of a simulation, and as text.
func simulate(t *testing.T, p *warmup.Plan, trace []Event, opt Options) (rows []Row, text string) {
	t.Helper()
	rows, _ = simulated(t, p, trace, opt)
	var b strings.Builder
	for i := range rows {
		fmt.Fprintln(&b, &rows[i])
	}
	return rows, b.String()
}

func simulated(t *testing.T, p *warmup.Plan, trace []Event, opt Options) (rows []Row, h *History) {
	t.Helper()
	h, err := Run(p, trace, opt, func(r *Row) { rows = append(rows, *r) })
	if err != nil {
		t.Fatal(err)
	}
	return rows, h
}

// merge puts traces together in the order of time.
func merge(traces ...[]Event) (out []Event) {
	for len(traces) > 0 {
		first := -1
		for i := range traces {
			if len(traces[i]) > 0 && (first < 0 || traces[i][0].T < traces[first][0].T) {
				first = i
			}
		}
		if first < 0 {
			break
		}
		out = append(out, traces[first][0])
		traces[first] = traces[first][1:]
	}
	return out
}

// TestW9_ActualTracksDesired runs the standard plan for its 14 days with enough demand and
// recounts each day from the rows.
func TestW9_ActualTracksDesired(t *testing.T) {
	p, err := warmup.Preset("standard")
	if err != nil {
		t.Fatal(err)
	}
	var trace []Event
	for day, s := range p.Stages {
		for at := int64(0); at < 86_400; at += 20 {
			trace = append(trace, Event{T: int64(day)*86_400 + at, Kind: Offer, Value: float64(s.Daily/4320*3 + 1)})
		}
	}
	start := time.Now()
	rows, _ := simulate(t, p, trace, Options{Interval: 3600})
	t.Logf("14 days in %v: %v", time.Since(start), summarize(rows))
	sent := make([]int64, 14)
	for _, r := range rows {
		day := r.T / 86_400
		if r.Stage != day+1 {
			t.Fatalf("day %d is on stage %d", day+1, r.Stage)
		}
		sent[day] += r.Sent
	}
	for day, s := range p.Stages {
		if sent[day] > s.Daily || float64(sent[day]) < .98*float64(s.Daily) {
			t.Errorf("day %d: %d sent, desired %d", day+1, sent[day], s.Daily)
		}
	}
	if s := summarize(rows); s.OverHour > 0 || s.OverDay > 0 {
		t.Error(s)
	}
}

// TestW10_BadMailDoesNotWarmUp sends the same volume with 8 % hard bounces.
func TestW10_BadMailDoesNotWarmUp(t *testing.T) {
	p, err := warmup.Preset("standard")
	if err != nil {
		t.Fatal(err)
	}
	trace := append([]Event{{Kind: Bounce, Value: .08}}, steadily("", 4, 20, 4*86_400)...)
	rows, _ := simulate(t, p, trace, Options{Interval: 3600})
	if last := rows[len(rows)-1]; last.Stage != 1 {
		t.Errorf("8 %% bounces reached stage %d", last.Stage)
	}
	good, _ := simulate(t, p, trace[1:], Options{Interval: 3600})
	if last := good[len(good)-1]; last.Stage != 4 {
		t.Errorf("the same without bounces is on stage %d, so the test shows nothing", last.Stage)
	}
}

func TestW15_ProviderCapsInTheSimulator(t *testing.T) {
	p := parse(t, `{"version":1,"weights":{"google":2,"small":1},"stages":[{"hourly":1000,"daily":9000,"providers":{"yahoo":{"hourly":100,"daily":500}}}]}`)
	rows, text := simulate(t, p, steadily("", 30, 10, 2*3600), Options{Interval: 600})
	sent := make(map[string][2]int64)
	for _, r := range rows {
		n := sent[r.Provider]
		n[r.T/3600] += r.Sent
		sent[r.Provider] = n
	}
	for h := range 2 {
		if n := sent["yahoo"][h]; n > 100 || n < 98 {
			t.Errorf("yahoo: %d in hour %d, cap 100", n, h)
		}
		if n := sent["google"][h] + sent["yahoo"][h] + sent["small"][h]; n > 1000 || n < 980 {
			t.Errorf("%d in hour %d, cap 1000", n, h)
		}
	}
	if !strings.Contains(text, ",yahoo,normal,100,500,") {
		t.Error("yahoo's rows don't have its caps")
	}
}

func TestW16_BlockInTheSimulator(t *testing.T) {
	p := parse(t, `{"version":1,"stages":[{"hourly":1000,"daily":9000}]}`)
	trace := merge(steadily("google", 10, 10, 3*3600), []Event{{T: 1000, Kind: Block, Provider: "google", Value: 1}, {T: 4000, Kind: Block, Provider: "google", Value: 0}})
	rows, _ := simulate(t, p, trace, Options{Interval: 60})
	paused, refused, after := 0, int64(0), int64(0)
	for _, r := range rows {
		if r.State == "paused" {
			paused++
			if r.Sent > 20 {
				t.Errorf("%d sent at %d, while paused", r.Sent, r.T)
			}
		}
		refused += r.Deferred
		if r.T > 6000 {
			after += r.Sent
		}
	}
	// Blocked at 1,000 s: pauses of 15, 30 and 60 minutes, of which the last outlives the block.
	if paused < 100 || paused > 110 || refused > 40 || after < 900 {
		t.Errorf("%d minutes paused, %d refused, %d sent afterwards", paused, refused, after)
	}
}

func TestW17_OutageInTheSimulator(t *testing.T) {
	p := parse(t, `{"version":1,"stages":[{"hourly":3600,"daily":86400}]}`)
	trace := merge([]Event{{Kind: Nodes, Value: 3}}, steadily("", 20, 10, 7200),
		[]Event{{T: 1000, Kind: StoreState, Value: 0}, {T: 2000, Kind: StoreState, Value: 1}, {T: 5000, Kind: Crash, Value: 2}})
	rows, _ := simulate(t, p, trace, Options{Interval: 10})
	down := int64(0)
	for _, r := range rows {
		if r.T >= 1000 && r.T < 2000 {
			if r.State != "store_down" {
				t.Fatalf("state at %d is %s", r.T, r.State)
			}
			down += r.Sent
		}
	}
	if down > 60 {
		t.Errorf("%d sent without store", down)
	}
	s := summarize(rows)
	if s.OverHour > 0 || s.Sent+s.Diverted != s.Offered || s.Sent < 3000 {
		t.Error(s)
	}
}

func TestW18_HoldInTheSimulator(t *testing.T) {
	p := parse(t, `{"version":1,"overflow":"hold","stages":[{"hourly":600,"daily":9000}]}`)
	trace := []Event{{Kind: Nodes, Value: 4}, {T: 0, Kind: Offer, Value: 1500}, {T: 2000, Kind: Crash, Value: 4}, {T: 4 * 3600, Kind: End}}
	rows, _ := simulate(t, p, trace, Options{Interval: 300})
	s := summarize(rows)
	if s.Sent != 1500 || s.Waiting != 0 || s.Diverted != 0 || s.OverHour > 0 {
		t.Error(s)
	}
	for _, r := range rows {
		if r.T < 2*3600 && (r.Sent < 20 || r.Sent > 130) {
			t.Errorf("%d sent in the five minutes from %d, want about 50", r.Sent, r.T)
		}
	}
}

func TestSameSeedSameBytes(t *testing.T) {
	p, err := warmup.Preset("standard")
	if err != nil {
		t.Fatal(err)
	}
	trace := merge([]Event{{Kind: Nodes, Value: 7}, {Kind: Bounce, Value: .01}, {Kind: Defer, Value: .1}, {Kind: Complain, Value: .002}}, steadily("", 3, 10, 8*3600))
	for _, pacing := range []Pacing{Ledger, PID, BarePID, OnOff} {
		_, a := simulate(t, p, trace, Options{Seed: 5, Pacing: pacing})
		_, b := simulate(t, p, trace, Options{Seed: 5, Pacing: pacing})
		_, c := simulate(t, p, trace, Options{Seed: 6, Pacing: pacing})
		if a != b {
			t.Errorf("%v: the same seed gave other bytes", pacing)
		}
		if a == c {
			t.Errorf("%v: another seed gave the same bytes", pacing)
		}
	}
}

// TestADayOfAMillion is a day at a million messages, hour by hour.
func TestADayOfAMillion(t *testing.T) {
	p := parse(t, `{"version":1,"stages":[{"hourly":60000,"daily":800000}]}`)
	trace := []Event{{Kind: Nodes, Value: 3}}
	for s := int64(0); s < 86_400; s += 5 {
		trace = append(trace, Event{T: s, Kind: Offer, Value: 58})
	}
	start := time.Now()
	rows, _ := simulate(t, p, trace, Options{})
	took, s := time.Since(start), summarize(rows)
	t.Logf("%v: %v", took, s)
	if s.OverHour > 0 || s.OverDay > 0 || s.Sent+s.Diverted != s.Offered || s.Sent < 780_000 {
		t.Error(s)
	}
	if took > time.Minute {
		t.Errorf("it took %v", took)
	}
}

func TestBadInputIsOneClearLine(t *testing.T) {
	for _, c := range []struct{ trace, want string }{
		{"", "trace: it is empty"},
		{"t,event\n", `trace, line 1: the header must be "t,event,provider,value"`},
		{"t,event,provider,value\n1,offer,*\n", "trace, line 2: 3 fields, want 4: t,event,provider,value"},
		{"t,event,provider,value\n1.5,offer,*,3\n", `trace, line 2: t is "1.5", want whole seconds from 0`},
		{"t,event,provider,value\n-1,offer,*,3\n", `trace, line 2: t is "-1", want whole seconds from 0`},
		{"t,event,provider,value\n5,offer,*,3\n4,offer,*,3\n", "trace, line 3: t goes back from 5 to 4: sort by time"},
		{"t,event,provider,value\n5,ofer,*,3\n", `trace, line 2: event "ofer" is not known`},
		{"t,event,provider,value\n5,offer,*,x\n", `trace, line 2: value is "x", want a number`},
		{"t,event,provider,value\n5,offer,*,2.5\n", "trace, line 2: value of offer is 2.5, want a whole number"},
		{"t,event,provider,value\n5,bounce,*,2\n", "trace, line 2: value of bounce is 2, outside 0 to 1"},
		{"t,event,provider,value\n5,nodes,*,0\n", "trace, line 2: value of nodes is 0, outside 1 to 1000"},
		{"t,event,provider,value\n5,offer,*,NaN\n", "trace, line 2: value of offer is NaN, outside 0 to 1e+09"},
	} {
		_, err := ParseTrace(strings.NewReader(c.trace))
		if err == nil || err.Error() != c.want || !IsInputError(err) {
			t.Errorf("%q: %v\nwant %s", c.trace, err, c.want)
		}
	}
	events, err := ParseTrace(strings.NewReader("t,event,provider,value\r\n0,offer,*,3\r\n\n9,offer,google,4\n10,end,,\n"))
	if err != nil || len(events) != 3 || events[0].Provider != "" || events[1].Provider != "google" {
		t.Errorf("a good trace: %+v, %v", events, err)
	}
	var in *InputError
	if _, err := Run(&warmup.Plan{}, nil, Options{}, nil); !errors.As(err, &in) || in.What != "plan" {
		t.Errorf("a bad plan: %v", err)
	}
}

func TestPlotIsXML(t *testing.T) {
	p := parse(t, `{"version":1,"stages":[{"hourly":100,"daily":900}]}`)
	rows, _ := simulate(t, p, steadily("<&>", 3, 10, 7200), Options{})
	var b bytes.Buffer
	if err := Plot(&Picture{Title: "a < b & c", Rows: rows, Interval: 10}, &b); err != nil {
		t.Fatal(err)
	}
	lines := 0
	for d := xml.NewDecoder(&b); ; {
		tok, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := tok.(xml.StartElement); ok && s.Name.Local == "polyline" {
			lines++
		}
	}
	if lines != 4 {
		t.Errorf("%d lines, want desired, sent, diverted, held", lines)
	}
}

// TestPicturesOfTheDocs has the simulator draw what docs/warmup.md shows. MTA_UPDATE=1 draws anew.
func TestPicturesOfTheDocs(t *testing.T) {
	p := parse(t, `{"version":1,"stages":[{"hourly":350,"daily":8400}],"health":{"min_sample":0}}`)
	trace := merge([]Event{{Kind: Nodes, Value: 3}, {Kind: Lag, Value: 30}}, steadily("", 10, 10, 4*3600))
	for _, pacing := range []Pacing{Ledger, PID, BarePID, OnOff} {
		rows, _ := simulate(t, p, trace, Options{Seed: 1, Interval: 60, Pacing: pacing})
		t.Logf("%v: %v", pacing, summarize(rows))
		var b bytes.Buffer
		if err := Plot(&Picture{Title: "350 an hour, ten times the demand, 3 nodes, statistics 30 s late: pacing " + string(pacing), Rows: rows, Interval: 60}, &b); err != nil {
			t.Fatal(err)
		}
		name := "../../docs/warmup-" + string(pacing) + ".svg"
		if os.Getenv("MTA_UPDATE") != "" {
			if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(name); err != nil || !bytes.Equal(want, b.Bytes()) {
			t.Errorf("%s is not what the simulator draws (%v): run with MTA_UPDATE=1 and look at it", name, err)
		}
	}
}

func FuzzParseTrace(f *testing.F) {
	f.Add("t,event,provider,value\n0,offer,*,3\n5,block,google,1\n10,end,,\n")
	f.Fuzz(func(t *testing.T, text string) {
		events, err := ParseTrace(strings.NewReader(text))
		if err != nil && !IsInputError(err) && !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "token too long") {
			t.Fatal(err)
		}
		for i := 1; i < len(events); i++ {
			if events[i].T < events[i-1].T {
				t.Fatal("out of order")
			}
		}
	})
}
