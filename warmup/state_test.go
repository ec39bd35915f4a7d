package warmup

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// planOf is a plan of one stage that advances by nothing.
func planOf(hourly, daily int64) *Plan {
	p := DefaultPlan()
	p.Stages = []Stage{{Caps: Caps{hourly, daily}}}
	return &p
}

// recount counts what was authorised, on its own: it shares no code with the ledger.
type recount struct {
	at       []Instant
	n        []int64
	provider []int
}

func (r *recount) add(t Instant, provider int, n int64) {
	r.at, r.n, r.provider = append(r.at, t), append(r.n, n), append(r.provider, provider)
}

func (r *recount) sum(from, to Instant, provider int) (sum int64) {
	for i, t := range r.at {
		if t >= from && t < to && (provider < 0 || r.provider[i] == provider) {
			sum += r.n[i]
		}
	}
	return sum
}

// TestW11_CapsHoldForAnyPlanAndTrace checks every hour, day, sliding hour and provider against a
// recount, for random plans and traces with refunds.
func TestW11_CapsHoldForAnyPlanAndTrace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hourly := rapid.Int64Range(1, 3000).Draw(t, "hourly")
		daily := rapid.Int64Range(hourly, 24*hourly).Draw(t, "daily")
		p := planOf(hourly, daily)
		own := Caps{rapid.Int64Range(0, hourly).Draw(t, "own hourly"), 0}
		own.Daily = rapid.Int64Range(own.Hourly, max(own.Hourly, daily)).Draw(t, "own daily")
		if own.Daily == 0 {
			own.Daily = 1
		}
		p.Stages[0].Providers = map[string]Caps{"a": own}
		p.SpreadEven = rapid.Bool().Draw(t, "even")
		if err := p.Check(); err != nil {
			t.Fatal(err)
		}
		begin := Instant(rapid.Int64Range(0, 1e12).Draw(t, "begin"))
		s := NewState(p, begin)
		ps := []int{s.Provider(p, "a"), s.Provider(p, "b")}
		var count recount
		now := begin
		for range rapid.IntRange(50, 400).Draw(t, "steps") {
			now += Instant(rapid.SampledFrom([]int64{1, 900, 20_000, 60_000, 400_000, 3_600_000}).Draw(t, "dt"))
			s.Advance(p, now)
			i := rapid.SampledFrom(ps).Draw(t, "provider")
			want := rapid.Int64Range(1, 2*hourly).Draw(t, "want")
			got := s.Grant(p, i, want, rapid.Int64Range(0, min(want, 20)).Draw(t, "least"))
			if got > 0 && rapid.IntRange(0, 9).Draw(t, "refund") == 0 {
				s.TakeBack(p, i, got, s.Receipt())
				continue
			}
			count.add(now, i, got)
			if rapid.IntRange(0, 19).Draw(t, "multi") == 0 {
				for k, n := range []int64{2, 3} {
					count.add(now, ps[k], s.Grant(p, ps[k], n, n))
				}
			}
		}
		check := func(what string, got, most int64) {
			if got > most {
				t.Fatalf("%s: %d authorised, cap %d", what, got, most)
			}
		}
		for h := begin; h <= now; h += p.hour() {
			check("hour", count.sum(h, h+p.hour(), -1), hourly)
			if own.Hourly > 0 {
				check("hour of a", count.sum(h, h+p.hour(), ps[0]), own.Hourly)
			}
		}
		for d := begin; d <= now; d += p.day() {
			check("day", count.sum(d, d+p.day(), -1), daily)
			check("day of a", count.sum(d, d+p.day(), ps[0]), own.Daily)
		}
		for _, at := range count.at {
			check("sliding hour", count.sum(at-p.hour()+1, at+1, -1), int64(1.10*float64(hourly)))
		}
	})
}

// flowHour has endless demand for two hours and counts each second's grants.
func flowHours(p *Plan) (perSecond []int64) {
	s := NewState(p, 0)
	i := s.Provider(p, Other)
	perSecond = make([]int64, 2*3600)
	for t := range perSecond {
		s.Advance(p, Instant(t)*second)
		s.Offer(p, i, 1000)
		perSecond[t] = s.Grant(p, i, 1000_000, 0)
	}
	return perSecond
}

