package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
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
	code, stdout, stderr := runAt(t, api.Config{Queue: q}, args...)
	if code != exitDone {
		t.Fatalf("mta %v: exit code %d, %s", args, code, stderr)
	}
	return stdout, stderr
}

// runAt runs a command line against a relay.
func runAt(t *testing.T, relay api.Config, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := api.Listen(socket, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	relay.Events = slog.New(slog.DiscardHandler)
	s := api.NewServer(relay)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	defer func() {
		s.Shutdown(context.Background())
		<-served
	}()
	var out, errs bytes.Buffer
	c := &cli{in: strings.NewReader(""), out: &out, err: &errs, env: func(string) string { return "" }, now: func() time.Time { return relaytest.Now }}
	code = run(c, append([]string{"mta", "--socket", socket}, args...))
	return code, out.String(), errs.String()
}

// node is one of a cluster of three, with a queue of messages.
type node struct {
	paged
	changed []string // the ids that were named in changes
	logLines
}

// logLines are the records of a node, oldest first. All fit every search.
type logLines struct {
	api.Log
	records []string
	damaged string
}

func (l logLines) Count(_ context.Context, q api.LogCountQuery) (api.LogCounts, error) {
	n := int64(len(l.records))
	return api.LogCounts{By: q.By, Records: n, Groups: []api.LogCount{{Name: "Lost", Count: n, Share: 1}}, Exact: true, Damaged: l.damaged}, nil
}

func (l logLines) Newest(_ context.Context, _ api.LogQuery, after string, limit int) (p api.LogPage, _ error) {
	end := len(l.records)
	if after != "" {
		end, _ = strconv.Atoi(after)
	}
	begin := max(end-min(limit, 2), 0)
	for i := end - 1; i >= begin; i-- {
		p.Records = append(p.Records, json.RawMessage(l.records[i]))
	}
	if begin > 0 {
		p.Next = strconv.Itoa(begin)
	}
	p.Damaged = l.damaged
	return p, nil
}

func nodeWith(ids ...string) *node {
	n := new(node)
	for _, id := range ids {
		n.messages = append(n.messages, api.Item{ID: id, Received: relaytest.Now, Total: 1, Matching: 1,
			Recipients: []api.RecipientStatus{{Address: "dave@big.example", State: api.StateDue, Site: "big.example"}}})
	}
	return n
}

func (n *node) List(ctx context.Context, p api.ListQuery) (l api.List, _ error) {
	if len(p.IDs) == 0 {
		return n.paged.List(ctx, p)
	}
	for _, m := range n.messages {
		if slices.ContainsFunc(p.IDs, func(id string) bool { return strings.EqualFold(id, m.ID) }) {
			l.Messages = append(l.Messages, m)
		}
	}
	return l, nil
}

func (n *node) Get(_ context.Context, id string) (api.Item, error) {
	for _, m := range n.messages {
		if m.ID == id {
			return m, nil
		}
	}
	return api.Item{}, api.NotFound("", "message %s is not in the queue", id)
}

func (n *node) Change(_ context.Context, c api.Change) (api.Changed, error) {
	n.changed = append(n.changed, c.Filter.IDs...)
	return api.Changed{Recipients: len(c.Filter.IDs)}, nil
}

// nodes are those of a cluster by their numbers, from node 1. A nil one does not answer.
type nodes map[int]*node

func (n nodes) Self() int { return 1 }

func (n nodes) Ask(_ context.Context, number int, r *http.Request) (*http.Response, error) {
	if n[number] == nil {
		return nil, errors.New("no answer within 5s")
	}
	w := httptest.NewRecorder()
	relay := api.NewServer(api.Config{Queue: n[number], Log: n[number].logLines, Events: slog.New(slog.DiscardHandler)})
	relay.FromNode(1).ServeHTTP(w, r)
	return w.Result(), nil
}

// clusters is the part of the operations that names the nodes.
type clusters struct {
	api.Clusters
	nodes nodes
}

func (c clusters) Cluster(context.Context) (all api.Cluster, err error) {
	all.On = true
	for _, number := range slices.Sorted(maps.Keys(c.nodes)) {
		all.Members = append(all.Members, api.ClusterMember{Node: number})
	}
	return all, nil
}

func (n nodes) run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	return runAt(t, api.Config{Queue: n[1], Log: n[1].logLines, Clusters: clusters{nodes: n}, Members: n}, append(args, "--cluster")...)
}

