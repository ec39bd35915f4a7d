package internal_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// longest is how many characters a line of code may have, a tab as four. A tag of a struct or another literal between
// backquotes can't be divided.
const longest = 120

func TestLinesFitTheScreen(t *testing.T) {
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for i, line := range strings.Split(string(text), "\n") {
			n := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
			if n > longest && !strings.Contains(line, "`") && !strings.HasPrefix(line, "\"") {
				t.Errorf("%s:%d has %d characters: divide it", path, i+1, n)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
