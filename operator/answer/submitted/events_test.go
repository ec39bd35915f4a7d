package submitted

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	nethttp "net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/mta/accounting"
	"example.org/mta/submission/http"
)

// diary is the events of tenant acme at a node: "node.number".
type diary struct {
	node int
	name string

	mu   sync.Mutex
	more chan struct{} // closed with the next event
	at   []time.Time
	runs int // pulls
}

func (d *diary) happen(events int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for range events {
		d.at = append(d.at, time.Now())
	}
	if d.more != nil {
		close(d.more)
		d.more = nil
	}
}

var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // of virtual time

// id is the cursor behind n events.
func (d *diary) id(n int) string {
	return accounting.EventID(d.name, accounting.Position{File: epoch.Unix(), Offset: int64(n)}) + "-next"
}

// from is how many events a cursor has behind it.
func (d *diary) from(after string) (int, error) {
	if t, err := time.Parse("@"+time.RFC3339, after); err == nil {
		return slices.IndexFunc(append(slices.Clone(d.at), t), func(at time.Time) bool { return !at.Before(t) }), nil
	}
	name, at, err := accounting.ParseEventID(strings.TrimSuffix(after, "-next"))
	switch {
	case after == "":
		return 0, nil
	case after == "now":
		return len(d.at), nil
	case err != nil || name != d.name:
		return 0, http.ErrNoEvent
	}
	return int(at.Offset), nil
}

func (d *diary) Pull(ctx context.Context, tenant string, q http.EventQuery) (p http.EventPage, err error) {
	for waited := false; ; waited = true {
		d.mu.Lock()
		d.runs++
		from, err := d.from(q.After)
		to := min(from+q.Limit, len(d.at))
		for i := from; i < to && tenant == "acme"; i++ {
			p.Events = append(p.Events, json.RawMessage(fmt.Sprintf("%d.%d", d.node, i)))
		}
		p.Next = d.id(to)
		if d.more == nil {
			d.more = make(chan struct{})
		}
		more := d.more
		d.mu.Unlock()
		if err != nil || len(p.Events) > 0 || q.Wait == 0 || waited {
			return p, err
		}
		q.After = p.Next
		select {
		case <-more:
		case <-time.After(q.Wait):
		case <-q.Hurry:
		case <-ctx.Done():
			return p, ctx.Err()
		}
	}
}

// diaries gives a cluster of n nodes events.
func diaries(t *testing.T, n int) (*Everywhere, web, map[int]*diary) {
	w, all := make(web), make(map[int]*diary)
	for node := 1; node <= n; node++ {
		w[node], all[node] = new(desk), &diary{node: node, name: fmt.Sprintf("node,%d:", node)}
	}
	e := w.from(t)
	for node, d := range all {
		e.Nodes.(joined).all[node].Events = d
	}
	return e, w, all
}

// TestEventsOfAllNodes: each event of each node comes once, those of a node in their order, whatever the pages' size,
// also while a node is silent for a time.
func TestEventsOfAllNodes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, limit := range []int{1, 2, 3, 5, 100} {
			e, w, all := diaries(t, 3)
			got := make(map[int]int)
			after, unanswered := "", 0
			for round := range 400 {
				time.Sleep(400 * time.Millisecond)
				if round < 100 {
					all[1+rand.IntN(3)].happen(rand.IntN(2))
				}
				w[2].fails = nil
				if round%100 < 30 {
					w[2].fails = errGone
				}
				p, err := e.Pull(t.Context(), "acme", http.EventQuery{After: after, Limit: limit})
				if err != nil || len(p.Events) > limit {
					t.Fatalf("%+v, %v", p, err)
				}
				for _, event := range p.Events {
					var node, number int
					fmt.Sscanf(string(event), "%d.%d", &node, &number)
					if number != got[node] {
						t.Fatalf("limit %d: event %s after %d of its node", limit, event, got[node])
					}
					got[node]++
				}
				after = p.Next
				unanswered += len(p.Unanswered)
			}
			for node, d := range all {
				if got[node] != len(d.at) {
					t.Errorf("limit %d: %d of %d events of node %d", limit, got[node], len(d.at), node)
				}
			}
			if unanswered == 0 {
				t.Error("the silent node was not named")
			}
		}
	})
}

