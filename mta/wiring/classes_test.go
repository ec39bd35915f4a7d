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

// TestTheManualsListOfClasses holds docs/bounces.md against what the classes are, and what the parts make
// of them.
func TestTheManualsListOfClasses(t *testing.T) {
	page, err := os.ReadFile("../../docs/bounces.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, found := strings.Cut(string(page), "\n\n- `SpamBlock`:")
	if !found {
		t.Fatal("docs/bounces.md lacks the list of classes")
	}
	list, _, _ = strings.Cut("- `SpamBlock`:"+list, "\n\n")
	var want strings.Builder
	for _, c := range bounce.Classes() {
		consequences := []string{mark(c.Hard(), "hard"), suppresses(c), mark(backsOff(c), "back-off"), health(c)}
		consequences = slices.DeleteFunc(consequences, func(s string) bool { return s == "" })
		effects := ""
		if len(consequences) > 0 {
			effects = "; " + strings.Join(consequences, ", ")
		}
		fmt.Fprintf(&want, "- `%v`: %s%s (%s, %d)\n", c, c.Meaning(), effects, c.PowerMTA(), c.SparkPost())
	}
	if got := list + "\n"; got != want.String() {
		t.Errorf("docs/bounces.md should have\n%s\nand not\n%s", want.String(), got)
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
