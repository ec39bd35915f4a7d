package messages_test

import (
	"slices"
	"strings"
	"testing"

	"example.org/mta/mta/relaytest"
	"example.org/mta/operator/api"
)

// TestFiltersByReason: a filter by reason fits as many recipients as the status counts for it, and filters by reply,
// provider and source fit those that have them.
func TestFiltersByReason(t *testing.T) {
	o := relaytest.Serve(t, func(t *testing.T) *relaytest.Sample { return relaytest.NewSample(t, "", nil) })
	defer o.Close()
	client := api.NewLocalClient(o)
	defer client.Close()
	count := func(f api.Filter) (n int) {
		t.Helper()
		l, err := api.OpList.Call(t.Context(), client, api.ListQuery{Filter: f, Page: api.Page{Limit: api.MaxLimit}})
		if err != nil {
			t.Fatal(err)
		}
		for i := range l.Messages {
			n += l.Messages[i].Matching
		}
		sum, err := api.OpSummary.Call(t.Context(), client, api.SummaryQuery{By: api.ByTenant, Filter: f})
		if err != nil || sum.Total.Total != n {
			t.Errorf("%s: the list has %d recipients, the summary %d, %v", f, n, sum.Total.Total, err)
		}
		return n
	}
	status, err := api.OpStatus.Call(t.Context(), client, api.None{})
	if err != nil || len(status.Waiting.Reasons) < 4 {
		t.Fatalf("%+v, %v", status.Waiting, err)
	}
	for _, r := range status.Waiting.Reasons {
		if n := count(api.Filter{WaitsFor: api.Reason(r.Reason.String())}); n != r.Recipients {
			t.Errorf("%d recipients wait for %v, want %d", n, r.Reason, r.Recipients)
		}
	}
	sum, err := api.OpSummary.Call(t.Context(), client, api.SummaryQuery{By: api.ByWaitsFor})
	if err != nil || len(sum.Rows) < len(status.Waiting.Reasons) || !sum.Complete {
		t.Errorf("%+v, %v", sum, err)
	}
	for i, row := range sum.Rows {
		if row.Key == "" {
			continue
		}
		if r := status.Waiting.Reasons[slices.IndexFunc(status.Waiting.Reasons, func(r api.WaitsFor) bool {
			return r.Reason.String() == row.Key
		})]; r.Recipients != row.Total || i > 0 && row.Total > sum.Rows[i-1].Total {
			t.Errorf("the summary has %d for %s, the status %d", row.Total, row.Key, r.Recipients)
		}
	}
	list, err := api.OpList.Call(t.Context(), client, api.ListQuery{Filter: api.Filter{WaitsFor: "limit"}})
	if err != nil || len(list.Messages) == 0 || list.Messages[0].Recipients[0].WaitsFor != "limit" {
		t.Errorf("%+v, %v", list, err)
	}
	for _, test := range []struct {
		f    api.Filter
		want int
	}{
		{api.Filter{Provider: "big"}, 2},
		{api.Filter{Provider: "google"}, 0},
		{api.Filter{Provider: "big", WaitsFor: "limit"}, 2},
		{api.Filter{Provider: "big", WaitsFor: "greylisted"}, 0},
		{api.Filter{Reply: "GREYLISTED"}, 2},
		{api.Filter{Reply: "no such words"}, 0},
		{api.Filter{Reply: "greylisted", Source: "out1"}, 2},
		{api.Filter{Source: "acme-1"}, 0},
	} {
		if n := count(test.f); n != test.want {
			t.Errorf("%s fits %d recipients, want %d", test.f, n, test.want)
		}
	}
	worst, err := api.OpSites.Call(t.Context(), client, api.SiteFilter{Order: api.ByWorst, Paging: api.Paging{Limit: 1}})
	if err != nil || len(worst.Sites) != 1 || worst.Sites[0].Name != "(mx1|mx2).big.example" ||
		len(worst.Sites[0].WaitsFor) != 1 || worst.Sites[0].WaitsFor[0].Recipients != 2 || worst.Next == "" {
		t.Errorf("the worst site is %+v, %v", worst, err)
	}
	for _, order := range []api.SiteOrder{api.ByWorst, api.BySize} {
		f, first := api.HostFilter{Order: order, Paging: api.Paging{Limit: 1}}, ""
		hosts, all := api.HostList{}, 0
		for more := true; more; more = hosts.Next != "" {
			f.After = hosts.Next
			if hosts, err = api.OpHosts.Call(t.Context(), client, f); err != nil {
				t.Fatal(err)
			}
			for _, h := range hosts.Hosts {
				if all++; all == 1 {
					first = h.Name
					if len(h.WaitsFor) != 1 || h.WaitsFor[0].Recipients != 2 {
						t.Errorf("the first host by %s is %+v", order, h)
					}
				}
			}
		}
		every, err := api.OpHosts.Call(t.Context(), client, api.HostFilter{})
		if err != nil || all != len(every.Hosts) || !strings.HasSuffix(first, ".big.example") {
			t.Errorf("%d hosts by %s, %s first; want %d, %v", all, order, first, len(every.Hosts), err)
		}
	}
	done, err := api.OpChange.Call(t.Context(), client, api.Change{Action: api.Bounce, Filter: api.Filter{WaitsFor: "unreachable"}})
	if err != nil || done.Recipients != 1 {
		t.Errorf("bounced %+v, %v", done, err)
	}
	if _, err := api.OpList.Call(t.Context(), client, api.ListQuery{Filter: api.Filter{WaitsFor: "weather"}}); err == nil {
		t.Error("a reason that there is not is taken")
	}
}
