package accounting

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/linelog"
)

// TestTheManualNamesEveryField holds docs/accounting.md against what is written.
func TestTheManualNamesEveryField(t *testing.T) {
	page, err := os.ReadFile("../../docs/accounting.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	written := make(map[string]bool)
	full := delivery()
	full.Response.Local, full.Release, full.User = true, accepted, "ann"
	full.Key, full.Tags, full.Meta, full.TraceID = "shop", []string{"news"}, `{}`, "4bf92f3577b34da6a3ce929d0e0e4736"
	full.MovedFrom = "node2/1kjmma2g00007"
	full.Class, full.Headers, full.Report, full.MatchedBy = "SpamBlock", `{}`, `{}`, ByToken
	w := Writer{node: `"n"`, cfg: Config{Now: time.Now}}
	lines := [][]byte{w.Gap(Position{File: 1, Offset: 2}, Position{File: 3, Offset: 4}, 5)}
	for _, r := range []Record{full, {Type: Warmup, Event: "advanced", Stage: 2, Attempt: Attempt{EgressSource: "s"}, Time: accepted}, {Type: Lost, Count: 1, Time: accepted}} {
		lines = append(lines, appendRecord(nil, &r, `"n"`))
	}
	for _, line := range lines {
		var fields map[string]any
		if err := json.Unmarshal(line, &fields); err != nil {
			t.Fatal(err)
		}
		for name, v := range fields {
			written[name] = true
			if inner, ok := v.(map[string]any); ok {
				for n := range inner {
					written[name+"."+n] = true
				}
			}
		}
	}
	_, table, _ := strings.Cut(text, "## Fields")
	table, _, _ = strings.Cut(table, "\n## ")
	var named []string
	for _, m := range regexp.MustCompile("(?m)^- `([a-z_.]+)`:").FindAllStringSubmatch(strings.ReplaceAll(table, "`from`, `to`:", "`from`:\n- `to`:"), -1) {
		named = append(named, m[1])
	}
	slices.Sort(named)
	if want := slices.Sorted(maps.Keys(written)); !slices.Equal(named, want) {
		t.Errorf("the manual has\n%v\nwritten are\n%v", named, want)
	}
	for _, typ := range append([]Type{Gap}, Types...) {
		if !strings.Contains(text, "\n- `"+string(typ)+"`") {
			t.Errorf("the manual does not name the type %s", typ)
		}
	}
	example := delivery()
	line := appendRecord(nil, &example, `"node1"`)
	linelog.Stamp(Position{File: accepted.Unix(), Offset: 4711}, line)
	if line := string(line); !strings.Contains(text, line) {
		t.Errorf("the manual's example is not what is written:\n%s", line)
	}
}