// TestOldIDsOfACluster: an id that two nodes have is refused, and both are named; nothing is changed.
func TestOldIDsOfACluster(t *testing.T) {
	const one, two = "01knd1p5c0001", "01knd1p5c0002"
	all := nodes{1: nodeWith(one), 2: nodeWith(two), 3: nodeWith(one)}
	for _, action := range []string{"show", "remove", "bounce"} {
		code, _, errs := all.run(t, "queue", action, one)
		if code != exitFailed || !strings.Contains(errs, "message "+one+" is at node 1 and at node 3") || !strings.Contains(errs, "without --cluster") {
			t.Errorf("%s: %d %s", action, code, errs)
		}
	}
	if code, _, errs := all.run(t, "queue", "remove", one, two); code != exitFailed || len(all[1].changed)+len(all[2].changed) > 0 {
		t.Errorf("%d %s; changed: %v %v", code, errs, all[1].changed, all[2].changed)
	}
	if code, out, errs := all.run(t, "queue", "remove", strings.ToUpper(two)); code != exitDone || out != "1 recipient removed\n" || len(all[2].changed) != 1 {
		t.Errorf("%d %s %s", code, out, errs)
	}
}

// TestClusterWithoutANode: what the others have answered is shown, with the way to the next page, and the node is named.
func TestClusterWithoutANode(t *testing.T) {
	const one, two = "01knd1p5c0001", "01knd1p5c0002"
	for _, test := range []struct{ args, out, more string }{
		{"queue list --limit 1", one, "1 message shown; for the next ones add: --after "},
		{"queue list", two, ""},
		{"queue list --json", "\n" + `{"failed":[{"error":"no answer within 5s","node":3}]}` + "\n", ""},
		{"queue show " + two, two, ""},
		{"queue show --json " + two, `"failed": [`, ""},
		{"queue hold " + two, "1 recipient held", ""},
		{"queue hold --json " + two, `"failed": [`, ""},
	} {
		all := nodes{1: nodeWith(one), 2: nodeWith(two), 3: nil}
		code, out, errs := all.run(t, strings.Fields(test.args)...)
		if code != exitFailed || !strings.Contains(out, test.out) || !strings.Contains(errs, test.more) || !strings.Contains(errs, "node 3: no answer within 5s") {
			t.Errorf("mta %s: %d\n%s\n%s", test.args, code, out, errs)
		}
	}
	all := nodes{1: nodeWith(), 2: nodeWith(), 3: nil}
	if code, out, errs := all.run(t, "queue", "list"); code != exitFailed || out != "" || strings.Contains(errs, "empty") {
		t.Errorf("%d %s %s", code, out, errs)
	}
}

