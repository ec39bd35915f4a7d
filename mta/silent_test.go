package mta

import (
	"fmt"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/lab/sink"
	"example.org/mta/operator/api"
)

// Domains whose name servers are silent keep no mail for known domains waiting, however many they are.
func TestSilentNameServersHoldUpNobodyElse(t *testing.T) {
	const messages, each = 25, 1000
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	w.send("ann@client.example", letter, "bob@box.example")
	w.arrived(1) // its route is known
	w.zone.Fault("*.silent.example", sink.DNSFault{Drop: true})
	w.sendSilent(messages, each)
	began := time.Now()
	w.send("ann@client.example", letter, "eve@box.example")
	w.arrived(2)
	t.Logf("amid %d recipients at domains with silent name servers, mail for a known domain took %v", messages*each, time.Since(began).Round(time.Millisecond))
}

// What waits for a route is in the queue, by domain and with the reason; and an operator who removes it is
// rid of it at once.
func TestMailForSilentDomainsIsInTheQueue(t *testing.T) {
	const messages, each = 5, 1000
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	w.zone.Fault("*.silent.example", sink.DNSFault{Drop: true})
	w.sendSilent(messages, each)
	w.until("the mail waits for routes", func() bool { return w.queue.Stats().Parked >= messages*each-2000 })
	o := w.api.Queue
	list, err := o.List(t.Context(), api.ListQuery{Filter: api.Filter{State: api.StateWaiting}, Page: api.Page{Limit: 10}})
	if err != nil || len(list.Messages) == 0 {
		t.Fatalf("listed %d messages, %v", len(list.Messages), err)
	}
	for _, rc := range list.Messages[0].Recipients {
		domain := envelope.Address(rc.Address).Domain()
		under, turn := "the route of "+domain+" is being looked up", "the look-up of "+domain+" waits for its turn"
		if rc.Site != domain || rc.Doing != under && rc.Doing != turn {
			t.Errorf("%s waits for %s: %s", rc.Address, rc.Site, rc.Doing)
		}
	}
	ex, err := w.api.Destinations.Explain(t.Context(), api.ExplainQuery{Domain: "box.example"})
	if err != nil || ex.Destinations[0].Now != "mail is sent without delay" {
		t.Errorf("of a healthy domain: %+v, %v", ex, err)
	}
	if n, err := o.Change(t.Context(), api.Change{Action: api.Remove, Filter: api.Filter{Domain: "*.silent.example"}}); err != nil || n.Recipients != messages*each {
		t.Errorf("removed %d of %d, %v", n.Recipients, messages*each, err)
	}
	w.until("what was being looked up is gone, too", func() bool { return w.queue.Stats().Queued == 0 })
}

// sendSilent submits messages for so many recipients each, all at domains of their own.
func (w *world) sendSilent(messages, each int) {
	w.t.Helper()
	for m := range messages {
		to := make([]string, each)
		for r := range to {
			to[r] = fmt.Sprintf("bob@d%d-%d.silent.example", m, r)
		}
		w.send("ann@client.example", letter, to...)
	}
}
