package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.org/mta/lab/bench"
)

// fixedCommit is what each measurement is compared with until there is a release: small losses from one commit to the
// next are within the noise, and add up.
const fixedCommit = "14ba1c1"

// TestBenchOfCommits has the relay of earlier commits and this one do the same work in turns. MTA_BASES names the
// commits, oldest first.
func TestBenchOfCommits(t *testing.T) {
	besideOthers(t, fullSize())
	bases, letters := []string{fixedCommit}, []string{"a", "b", "c", "e"}
	if s := os.Getenv("MTA_BASES"); s != "" {
		bases = strings.Fields(s)
	}
	build := programOf
	if !fullSize() { // a checkout need not have old commits
		bases, letters = []string{"the same"}, letters[:1]
		build = func(*testing.T, string) string { return binary }
	}
	programs := map[string]string{"now": binary}
	for _, b := range bases {
		programs[b] = build(t, b)
	}
	steps := append(slices.Clone(bases), "now")
	rows := [][]string{append([]string{"", "now / " + bases[0]}, stepNames(steps)...)}
	for _, s := range bench.Standards() {
		if !slices.Contains(letters, s.Letter) {
			continue
		}
		var all []*contender
		for _, name := range steps {
			start := func(t *testing.T, g *bench.Ground) bench.Server {
				return measuredRelay(t, g, bench.RelayOptions{Binary: programs[name], Limit: 20}).Server()
			}
			all = append(all, &contender{name: s.Letter + ": " + name, start: start, scenario: s.Scenario, small: 200})
		}
		compete(t, all...)
		for _, figure := range []struct {
			name string
			of   func(*bench.Report) float64
		}{{"messages/s", endToEnd}, {"CPU", cpu}, {"memory", memory}} {
			rows = append(rows, append([]string{s.Letter + ": " + figure.name}, stepRatios(all, figure.of)...))
		}
	}
	publish(t, "Beside earlier commits", markdown(rows), footnote(t))
}

// stepNames names each step from one commit to the next, where there are several.
func stepNames(steps []string) (names []string) {
	for i := 1; i < len(steps) && len(steps) > 2; i++ {
		names = append(names, steps[i]+" / "+steps[i-1])
	}
	return names
}

// stepRatios has the product of all steps, and each step where there are several: medians of the ratios of runs that
// followed each other.
func stepRatios(all []*contender, of func(*bench.Report) float64) (ratios []string) {
	product := 1.0
	for i := 1; i < len(all); i++ {
		var each []float64
		for n := range min(len(all[i].reports), len(all[i-1].reports)) {
			each = append(each, of(all[i].reports[n])/of(all[i-1].reports[n]))
		}
		step := median(each)
		product *= step
		ratios = append(ratios, fmt.Sprintf("%.2f", step))
	}
	if len(ratios) == 1 {
		return ratios
	}
	return append([]string{fmt.Sprintf("%.2f", product)}, ratios...)
}

// programOf builds the relay of a commit.
func programOf(t *testing.T, commit string) string {
	t.Helper()
	dir := scratch(t)
	program := filepath.Join(dir, "mta-"+commit)
	cmd := exec.Command("sh", "-c", `git -C .. archive "$1" | tar -x -C "$2" && cd "$2" && go build -o "$3" ./cmd/mta`,
		"sh", commit, dir, program)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the relay of commit %s: %v\n%s", commit, err, out)
	}
	return program
}
