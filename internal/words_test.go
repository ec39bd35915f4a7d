package internal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// retired are words that operators no longer meet, in docs or in any text of the program: help, tables,
// messages, errors, the log, names of metrics and fields. The glossary in docs/architecture.md has the
// words in use.
var retired = []struct{ pattern, use string }{
	{`rooms?`, "space, capacity, limit or quota"},
	{`troubles?`, "problem, failure or fault"},
	{`told|tells?|telling`, "log, report, return, notify or name"},
	{`laws?`, "pacing (warm-up) or controller (admission)"},
	{`verdicts?`, "result or outcome"},
	{`outlets?`, "source"},
	{`surplus`, "excess"},
	{`siblings?`, "the other sources, hosts or jobs"},
	{`ousted`, "displaced or closed"},
	{`praise`, "good outcomes"},
	{`lift(s|ed|ing)?`, "end or remove (a limit), take (from a queue)"},
	{`mend(s|ed|ing)?`, "fix or repair"},
	{`reckon(s|ed|ing)?`, "calculate or estimate"},
	{`truth`, "boolean"},
	{`time spans?`, "duration"},
	{`but for`, "except for, or without"},
	{`(is|are|was|were) to be`, "must, will or should"},
	{`need not|needn't`, "does not have to"},
	{`(a|an|any|no) [\w-]+ of (its|their) own`, "separate, or its own"},
	{`whoever`, "the client, the operator, the caller"},
	{`held (for|by) (a|its|the) (warm-up|plan|source)s?|hold(s|ing)? mode`, "waiting: only an operator holds mail"},
}

// exceptions are places where a retired word is right.
var exceptions = []struct{ file, text, why string }{
	{"CHANGELOG.md", "setting `law` of a plan", "an old name that is still read"},
	{"docs/configuration.md", "former name `law`", "an old name that is still read"},
	{"mta/config/plan.go", `was:"law"`, "an old name that is still read"},
	{"warmup/parse.go", `json:"law"`, "an old name that is still read"},
	{"CONTRIBUTING.md", "It does not tell", "the rule itself"},
}

func TestRetiredWordsStayRetired(t *testing.T) {
	words := make([]*regexp.Regexp, len(retired))
	for i, r := range retired {
		words[i] = regexp.MustCompile(`(?i)\b(` + r.pattern + `)\b`)
	}
	used := make([]bool, len(exceptions))
	for _, text := range texts(t) {
		for i, w := range words {
		hits:
			for _, at := range w.FindAllStringIndex(text.text, -1) {
				for x, e := range exceptions {
					if e.file == text.file && strings.Contains(around(text.text, at), e.text) {
						used[x] = true
						continue hits
					}
				}
				t.Errorf("%s:%d: %q; write: %s", text.file, text.line+strings.Count(text.text[:at[0]], "\n"), around(text.text, at), retired[i].use)
			}
		}
	}
	for x, e := range exceptions {
		if !used[x] {
			t.Errorf("the exception %q in %s is no longer needed", e.text, e.file)
		}
	}
}

// around is a match with some of the words before and after it, on one line.
func around(text string, at []int) string {
	from, to := max(at[0]-60, 0), min(at[1]+60, len(text))
	return strings.Join(strings.Fields(strings.ToValidUTF8(text[from:to], "")), " ")
}

// text is a piece of text that operators read, and the line on which it begins.
type text struct {
	file string
	line int
	text string
}

// texts are all pages, and the strings in the program.
func texts(t *testing.T) (all []text) {
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if err == nil && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && d.Name() != "..") {
				return filepath.SkipDir
			}
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(path, "../"))
		switch {
		case strings.HasSuffix(name, ".md"), name == "mta.conf.example", strings.HasSuffix(name, "openapi.json"):
			page, err := os.ReadFile(path)
			all = append(all, text{name, 1, string(page)})
			return err
		case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go"):
			found, err := literals(path, name)
			all = append(all, found...)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// literals are the strings in a Go file, except the tags of fields and the paths of imports.
func literals(path, name string) (found []text, err error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.BasicLit:
			if s, err := strconv.Unquote(n.Value); n.Kind == token.STRING && err == nil {
				found = append(found, text{name, files.Position(n.Pos()).Line, s})
			}
		}
		return true
	})
	return found, nil
}
