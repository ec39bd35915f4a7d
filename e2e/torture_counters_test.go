package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"example.org/mta/lab/sink"
	"example.org/mta/operator/api"
)

// TestTortureCountersEqualAScan kills the relay under load, while the mail for a host that is down piles up. After each start the
// counters of every summary are those of a look at each recipient in the queue.
func TestTortureCountersEqualAScan(t *testing.T) {
	parallel(t)
	b := newBattlefield(t, "late.example. 60 IN MX 10 mx.late.example.\nmx.late.example. 60 IN A 127.30.0.9\n")
	b.clients, b.domains = 8, []string{"quick.example", "slow.example", "late.example"}
	b.senders = []string{"boss@home.example", "boss@shop.example"}
	b.head = func(rng *rand.Rand) string {
		return []string{"", "X-MTA-Tenant: acme\r\n", "X-MTA-Tenant: beta\r\n"}[rng.IntN(3)] +
			[]string{"", "X-MTA-Campaign: spring\r\n", "X-MTA-Campaign: autumn\r\n"}[rng.IntN(3)]
	}
	b.config = `tenant "acme" {}
tenant "beta" {}
source "out1" { address = "127.30.1.1" }
source "out2" { address = "127.30.1.2" }
provider "slow" {
  mx               = ["mx.slow.example"]
  connection_limit = 1
}
`
	compared, kills := 0, 0
	b.started = func(t *testing.T) { compared += b.compareCounters(t) }
	b.storm(t, tortureSize(t, 3), func(r *relay, _ *rand.Rand) (settled bool) {
		kills++
		b.await(t, kills*tortureLeast) // a third of their recipients stay in the queue
		r.kill()
		return true
	})
	t.Logf("%d recipients were in the queue when the counters were compared", compared)
	if compared < 100 {
		t.Error("that tests nothing")
	}
	b.startLate(t)
	b.judge(t, b.settle(t))
}

// startLate starts the host that was down.
func (b *battlefield) startLate(t *testing.T) {
	t.Helper()
	mailHost(t, net.JoinHostPort("127.30.0.9", b.port), sink.Config{Recorder: b.taken})
	c := api.NewClient(b.relay.dir + "/data/control.sock")
	defer c.Close()
	if _, err := api.OpChange.Call(t.Context(), c, api.Change{Action: api.Retry, All: true, Now: true}); err != nil {
		t.Fatal(err)
	}
}

// compareCounters suspends the sites whose hosts answer, and compares each counter once what was under way has ended.
func (b *battlefield) compareCounters(t *testing.T) (queued int) {
	t.Helper()
	c := api.NewClient(b.relay.dir + "/data/control.sock")
	defer c.Close()
	answering := []string{"quick.example", "slow.example"}
	for _, d := range answering {
		if _, err := api.OpSuspend.Call(t.Context(), c, api.Suspend{Site: d, For: api.Age(time.Hour)}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, patience, func() error {
		listed, err := listCounts(t.Context(), c)
		if err != nil {
			return err
		}
		for _, by := range api.SummaryBys {
			counted, err := api.OpSummary.Call(t.Context(), c, api.SummaryQuery{By: by})
			if err != nil {
				return err
			}
			looked, err := lookThrough(t.Context(), c, by)
			if err != nil {
				return err
			}
			if !reflect.DeepEqual(counted.Rows, looked.Rows) || !reflect.DeepEqual(counted.Total, looked.Total) || !counted.Exact {
				return fmt.Errorf("by %s the counters have\n%+v\nand the queue has\n%+v", by, counted.Rows, looked.Rows)
			}
			totals := make(map[string]int)
			for _, row := range counted.Rows {
				totals[row.Key] = row.Total
			}
			if want, ok := listed[by]; ok && !maps.Equal(totals, want) {
				return fmt.Errorf("by %s the counters have %v and the list has %v", by, totals, want)
			}
			queued = counted.Total.Total
		}
		return nil
	})
	for _, name := range answering {
		if _, err := api.OpResume.Call(t.Context(), c, api.Resume{Site: name}); err != nil {
			t.Fatal(err)
		}
	}
	return queued
}

// lookThrough has the relay look at each recipient: a filter that fits all rules the counters out.
func lookThrough(ctx context.Context, c *api.Client, by api.SummaryBy) (all api.Summary, err error) {
	for page := (api.SummaryPage{}); ; {
		part, err := api.OpSummary.Call(ctx, c, api.SummaryQuery{By: by, Filter: api.Filter{Newer: api.Age(24 * time.Hour)}, SummaryPage: page})
		if err != nil {
			return all, err
		}
		if page.After == "" {
			all = part
		} else {
			all = api.AddSummaries(all, part)
		}
		if page.After = part.Next; page.After == "" {
			return all, nil
		}
	}
}

// listCounts walks the list of the queue to its end, and counts recipients by what it shows of them.
func listCounts(ctx context.Context, c *api.Client) (map[api.SummaryBy]map[string]int, error) {
	counts := make(map[api.SummaryBy]map[string]int)
	count := func(by api.SummaryBy, name string) {
		if counts[by] == nil {
			counts[by] = make(map[string]int)
		}
		counts[by][name]++
	}
	for page := (api.Page{Limit: api.MaxLimit}); ; {
		list, err := api.OpList.Call(ctx, c, api.ListQuery{Page: page})
		if err != nil {
			return nil, err
		}
		for _, m := range list.Messages {
			for _, r := range m.Recipients {
				count(api.ByDomain, domainOf(r.Address))
				count(api.ByTenant, m.Tenant)
				count(api.ByCampaign, m.Campaign)
				count(api.BySenderDomain, domainOf(m.Sender))
				count(api.ByState, string(r.State))
			}
		}
		if page.After = list.Next; page.After == "" {
			return counts, nil
		}
	}
}

func domainOf(address string) string { return address[strings.LastIndex(address, "@")+1:] }
