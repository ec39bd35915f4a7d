package e2e

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"example.org/mta/lab/bench"
	"example.org/mta/lab/sink"
	"example.org/mta/operator/api"
)

// viewedPages are what the viewers of TestScaleConsole look at.
var viewedPages = []string{
	"/", "/queue", "/queue?order=next", "/queue?order=newest", "/queue?state=deferred", "/queue?state=held", "/queue?state=deferred&order=next",
	"/queue?site=site0.backlog.example&order=next", "/queue?recipient=user7@site7.backlog.example", "/queue?recipient=nobody@site7.backlog.example&order=next",
	"/queue?campaign=none", "/queue/summary?by=site", "/queue/summary?by=domain", "/queue/summary?by=state&older=1s", "/sites", "/sites?order=size",
	"/connections", "/tenants", "/log", "/hosts",
}

// TestScaleConsole has twenty viewers look at the console of a relay with ten million queued messages, each at
// another page, and fifty at its first. They refresh as browsers do.
func TestScaleConsole(t *testing.T) {
	besideOthers(t, fullScale())
	n := scaled(t, "QUEUE", 10_000_000, 20_000)
	g := farSites(t, 1, sink.Config{})
	r := newRelay(t, g.DNS, g.Port, "")
	fillQueue(t, filepath.Join(r.dir, "data", "queue"), n)
	r.startTimed(t, 5*time.Minute)
	console, address, host := startConsole(t, r)
	v := &viewers{home: "http://" + host, took: make(map[string][]time.Duration)}
	v.login(t, address)
	span := 2 * time.Second
	if fullScale() {
		span = 20 * time.Second
	}
	var f figures
	cpu := func() time.Duration {
		own, err := bench.ProcessorTime(console.cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		return own + r.cpu(t)
	}
	memory := r.memory(t, "VmRSS")
	var none float64
	for _, x := range []struct {
		viewers int
		pages   []string
		aim     string
	}{{0, nil, ""}, {1, viewedPages[:1], ""}, {20, viewedPages[:1], ""}, {50, viewedPages[:1], "2 % of a core more"}, {20, viewedPages, ""}} {
		before := cpu()
		v.look(t, x.viewers, x.pages, span)
		share := 100 * (cpu() - before).Seconds() / span.Seconds()
		if x.viewers == 0 {
			none = share
		}
		f.add(fmt.Sprintf("%d viewers of %d pages: relay and console", x.viewers, len(x.pages)), x.aim, "%.1f %% of a core, %.1f more", share, share-none)
	}
	for _, page := range viewedPages {
		took := v.took[page]
		slices.Sort(took)
		f.add(page, "300 ms", "%s half of the time, %s at most, %d times", milliseconds(took[len(took)/2]), milliseconds(took[len(took)-1]), len(took))
	}
	f.add("resident memory for that", "32 MB", "%.0f MB", r.memory(t, "VmRSS")-memory)
	askBacklog(t, r, &f)
	f.print(t, fmt.Sprintf("The console of a relay with %s messages queued:", count(n)))
}

// askBacklog asks the control API for what is looked for in the whole queue.
func askBacklog(t *testing.T, r *relay, f *figures) {
	t.Helper()
	c := r.control(t)
	for _, x := range []struct {
		what   string
		filter api.Filter
		order  api.Order
	}{
		{"everything, by next attempt", api.Filter{}, api.NextAttempt},
		{"deferred, by next attempt", api.Filter{State: api.StateDeferred}, api.NextAttempt},
		{"an unknown recipient, by next attempt", api.Filter{Recipient: "nobody@site7.backlog.example"}, api.NextAttempt},
		{"a campaign without mail, by next attempt", api.Filter{Sender: "nobody@client.example"}, api.NextAttempt},
		{"active", api.Filter{State: api.StateActive}, ""},
	} {
		var l api.List
		took := medianOf(t, 5, func() (err error) {
			l, err = api.OpList.Call(t.Context(), c, api.ListQuery{Filter: x.filter, Page: api.Page{Limit: 100, Order: x.order}})
			return err
		})
		f.add("API: list of "+x.what, "200 ms", "%s, %d listed, %d examined, complete: %v", milliseconds(took), len(l.Messages), l.Looked, l.Complete)
	}
	for _, filter := range []api.Filter{{}, {Older: api.Age(time.Second)}, {Domain: "site7.backlog.example"}} {
		var s api.Summary
		took := medianOf(t, 5, func() (err error) {
			s, err = api.OpSummary.Call(t.Context(), c, api.SummaryQuery{By: api.ByState, Filter: filter})
			return err
		})
		f.add(fmt.Sprintf("API: summary by state of %+v", filter), "200 ms", "%s, %d recipients, %d examined, complete: %v", milliseconds(took), s.Total.Total, s.Looked, s.Complete)
	}
}

// viewers look at pages as browsers do that have a session.
type viewers struct {
	home   string
	client *http.Client

	mu   sync.Mutex                 // guards what follows
	took map[string][]time.Duration // by page
}

// login uses the link that 'mta console' prints.
func (v *viewers) login(t *testing.T, address string) {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	v.client = &http.Client{Jar: jar, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	answer, err := v.client.Get(address)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("the link answers %v (%v)", answer, err)
	}
	answer.Body.Close()
}

// look has n viewers look for a time, each at one of the pages, which is refreshed every 2 s.
func (v *viewers) look(t *testing.T, n int, pages []string, span time.Duration) {
	t.Helper()
	const refresh = 2 * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), span)
	defer cancel()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			page := pages[i%len(pages)]
			next := time.NewTimer(refresh * time.Duration(i) / time.Duration(n))
			<-next.C // each looks once, on however slow a machine
			for {
				if err := v.refresh(page); err != nil {
					t.Errorf("%s: %v", page, err)
					return
				}
				next.Reset(refresh)
				select {
				case <-next.C:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	<-ctx.Done()
	all.Wait()
}

func (v *viewers) refresh(page string) error {
	req, err := http.NewRequest("GET", v.home+page, nil)
	if err != nil {
		return err
	}
	req.Header.Set("HX-Request", "true")
	req.Header.Set("Accept-Encoding", "gzip")
	began := time.Now()
	answer, err := v.client.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	if answer.StatusCode != http.StatusOK {
		err = cmp.Or(err, fmt.Errorf("the answer is %s", answer.Status))
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.took[page] = append(v.took[page], time.Since(began))
	return err
}
