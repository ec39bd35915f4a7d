package metrics

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/mta/mta/tally"
)

// Tests of contrib: the alerts for Prometheus and the dashboards for Grafana speak of metrics that there are. What
// the real Prometheus makes of them is tested in e2e.

// rule is an alert of contrib/prometheus: its settings by name, those of labels and annotations among them.
type rule map[string]string

// readRules reads as much of YAML as the file has; promtool reads all of it, in e2e.
func readRules(t *testing.T) (rules []rule) {
	t.Helper()
	text, err := os.ReadFile("../../../contrib/prometheus/mta.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	setting := regexp.MustCompile(`^ +(- )?([a-z_]+): ?(.*)$`)
	last := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		m := setting.FindStringSubmatch(line)
		switch {
		case m == nil && len(rules) > 0: // a text goes on
			rules[len(rules)-1][last] += strings.TrimSpace(line) + " "
		case m == nil:
		case m[2] == "alert":
			rules = append(rules, rule{"alert": m[3]})
		case m[1] == "" && len(rules) > 0:
			last = m[2]
			rules[len(rules)-1][last] = strings.Trim(strings.TrimPrefix(m[3], ">-"), `"`)
		}
	}
	return rules
}

// panel is one of a dashboard.
type panel struct {
	ID          int
	Type, Title string
	Description string
	Datasource  *struct{ Type, UID string }
	GridPos     struct{ X, Y, W, H int }
	Targets     []struct {
		RefID, Expr  string
		LegendFormat *string
		Datasource   *struct{ Type, UID string }
	}
}

type dashboard struct {
	ID            *int
	UID, Title    string
	Description   string
	SchemaVersion int
	Inputs        any `json:"__inputs"`
	Templating    struct {
		List []struct {
			Name, Type, Definition string
		}
	}
	Annotations struct {
		List []struct{ Name, Expr string }
	}
	Panels []panel
}

func readDashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob("../../../contrib/grafana/*.json")
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]dashboard)
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var d dashboard
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all[strings.TrimSuffix(filepath.Base(path), ".json")] = d
	}
	return all
}

// described gives the labels of each metric of some collectors, by name.
func described(t *testing.T, all []prometheus.Collector) map[string][]string {
	t.Helper()
	ch := make(chan *prometheus.Desc)
	go func() {
		defer close(ch)
		for _, c := range all {
			c.Describe(ch)
		}
	}()
	parts := regexp.MustCompile(`fqName: "([a-z_]+)".*variableLabels: \{([^}]*)\}\}`)
	known := make(map[string][]string)
	for desc := range ch {
		m := parts.FindStringSubmatch(desc.String())
		if m == nil {
			t.Fatalf("%v has no name", desc)
		}
		known[m[1]] = nil
		if m[2] != "" {
			known[m[1]] = strings.Split(m[2], ",")
		}
	}
	return known
}

// knownMetrics gives the labels of each metric of the relay, by name.
func knownMetrics(t *testing.T) map[string][]string {
	t.Helper()
	known := Names()
	maps.Copy(known, described(t, tally.NewMeter().Collectors()))
	for _, name := range []string{"up", "process_start_time_seconds", "process_open_fds", "process_max_fds", "process_resident_memory_bytes", "process_cpu_seconds_total"} {
		known[name] = nil
	}
	return known
}

var (
	// A selector is a metric with its labels, or a name that something follows other than a parenthesis.
	selectors = regexp.MustCompile(`\b(mta_[a-z_]+|process_[a-z_]+|up)\b(\{[^}]*\})?`)
	matchers  = regexp.MustCompile(`([a-z_]+)(=~|!~|!=|=)"`)
	groupings = regexp.MustCompile(`\b(?:by|on|without) \(([a-z_, ]*)\)`)
)

// checkExpr checks that the metrics of an expression and their labels exist.
func checkExpr(where, expr string, known map[string][]string) (faults []string) {
	everywhere := []string{"job", "instance", "le"}
	all := slices.Clone(everywhere)
	found := selectors.FindAllStringSubmatch(expr, -1)
	for _, m := range found {
		name := m[1]
		if _, ok := known[name]; !ok {
			name = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
		}
		labels, ok := known[name]
		if !ok {
			faults = append(faults, fmt.Sprintf("%s: there is no metric %s", where, m[1]))
		}
		all = append(all, labels...)
		for _, l := range matchers.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(labels, l[1]) && !slices.Contains(everywhere, l[1]) {
				faults = append(faults, fmt.Sprintf("%s: %s has no label %s", where, name, l[1]))
			}
		}
	}
	for _, g := range groupings.FindAllStringSubmatch(expr, -1) {
		for l := range strings.SplitSeq(g[1], ",") {
			if !slices.Contains(all, strings.TrimSpace(l)) {
				faults = append(faults, fmt.Sprintf("%s: no metric in it has the label %s", where, l))
			}
		}
	}
	if len(found) == 0 {
		faults = append(faults, where+": it names no metric")
	}
	return faults
}

func TestCheckExpr(t *testing.T) {
	known := knownMetrics(t)
	for expr, faults := range map[string]int{
		`sum by (source) (rate(mta_attempts_total{provider="x"}[5m]))`:               0,
		`histogram_quantile(0.9, sum by (le) (rate(mta_commit_seconds_bucket[5m])))`: 0,
		`mta_attempt_total`: 1, `mta_attempts_total{site="x"}`: 1, `sum by (site) (mta_attempts_total)`: 1, `vector(1)`: 1,
	} {
		if got := checkExpr("it", expr, known); len(got) != faults {
			t.Errorf("%s: %q, want %d faults", expr, got, faults)
		}
	}
}

