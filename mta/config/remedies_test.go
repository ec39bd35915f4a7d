package config

import (
	"os"
	"strings"
	"testing"
)

// TestFormerSettings: a setting of an earlier version is refused with what to do about it.
func TestFormerSettings(t *testing.T) {
	for text, want := range map[string]string{
		`suppression { feed_status = ["5.1.1"] }`: "remove the line: the class of a refusal decides now",
		`defaults { backlog_threshold = 5 }`:      "remove the line: the relay now opens another connection",
		"plan \"p\" {\n  peak = 3\n}":             "remove the line: the relay always uses the tested value",
	} {
		if _, err := Parse([]byte(text+"\n"), "mta.conf", os.Getenv); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
