package internal_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	fenced      = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	link        = regexp.MustCompile(`\]\(([^)\s]*)\)`)
	heading     = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	named       = regexp.MustCompile(`<a id="([^"]*)">`)
	inHeading   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// TestLinksLeadSomewhere: each link of a page to a file or a heading of this tree has its target.
func TestLinksLeadSomewhere(t *testing.T) {
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, page := range append(pages, "../README.md", "../CHANGELOG.md", "../CONTRIBUTING.md", "../SECURITY.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(string(text), ""), -1) {
			path, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(path, ":") {
				continue // another site's
			}
			n++
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: the link %s leads nowhere: %v", page, m[1], err)
			} else if anchor != "" && !anchors(t, target)[anchor] {
				t.Errorf("%s: the link %s has no target in the page", page, m[1])
			}
		}
	}
	if n < 100 {
		t.Errorf("only %d links were found", n)
	}
}

// anchors are those that a page names, and those of its headings, as forges make them.
func anchors(t *testing.T, path string) map[string]bool {
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]bool)
	for _, m := range named.FindAllSubmatch(page, -1) {
		all[string(m[1])] = true
	}
	for _, m := range heading.FindAllSubmatch(fenced.ReplaceAll(page, nil), -1) {
		title := notInAnchor.ReplaceAllString(strings.ToLower(inHeading.ReplaceAllString(string(m[1]), "$1")), "")
		anchor := strings.ReplaceAll(title, " ", "-")
		for i := 1; all[anchor]; i++ {
			anchor = strings.ReplaceAll(title, " ", "-") + "-" + string(rune('0'+i))
		}
		all[anchor] = true
	}
	return all
}
