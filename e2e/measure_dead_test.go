package e2e

import (
	"testing"

	"example.org/mta/lab/bench"
)

// TestMeasureOneDeadSiteAmongTen measures what the mail to nine sites loses when the tenth no longer
// answers. All replies come 20 ms late. What Postfix loses is in scenario (f).
func TestMeasureOneDeadSiteAmongTen(t *testing.T) {
	besideOthers(t, fullSize())
	work := func(dead int, death bench.Death) bench.Scenario {
		s, _ := bench.FindStandard("f")
		s.Dead, s.Death = dead, death
		return s
	}
	well := &contender{name: "all well", start: relayDefault, scenario: work(0, ""), small: 1000}
	well.scenario.Death = bench.Silent // of none
	silent := &contender{name: "the tenth is silent", start: relayDefault, scenario: work(1, bench.Silent), small: 1000}
	hole := &contender{name: "the tenth is a black hole", start: relayDefault, scenario: work(1, bench.Unreachable), small: 1000}
	compete(t, well, silent, hole)
	if fullSize() {
		publish(t, "One dead site among ten, replies 20 ms late", losses(
			pair{"it takes connections and is silent", well, silent}, pair{"it answers no request for a connection", well, hole}), footnote(t))
	}
}
