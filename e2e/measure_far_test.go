package e2e

import (
	"testing"

	"example.org/mta/lab/bench"
)

// TestMeasureOneSiteFarAway sends to one site whose replies come 50 ms late, over 20 connections: the
// relay in its three modes, by what the site offers, and Postfix, in turns.
func TestMeasureOneSiteFarAway(t *testing.T) {
	besideOthers(t, fullSize())
	far, _ := bench.FindStandard("d")
	with := func(messages int, change func(*bench.Scenario)) bench.Scenario {
		s := far
		s.Messages = messages
		change(&s)
		return s
	}
	all := []*contender{
		{name: "relay, CHUNKING", start: relayDefault, scenario: with(40_000, func(*bench.Scenario) {}), small: 2000},
		{name: "relay, PIPELINING alone", start: relayDefault, scenario: with(5000, func(s *bench.Scenario) { s.NoChunking = true }), small: 200},
		{name: "relay, lock-step", start: relayDefault, scenario: with(1200, func(s *bench.Scenario) { s.NoChunking, s.NoPipelining = true, true }), small: 30},
		{name: "Postfix", start: postfixTuned, scenario: with(1500, func(*bench.Scenario) {}), fullOnly: true},
	}
	compete(t, all...)
	if !fullSize() {
		return
	}
	postfix := all[len(all)-1]
	rows := [][]string{{"", "times Postfix", "messages/s, steady", "start and end included", "CPU s per 1,000", "messages", "runs, steady"}}
	for _, c := range all {
		rows = append(rows, []string{c.name, "**" + number(c.median(steady)/postfix.median(steady)) + "**", number(c.median(steady)), number(c.median(endToEnd)),
			number(c.median(cpu)), number(float64(c.scenario.Messages) * scale(t)), c.each(steady)})
	}
	publish(t, "One far site: 50 ms, 20 connections, 2 KB", markdown(rows), footnote(t))
}