// TestEventsAreWaitedFor: an event of this node comes at once, one of another node soon, and a relay that leaves keeps
// nobody.
func TestEventsAreWaitedFor(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		hurry := make(chan struct{})
		for _, test := range []struct {
			node        int
			least, most time.Duration
		}{{1, 5 * time.Second, 5 * time.Second}, {2, 5 * time.Second, 10 * time.Second}, {0, 30 * time.Second, 30 * time.Second}, {-1, 5 * time.Second, 5 * time.Second}} {
			e, _, all := diaries(t, 3)
			all[3].happen(7) // before now
			time.Sleep(time.Second)
			go func() {
				time.Sleep(5 * time.Second)
				switch {
				case test.node > 0:
					all[test.node].happen(1)
				case test.node < 0:
					close(hurry)
				}
			}()
			began := time.Now()
			p, err := e.Pull(t.Context(), "acme", http.EventQuery{After: "now", Limit: 10, Wait: 30 * time.Second, Hurry: hurry})
			if d := time.Since(began); err != nil || d < test.least || d > test.most || len(p.Events) != max(min(test.node, 1), 0) {
				t.Errorf("node %d: %+v, %v after %s", test.node, p, err, d)
			}
			if all[2].runs > 17 {
				t.Errorf("another node was asked %d times in 30 s", all[2].runs)
			}
			synctest.Wait()
		}
	})
}

// TestPlacesOfEvents: what a client can send as the parameter after.
func TestPlacesOfEvents(t *testing.T) {
	bubble.Test(t, func(t *testing.T) { testPlacesOfEvents(t) })
}

func testPlacesOfEvents(t *testing.T) {
	e, _, all := diaries(t, 2)
	all[1].happen(5)
	time.Sleep(time.Hour)
	all[2].happen(5)
	of := func(node, n int) string { return fmt.Sprintf("%d:%s", node, url.QueryEscape(all[node].id(n))) }
	for after, want := range map[string]string{
		"":                            "1.0 1.1 1.2 1.3 1.4 2.0 2.1 2.2 2.3 2.4",
		all[1].id(3):                  "1.3 1.4 2.0 2.1 2.2 2.3 2.4", // a cursor of before there were others
		all[2].id(3):                  "1.0 1.1 1.2 1.3 1.4 2.3 2.4",
		of(1, 3):                      "1.3 1.4 2.0 2.1 2.2 2.3 2.4",
		of(2, 4) + "," + of(1, 4):     "1.4 2.4",
		of(2, 4) + ",9:x," + of(1, 4): "1.4 2.4", // a node that is gone
		"2:now," + of(1, 4):           "1.4",
		"@2000-01-01T00:30:00Z":       "2.0 2.1 2.2 2.3 2.4",
		"2:" + url.QueryEscape("@2000-01-01T00:30:00Z") + "," + of(1, 5): "2.0 2.1 2.2 2.3 2.4",
		// A node in the place of another one.
		"2:" + url.QueryEscape(strings.ReplaceAll(all[2].id(4), "node", "mx")) + "," + of(1, 5): "2.0 2.1 2.2 2.3 2.4",
	} {
		var got []string
		next := after
		for range 3 {
			p, err := e.Pull(t.Context(), "acme", http.EventQuery{After: next, Limit: 100})
			if err != nil {
				t.Errorf("after %q: %v", next, err)
				break
			}
			for _, event := range p.Events {
				got = append(got, string(event))
			}
			next = p.Next
		}
		slices.Sort(got)
		if strings.Join(got, " ") != want || strings.Contains(next, "9:") {
			t.Errorf("after %q: %s, next %q", after, got, next)
		}
		time.Sleep(time.Second)
	}
	for _, after := range []string{"x", "1:x", of(1, 1) + ",", ":", "1:%zz", "@yesterday", "2000:x"} {
		if p, err := e.Pull(t.Context(), "acme", http.EventQuery{After: after, Limit: 100}); !errors.Is(err, http.ErrNoEvent) {
			t.Errorf("after %q: %+v, %v", after, p, err)
		}
	}
	if p, err := e.Pull(t.Context(), "other", http.EventQuery{Limit: 100}); err != nil || len(p.Events) > 0 {
		t.Errorf("another tenant: %+v, %v", p, err)
	}
	e.Nodes = strangers{}
	if _, err := e.Pull(t.Context(), "acme", http.EventQuery{Limit: 100}); !errors.Is(err, errNodes) {
		t.Error(err)
	}
	e.Nodes = joined{1, map[int]*Everywhere{1: e, 2: {Events: all[2], Own: new(desk), Now: time.Now, Log: e.Log}}}
	for runs := all[2].runs; runs >= 0; runs = -1 {
		for range 200 {
			if p, err := e.Pull(t.Context(), "acme", http.EventQuery{Limit: 10}); err != nil || len(p.Events) < 5 {
				t.Fatalf("%+v, %v", p, err)
			}
		}
		if n := all[2].runs - runs; n < 10 || n > 60 {
			t.Errorf("another node is asked %d times in 200 requests at once", n)
		}
	}
	w := httptest.NewRecorder()
	e.Events = nil
	e.ServeHTTP(w, httptest.NewRequest("POST", "/", strings.NewReader(`{"Do":"events","Tenant":"acme"}`)))
	if !strings.Contains(w.Body.String(), "keeps no accounting log") {
		t.Error(w.Body)
	}
}