func sumOf(ns []int64) (s int64) {
	for _, n := range ns {
		s += n
	}
	return s
}

func TestW12_HoursAreFilled(t *testing.T) {
	for _, hourly := range []int64{1, 2, 3, 7, 20, 50, 99, 100, 350, 2000, 100_000, 2_000_000} {
		per := flowHours(planOf(hourly, 24*hourly))
		for h := range 2 {
			sent := sumOf(per[h*3600 : (h+1)*3600])
			short := hourly - sent
			if short < 0 || short > 2 && float64(sent) < .98*float64(hourly) {
				t.Errorf("cap %d: hour %d had %d", hourly, h, sent)
			}
		}
	}
}

func TestW13_NoBurstAndSmooth(t *testing.T) {
	for _, hourly := range []int64{50, 350, 2000, 100_000, 2_000_000} {
		per := flowHours(planOf(hourly, 24*hourly))
		most := func(n int) float64 {
			var best int64
			for i := n; i <= len(per); i++ {
				best = max(best, sumOf(per[i-n:i]))
			}
			return float64(best) / float64(hourly)
		}
		if first := float64(sumOf(per[3600:3610])) / float64(hourly); first > .05 {
			t.Errorf("cap %d: %.1f %% in the first ten seconds of an hour", hourly, 100*first)
		}
		if m := most(300); m > .22 {
			t.Errorf("cap %d: %.1f %% in five minutes", hourly, 100*m)
		}
		if m := most(3600); m > 1.10 {
			t.Errorf("cap %d: %.3f caps in 60 minutes", hourly, m)
		}
	}
}

// TestW13_ManyProvidersTogether: what holds for one provider holds for the sum of many, each of
// which has saved up a bucket of its own.
func TestW13_ManyProvidersTogether(t *testing.T) {
	p := planOf(1000, 24_000)
	s := NewState(p, 0)
	per := make([]int64, 3*3600)
	for at := range per {
		s.Advance(p, Instant(at)*second)
		for k := range 60 {
			i := s.Provider(p, string(rune('A'+k)))
			// Demand comes at once after 40 minutes of silence: in an hour's middle, then at one's begin.
			if silent := at < 2400 || at >= 4800 && at < 7200; silent {
				continue
			}
			s.Offer(p, i, 100)
			per[at] += s.Grant(p, i, 100, 0)
		}
	}
	for h := range 3 {
		if n := sumOf(per[h*3600 : h*3600+10]); n > 50 {
			t.Errorf("%d in the first ten seconds of hour %d, cap 1000", n, h)
		}
	}
	for i := 300; i <= len(per); i++ {
		if n := sumOf(per[i-300 : i]); n > 220 {
			t.Fatalf("%d in the five minutes to %d, cap 1000", n, i)
		}
	}
	if n := sumOf(per[:3600]); n < 600 {
		t.Errorf("%d in the first hour, of which a third had demand", n)
	}
}

// TestW13_HourBeginsWithoutSavings: after an hour of silence the next one begins with one token for all
// providers together, however many of them each have one of their own. Only what flows in comes on top.
func TestW13_HourBeginsWithoutSavings(t *testing.T) {
	const hourly = 1000
	p := planOf(hourly, 24*hourly)
	s := NewState(p, 0)
	for k := range 60 {
		s.Provider(p, string(rune('A'+k)))
	}
	var sent int64
	for at := Instant(3600); at < 3630; at++ {
		s.Advance(p, at*second)
		for i := range s.Providers {
			s.Offer(p, i, 100)
			sent += s.Grant(p, i, 100, 0)
		}
		flow := p.Burst * hourly / 3600 * float64(at-3600)
		if most := 1 + int64(flow); sent > most {
			t.Fatalf("%d in the first %d s of an hour, cap %d: at most %d flowed in", sent, at-3600+1, hourly, most)
		}
	}
	if sent < 8 {
		t.Errorf("only %d in the first half minute", sent)
	}
}

