package settings

import (
	"reflect"
	"regexp"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// Statement is one name = value of a file, in the top-level block that it belongs to, "" for none; the
// blocks within that block count as part of it.
type Statement struct {
	Block, Name string
	Owner       int // differs between blocks of the same type

	value hclsyntax.Expression
	eval  *hcl.EvalContext
}

// Scan gives the settings of a file that may have any errors: as the parser reads them or, where it
// can't, line by line as far as each makes sense. root points to the struct of the file's top.
func Scan(src []byte, env func(string) string, root any) []Statement {
	if _, deep := tooDeep(src, ""); deep {
		return nil
	}
	eval := evaluation(env)
	file, diags := hclsyntax.ParseConfig(src, "", hcl.InitialPos)
	if diags.HasErrors() {
		return scanLines(string(src), eval, reflect.TypeOf(root).Elem())
	}
	body := file.Body.(*hclsyntax.Body)
	all := attributes("", 0, body, eval)
	for i, b := range body.Blocks {
		all = append(all, attributes(b.Type, i, b.Body, eval)...)
		for _, inner := range b.Body.Blocks {
			all = append(all, attributes(b.Type, i, inner.Body, eval)...)
		}
	}
	return all
}

func attributes(block string, owner int, body *hclsyntax.Body, eval *hcl.EvalContext) (all []Statement) {
	for _, a := range inOrder(body.Attributes) {
		all = append(all, Statement{block, a.Name, owner, a.Expr, eval})
	}
	return all
}

var (
	blockComment = regexp.MustCompile(`(?s)/\*.*?\*/`)
	blockLine    = regexp.MustCompile(`^\s*(\w+)\s*(?:"[^"]*"\s*)?\{(.*)$`)
	settingLine  = regexp.MustCompile(`^\s*(\w+)\s*=\s*(.*)$`)
)

// scanLines reads a file that can't be parsed. Braces may be what is missing, so it goes by names: a
// setting that only the top of a file has is the top's wherever it stands, and each other belongs to the
// block that began last.
func scanLines(src string, eval *hcl.EvalContext, root reflect.Type) (all []Statement) {
	top := homes(root)
	block, owner := "", 0
	lines := strings.Split(blockComment.ReplaceAllString(src, ""), "\n")
	for i, line := range lines {
		if m := blockLine.FindStringSubmatch(line); m != nil {
			if top[m[1]].isBlock() {
				block = m[1]
				owner++
			}
			line = strings.TrimSuffix(strings.TrimSpace(m[2]), "}") // what a block on one line has
		}
		m := settingLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		expr, diags := hclsyntax.ParseExpression([]byte(wholeList(m[2], lines[i+1:])), "", hcl.InitialPos)
		if diags.HasErrors() {
			continue
		}
		home := block
		if top[m[1]] == Setting {
			home = ""
		}
		all = append(all, Statement{home, m[1], owner, expr, eval})
	}
	return all
}

// wholeList adds the lines that a list goes on over.
func wholeList(value string, following []string) string {
	if !strings.HasPrefix(value, "[") {
		return value
	}
	for _, line := range following {
		if strings.Contains(value, "]") {
			break
		}
		value += "\n" + line
	}
	return value
}

// Text gives the value as one text, "" when there is none.
func (s *Statement) Text() string {
	if all := s.Texts(); len(all) == 1 {
		return all[0]
	}
	return ""
}

// Texts gives the value as a list of texts, empty when there is none.
func (s *Statement) Texts() (all []string) {
	v, diags := s.value.Value(s.eval)
	if diags.HasErrors() || v.IsNull() || !v.IsWhollyKnown() {
		return nil
	}
	switch {
	case v.Type() == cty.String:
		return []string{v.AsString()}
	case v.Type().IsTupleType():
		for _, e := range v.AsValueSlice() {
			if e.Type() == cty.String && !e.IsNull() {
				all = append(all, e.AsString())
			}
		}
	}
	return all
}

// True reports whether the value is true.
func (s *Statement) True() bool {
	v, diags := s.value.Value(s.eval)
	return !diags.HasErrors() && v.Type() == cty.Bool && v.IsKnown() && !v.IsNull() && v.True()
}
