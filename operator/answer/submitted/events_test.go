package submitted

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/submission/http"
)

// diary is the events of tenant acme at a node: "node.number".
type diary struct {
	node int

	mu   sync.Mutex
	more chan struct{} // closed with the next event
	n    int
	runs int // pulls
}

func (d *diary) happen(events int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.n += events
	if d.more != nil {
		close(d.more)
		d.more = nil
	}
}

func (d *diary) Pull(ctx context.Context, tenant string, q http.EventQuery) (p http.EventPage, err error) {
	for waited := false; ; waited = true {
		d.mu.Lock()
		d.runs++
		from := 0
		switch name := fmt.Sprintf("node%d-", d.node); {
		case q.After == "now":
			from = d.n
		case strings.HasPrefix(q.After, name):
			from, _ = strconv.Atoi(q.After[len(name):])
		case q.After != "":
			err = http.ErrNoEvent
		}
		to := min(from+q.Limit, d.n)
		for i := from; i < to && tenant == "acme"; i++ {
			p.Events = append(p.Events, json.RawMessage(fmt.Sprintf("%d.%d", d.node, i)))
		}
		p.Next = fmt.Sprintf("node%d-%d", d.node, to)
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
		w[node], all[node] = new(desk), &diary{node: node}
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
				if round < 100 {
					all[1+rand.IntN(3)].happen(rand.IntN(2))
				}
				w[2].fails = nil
				if round%10 < 3 {
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
				time.Sleep(100 * time.Millisecond)
			}
			for node, d := range all {
				if got[node] != d.n {
					t.Errorf("limit %d: %d of %d events of node %d", limit, got[node], d.n, node)
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
		}{{1, 5 * time.Second, 5 * time.Second}, {2, 5 * time.Second, 7 * time.Second}, {0, 30 * time.Second, 30 * time.Second}, {-1, 5 * time.Second, 5 * time.Second}} {
			e, _, all := diaries(t, 3)
			all[3].happen(7) // before now
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
	e, _, all := diaries(t, 2)
	all[1].happen(5)
	all[2].happen(5)
	for after, want := range map[string]string{
		"":                              "1.0 1.1 1.2 1.3 1.4 2.0 2.1 2.2 2.3 2.4",
		"node1-3":                       "1.3 1.4", // by an event of this node, as by a relay alone
		"1:node1-3":                     "1.3 1.4 2.0 2.1 2.2 2.3 2.4",
		"2:node2-4,1:node1-4":           "1.4 2.4",
		"9:node9-4,2:node2-4,1:node1-4": "1.4 2.4", // a node that is gone
		"2:now,1:node1-4":               "1.4",
	} {
		p, err := e.Pull(t.Context(), "acme", http.EventQuery{After: after, Limit: 100})
		var got []string
		for _, event := range p.Events {
			got = append(got, string(event))
		}
		slices.Sort(got)
		if err != nil || strings.Join(got, " ") != want || strings.Contains(after, "9:") != strings.Contains(p.Next, "9:node9-4") {
			t.Errorf("after %q: %s, next %q, %v", after, got, p.Next, err)
		}
	}
	for _, after := range []string{"node2-3", "1:node2-1", "x:node1-1", "1:,1:", "1:node1-1,", ":", "2:node1-1"} {
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
	busy := false
	e.Nodes = joined{1, map[int]*Everywhere{1: e, 2: {Events: all[2], Own: new(desk), Now: time.Now, Log: e.Log}}}
	for range 200 {
		_, err := e.Pull(t.Context(), "acme", http.EventQuery{Limit: 100})
		busy = busy || errors.Is(err, http.ErrWaiting)
	}
	if !busy {
		t.Error("a tenant may ask the nodes without bounds")
	}
	w := httptest.NewRecorder()
	e.Events = nil
	e.ServeHTTP(w, httptest.NewRequest("POST", "/", strings.NewReader(`{"Do":"events","Tenant":"acme"}`)))
	if !strings.Contains(w.Body.String(), "keeps no accounting log") {
		t.Error(w.Body)
	}
}
