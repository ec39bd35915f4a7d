package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/operator/api"
	"example.org/mta/operator/api/controltest"
)

// slowQueue gives at most a few messages a page and an empty page before each, as a queue may
// that had much to look through.
type slowQueue struct{ *controltest.Relay }

func (q slowQueue) List(ctx context.Context, f api.Filter, p api.Page) (api.List, error) {
	if after, ok := strings.CutPrefix(p.After, "empty-"); ok {
		p.After = after
		p.Limit = min(p.Limit, 300)
		return q.Relay.List(ctx, f, p)
	}
	return api.List{Next: "empty-" + p.After}, nil
}

// runAgainst runs a command line against q and gives what it printed.
func runAgainst(t *testing.T, r *controltest.Relay, q api.Queue, args ...string) (stdout, stderr string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := api.Listen(socket, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	s := api.NewServer(api.Config{Queue: q, Log: r, Relay: r, Events: slog.New(slog.DiscardHandler)})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	defer func() {
		s.Shutdown(context.Background())
		<-served
	}()
	var out, errs bytes.Buffer
	c := &cli{in: strings.NewReader(""), out: &out, err: &errs, env: func(string) string { return "" }, now: func() time.Time { return r.Now }}
	if code := run(c, append([]string{"mta", "--socket", socket}, args...)); code != exitDone {
		t.Fatalf("mta %v: exit code %d, %s", args, code, errs.String())
	}
	return out.String(), errs.String()
}

// many makes a relay with n messages.
func many(n int) *controltest.Relay {
	r := controltest.Sample(scriptNow)
	one := r.Messages[3]
	r.Messages = nil
	for i := range n {
		m := one
		m.ID = (envelope.FirstID(scriptNow) + envelope.ID(i)).String()
		r.Messages = append(r.Messages, m)
	}
	return r
}

func TestListTakesManyPages(t *testing.T) {
	const n = 2*api.MaxLimit + 1
	r := many(n)
	for name, q := range map[string]api.Queue{"full pages": r, "short and empty pages": slowQueue{r}} {
		out, errs := runAgainst(t, r, q, "queue", "list", "--limit", "0")
		if lines := strings.Count(out, "\n"); lines != n+1 || strings.Count(out, "RECIPIENT") != 1 || errs != "" {
			t.Errorf("%s: %d lines, %d of them titles; %s", name, lines, strings.Count(out, "RECIPIENT"), errs)
		}
		out, errs = runAgainst(t, r, q, "queue", "list", "--limit", "1500")
		if lines := strings.Count(out, "\n"); lines != 1501 || !strings.Contains(errs, "1500 messages shown") {
			t.Errorf("%s: %d lines, want 1501; %s", name, lines, errs)
		}
	}
}

func TestListJSONTakesManyPages(t *testing.T) {
	r := many(2*api.MaxLimit + 1)
	for name, q := range map[string]api.Queue{"full pages": r, "short and empty pages": slowQueue{r}} {
		for _, limit := range []string{"0", "1500"} {
			out, errs := runAgainst(t, r, q, "queue", "list", "--json", "--limit", limit)
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
			want, more := len(r.Messages), false
			if limit == "1500" {
				want, more = 1500, true
			}
			if len(got) != want || strings.Contains(errs, "--after") != more {
				t.Errorf("%s, limit %s: %d messages; %s", name, limit, len(got), errs)
			}
		}
	}
}
