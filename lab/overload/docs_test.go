package overload

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"example.org/mta/admission"
)

const page = "../../docs/admission.md"

// TestTableAndPicturesOfTheDocs compares docs/admission.md with what the simulator gives. With
// MTA_UPDATE set it writes them.
func TestTableAndPicturesOfTheDocs(t *testing.T) {
	var table strings.Builder
	table.WriteString("| mode | 3,000/s: not taken (ideal 56.7 %), 5th to 95th percentile | 6,500/s: (ideal 80.0 %) | within 5 points of the ideal after | goodput | admitted, and timed out |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, mode := range Modes {
		law, err := LawOf(mode)
		if err != nil {
			t.Fatal(err)
		}
		rows := run(t, experiment, Options{Seed: 1, Law: law})
		table.WriteString(tableRow(mode, rows))
		if mode == "utilisation" || mode == "pid" {
			var b bytes.Buffer
			if err := Plot("1,000, 3,000, 6,500, 1,000, 1,850 a second where 1,300 can be served: mode "+mode, rows, &b); err != nil {
				t.Fatal(err)
			}
			same(t, "../../docs/admission-"+mode+".svg", b.String())
		}
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(text), "<!-- modes -->\n")
	_, after, _ := strings.Cut(rest, "<!-- end -->\n")
	same(t, page, before+"<!-- modes -->\n"+table.String()+"<!-- end -->\n"+after)
}

func same(t *testing.T, name, want string) {
	t.Helper()
	if os.Getenv("MTA_UPDATE") != "" {
		if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(name); err != nil || string(got) != want {
		t.Errorf("%s is not what the simulator gives (%v): run with MTA_UPDATE=1 and look at it", name, err)
	}
}

func tableRow(mode string, rows []Row) string {
	row := "| `" + mode + "` |"
	settled := ""
	for _, s := range []step{{60, 120, 1 - 1300./3000}, {120, 180, .8}} {
		mean, _, _ := look(rows, s)
		ratios, _ := between(rows, s.from+5, s.to)
		row += fmt.Sprintf(" %.1f, %.1f to %.1f %% |", 100*mean, 100*quantile(ratios, .05), 100*quantile(ratios, .95))
		if settled != "" {
			settled += ", "
		}
		settled += settling(rows, s)
	}
	_, _, goodput := look(rows, step{60, 180, 0})
	var all Counts
	for _, r := range rows {
		all.Admitted += r.Admitted
		all.TimedOut += r.TimedOut
	}
	return row + fmt.Sprintf(" %s | %.1f %% | %.1f %% |\n", settled, 100*goodput, 100*float64(all.TimedOut)/float64(all.Admitted))
}

// settling is how long it took until the average of 5 s stayed within 5 points of the ideal.
func settling(rows []Row, s step) string {
	window := int(5 / admission.Period.Seconds())
	last := 0.
	for i, r := range rows {
		if r.T <= s.from || r.T > s.to || i < window {
			continue
		}
		sum := 0.
		n := 0.
		for _, w := range rows[i-window+1 : i+1] {
			if w.T > s.from {
				sum += w.Ratio()
				n++
			}
		}
		if math.Abs(sum/n-s.ideal) > .05 {
			last = r.T - s.from
		}
	}
	if last > s.to-s.from-10 {
		return "never"
	}
	return fmt.Sprintf("%.1f s", last)
}
