package warmup

import "testing"

// TestAProvidersShareOfAPreset: a provider has its share of every stage, unless the stage has caps for
// it, and a day's grants stop there.
func TestAProvidersShareOfAPreset(t *testing.T) {
	p, err := Preset("standard")
	if err != nil {
		t.Fatal(err)
	}
	p.Shares = map[string]float64{"google": .4}
	p.Stages[2].Providers = map[string]Caps{"google": {Daily: 100}}
	for stage, want := range map[int]Caps{0: {13, 100}, 1: {20, 160}, 2: {32, 100}, 13: {5630, 45036}} {
		if got := p.own(stage, "google"); got != want {
			t.Errorf("stage %d: %v, want %v", stage+1, got, want)
		}
	}
	if got := p.own(0, "yahoo"); got != (Caps{}) {
		t.Errorf("yahoo has %v", got)
	}
	s := NewState(p, 0)
	google, yahoo := s.Provider(p, "google"), s.Provider(p, "yahoo")
	var sent [2]int64
	for t := Instant(0); t < p.day(); t += second {
		s.Advance(p, t)
		for i, v := range []int{google, yahoo} {
			s.Offer(p, v, 1)
			sent[i] += s.Grant(p, v, 1, 1)
		}
	}
	if sent[0] != 100 || sent[1] != 150 {
		t.Errorf("google had %d, yahoo %d, of 250; want 100 and the rest", sent[0], sent[1])
	}
	for _, bad := range []float64{0, -1, 1.2} {
		p.Shares["google"] = bad
		if fs := p.Faults(); len(fs) != 1 || fs[0].Provider != "google" || fs[0].Setting != "share" {
			t.Errorf("share %v: %v", bad, fs)
		}
	}
}
