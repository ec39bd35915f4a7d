package suppression_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/bounce"
	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	. "example.org/mta/suppression"
	"example.org/mta/suppression/boltstore"
)

const day = 24 * time.Hour

// bench is a feeder with its lists, in a file.
type bench struct {
	t        testing.TB
	path     string
	settings FeedSettings
	warm     map[string]int64 // complaints, by source, provider and day

	*Feeder
	list *List
}

func settings() FeedSettings {
	return FeedSettings{Bounces: true, Flood: Flood{Factor: 5, Share: .25, Min: 50}, Classes: map[bounce.Class]Rule{
		bounce.InvalidRecipient: {After: 1, Keep: 90 * day},
		bounce.InactiveMailbox:  {After: 3, Within: 30 * day, Keep: 90 * day},
		bounce.QuotaIssues:      {After: 5, Within: 60 * day, Keep: 30 * day},
	}}
}

func newBench(t testing.TB) *bench {
	b := &bench{t: t, path: filepath.Join(t.TempDir(), "s.db"), settings: settings(), warm: make(map[string]int64)}
	b.open()
	t.Cleanup(b.close)
	return b
}

func (b *bench) open() {
	b.t.Helper()
	store, err := boltstore.Open(b.path, nil, nil, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	list, err := Open(context.Background(), Config{Store: store})
	if err != nil {
		b.t.Fatal(err)
	}
	aside, err := Open(context.Background(), Config{Store: store.Pending()})
	if err != nil {
		b.t.Fatal(err)
	}
	b.list = list
	b.Feeder, err = NewFeeder(context.Background(), FeederConfig{List: list, Pending: aside, Counters: store.Counters(), Providers: store.Providers(),
		Settings: func() *FeedSettings { return &b.settings }, Complained: b.complained})
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) complained(_ context.Context, source, provider string, day time.Time, n int64) error {
	b.warm[source+" "+provider+" "+day.Format(time.DateOnly)] += n
	return nil
}

func (b *bench) close() {
	if err := b.Feeder.Close(); err != nil {
		b.t.Error(err)
	}
	if err := b.list.Close(); err != nil {
		b.t.Error(err)
	}
}

// again is a restart.
func (b *bench) again() {
	b.t.Helper()
	b.close()
	b.open()
}

func (b *bench) refuse(a envelope.Address, c bounce.Class) {
	b.Report(Event{Kind: Bounce, Tenant: "acme", Address: a, Class: c, Provider: "google", Reason: "550 x"})
}

func (b *bench) deliver(a envelope.Address) { b.Delivered("acme", a, "google", "mx.google.example") }

func (b *bench) listed(a envelope.Address) (Entry, bool) { return b.list.Match("acme", a) }

// waiting gives the addresses that are set aside.
func (b *bench) waiting() map[string]bool {
	b.t.Helper()
	all := make(map[string]bool)
	err := b.FeederConfig.Pending.Each(context.Background(), Query{}, func(some []Entry) error {
		for _, e := range some {
			all[e.Address] = true
		}
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return all
}

// settle has the keeper do what waits.
func settle() {
	time.Sleep(2 * time.Second)
	synctest.Wait()
}

// What puts an address on the list, with which source, class, provider and end; and what does not.
func TestEvents(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBench(t)
		for name, x := range map[string]struct {
			e    Event
			want Entry // Source "": none
			keep time.Duration
		}{
			"unknown":        {Event{Kind: Bounce, Class: bounce.InvalidRecipient}, Entry{Source: Bounce, Class: "InvalidRecipient", Provider: "google"}, 90 * day},
			"reported":       {Event{Kind: Report, Class: bounce.InvalidRecipient}, Entry{Source: Report, Class: "InvalidRecipient", Provider: "google"}, 90 * day},
			"complaint":      {Event{Kind: Complaint}, Entry{Source: Complaint, Provider: "google"}, 0},
			"unsubscription": {Event{Kind: Unsubscribe}, Entry{Source: Unsubscribe, Provider: "google"}, 0},
			"full":           {Event{Kind: Bounce, Class: bounce.QuotaIssues}, Entry{}, 0},
			"blocked":        {Event{Kind: Bounce, Class: bounce.SpamBlock}, Entry{}, 0},
			"postmaster":     {Event{Kind: Complaint}, Entry{}, 0},
		} {
			a := envelope.Address(name + "@box.example")
			x.e.Tenant, x.e.Address, x.e.Provider, x.e.Site, x.e.Reason = "acme", a, "google", "mx", "why"
			b.Report(x.e)
			e, found := b.list.Match("acme", a)
			if x.want.Source == "" {
				if found {
					t.Errorf("%s: %+v", name, e)
				}
				continue
			}
			x.want.Key, x.want.Reason, x.want.Added = KeyOf("acme", a), "why", time.Now()
			if x.keep > 0 {
				x.want.Expires = time.Now().Add(x.keep)
			}
			if !found || e != x.want {
				t.Errorf("%s: %+v, want %+v", name, e, x.want)
			}
			if _, found := b.list.Match("other", a); found {
				t.Errorf("%s is suppressed for another tenant", name)
			}
		}
		b.settings.Bounces = false
		b.refuse("off@box.example", bounce.InvalidRecipient)
		if _, found := b.listed("off@box.example"); found {
			t.Error("feed = false feeds")
		}
		b.Report(Event{Kind: Complaint, Tenant: "acme", Address: "loud@box.example"})
		if _, found := b.listed("loud@box.example"); !found {
			t.Error("feed = false keeps complaints off the list")
		}
	})
}

// A word of people is not replaced by one of hosts, and not the other way round.
func TestPeopleBeforeHosts(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.refuse("ann@box.example", bounce.InvalidRecipient)
		settle()
		b.Report(Event{Kind: Complaint, Tenant: "acme", Address: "ann@box.example"})
		settle()
		b.refuse("ann@box.example", bounce.InvalidRecipient)
		settle()
		if e, _ := b.listed("ann@box.example"); e.Source != Complaint || !e.Expires.IsZero() {
			t.Errorf("entry %+v", e)
		}
	})
}

