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

// Each refusal has a row in the operator's page, word for word.
func TestEachReplyIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/submission.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for line := range strings.Lines(string(page)) {
		if cell, ok := strings.CutPrefix(line, "| `"); ok {
			cell, _, _ = strings.Cut(cell, " | ")
			rows = append(rows, strings.NewReplacer("` *", "", "* `", " ", "*", "", "`", "").Replace(cell))
		}
	}
	text := strings.Join(rows, "\n")
	all := refusals(t)
	if len(all) < 40 {
		t.Fatalf("only %d replies found in replies.go", len(all))
	}
	for name, r := range all {
		words := regexp.MustCompile(`%[sd]`).Split(r.text, -1)
		for i, w := range words {
			words[i] = regexp.QuoteMeta(strings.TrimSpace(w))
		}
		pattern := `(?m)^` + strconv.Itoa(r.code) + ` ` + regexp.QuoteMeta(r.enhanced.String()) + ` *` + strings.Join(words, `.+`) + `$`
		if !regexp.MustCompile(pattern).MatchString(text) {
			t.Errorf("%s: docs/submission.md has no row %s", name, pattern)
		}
	}
}

// refusals reads replies.go.
func refusals(t *testing.T) map[string]refusal {
	f, err := parser.ParseFile(token.NewFileSet(), "replies.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]refusal)
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || len(v.Values) != 1 {
			return true
		}
		lit := v.Values[0].(*ast.CompositeLit)
		var r refusal
		r.code, _ = strconv.Atoi(lit.Elts[0].(*ast.BasicLit).Value)
		r.enhanced = reply.Enhanced{}
		for i, e := range lit.Elts[1].(*ast.CompositeLit).Elts {
			n, _ := strconv.Atoi(e.(*ast.BasicLit).Value)
			r.enhanced[i] = uint16(n)
		}
		r.text, _ = strconv.Unquote(lit.Elts[2].(*ast.BasicLit).Value)
		all[v.Names[0].Name] = r
		return true
	})
	return all
}

// The class of a code and of its enhanced code are the same (RFC 3463, 2).
func TestEachReplyIsOfOneClass(t *testing.T) {
	for name, r := range refusals(t) {
		if r.code/100 != int(r.enhanced[0]) {
			t.Errorf("%s: %d %s", name, r.code, r.enhanced)
		}
	}
}