// TestW13_HourBeginsWithoutAProvidersSavings: nor has a provider with a small cap of its own saved
// anything up, where the others' flow would let it.
func TestW13_HourBeginsWithoutAProvidersSavings(t *testing.T) {
	const hourly = 360
	p := planOf(100*hourly, 2400*hourly)
	p.Stages[0].Providers = map[string]Caps{"small": {Hourly: hourly}}
	s := NewState(p, 0)
	i := s.Provider(p, "small")
	var sent int64
	for at := Instant(3600); at < 3610; at++ {
		s.Advance(p, at*second)
		s.Offer(p, i, 100)
		sent += s.Grant(p, i, 100, 0)
	}
	if flow := p.Burst * hourly / 3600 * 10; sent < 1 || sent > 1+int64(flow) {
		t.Errorf("%d in the first 10 s of an hour, cap %d", sent, hourly)
	}
}

// TestSlidingHourGuardsAProvider: a provider's own cap holds over the turn of an hour, though the stage
// has room for much more.
func TestSlidingHourGuardsAProvider(t *testing.T) {
	p := planOf(10_000, 240_000)
	p.BucketSeconds, p.Burst, p.Peak = 3600, 60, 3600
	p.Stages[0].Providers = map[string]Caps{"google": {Hourly: 100}}
	s := NewState(p, 0)
	g := s.Provider(p, "google")
	s.Advance(p, 3_400_000)
	if n := s.Grant(p, g, 100, 0); n != 100 {
		t.Fatalf("%d at the hour's end, want 100", n)
	}
	var next int64
	for at := Instant(3_600_000); at < 4_800_000; at += 1000 {
		s.Advance(p, at)
		next += s.Grant(p, g, 100, 0)
	}
	if next != 10 {
		t.Errorf("%d at the begin of the next hour, want 10: any 60 minutes have at most 110", next)
	}
}

// TestSlidingHourGuards has a plan in which an hour's cap could leave at its end and the next
// one's at its begin: without the guard that would be two caps in 60 minutes.
func TestSlidingHourGuards(t *testing.T) {
	p := planOf(1000, 24_000)
	p.BucketSeconds, p.Burst, p.Peak = 3600, 60, 3600
	s := NewState(p, 0)
	i := s.Provider(p, Other)
	s.Advance(p, 3_400_000) // nobody sent for most of the hour
	first := s.Grant(p, i, 5000, 0)
	var second_ int64
	for at := Instant(3_600_000); at < 4_800_000; at += 1000 {
		s.Advance(p, at)
		second_ += s.Grant(p, i, 5000, 0)
	}
	if first != 1000 || second_ != 100 {
		t.Errorf("%d at the end of one hour and %d at the begin of the next, want 1000 and 100", first, second_)
	}
	// The bucket of 3,400 s leaves the sliding hour 62 minutes later, not before 61 have passed.
	s.Advance(p, 7_060_000)
	if n := s.Grant(p, i, 5000, 0); n != 0 {
		t.Errorf("%d within 60 minutes of the first thousand", n)
	}
	s.Advance(p, 7_085_000)
	if n := s.Grant(p, i, 5000, 0); n != 900 {
		t.Errorf("%d when the first thousand was over an hour ago, want the 900 that the hour has left", n)
	}
}

func TestRefundsCountOnlyInTheirWindow(t *testing.T) {
	p := planOf(1000, 2000)
	s := NewState(p, 0)
	i := s.Provider(p, Other)
	s.Advance(p, 600_000)
	n := s.Grant(p, i, 20, 0)
	r := s.Receipt()
	s.TakeBack(p, i, n, r)
	if s.Total.Hour != 0 || s.Total.Day != 0 || s.Total.Sliding != 0 || s.Providers[i].Count.Hour != 0 {
		t.Errorf("after a refund in the same minute: %+v", s.Total)
	}
	n = s.Grant(p, i, 20, 0)
	r = s.Receipt()
	s.TakeBack(p, i, n, r)
	s.Advance(p, 660_000)
	s.TakeBack(p, i, 0, r)
	if s.Total.Hour != 0 || s.Total.Sliding != 0 {
		t.Errorf("tokens that come back: hour %d, sliding %d; want 0 and 0", s.Total.Hour, s.Total.Sliding)
	}
	n = s.Grant(p, i, 20, 0)
	r = s.Receipt()
	s.Advance(p, 3_700_000)
	used := s.Grant(p, i, 1, 0)
	s.TakeBack(p, i, n, r)
	if s.Total.Hour != used {
		t.Errorf("an earlier hour's refund changed this one's count to %d", s.Total.Hour)
	}
	if s.Total.Day != used {
		t.Errorf("the day, which is the same, has %d, want %d", s.Total.Day, used)
	}
	s.Advance(p, 25*3_600_000)
	before := s.Total
	s.TakeBack(p, i, n, r)
	if s.Total != before {
		t.Errorf("a refund of another day changed %+v to %+v", before, s.Total)
	}
}

