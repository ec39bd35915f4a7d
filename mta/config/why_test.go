package config

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestEachSettingHasAReason compares mta/config/reasons.md with the settings: one that a default can serve is a constant.
func TestEachSettingHasAReason(t *testing.T) {
	page, err := os.ReadFile("reasons.md")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile("`[^`]+`")
	wanting := make(map[string]bool) // by block and setting
	for name, b := range Reference() {
		for _, s := range b.Settings {
			wanting[name+" "+s.Name] = true
		}
	}
	var blocks []string
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "##") {
			heading := strings.TrimLeft(line, "# ")
			blocks = strings.Split(strings.ReplaceAll(heading, "The top of the file", ""), ", ")
		}
		row, reason, _ := strings.Cut(line, ": ")
		if !strings.HasPrefix(row, "- ") || len(blocks) == 0 {
			continue
		}
		if len(reason) < 8 {
			t.Errorf("mta/config/reasons.md: %s has no reason", row)
		}
		for _, name := range names.FindAllString(row, -1) {
			name = strings.Trim(name, "`")
			of := blocks
			if block, setting, ok := strings.Cut(name, "."); ok {
				of, name = []string{block}, setting
			}
			found := false
			for _, b := range of {
				found = found || wanting[b+" "+name]
				delete(wanting, b+" "+name)
			}
			if !found {
				t.Errorf("mta/config/reasons.md has a reason for %s in %q, which have no such setting", name, of)
			}
		}
	}
	for key := range wanting {
		t.Errorf("mta/config/reasons.md has no reason for %q: add one, or make the setting a constant", key)
	}
}