// A mailbox that is full, or unused, comes on the list after n days with a refusal within m; many on one day
// count once, a delivery in between begins anew, and a restart forgets nothing.
func TestSoftBounces(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBench(t)
		full := func(a envelope.Address) {
			for range 3 {
				if _, found := b.listed(a); !found {
					b.refuse(a, bounce.QuotaIssues)
				}
			}
		}
		for i := range 5 {
			if _, found := b.listed("full@box.example"); found {
				t.Fatalf("on the list after %d days", i)
			}
			full("full@box.example")
			if i != 2 {
				full("emptied@box.example")
			} else {
				b.deliver("Emptied@box.example")
			}
			if i < 4 {
				full("four@box.example")
			}
			settle()
			b.again()
			time.Sleep(7 * day)
		}
		full("emptied@box.example") // the fifth day, and the third since the delivery
		e, found := b.listed("full@box.example")
		if !found || e.Class != "QuotaIssues" || e.Expires.Sub(e.Added) != 30*day {
			t.Errorf("after 5 days: %+v, %v", e, found)
		}
		for _, a := range []envelope.Address{"emptied@box.example", "four@box.example"} {
			if _, found := b.listed(a); found {
				t.Errorf("%s is on the list", a)
			}
		}
		if n := b.Stats().Counters; n != 2 {
			t.Errorf("%d counters, want those of two addresses", n)
		}
		// The fifth day of one is too late.
		time.Sleep(40 * day)
		full("four@box.example")
		if _, found := b.listed("four@box.example"); found {
			t.Error("refusals that are too old count")
		}
		// What is forgotten leaves the disk, too.
		time.Sleep(70 * day)
		b.again()
		if n := b.Stats().Counters; n != 0 {
			t.Errorf("%d counters are left", n)
		}
	})
}

// A complaint suppresses for the tenant, counts for the warm-up's day, and its repetitions don't.
func TestComplaints(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBench(t)
		sent := time.Now().Add(-30 * time.Hour)
		e := Event{Kind: Complaint, Tenant: "acme", Address: "ann@box.example", Provider: "google", Message: 7, Source: "mta1", Sent: sent}
		for range 3 {
			b.Report(e)
		}
		e.Address = "bob@box.example"
		b.Report(e)
		e.Message = 8
		b.Report(e)
		e.Message, e.Source = 9, ""
		b.Report(e)
		settle()
		if n := b.warm["mta1 google "+sent.Format(time.DateOnly)]; n != 3 || len(b.warm) != 1 {
			t.Errorf("warm-ups heard %v", b.warm)
		}
		if s := b.Stats(); s.Duplicates != 2 || s.Made[Complaint] != 4 {
			t.Errorf("stats %+v", s)
		}
	})
}

func address(i int) envelope.Address { return envelope.Address(fmt.Sprintf("r%06d@box.example", i)) }
