package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/mta/relaytest"
	"example.org/mta/operator/api"
)

// paged is a queue that is listed page by page. A slow one gives at most a few messages a page and an empty page before
// each, as a queue may that had much to look through.
type paged struct {
	api.Queue
	messages []api.Item
	slow     bool
}

func (q paged) List(_ context.Context, p api.ListQuery) (l api.List, _ error) {
	after, looked := strings.CutPrefix(p.After, "empty-")
	if q.slow && !looked {
		return api.List{Next: "empty-" + after}, nil
	}
	if q.slow {
		p.Limit = min(p.Limit, 300)
	}
	from, _ := strconv.Atoi(after)
	to := min(from+p.Limit, len(q.messages))
	if l.Messages = q.messages[from:to]; to < len(q.messages) {
		l.Next = strconv.Itoa(to)
	}
	return l, nil
}

// runAgainst runs a command line against q and gives what it printed.
func runAgainst(t *testing.T, q api.Queue, args ...string) (stdout, stderr string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := api.Listen(socket, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	s := api.NewServer(api.Config{Queue: q, Events: slog.New(slog.DiscardHandler)})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	defer func() {
		s.Shutdown(context.Background())
		<-served
	}()
	var out, errs bytes.Buffer
	c := &cli{in: strings.NewReader(""), out: &out, err: &errs, env: func(string) string { return "" }, now: func() time.Time { return relaytest.Now }}
	if code := run(c, append([]string{"mta", "--socket", socket}, args...)); code != exitDone {
		t.Fatalf("mta %v: exit code %d, %s", args, code, errs.String())
	}
	return out.String(), errs.String()
}

// queues are queues with n messages.
func queues(n int) map[string]api.Queue {
	var all []api.Item
	for i := range n {
		all = append(all, api.Item{
			ID: (envelope.FirstID(relaytest.Now) + envelope.ID(i)).String(), Received: relaytest.Now, Total: 1, Matching: 1,
			Recipients: []api.RecipientStatus{{Address: "dave@big.example", State: api.StateDue, Site: "big.example"}},
		})
	}
	return map[string]api.Queue{"full pages": paged{messages: all}, "short and empty pages": paged{messages: all, slow: true}}
}

func TestListTakesManyPages(t *testing.T) {
	const n = 2*api.MaxLimit + 1
	for name, q := range queues(n) {
		out, errs := runAgainst(t, q, "queue", "list", "--limit", "0")
		if lines := strings.Count(out, "\n"); lines != n+1 || strings.Count(out, "RECIPIENT") != 1 || errs != "" {
			t.Errorf("%s: %d lines, %d of them titles; %s", name, lines, strings.Count(out, "RECIPIENT"), errs)
		}
		out, errs = runAgainst(t, q, "queue", "list", "--limit", "1500")
		if lines := strings.Count(out, "\n"); lines != 1501 || !strings.Contains(errs, "1500 messages shown") {
			t.Errorf("%s: %d lines, want 1501; %s", name, lines, errs)
		}
	}
}

func TestListJSONTakesManyPages(t *testing.T) {
	const n = 2*api.MaxLimit + 1
	for name, q := range queues(n) {
		for _, limit := range []string{"0", "1500"} {
			out, errs := runAgainst(t, q, "queue", "list", "--json", "--limit", limit)
			var got []api.Item
			for line := range strings.Lines(out) {
				var m api.Item
				d := json.NewDecoder(strings.NewReader(line))
				d.DisallowUnknownFields()
				if err := d.Decode(&m); err != nil {
					t.Fatalf("%s: line %q: %v", name, line, err)
				}
				got = append(got, m)
			}
			want, more := n, false
			if limit == "1500" {
				want, more = 1500, true
			}
			if len(got) != want || strings.Contains(errs, "--after") != more {
				t.Errorf("%s, limit %s: %d messages; %s", name, limit, len(got), errs)
			}
		}
	}
}