func TestW20_AllRecipientsOrNone(t *testing.T) {
	p := planOf(1000, 9)
	p.Stages[0].Hourly = 9
	s := NewState(p, 0)
	i := s.Provider(p, "google")
	s.Advance(p, 1_000_000)
	if n := s.Grant(p, i, 10, 10); n != 0 {
		t.Errorf("10 recipients with 9 left got %d", n)
	}
	if s.Total.Hour != 0 || s.Providers[i].Count.Hour != 0 {
		t.Errorf("a refused message was counted: %+v", s.Total)
	}
	if s.Grant(p, i, 9, 9) != 9 {
		t.Error("9 recipients with 9 left were refused")
	}
	if s.Total.Hour != 9 || s.Providers[i].Count.Hour != 9 {
		t.Errorf("counted %+v", s.Total)
	}
}

// A message larger than the bucket leaves when the bucket is full; else it would wait for ever.
func TestLargeMessageAtASmallCap(t *testing.T) {
	p := planOf(50, 400)
	s := NewState(p, 0)
	i := s.Provider(p, Other)
	got := Instant(-1)
	for at := Instant(0); at < 3_500_000; at += 1000 {
		s.Advance(p, at)
		if n := s.Grant(p, i, 10, 10); n == 10 {
			got = at
			break
		} else if n != 0 {
			t.Fatalf("10 recipients got %d", n)
		}
	}
	if got < 0 {
		t.Fatal("10 recipients never left under a cap of 50 an hour")
	}
	s.Advance(p, got+60_000)
	if n := s.Grant(p, i, 1, 1); n != 0 {
		t.Error("the flow did not pause for what was taken ahead")
	}
}

func TestW15_ProvidersShareFairly(t *testing.T) {
	p := planOf(3600, 86_400)
	p.Weights = map[string]float64{"google": 3, "small": 1}
	p.Stages[0].Providers = map[string]Caps{"yahoo": {360, 8640}}
	s := NewState(p, 0)
	names := []string{"google", "yahoo", "small", "quiet"}
	sent := make(map[string]int64)
	for at := Instant(0); at < 3_600_000; at += second {
		s.Advance(p, at)
		for k, name := range names {
			i := s.Provider(p, name)
			want := int64(10) // ten times what there is
			if k == 3 {
				want = ifInt(at%100_000 == 0, 1, 0) // 36 an hour, all of which should go
			}
			s.Offer(p, i, want)
			if want > 0 {
				sent[name] += s.Grant(p, i, want, 0)
			}
		}
	}
	total := sent["google"] + sent["yahoo"] + sent["small"] + sent["quiet"]
	if total > 3600 || total < 3528 {
		t.Errorf("%d in all, cap 3600: %v", total, sent)
	}
	if sent["yahoo"] > 360 || sent["yahoo"] < 350 {
		t.Errorf("yahoo has %d, its own cap is 360", sent["yahoo"])
	}
	if sent["quiet"] < 32 {
		t.Errorf("quiet wanted 36 of its share of hundreds and got %d", sent["quiet"])
	}
	if r := float64(sent["google"]) / float64(sent["small"]); math.Abs(r-3) > .3 {
		t.Errorf("google and small have weights 3 and 1 and got %d and %d", sent["google"], sent["small"])
	}
}

func ifInt(c bool, a, b int64) int64 {
	if c {
		return a
	}
	return b
}

