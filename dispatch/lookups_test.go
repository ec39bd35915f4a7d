package dispatch

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/queue"
	"example.org/mta/suppression"
	"example.org/mta/suppression/boltstore"
)

// leaseTo is a lease of a tenant's message to one recipient at each of n domains whose look-ups take
// their time.
func (s *stage) leaseTo(id envelope.ID, tenant string, n int, domain string) *queue.Lease {
	to := make([]string, n)
	for i := range to {
		d := fmt.Sprintf(domain, i)
		s.slow[d] = true
		to[i] = "bob@" + d
	}
	l := s.lease(id, 0, to...)
	l.Message.Tenant = tenant
	return l
}

// answerAll has the router answer all that it was asked until now.
func (s *stage) answerAll() {
	later := s.later
	s.later = nil
	for _, answer := range later {
		answer()
	}
}

// waitingFor is how many recipients wait in the queue for routes.
func (s *stage) waitingFor() (n int) {
	for line := range s.parked {
		if line.Route {
			n += s.Parked(line)
		}
	}
	return n
}

// A message and a tenant have so many recipients in memory that wait for look-ups. The rest waits in
// the queue under its domain, and leaves when the router has answered.
func TestUnknownDomainsAreBoundedByMessageAndTenant(t *testing.T) {
	s := newStage(t)
	s.handle(s.leaseTo(1, "bulk", 1000, "d%d.silent.example"))
	if n := s.lookups.inMemory(); n != maxRoutingPerMessage {
		t.Errorf("of one message %d recipients wait in memory, want %d", n, maxRoutingPerMessage)
	}
	if n := s.waitingFor(); n != 1000-maxRoutingPerMessage {
		t.Errorf("of one message %d recipients wait in the queue, want %d", n, 1000-maxRoutingPerMessage)
	}
	for id := envelope.ID(2); id < 10; id++ {
		s.handle(s.leaseTo(id, "bulk", 1000, fmt.Sprintf("d%%d.%d.silent.example", id)))
	}
	if n := s.lookups.inMemory(); n != maxRoutingPerTenant {
		t.Errorf("of one tenant %d recipients wait in memory, want %d", n, maxRoutingPerTenant)
	}
	s.handle(s.leaseTo(100, "other", 1, "d%d.other.example"))
	if n := s.lookups.inMemory(); n != maxRoutingPerTenant+1 {
		t.Errorf("%d recipients wait in memory: another tenant has no room", n)
	}
	s.told = nil
	s.answerAll()
	for what, n := range map[string]int{
		"recipients in memory": s.lookups.inMemory(), "recipients in the queue": s.waitingFor(), "domains": len(s.lookups.domains),
	} {
		if n != 0 {
			t.Errorf("after all answers %d %s still wait for look-ups", n, what)
		}
	}
	sent := 0
	for _, j := range s.jobs {
		sent += len(j.Recipients)
	}
	if sent != 9001 {
		t.Errorf("%d recipients were handed to delivery, want 9001", sent)
	}
}

// fill takes all the memory that a tenant may have.
func (s *stage) fill(tenant string) {
	for id := range envelope.ID(maxRoutingPerTenant / maxRoutingPerMessage) {
		s.handle(s.leaseTo(1000+id, tenant, maxRoutingPerMessage, fmt.Sprintf("d%%d.%d.fill.example", id)))
	}
	s.asked, s.later, s.told = nil, nil, nil
}

// The router is asked once for what waits in the queue, however many messages there are; and again for
// a message that has far fewer domains, which comes to its turn sooner.
func TestParkedDomainsAreAskedForOnce(t *testing.T) {
	s := newStage(t)
	s.fill("")
	for id := range envelope.ID(50) {
		s.handle(s.leaseTo(id, "", 3, "d%d.example"))
	}
	s.handle(s.leaseTo(60, "", 1, "d%d.example"))
	if want := []string{" 0 [d0.example d1.example d2.example]", " 60 [d0.example]"}; !slices.Equal(s.asked, want) {
		t.Errorf("the router was asked for %q, want %q", s.asked, want)
	}
	s.answerAll()
	if len(s.jobs) != 151 {
		t.Errorf("%d jobs, want each of 151 recipients in one", len(s.jobs))
	}
	if n := s.waitingFor(); n != 0 {
		t.Errorf("%d recipients still wait", n)
	}
}

// What was taken out of the queue is not looked up: a look-up of a silent domain takes 15 s.
func TestRemovedMailIsNotLookedUp(t *testing.T) {
	s := newStage(t)
	s.fill("")
	s.handle(s.leaseTo(1, "", 2, "d%d.example"))
	s.parked[routeLine("d0.example")] = nil // removed
	s.answerAll()
	if !slices.Equal(s.lookedUp, []string{"d1.example"}) || len(s.lookups.domains) != 0 {
		t.Errorf("%q were looked up, %d domains are remembered", s.lookedUp, len(s.lookups.domains))
	}
}

// A failure of the look-up counts for all that waits for it.
func TestFailedLookUpDefersAllThatWaits(t *testing.T) {
	s := newStage(t)
	s.fill("")
	s.refuse["d0.example"] = reply.Local(451, reply.Enhanced{4, 4, 3}, "route", "name servers don't answer")
	for id := range envelope.ID(3) {
		s.handle(s.leaseTo(id, "", 1, "d%d.example"))
	}
	s.told = nil
	s.answerAll()
	s.told = slices.DeleteFunc(s.told, func(line string) bool { return strings.HasPrefix(line, "event") })
	s.want(t,
		"defer 0 [0] +10m0s route: 451 4.4.3 name servers don't answer d0.example",
		"defer 1 [0] +10m0s route: 451 4.4.3 name servers don't answer d0.example",
		"defer 2 [0] +10m0s route: 451 4.4.3 name servers don't answer d0.example")
}

