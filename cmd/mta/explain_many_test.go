package main

import (
	"fmt"
	"strings"
	"testing"

	"example.org/mta/mta/relaytest"
	"example.org/mta/operator/api"
)

// With a thousand sources an explanation is one screen, and nothing is left out without a count.
func TestExplainThousandSourcesOnOneScreen(t *testing.T) {
	const n = 1000
	d := &api.Destination{Domain: "big.example", Site: "mx.big.example", Steps: []string{"MX of big.example: 10 mx.big.example"},
		Hosts: []api.TierHost{{Tier: 1, Host: api.Host{Name: "mx.big.example", Address: "192.0.2.1:25", State: api.HostIdle}}}}
	var sum []string
	for i := range n {
		name := fmt.Sprintf("out%04d", i)
		d.Sources = append(d.Sources, api.DestinationSource{Name: name, Address: "192.0.2.10", Reaches: 1, Warmup: "plan standard, stage 2 of 14"})
		d.Lanes = append(d.Lanes, api.Lane{Source: name, Waiting: i, Running: 1, Why: "connection_limit 1"})
		d.Actions = append(d.Actions, api.SiteAction{What: "suspended", Source: name, Reason: "421", End: relaytest.Now.Add(9e9)})
		sum = append(sum, "max_message_rate 3/s of source "+name)
	}
	d.Limits = append(d.Limits, api.Limit{Setting: "max_age", Value: "5d", Scope: "each recipient", Origin: "default"})
	d.Ceiling = api.Ceiling{PerSecond: 3 * n, Binds: strings.Join(sum, " + ") + ": 3000 messages/s"}
	b := &strings.Builder{}
	c := &cli{now: relaytest.Now.Local, out: b}
	if err := c.explainDestination(c.facts(12), d); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(b.String(), "\n"); lines > 50 {
		t.Errorf("%d lines:\n%s", lines, b)
	}
	waiting := n*(n-1)/2 - (999 + 998 + 997 + 996 + 995)
	for _, want := range []string{
		"out0000 192.0.2.10", "and 992 more", "995 more sources: mta warmup list", "999 waiting, 1 on connections, source out0999",
		fmt.Sprintf("%d waiting, 995 on connections, 995 more sources", waiting), "+ 995 more: 3000 messages/s",
		"max_age", "995 more: mta sites mx.big.example --json",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("it lacks %q:\n%s", want, b)
		}
	}
}
