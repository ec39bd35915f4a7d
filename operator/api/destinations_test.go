package api_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/operator/api"
)

func TestSitesAndHostsPageAndFilter(t *testing.T) {
	c := open(t)
	ctx := context.Background()
	sites := func(f api.SiteFilter, limit int) (names []string) {
		for f.Limit = limit; ; {
			l, err := api.OpSites.Call(ctx, c.Client, f)
			if err != nil || len(l.Sites) > limit {
				t.Fatalf("%+v, %v", l, err)
			}
			for _, s := range l.Sites {
				names = append(names, s.Name)
			}
			if f.After = l.Next; f.After == "" {
				return names
			}
		}
	}
	for _, test := range []struct {
		name   string
		filter api.SiteFilter
		want   string
	}{
		{"all", api.SiteFilter{}, "(mx1|mx2).big.example mx.acme.example mx.grey.example mx.post.example mx.silent.example mx1.slow.example"},
		{"name", api.SiteFilter{Names: []string{"MX1.slow.example", "nobody"}}, "mx1.slow.example"},
		{"below", api.SiteFilter{Names: []string{".grey.example"}}, "mx.grey.example"},
		{"provider", api.SiteFilter{Provider: "big"}, "(mx1|mx2).big.example"},
		{"suspended", api.SiteFilter{Suspended: true}, "mx.grey.example"},
		{"none", api.SiteFilter{Busy: true, Names: []string{"nobody"}}, ""},
	} {
		for _, limit := range []int{1, 2, 3, 100} {
			if got := strings.Join(sites(test.filter, limit), " "); got != test.want {
				t.Errorf("%s, pages of %d: %s, want %s", test.name, limit, got, test.want)
			}
		}
	}
	hosts, err := api.OpHosts.Call(ctx, c.Client, api.HostFilter{State: api.HostRetry})
	if err != nil || len(hosts.Hosts) != 1 || hosts.Hosts[0].Broken == nil || hosts.Next != "" {
		t.Errorf("broken hosts: %+v, %v", hosts, err)
	}
	if l, err := api.OpHosts.Call(ctx, c.Client, api.HostFilter{Source: "out1", Paging: api.Paging{Limit: 2}}); err != nil || len(l.Hosts) != 2 || l.Next == "" {
		t.Errorf("hosts of a source: %+v, %v", l, err)
	}
	for name, err := range map[string]error{
		"state": second(api.OpHosts.Call(ctx, c.Client, api.HostFilter{State: "broken"})),
		"limit": second(api.OpSites.Call(ctx, c.Client, api.SiteFilter{Paging: api.Paging{Limit: api.MaxLimit + 1}})),
	} {
		if e := (*api.Error)(nil); !errors.As(err, &e) || e.Status != 400 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestNamesMatchWholeOrBelow(t *testing.T) {
	for _, test := range []struct {
		patterns []string
		want     bool
	}{
		{nil, true},
		{[]string{"MX.example.com"}, true},
		{[]string{"192.0.2.1"}, true},
		{[]string{".example.com"}, true},
		{[]string{"example.com"}, false},
		{[]string{"x.example.com"}, false},
		{[]string{".com", "nobody"}, true},
		{[]string{"192.0.2"}, false},
	} {
		if got := api.Names(test.patterns, "mx.example.com", "192.0.2.1"); got != test.want {
			t.Errorf("%v: %v, want %v", test.patterns, got, test.want)
		}
	}
}

func TestSuspendIsBoundedAndChecked(t *testing.T) {
	c := open(t)
	ctx := context.Background()
	for _, s := range []api.Suspend{
		{Site: "mx1.slow.example"},
		{Site: "mx1.slow.example", For: api.MaxSuspension + api.Age(time.Second)},
		{Site: "mx1.slow.example", For: -1},
		{For: api.Age(time.Hour)},
	} {
		if e := (*api.Error)(nil); !errors.As(second(api.OpSuspend.Call(ctx, c.Client, s)), &e) || e.Status != 400 {
			t.Errorf("%+v was not refused", s)
		}
	}
	for _, s := range []api.SuspendHosts{
		{Hosts: []string{"mx1.slow.example"}},
		{Hosts: []string{"mx1.slow.example"}, For: api.MaxSuspension + api.Age(time.Second)},
		{For: api.Age(time.Hour)},
	} {
		if e := (*api.Error)(nil); !errors.As(second(api.OpSuspendHosts.Call(ctx, c.Client, s)), &e) || e.Status != 400 {
			t.Errorf("%+v was not refused", s)
		}
	}
	hosts, err := api.OpSuspendHosts.Call(ctx, c.Client, api.SuspendHosts{Hosts: []string{".slow.example"}, For: api.Age(time.Hour), Reason: "why not"})
	if err != nil || hosts.Hosts != 1 || !hosts.Until.Equal(now.Add(time.Hour)) {
		t.Errorf("%+v, %v", hosts, err)
	}
	if resumed, err := api.OpResumeHosts.Call(ctx, c.Client, api.ResumeHosts{Hosts: []string{"mx1.slow.example"}}); err != nil || resumed.Hosts != 1 || resumed.Ended != 1 || resumed.Count != 1 {
		t.Errorf("%+v, %v", resumed, err)
	}
	done, err := api.OpSuspend.Call(ctx, c.Client, api.Suspend{Site: "mx1.slow.example", For: api.Age(time.Hour), Reason: "why not"})
	if err != nil || !done.Until.Truncate(time.Second).Equal(now.Add(time.Hour)) {
		t.Errorf("%+v, %v", done, err)
	}
	if resumed, err := api.OpResume.Call(ctx, c.Client, api.Resume{Site: "mx1.slow.example"}); err != nil || resumed.Ended != 1 {
		t.Errorf("%+v, %v", resumed, err)
	}
	for what, err := range map[string]error{
		"resume":        second(api.OpResume.Call(ctx, c.Client, api.Resume{Site: "nobody.example"})),
		"suspend hosts": second(api.OpSuspendHosts.Call(ctx, c.Client, api.SuspendHosts{Hosts: []string{"nobody.example"}, For: api.Age(time.Hour)})),
		"resume hosts":  second(api.OpResumeHosts.Call(ctx, c.Client, api.ResumeHosts{Hosts: []string{"nobody.example"}})),
		"forget":        second(api.OpForget.Call(ctx, c.Client, api.Forget{Hosts: []string{"nobody.example"}})),
	} {
		if !api.IsNotFound(err) || api.Hint(err) == "" {
			t.Errorf("%s of nobody: %v", what, err)
		}
	}
	if err := second(api.OpForget.Call(ctx, c.Client, api.Forget{})); err == nil {
		t.Error("a forget that names nobody was taken")
	}
}

func TestExplainWantsOneQuestion(t *testing.T) {
	c := open(t)
	ctx := context.Background()
	id := c.IDs[1]
	for _, q := range []api.ExplainQuery{{}, {Domain: "big.example", ID: id}, {ID: "x"}, {Domain: "not a domain"}} {
		if e := (*api.Error)(nil); !errors.As(second(api.OpExplain.Call(ctx, c.Client, q)), &e) || e.Status != 400 {
			t.Errorf("%+v was not refused", q)
		}
	}
	if e, err := api.OpExplain.Call(ctx, c.Client, api.ExplainQuery{Domain: "BIG.example."}); err != nil || e.Destinations[0].Site != "(mx1|mx2).big.example" {
		t.Errorf("%+v, %v", e, err)
	}
	if e, err := api.OpExplain.Call(ctx, c.Client, api.ExplainQuery{ID: strings.ToUpper(id)}); err != nil || e.Message == nil || e.Message.ID != id {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestTraceStreamsUntilTheWatcherGoes(t *testing.T) {
	c := serve(t, api.Config{Tracer: conversation{{Text: "BDAT 611 LAST"}, {Text: "the disk is full", Content: true}, {Text: "QUIT", Lost: 12}}, Audit: newAudit(t)})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var texts []string
	begun, lost := false, 0
	err := c.Trace(ctx, api.TraceQuery{Site: "big.example", Content: true}, func() { begun = true }, func(l api.TraceLine) error {
		texts = append(texts, l.Text)
		lost += l.Lost
		if l.Text == "QUIT" {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || !begun {
		t.Errorf("ended with %v, begun %v", err, begun)
	}
	if !slices.Contains(texts, "BDAT 611 LAST") || !strings.Contains(strings.Join(texts, ""), "the disk is full") || lost != 12 {
		t.Errorf("said %q, lost %d", texts, lost)
	}
}

// TestTraceEndsWithTheRelay: a watcher doesn't keep the relay from stopping, and hears of it as an
// end, not as an error.
func TestTraceEndsWithTheRelay(t *testing.T) {
	socket := t.TempDir() + "/s"
	l, err := api.Listen(socket, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	s := api.NewServer(api.Config{Tracer: conversation{}, Audit: newAudit(t)})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	c := api.NewClient(socket)
	defer c.Close()
	begun, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- c.Trace(context.Background(), api.TraceQuery{Site: "elsewhere"}, func() { close(begun) }, func(api.TraceLine) error { return nil })
	}()
	<-begun
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if err := errors.Join(<-served, <-ended); err != nil {
		t.Error(err)
	}
}
