package e2e

import (
	"testing"

	"example.org/mta/lab/bench"
)

// TestMeasureSmallMailAmongBigEnvelopes has single messages and envelopes of 50 recipients go to ten
// sites: how late is a single message that goes with big ones? What the servers do as fast as
// they take the mail is scenario (e).
func TestMeasureSmallMailAmongBigEnvelopes(t *testing.T) {
	besideOthers(t, fullSize())
	mixed, _ := bench.FindStandard("e")
	paced := func(messages, rate int) bench.Scenario {
		s := mixed
		s.Messages, s.Rate = messages, rate
		return s
	}
	all := []*contender{
		{name: "relay, as fast as it takes them", start: relayDefault, scenario: mixed, small: 600},
		{name: "relay, 500 messages/s", start: relayDefault, scenario: paced(5000, 500), fullOnly: true},
		{name: "Postfix, 100 messages/s", start: postfixTuned, scenario: paced(1500, 100), fullOnly: true},
	}
	compete(t, all...)
	if fullSize() {
		publish(t, "Mail to one recipient among envelopes of 50, ten sites", smallMail(all...), footnote(t))
	}
}
