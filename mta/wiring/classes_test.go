package wiring

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"example.org/mta/bounce"
	"example.org/mta/delivery"
	"example.org/mta/mta/config"
)

// TestTheManualsTableOfClasses holds docs/bounces.md against what the classes are, and what the parts make
// of them.
func TestTheManualsTableOfClasses(t *testing.T) {
	page, err := os.ReadFile("../../docs/bounces.md")
	if err != nil {
		t.Fatal(err)
	}
	const head = "| class | meaning | consequences | PowerMTA | SparkPost |\n| --- | --- | --- | --- | --- |\n"
	_, table, found := strings.Cut(string(page), head)
	if !found {
		t.Fatalf("docs/bounces.md lacks the table\n%s", head)
	}
	table, _, _ = strings.Cut(table, "\n\n")
	var want strings.Builder
	for _, c := range bounce.Classes() {
		consequences := []string{mark(c.Hard(), "hard"), suppresses(c), mark(backsOff(c), "back-off"), health(c)}
		consequences = slices.DeleteFunc(consequences, func(s string) bool { return s == "" })
		fmt.Fprintf(&want, "| `%v` | %s | %s | %s | %d |\n", c, c.Meaning(), strings.Join(consequences, ", "),
			c.PowerMTA(), c.SparkPost())
	}
	if got := strings.TrimSpace(table) + "\n"; got != want.String() {
		t.Errorf("docs/bounces.md should have\n%s%s\nand not\n%s", head, want.String(), got)
	}
}

func mark(on bool, word string) string {
	if on {
		return word
	}
	return ""
}

// suppresses is when refusals of a class put an address on the suppression list, by default.
func suppresses(c bounce.Class) string {
	after := Feed(config.Default()).Classes[c].After
	return mark(after == 1, "suppressed") + mark(after > 1, "suppressed when repeated")
}

// backsOff reports whether a built-in rule acts on refusals of a class.
func backsOff(c bounce.Class) bool {
	return slices.ContainsFunc(delivery.DefaultRules(), func(r delivery.Rule) bool {
		return (r.Fewer > 0 || r.Suspend > 0) && slices.Contains(r.Classes, c)
	})
}

func health(c bounce.Class) string {
	return mark(c.AboutUs(), "refusal") + mark(c.Bounces(), "bounce")
}