// TestRules: each alert names metrics that there are, has a severity, texts and a heading in the manual, and tests in
// which it fires and is silent. Each alarm of the relay has one.
func TestRules(t *testing.T) {
	manual, err := os.ReadFile("../../../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile("../../../contrib/prometheus/mta.rules.test.yml")
	if err != nil {
		t.Fatal(err)
	}
	known, exprs, names := knownMetrics(t), "", map[string]bool{}
	for _, r := range readRules(t) {
		name := r["alert"]
		names[name] = true
		exprs += r["expr"] + "\n"
		for _, fault := range checkExpr(name, r["expr"], known) {
			t.Error(fault)
		}
		if !strings.HasPrefix(name, "MTA") || r["for"] == "" || r["summary"] == "" || r["description"] == "" || !slices.Contains([]string{"critical", "warning"}, r["severity"]) {
			t.Errorf("%s lacks something: %q", name, r)
		}
		if want := "https://example.org/mta/docs/monitoring.md#" + strings.ToLower(name); r["runbook_url"] != want {
			t.Errorf("%s: runbook_url is %s, want %s", name, r["runbook_url"], want)
		}
		if !strings.Contains(string(manual), "\n### "+name+"\n") {
			t.Errorf("docs/monitoring.md has no heading %s", name)
		}
		for _, kind := range []string{"firing", "silent"} {
			if !strings.Contains(string(tests), "- name: "+name+", "+kind+"\n") {
				t.Errorf("%s has no test in which it is %s", name, kind)
			}
		}
	}
	if len(names) < 30 {
		t.Errorf("there are %d rules", len(names))
	}
	for _, m := range regexp.MustCompile(`(?m)^### (MTA\w+)$`).FindAllStringSubmatch(string(manual), -1) {
		if !names[m[1]] {
			t.Errorf("docs/monitoring.md: there is no rule %s", m[1])
		}
	}
}

// TestDashboards: their structure, and that their expressions name metrics that there are, of the chosen relays.
func TestDashboards(t *testing.T) {
	known, all := knownMetrics(t), readDashboards(t)
	if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, []string{"overview", "providers", "warmup"}) {
		t.Errorf("dashboards are %v", got)
	}
	uids := map[string]bool{}
	for name, d := range all {
		if d.ID != nil || d.UID == "" || uids[d.UID] || d.Title == "" || d.Description == "" || d.SchemaVersion < 39 || d.Inputs != nil {
			t.Errorf("%s: id %v, uid %q, title %q, version %d", name, d.ID, d.UID, d.Title, d.SchemaVersion)
		}
		uids[d.UID] = true
		var variables []string
		for _, v := range d.Templating.List {
			variables = append(variables, v.Name)
			if v.Type == "query" {
				for _, fault := range checkExpr(name+", variable "+v.Name, v.Definition, known) {
					t.Error(fault)
				}
			}
		}
		if !slices.Equal(variables[:3], []string{"datasource", "job", "instance"}) || d.Templating.List[0].Type != "datasource" {
			t.Errorf("%s: variables are %v", name, variables)
		}
		for _, a := range d.Annotations.List {
			for _, fault := range checkExpr(name+", annotation "+a.Name, a.Expr, known) {
				t.Error(fault)
			}
		}
		checkPanels(t, name, d.Panels, variables, known)
	}
}

func checkPanels(t *testing.T, name string, panels []panel, variables []string, known map[string][]string) {
	t.Helper()
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range panels {
		where := fmt.Sprintf("%s, panel %q", name, p.Title)
		if ids[p.ID] || p.Title == "" {
			t.Errorf("%s: id %d", where, p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, taken := cells[[2]int{x, y}]; taken || x >= 24 {
					t.Fatalf("%s lies over %q, or beyond the edge", where, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if !slices.Contains([]string{"timeseries", "stat", "table"}, p.Type) { // Grafana has them without a plugin
			t.Errorf("%s: type %s", where, p.Type)
		}
		if p.Description == "" || p.Datasource == nil || p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
			t.Errorf("%s: description %q, data source %v, %d targets", where, p.Description, p.Datasource, len(p.Targets))
		}
		refs := map[string]bool{}
		for _, target := range p.Targets {
			if refs[target.RefID] || target.Datasource == nil || target.Datasource.UID != "${datasource}" || target.LegendFormat == nil {
				t.Errorf("%s: target %s", where, target.RefID)
			}
			refs[target.RefID] = true
			for _, fault := range checkExpr(where, target.Expr, known) {
				t.Error(fault)
			}
			for _, m := range selectors.FindAllString(target.Expr, -1) {
				if !strings.Contains(m, `job=~"$job", instance=~"$instance"`) {
					t.Errorf("%s: %s is of all relays", where, m)
				}
			}
			for _, v := range regexp.MustCompile(`\$([a-z]+)`).FindAllStringSubmatch(target.Expr, -1) {
				if !slices.Contains(variables, v[1]) {
					t.Errorf("%s: there is no variable %s", where, v[1])
				}
			}
		}
	}
}

// TestMetricsAreInTheManual: each metric has its place in docs/accounting.md.
func TestMetricsAreInTheManual(t *testing.T) {
	manual, err := os.ReadFile("../../../docs/accounting.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range knownMetrics(t) {
		if strings.HasPrefix(name, "mta_") && !strings.Contains(string(manual), "`"+name+"`") && !strings.Contains(string(manual), "`"+name+"{") {
			t.Errorf("docs/accounting.md lacks %s", name)
		}
	}
}
