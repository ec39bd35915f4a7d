package internal

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPackageCommentsNameFilesThatAreThere: a package's comment is the map of its files.
func TestPackageCommentsNameFilesThatAreThere(t *testing.T) {
	name := regexp.MustCompile(`(^|[\s(])([a-z0-9_]+\.go)\b`)
	seen := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			return err
		}
		for _, of := range name.FindAllStringSubmatch(textOf(f.Doc), -1) {
			seen++
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), of[2])); err != nil {
				t.Errorf("%s names %s, which the package does not have", path, of[2])
			}
		}
		return nil
	})
	if err != nil || seen == 0 {
		t.Errorf("%d names of files are found, %v", seen, err)
	}
}

func textOf(c *ast.CommentGroup) string {
	if c == nil {
		return ""
	}
	return c.Text()
}