// An answer by a configuration that is no longer in force is asked for anew.
func TestReloadAsksAnewForWhatWaits(t *testing.T) {
	s := newStage(t)
	s.fill("")
	var called []string
	s.takeUp = func(domain string) { called = append(called, domain) }
	s.handle(s.leaseTo(1, "", 1, "d%d.example"))
	s.answerAll()
	cfg, err := config.Parse(nil, "test.conf", nil)
	if err != nil {
		t.Fatal(err)
	}
	pol := wiring.New(cfg)
	s.Policy = func() *wiring.Policy { return pol }
	s.asked = nil
	for _, domain := range called {
		s.unparkRouted(domain)
	}
	if len(s.jobs) != 0 || len(s.asked) != 1 {
		t.Fatalf("%d jobs by the old route, the router was asked %d times", len(s.jobs), len(s.asked))
	}
	s.answerAll()
	for s.unparkRouted("d0.example") {
	}
	if len(s.jobs) != 1 || len(s.lookups.domains) != 0 {
		t.Errorf("%d jobs after the new answer, %d domains remembered", len(s.jobs), len(s.lookups.domains))
	}
}

// So it is of what waits in memory: neither a route of before nor a failure counts.
func TestReloadAsksAnewForWhatWaitsInMemory(t *testing.T) {
	s := newStage(t)
	s.refuse["d1.example"] = reply.Local(451, reply.Enhanced{4, 4, 3}, "route", "name servers don't answer")
	s.handle(s.leaseTo(1, "", 2, "d%d.example"))
	cfg, err := config.Parse(nil, "test.conf", nil)
	if err != nil {
		t.Fatal(err)
	}
	pol := wiring.New(cfg)
	s.Policy = func() *wiring.Policy { return pol }
	s.told = nil
	s.answerAll()
	slices.Sort(s.told)
	s.want(t, "return 1 [0]", "return 1 [1]")
	if len(s.jobs) != 0 || s.lookups.inMemory() != 0 {
		t.Errorf("%d jobs, %d recipients in memory", len(s.jobs), s.lookups.inMemory())
	}
}

// What waits in memory comes back to the queue at once when an operator acts on it.
func TestCancelTakesBackWhatWaitsForLookUps(t *testing.T) {
	s := newStage(t)
	s.handle(s.leaseTo(1, "", 2, "d%d.example"))
	s.Cancel(1)
	if len(s.told) != 2 || !strings.HasPrefix(s.told[0], "return 1 [") || s.told[1] != "cancel 1" {
		t.Errorf("told %q", s.told)
	}
	s.answerAll()
	if len(s.jobs) != 0 || s.lookups.inMemory() != 0 {
		t.Errorf("%d jobs, %d recipients in memory", len(s.jobs), s.lookups.inMemory())
	}
}

// Tenants have so much memory together, however many there are.
func TestUnknownDomainsAreBoundedInAll(t *testing.T) {
	k := newLookups(nil)
	for id := range envelope.ID(2 * maxRouting / maxRoutingPerMessage) {
		m := &envelope.Message{ID: id, Tenant: fmt.Sprint("tenant ", id)}
		has := k.admit(m, "silent.example", make([]queue.Pending, maxRoutingPerMessage))
		if fits := id < maxRouting/maxRoutingPerMessage; has != fits {
			t.Fatalf("message %d was admitted: %v, with %d recipients in memory", id, has, k.inMemory())
		}
	}
}

// The router is asked again for a domain where that gives it an earlier turn, and only then.
func TestDomainsAreAskedForAgainForAnEarlierTurn(t *testing.T) {
	k := newLookups(nil)
	for _, x := range []struct {
		what string
		by   asker
		asks bool
	}{
		{"the first message", asker{tenant: "a", tier: 4, domains: 100}, true},
		{"another like it", asker{tenant: "a", tier: 4, domains: 100}, false},
		{"one with somewhat fewer domains", asker{tenant: "a", tier: 4, domains: 51}, false},
		{"one with half as many", asker{tenant: "a", tier: 4, domains: 50}, true},
		{"another tenant", asker{tenant: "b", tier: 4, domains: 100}, true},
		{"an earlier tier", asker{tenant: "a", tier: 1, domains: 100}, true},
		{"a later tier", asker{tenant: "a", tier: 4, domains: 100}, false},
	} {
		if asks := k.ask("d.example", x.by); asks != x.asks {
			t.Errorf("%s: the router is asked: %v, want %v", x.what, asks, x.asks)
		}
	}
}

// An address that comes on the suppression list while its mail waits in the queue for a route gets no mail.
func TestSuppressedWhileItWaitsForARoute(t *testing.T) {
	s := newStage(t)
	store, err := boltstore.Open(filepath.Join(t.TempDir(), "suppression.db"), nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	list, err := suppression.Open(t.Context(), suppression.Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	s.Suppression = list
	s.fill("")
	s.handle(s.leaseTo(1, "", 2, "d%d.example"))
	gone := suppression.Entry{Key: suppression.KeyOf("", "bob@d0.example"), Source: suppression.Operator, Added: start}
	if _, err := list.Add(t.Context(), []suppression.Entry{gone}); err != nil {
		t.Fatal(err)
	}
	s.answerAll()
	if len(s.jobs) != 1 || s.jobs[0].Route.Domain != "d1.example" {
		t.Errorf("%d jobs, want that of the other address", len(s.jobs))
	}
	if len(s.reports) != 1 || !strings.Contains(s.reports[0].Attempts[0].Result.Reply.Text, "suppressed") {
		t.Errorf("reports %+v", s.reports)
	}
}

// inMemory returns how many recipients wait in memory.
func (k *lookups) inMemory() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.total
}