func TestWaterFill(t *testing.T) {
	for _, c := range []struct {
		amount                 float64
		weights, limits, share []float64
		rest                   float64
	}{
		{10, []float64{1, 1}, []float64{100, 100}, []float64{5, 5}, 0},
		{10, []float64{3, 1}, []float64{100, 100}, []float64{7.5, 2.5}, 0},
		{10, []float64{1, 1, 1}, []float64{1, 100, 3}, []float64{1, 6, 3}, 0},
		{10, []float64{1, 1}, []float64{2, 3}, []float64{2, 3}, 5},
		{10, []float64{1, 9}, []float64{0, 4}, []float64{0, 4}, 6},
		{0, []float64{1}, []float64{4}, []float64{0}, 0},
	} {
		share := make([]float64, len(c.weights))
		rest := waterFill(c.amount, c.weights, c.limits, share)
		if fmt.Sprintf("%.6f", share) != fmt.Sprintf("%.6f", c.share) || math.Abs(rest-c.rest) > 1e-6 {
			t.Errorf("%v among %v up to %v: %v and %v left, want %v and %v", c.amount, c.weights, c.limits, share, rest, c.share, c.rest)
		}
	}
}

func TestSpreadEven(t *testing.T) {
	p := planOf(1000, 2400) // greedy: the day is used up after 2.4 hours
	p.SpreadEven = true
	s := NewState(p, 0)
	i := s.Provider(p, Other)
	var perHour [24]int64
	for at := Instant(0); at < 86_400_000; at += second {
		s.Advance(p, at)
		perHour[at/3_600_000] += s.Grant(p, i, 1000, 0)
	}
	if perHour[0] > 150 || perHour[12] == 0 || sumOf(perHour[:]) > 2400 || sumOf(perHour[:]) < 2300 {
		t.Errorf("hours: %v", perHour)
	}
}

func TestStateSurvivesItsStoredForm(t *testing.T) {
	p, _ := Preset("standard")
	p.Health.MinSample = 0
	s := NewState(p, 12345)
	i, j := s.Provider(p, "google"), s.Provider(p, "yahoo")
	for at := Instant(12345); at < 4*86_400_000+60_000; at += 37_000 {
		s.Advance(p, at)
		s.Offer(p, i, 3)
		s.Grant(p, i, 3, 0)
		s.Grant(p, j, 1, 0)
		x := Outcomes{}
		x.Add(Delivered)
		x.Add(PolicyRefusal)
		s.Report(p, j, x)
	}
	var back State
	b := s.Append(nil)
	if err := back.Decode(b); err != nil {
		t.Fatal(err)
	}
	if again := back.Append(nil); !bytes.Equal(b, again) {
		t.Error("decoding and encoding changed the state")
	}
	if len(back.History) != 4 || back.Stage != 4 || len(back.Providers) != 2 {
		t.Errorf("stage %d, %d days, %d providers", back.Stage, len(back.History), len(back.Providers))
	}
	// It goes on as the one that was kept.
	s.Advance(p, 4*86_400_000+95_000)
	back.Advance(p, 4*86_400_000+95_000)
	if !bytes.Equal(s.Append(nil), back.Append(nil)) {
		t.Error("the restored state went on differently")
	}
	for n := range b {
		if back.Decode(b[:n]) == nil {
			t.Fatalf("the first %d of %d bytes passed for a state", n, len(b))
		}
	}
}

func FuzzDecodeState(f *testing.F) {
	p := planOf(50, 350)
	s := NewState(p, 0)
	s.Provider(p, "google")
	s.Advance(p, 1_000_000)
	s.Grant(p, 0, 3, 0)
	f.Add(s.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s State
		if s.Decode(b) != nil {
			return
		}
		var again State
		if err := again.Decode(s.Append(nil)); err != nil {
			t.Fatalf("a state that was read could not be read again: %v", err)
		}
	})
}

// Nothing is granted in the last seconds of an hour: mail in flight then would count in the next.
func TestNothingIsGrantedInTheLastSecondsOfAnHour(t *testing.T) {
	p := planOf(3600, 86400)
	s := NewState(p, 0)
	i := s.Provider(p, "a")
	closes := s.hourEnd(p) - p.closing()
	for now := Instant(0); now < closes; now += second {
		s.Advance(p, now)
	}
	if s.Advance(p, closes-1); s.Grant(p, i, 1, 0) != 1 {
		t.Error("nothing was granted just before")
	}
	if s.Advance(p, closes); s.Grant(p, i, 1, 0) != 0 {
		t.Error("a token was granted in the last seconds")
	}
}
