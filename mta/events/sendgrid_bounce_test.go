package events

import (
	"os"
	"slices"
	"strings"
	"testing"

	"example.org/mta/bounce"
)

// TestClasses: the table has classes that there are, lacks those about no failure of delivery only, and is the manual's.
func TestClasses(t *testing.T) {
	other := []string{"Suppressed", "Administrative", "AutoReply", "ChallengeResponse", "Subscribe", "Unsubscribe", "Uncategorized"}
	names := bounce.Names()
	for _, name := range names {
		if _, there := classes[name]; there == slices.Contains(other, name) {
			t.Errorf("say what SendGrid calls the class %s", name)
		}
	}
	for name := range classes {
		if !slices.Contains(names, name) {
			t.Errorf("there is no class %s", name)
		}
	}
	page, err := os.ReadFile("../../docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	described := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		word := strings.Trim(cells[0], "| `")
		if len(cells) != 2 || !slices.Contains([]string{invalidAddress, mailboxUnavailable, reputation, content, frequency, technical}, word) {
			continue
		}
		for name := range strings.SplitSeq(strings.TrimSuffix(cells[1], " |"), ", ") {
			described++
			if classes[name] != word {
				t.Errorf("docs/events.md: %s is %q, not %q", name, classes[name], word)
			}
		}
	}
	if described != len(classes) {
		t.Errorf("docs/events.md has %d classes, want %d", described, len(classes))
	}
}
