package e2e

import (
	"fmt"
	"testing"
	"time"

	"example.org/mta/lab/bench"
)

// postfixMessages is how many messages Postfix gets in a standard scenario, where the relay's number
// would take it minutes. Its rates don't depend on it; delays with a growing queue do, so that
// where these are compared the number is the same.
var postfixMessages = map[string]int{"b": 8000, "c": 8000, "d": 1500, "f": 5000, "g": 2000, "i": 5000}

// rival is the relay and Postfix at one scenario.
type rival struct {
	letter, title  string
	relay, postfix *contender
}

// TestBench is 'make bench': the standard scenarios, the relay and Postfix in turns.
func TestBench(t *testing.T) {
	besideOthers(t, fullSize())
	var rivals []*rival
	var wells *rival // all sites are well, for what a dead one costs
	add := func(letter, title string, s bench.Scenario, messages int) *rival {
		atPostfix := s
		if messages != 0 {
			atPostfix.Messages = messages
		}
		r := &rival{letter: letter, title: title,
			relay:   &contender{name: letter + ": relay", start: relayDefault, scenario: s, small: 200},
			postfix: &contender{name: letter + ": Postfix", start: postfixTuned, scenario: atPostfix, fullOnly: true}}
		rivals = append(rivals, r)
		return r
	}
	var dead, paced *rival
	for _, s := range bench.Standards() {
		if s.Scenario.Dead > 0 {
			well := s.Scenario
			well.Dead = 0
			wells = add(s.Letter+"0", "ten sites, replies 20 ms late, all well", well, postfixMessages[s.Letter])
		}
		r := add(s.Letter, s.Title, s.Scenario, postfixMessages[s.Letter])
		switch {
		case s.Scenario.Dead > 0:
			dead = r
		case s.Scenario.Rate > 0:
			paced = r
		}
	}
	rivals = append(rivals, manySources())
	circumstances := circumstances(t)
	for _, r := range rivals {
		compete(t, r.relay, r.postfix)
	}
	if !fullSize() {
		return
	}
	rows := [][]string{{"", "", "messages/s: times Postfix's", "steady", "CPU per message: Postfix's over the relay's", "p99 to 250: Postfix's over the relay's"}}
	var all []*contender
	for _, r := range rivals {
		all = append(all, r.relay, r.postfix)
		if r.relay.scenario.Rate > 0 {
			continue // both keep up: delays are what counts
		}
		over := func(what func(*bench.Report) float64) string {
			return number(r.postfix.median(what) / r.relay.median(what))
		}
		times := func(what func(*bench.Report) float64) string {
			return "**" + number(r.relay.median(what)/r.postfix.median(what)) + "**"
		}
		rows = append(rows, []string{r.letter, r.title, times(endToEnd), times(steady), over(cpu), over(acceptP99)})
	}
	publish(t, "Circumstances", circumstances, "Postfix has these settings besides those of its place and port:\n\n```\n"+postfixTuning+"```\n")
	publish(t, "The standard scenarios beside Postfix", markdown(rows), "Raw figures:\n", raw(all...))
	var e *rival
	for _, r := range rivals {
		if r.letter == "e" {
			e = r
		}
	}
	publish(t, "(e) mail to one recipient among envelopes of 50", smallMail(e.relay, e.postfix))
	publish(t, "(h) mail at a rate that both keep up with", smallMail(paced.relay, paced.postfix))
	publish(t, "(f) what one silent site costs the nine others", losses(pair{"relay", wells.relay, dead.relay}, pair{"Postfix", wells.postfix, dead.postfix}))
}

// manySources is the relay with 30 sources, of which each has a message every third second, at a site that
// takes ten connections. Postfix has no pools: it sends from one address.
func manySources() *rival {
	s := bench.DefaultScenario()
	s.Messages, s.Rate, s.Latency = 600, 10, bench.Duration(50*time.Millisecond)
	start := func(t *testing.T, g *bench.Ground) bench.Server {
		return measuredRelay(t, g, bench.RelayOptions{Sources: 30}).Server()
	}
	const title = "10/s from 30 sources, one site, replies 50 ms late"
	return &rival{letter: "h30", title: title,
		relay:   &contender{name: "h30: relay", start: start, scenario: s, small: 60},
		postfix: &contender{name: "h30: Postfix", start: postfixTuned, scenario: s, fullOnly: true}}
}

// smallMail is a table of how late mail to one recipient is. The first contender is what the others
// are compared with.
func smallMail(all ...*contender) string {
	rows := [][]string{{"", "p99 over the first's", "p50", "p99", "worst", "recipients/s", "p99 of each run, ms"}}
	for _, c := range all {
		ms := func(r *bench.Report) float64 { return smallP99(r) * 1000 }
		rows = append(rows, []string{c.name, number(c.median(smallP99) / all[0].median(smallP99)), duration(c.median(smallP50)), duration(c.median(smallP99)),
			duration(c.median(smallWorst)), number(c.median(recipients)), c.each(ms)})
	}
	return markdown(rows)
}

// pair is a server with all sites well, and with one dead.
type pair struct {
	name       string
	well, dead *contender
}

// losses is a table of the rate of the living sites. Where all are well, nine tenths of the rate is
// that of nine sites.
func losses(all ...pair) string {
	rows := [][]string{{"", "the nine lose", "messages/s to nine, all well", "one dead"}}
	for _, p := range all {
		nine := func(r *bench.Report) float64 { return r.MessagesPerSecond * 9 / 10 }
		was, is := p.well.median(nine), p.dead.median(endToEnd)
		loss := "-"
		if was > 0 {
			loss = fmt.Sprintf("%.1f %%", 100*(1-is/was))
		}
		rows = append(rows, []string{p.name, loss, number(was), number(is)})
	}
	return markdown(rows)
}