// TestNothingIsLostAfterNow: also of nodes that do not answer, or whose turn comes later.
func TestNothingIsLostAfterNow(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, limit := range []int{1, 2, 10} {
			e, w, all := diaries(t, 3)
			for _, d := range all {
				d.happen(3)
			}
			time.Sleep(time.Second)
			w[2].fails = errGone
			next, got := "now", 0
			for round := range 100 {
				p, err := e.Pull(t.Context(), "acme", http.EventQuery{After: next, Limit: limit})
				if err != nil {
					t.Fatal(err)
				}
				next, got = p.Next, got+len(p.Events)
				time.Sleep(time.Second)
				switch round {
				case 0:
					for _, d := range all {
						d.happen(2)
					}
				case 20:
					w[2].fails = nil
				}
			}
			if got != 6 {
				t.Errorf("limit %d: %d events, want 6", limit, got)
			}
		}
	})
}

// dead has node 3 hang until the asker gives up.
type dead struct{ joined }

func (d dead) Ask(ctx context.Context, node int, r *nethttp.Request) (*nethttp.Response, error) {
	if node == 3 {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return d.joined.Ask(ctx, node, r)
}

// TestADeadNodeIsNotWaitedFor: by each page of each tenant; one tries at a time.
func TestADeadNodeIsNotWaitedFor(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		e, _, all := diaries(t, 3)
		e.Nodes = dead{e.Nodes.(joined)}
		_, _ = e.Pull(t.Context(), "acme", http.EventQuery{Limit: 10}) // finds out
		slow := 0
		next := "now"
		for range 100 {
			all[2].happen(1)
			began := time.Now()
			p, err := e.Pull(t.Context(), "acme", http.EventQuery{After: next, Limit: 10})
			if err != nil || !slices.Equal(p.Unanswered, []int{3}) {
				t.Fatalf("%+v, %v", p, err)
			}
			if time.Since(began) > time.Second {
				slow++
			}
			next = p.Next
			time.Sleep(500 * time.Millisecond)
		}
		if slow > 6 {
			t.Errorf("%d of 100 pages wait for it", slow)
		}
	})
}