// TestLogOfACluster: the records of all nodes stand in the order of their times, each with its node.
func TestLogOfACluster(t *testing.T) {
	all := nodes{1: nodeWith(), 2: nodeWith(), 3: nodeWith()}
	for i := range 9 {
		at := relaytest.Now.Add(time.Duration(i) * time.Second)
		n := all[i%3+1]
		n.records = append(n.records, fmt.Sprintf(`{"type":"Lost","count":%d,"timestamp":%d,"event_time":%q}`, i+1, at.Unix(),
			at.Format(time.RFC3339Nano)))
	}
	for _, test := range []struct {
		args  string
		order string // nodes and counts
	}{
		{"", "1:1 2:2 3:3 1:4 2:5 3:6 1:7 2:8 3:9"},
		{"--last 4", "3:6 1:7 2:8 3:9"},
		{"--newest", "3:9 2:8 1:7 3:6 2:5 1:4 3:3 2:2 1:1"},
		{"--newest --last 2", "3:9 2:8"},
	} {
		var got []string
		code, out, errs := all.run(t, append([]string{"log"}, strings.Fields(test.args)...)...)
		for line := range strings.Lines(out) {
			f := strings.Fields(line)
			got = append(got, f[0]+":"+f[5])
		}
		if code != exitDone || strings.Join(got, " ") != test.order {
			t.Errorf("log %s: %d %s\n%s%s", test.args, code, got, out, errs)
		}
		code, out, errs = all.run(t, append([]string{"log", "--json"}, strings.Fields(test.args)...)...)
		got = nil
		for line := range strings.Lines(out) {
			var r struct{ Node, Count int }
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%d:%d", r.Node, r.Count))
		}
		if code != exitDone || strings.Join(got, " ") != test.order {
			t.Errorf("log --json %s: %d %s\n%s%s", test.args, code, got, out, errs)
		}
	}
	code, out, errs := all.run(t, "log", "--count-by", "type")
	if code != exitDone || !strings.Contains(out, "Lost       9  100.0%") || !strings.Contains(errs, "9 records") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	all[2].damaged = "a file is damaged"
	all[3] = nil
	code, out, errs = all.run(t, "log", "--count-by", "type")
	if code != exitFailed || !strings.Contains(out, "Lost       6  100.0%") || !strings.Contains(errs, "node 3: no answer within 5s") ||
		!strings.Contains(errs, "node 2: a file is damaged") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	code, out, errs = all.run(t, "bounce", "top", "--json")
	if code != exitFailed || !strings.Contains(out, `"records": 6`) || !strings.Contains(out, `"failed": [`) {
		t.Errorf("%d %s%s", code, out, errs)
	}
	code, out, errs = all.run(t, "log")
	if code != exitFailed || strings.Count(out, "\n") != 6 || !strings.Contains(errs, "node 3: no answer within 5s") ||
		!strings.Contains(errs, "node 2: a file is damaged") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	all[1].records = slices.Repeat(all[1].records[:1], mostLogged+1)
	if code, out, errs = all.run(t, "log", "--last", "0", "--type", "Lost"); code != exitFailed || out != "" ||
		!strings.Contains(errs, "more than 10000 records match") ||
		!strings.Contains(errs, "add --last 10000 or less, or --newest") {
		t.Errorf("%d %.200s %s", code, out, errs)
	}
	if code, out, errs = all.run(t, "log", "--last", "10001"); code != exitUsage || out != "" ||
		!strings.Contains(errs, "make it 10000 at most, or add --newest") {
		t.Errorf("%d %.200s %s", code, out, errs)
	}
	if code, out, errs = all.run(t, "log", "--last", "10001", "--newest"); code != exitFailed ||
		strings.Count(out, "\n") != 10_001 {
		t.Errorf("%d %d lines %s", code, strings.Count(out, "\n"), errs)
	}
	if code, out, errs = all.run(t, "log", "--format", "pmta"); code != exitUsage || out != "" ||
		!strings.Contains(errs, "no column for the node") {
		t.Errorf("%d %.200s %s", code, out, errs)
	}
}

// TestDamagedLogsOfACluster: a record that can't be read stands beside its neighbour and hides no others, and damage is
// in the order of the nodes.
func TestDamagedLogsOfACluster(t *testing.T) {
	all := nodes{1: nodeWith(), 2: nodeWith()}
	for i := range 12 {
		at := relaytest.Now.Add(time.Duration(i) * time.Second)
		n := all[i%2+1]
		record := fmt.Sprintf(`{"type":"Lost","count":%d,"timestamp":%d,"event_time":%q,"site":"<&>"}`, i+1, at.Unix(),
			at.Format(time.RFC3339Nano))
		if i == 2 || i == 9 || i == 10 { // one at the begin of a page
			record = fmt.Sprintf(`{"count":%d,"timestamp":"soon"}`, i+1)
		}
		n.records = append(n.records, record)
	}
	for _, test := range []struct{ args, order string }{
		{"", "1:1 1:3 2:2 2:4 1:5 2:6 1:7 2:8 1:9 1:11 2:10 2:12"},
		{"--last 6", "1:7 2:8 1:9 1:11 2:10 2:12"},
		{"--last 2", "2:10 2:12"},
		{"--newest --last 5", "2:12 2:10 1:11 1:9 2:8"},
	} {
		var got []string
		code, out, errs := all.run(t, append([]string{"log", "--json"}, strings.Fields(test.args)...)...)
		for line := range strings.Lines(out) {
			var r struct{ Node, Count int }
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%d:%d", r.Node, r.Count))
			if record := strings.Replace(line, fmt.Sprintf(`"node":%d,`, r.Node), "", 1); !slices.Contains(all[r.Node].records,
				strings.TrimSpace(record)) {
				t.Errorf("log %s: %s is not in the log of node %d", test.args, record, r.Node)
			}
		}
		if code != exitDone || strings.Join(got, " ") != test.order {
			t.Errorf("log %s: %d %s\n%s%s", test.args, code, got, out, errs)
		}
	}
	for n := 3; n <= 9; n++ {
		all[n] = nodeWith()
	}
	var want []string
	for n := 1; n <= 9; n++ {
		all[n].damaged = "a file is damaged"
		want = append(want, fmt.Sprintf("mta: node %d: a file is damaged", n))
	}
	if code, _, errs := all.run(t, "log"); code != exitFailed || !strings.Contains(errs, strings.Join(want, "\n")) {
		t.Errorf("%d %s", code, errs)
	}
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
