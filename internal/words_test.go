package internal_test

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// retired are words that operators no longer meet, in docs, pages, alerts or in any text of the program: help,
// tables, messages, errors, the log, names of metrics and fields. The glossary in docs/architecture.md has the
// words in use. What matches except, too, is right.
var retired = []struct{ pattern, use, except string }{
	{`rooms?`, "space, capacity, limit or quota", ""},
	{`troubles?`, "problem, failure or fault", ""},
	{`told|tells?|telling`, "log, report, return, notify or name", ""},
	{`laws?`, "pacing (warm-up) or controller (admission)", ""},
	{`verdicts?`, "result or outcome", ""},
	{`outlets?`, "source", ""},
	{`surplus`, "excess", ""},
	{`siblings?`, "the other sources, hosts or jobs", ""},
	{`ousted`, "displaced or closed", ""},
	{`praise`, "good outcomes", ""},
	{`lift(s|ed|ing)?`, "end or remove (a limit), take (from a queue)", ""},
	{`mend(s|ed|ing)?`, "fix or repair", ""},
	{`reckon(s|ed|ing)?`, "calculate or estimate", ""},
	{`truth`, "boolean", ""},
	{`time spans?`, "duration", ""},
	{`but for`, "except for, or without", ""},
	{`(is|are|was|were) to be`, "must, will or should", ""},
	{`need not|needn't`, "does not have to", ""},
	{`(a|an|any|no) [\w-]+ of (its|their) own`, "separate, or its own", ""},
	{`whoever`, "the client, the operator, the caller", ""},
	{`held (for|by) (a|its|the) (warm-up|plan|source)s?|hold(s|ing)? mode`, "waiting: only an operator holds mail", ""},
	{`parked|parks|parking`, "waiting", ""},
	{`lanes?`, "the mail for a site, a host, a connection", ""},
	{`(a|an|each|every|one|the|last|next|first|this|second|per) looks?([^-\w]|$)`, "check, scan, search or reading", ""},
	{`\w+\W+(is|are|was|were) (no|none)( \w+)?`, "X is not a valid Y (want ...)",
		`there\W+(is|are|was|were) (no|none)|(is|are|was|were) no (longer|more|less|other)`},
}

// exceptions are places where a retired word is right.
var exceptions = []struct{ file, text, why string }{
	{"CHANGELOG.md", "setting `law` of a plan", "an old name that is still read"},
	{"docs/configuration.md", "former name `law`", "an old name that is still read"},
	{"docs/configuration.md", "`lanes`", "a setting"},
	{"docs/benchmarks.md", "`lanes = 4`", "a setting"},
	{"docs/events.md", "`lanes = 4`", "a setting"},
	{"mta.conf.example", "# lanes = 1", "a setting"},
	{"mta/config/plan.go", "former name `law`", "an old name that is still read"},
	{"operator/web/functions.go", "lane", "a function of templates"},
	{"operator/web/templates/site.html", "{{with lane", "a function of templates"},
	{"CONTRIBUTING.md", "It does not tell", "the rule itself"},
	{"mta/config/reasons.md", "`lanes`", "a setting"},
}

func TestRetiredWordsStayRetired(t *testing.T) {
	words, fine := make([]*regexp.Regexp, len(retired)), make([]*regexp.Regexp, len(retired))
	for i, r := range retired {
		words[i] = regexp.MustCompile(`(?i)\b(` + r.pattern + `)\b`)
		fine[i] = regexp.MustCompile(`(?i)\b(` + cmp.Or(r.except, `\z.`) + `)\b`)
	}
	used := make([]bool, len(exceptions))
	for _, text := range texts(t) {
		for i, w := range words {
		hits:
			for _, at := range w.FindAllStringIndex(text.text, -1) {
				if found := text.text[at[0]:at[1]]; fine[i].MatchString(found) || text.own[found] {
					continue
				}
				for x, e := range exceptions {
					if e.file == text.file && strings.Contains(around(text.text, at), e.text) {
						used[x] = true
						continue hits
					}
				}
				line := text.line + strings.Count(text.text[:at[0]], "\n")
				t.Errorf("%s:%d: %q; write: %s", text.file, line, around(text.text, at), retired[i].use)
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
	own  map[string]bool // names in the code that a comment may use
}

// What operators don't see: Go fields in a template, the names of fields in JSON, former names of settings.
var (
	fields = regexp.MustCompile(`\.[A-Z]\w*`)
	names  = regexp.MustCompile(`\b(json|conf|was):"[^"]*"`)
	schema = regexp.MustCompile(`(?m)^ *("[^"]*"|"([^ds]|d[^e]|s[^u])[^"]*":.*),?$`)
)

// engineers are pages that explain the terms of the scheduler and use them, and terms are those.
var (
	engineers = []string{"docs/architecture.md", "docs/delivery.md", "docs/moving-from-kumomta.md"}
	terms     = regexp.MustCompile(`(?i)\b(lanes?|parked|parking)\b`)
)

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
		switch ext := filepath.Ext(name); {
		case slices.Contains([]string{".md", ".yml", ".yaml", ".html", ".example"}, ext), strings.HasSuffix(name, "openapi.json"):
			page, err := os.ReadFile(path)
			switch {
			case ext == ".html":
				page = fields.ReplaceAll(page, nil)
			case ext == ".json":
				page = schema.ReplaceAll(page, nil)
			case slices.Contains(engineers, name):
				page = terms.ReplaceAll(page, nil)
			}
			all = append(all, text{name, 1, string(page), nil})
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

// rewritten are the folders whose comments are free of retired words, and stay so.
var rewritten = []string{
	"cmd/mta", "cmd/mta/sendmail", "delivery/tlspolicy/sts", "delivery/tlspolicy/tlsrpt", "importer/powermta",
	"internal/dkim", "internal/linelog", "internal/sidestore", "mta/config", "mta/config/manual", "operator/api",
	"operator/history", "operator/top", "router",
}

// comments are those of a Go file.
func comments(files *token.FileSet, parsed *ast.File, name string) (found []text) {
	if !slices.Contains(rewritten, filepath.ToSlash(filepath.Dir(name))) {
		return nil
	}
	own := make(map[string]bool)
	ast.Inspect(parsed, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			own[id.Name] = true
		}
		return true
	})
	for _, group := range parsed.Comments {
		found = append(found, text{name, files.Position(group.Pos()).Line, terms.ReplaceAllString(group.Text(), ""), own})
	}
	return found
}

// literals are the strings in a Go file, except the names in tags of fields and the paths of imports, and its comments.
func literals(path, name string) (found []text, err error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		return nil, err
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.BasicLit:
			if s, err := strconv.Unquote(n.Value); n.Kind == token.STRING && err == nil {
				found = append(found, text{name, files.Position(n.Pos()).Line, names.ReplaceAllString(s, ""), nil})
			}
		}
		return true
	})
	return append(found, comments(files, parsed, name)...), nil
}
