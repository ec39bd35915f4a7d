package submission

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"example.org/mta/internal/reply"
)

// explained is between a reply and its explanation.
var explained = regexp.MustCompile("[`*]: ")

// Each refusal has a row in the operator's page, word for word.
func TestEachReplyIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/submission.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for line := range strings.Lines(string(page)) {
		if cell, ok := strings.CutPrefix(strings.TrimSpace(line), "- `"); ok {
			if why := explained.FindStringIndex(cell); why != nil {
				cell = cell[:why[0]+1]
			}
			rows = append(rows, strings.NewReplacer("` *", "", "* `", " ", "*", "", "`", "").Replace(cell))
		}
	}
	text := strings.Join(rows, "\n")
	all := refusals(t)
	if len(all) < 40 {
		t.Fatalf("only %d replies found", len(all))
	}
	for name, r := range all {
		words := regexp.MustCompile(`%[sd]`).Split(r.Text, -1)
		for i, w := range words {
			words[i] = regexp.QuoteMeta(strings.TrimSpace(w))
		}
		pattern := `(?m)^` + strconv.Itoa(r.Code) + ` ` + regexp.QuoteMeta(r.Enhanced.String()) + ` *` + strings.Join(words, `.+`) + `$`
		if !regexp.MustCompile(pattern).MatchString(text) {
			t.Errorf("%s: docs/submission.md has no row %s", name, pattern)
		}
	}
}

// refusals reads the tables of replies.
func refusals(t *testing.T) map[string]reply.Form {
	all := make(map[string]reply.Form)
	for _, path := range []string{"replies.go", "intake/replies.go"} {
		readReplies(t, path, all)
	}
	return all
}

func readReplies(t *testing.T, path string, all map[string]reply.Form) {
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || len(v.Values) != 1 {
			return true
		}
		row := v.Values[0].(*ast.CallExpr)
		var r reply.Form
		r.Code, _ = strconv.Atoi(row.Args[0].(*ast.BasicLit).Value)
		for i, e := range row.Args[1].(*ast.CompositeLit).Elts {
			n, _ := strconv.Atoi(e.(*ast.BasicLit).Value)
			r.Enhanced[i] = uint16(n)
		}
		r.Text, _ = strconv.Unquote(row.Args[2].(*ast.BasicLit).Value)
		all[v.Names[0].Name] = r
		return true
	})
}

// The class of a code and of its enhanced code are the same (RFC 3463, 2).
func TestEachReplyIsOfOneClass(t *testing.T) {
	for name, r := range refusals(t) {
		if r.Code/100 != int(r.Enhanced[0]) {
			t.Errorf("%s: %d %s", name, r.Code, r.Enhanced)
		}
	}
}
