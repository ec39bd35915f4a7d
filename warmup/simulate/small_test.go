package simulate

import (
	"testing"
	"time"

	"example.org/mta/warmup"
)

// TestASmallProviderBesideACampaign: while a campaign waits that uses up the day, mail of a small provider gets its
// part of the tokens, as in the relay: see TestASmallProviderBesideACampaign of dispatch.
func TestASmallProviderBesideACampaign(t *testing.T) {
	p, err := warmup.Preset("standard")
	if err != nil {
		t.Fatal(err)
	}
	var trace []Event
	for at := range int64(10) {
		trace = append(trace, Event{T: at * 60, Kind: Offer, Provider: "big", Value: 100})
	}
	for at := range int64(30) {
		trace = append(trace, Event{T: 3600 + at*600, Kind: Offer, Provider: "small", Value: 1})
	}
	trace = append(trace, Event{T: 86_400, Kind: End})
	rows, _ := simulate(t, p, trace, Options{Interval: 86_400, Patience: 9 * time.Hour})
	sent := make(map[string]int64)
	for _, r := range rows {
		sent[r.Provider] += r.Sent
		t.Logf("%+v", r)
	}
	if sent["small"] < 20 || sent["big"]+sent["small"] != 250 {
		t.Errorf("%v were sent: want most of the small provider's 30, and 250", sent)
	}
}

// TestLumpsOfUrgentMail: of mail in lumps every five minutes two recipients of each use the source, but with half a
// minute of patience the days are full, as in the relay: see TestDaysOfWarmUp of dispatch.
func TestLumpsOfUrgentMail(t *testing.T) {
	p, err := warmup.Preset("standard")
	if err != nil {
		t.Fatal(err)
	}
	var trace []Event
	for at := int64(0); at < 3*86_400; at += 300 {
		trace = append(trace, Event{T: at, Kind: Offer, Value: 6})
	}
	for patience, want := range map[time.Duration][3]int64{0: {250, 400, 551}, 30 * time.Second: {250, 400, 640}} {
		rows, _ := simulate(t, p, append(trace, Event{T: 3 * 86_400, Kind: End}), Options{Interval: 86_400, Patience: patience})
		var sent [3]int64
		for _, r := range rows {
			sent[r.T/86_400] += r.Sent
		}
		if sent != want {
			t.Errorf("patience %v: %v a day were sent, want %v", patience, sent, want)
		}
	}
}
