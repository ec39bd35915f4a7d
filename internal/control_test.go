package internal_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestControlPageHasTheIdsOfTests compares docs/control.md with the tests: each id in a test's name has a row, and
// each row has a test, with the id in its name or named in the row.
func TestControlPageHasTheIdsOfTests(t *testing.T) {
	page, err := os.ReadFile("../docs/control.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	row := regexp.MustCompile(`(?m)^- ([AFWST]\d+): .*$`)
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		rows[m[1]] = m[0]
	}
	if len(rows) != 20+17+7+17+10 {
		t.Errorf("the page has %d rows with an id", len(rows))
	}
	tests := testsOfTheModule(t)
	tested := map[string]bool{}
	ids := regexp.MustCompile(`^Test(?:Grid_)?((?:[AFWST]\d+_?)+)`)
	for name := range tests {
		m := ids.FindStringSubmatch(name)
		if m == nil {
			continue
		}
		for _, id := range regexp.MustCompile(`[AFWST]\d+`).FindAllString(m[1], -1) {
			tested[id] = true
			if rows[id] == "" {
				t.Errorf("docs/control.md has no row %s for %s", id, name)
			}
		}
	}
	for id, row := range rows {
		for _, m := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(row, -1) {
			tested[id] = true
			if !tests[m[1]] {
				t.Errorf("docs/control.md names %s beside %s, which does not exist", m[1], id)
			}
		}
		if !tested[id] {
			t.Errorf("no test has the promise %s in its name", id)
		}
	}
}

// testsOfTheModule returns the names of all test functions.
func testsOfTheModule(t *testing.T) map[string]bool {
	tests := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(text, -1) {
			tests[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests
}
