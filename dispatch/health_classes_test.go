package dispatch

import (
	"testing"

	"example.org/mta/bounce"
	"example.org/mta/mta/wiring"
	"example.org/mta/warmup"
)

// TestAPlanNamesTheClassesThatCount: what a plan takes out of its lists no longer counts against it.
func TestAPlanNamesTheClassesThatCount(t *testing.T) {
	j := judge{health: &wiring.Health{Refusals: []bounce.Class{bounce.SpamBlock}, Bounces: []bounce.Class{bounce.QuotaIssues}}}
	for line, want := range map[string]warmup.Outcome{
		"554 IP address is blacklisted":        warmup.PolicyRefusal,
		"550 5.7.1 policy":                     warmup.NotAboutUs,
		"550 5.1.1 no such user":               warmup.NotAboutUs,
		"552 5.2.2 full":                       warmup.HardBounce,
		"451 4.7.1 rate limit exceeded":        nothing,
		"421 4.7.28 unusual rate of your mail": warmup.PolicyRefusal,
	} {
		r := replied("RCPT", line)
		last := replied("", "")
		got, ok := j.outcome(&r, 0, &last)
		if !ok {
			got = nothing
		}
		if got != want {
			t.Errorf("%s: %d, want %d", line, got, want)
		}
	}
}
