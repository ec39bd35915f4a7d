// Package settings reads one declarative file in HCL into tagged structs, reports everything that is
// wrong with it at once, and prints what is in force. It knows nothing of what the settings are for.
//
// The struct tags are the schema: conf names a setting or a block ("name", "name,block", ",label",
// ",inline"); default is its value where the file has none; oneof, min, max and check bound its value; was is
// a former name, which is still read with a warning; example shows how a map is written; reload:"restart" marks a
// setting or a block that a running program can't take over, reload:"whole" a block that waits as a whole while one of
// these does; only:"defaults" a setting that blocks marked Sparse can't have; node what several programs with one file
// have otherwise, see Sums.
//
// Schema.Read walks the HCL tree along the structs (decode.go), value.go takes each value.
// Origins lays blocks over one another. Print and Object show what is in force, Diff what changes, and
// Keep what a restart would bring, Sums what two programs have otherwise. The package starts no goroutines and keeps no
// state.
package settings

import (
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// Schema has what the struct tags refer to and what they can't express.
type Schema struct {
	// Checks test texts, by the tag check. Their errors come from Wrong.
	Checks map[string]func(string) error
	// Remedies are hints about names that are unknown where they stand, by struct and name ("Plan mode").
	Remedies map[string]string
	// Retired has what holds instead of settings and blocks that there were once: by the name, or by struct and name
	// ("Plan mode"). A file that still has one is read, with a warning.
	Retired map[string]string
}

// largestFile is far above any configuration. It keeps a device or a log given by mistake from being
// read into memory.
const largestFile = 4 << 20

// ReadFile reads a file of ordinary size.
func ReadFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	src, err := io.ReadAll(io.LimitReader(f, largestFile+1))
	if err != nil {
		return nil, err
	}
	if len(src) > largestFile {
		return nil, fmt.Errorf("%s is larger than %s: is it the right file?", path, Size(largestFile))
	}
	return src, nil
}

// Read reads src into the struct that root points to; settings that src does not have keep the values
// that they have there. env looks up environment variables, as os.Getenv does; filename is for messages.
// parsed is false when src is not HCL: then nothing was read and the only problems are those of the
// syntax, since everything else said about such a text would be misleading.
func (s *Schema) Read(src []byte, filename string, env func(string) string, root any) (c *Collector, parsed bool) {
	v := reflect.ValueOf(root).Elem()
	c = &Collector{src: src}
	if at, deep := tooDeep(src, filename); deep {
		c.Add(at, "is it the right file?", "the blocks are nested too deeply")
		return c, false
	}
	file, diags := hclsyntax.ParseConfig(src, filename, hcl.InitialPos)
	if diags.HasErrors() {
		c.syntax(diags, filename, v.Type())
		return c, false
	}
	d := &decoder{Schema: s, problems: c, eval: evaluation(env), root: v.Type(), taken: make(map[blockName]*Block)}
	d.body(file.Body.(*hclsyntax.Body), v, BlockOf(v), "", "at the top of the file")
	return c, true
}

// Presets reads settings that the program has built in. It panics when they are wrong.
func (s *Schema) Presets(src []byte, root any) {
	if c, _ := s.Read(src, presetsFile, func(string) string { return "" }, root); c.Err() != nil {
		panic("settings: " + c.Err().Error())
	}
}

const openBlock = "Unclosed configuration block"

// missingBrace returns where a closing brace is missing. The parser only knows which block is open at the
// end of the file; but a block that may stand at the top of a file only, and begins its line without
// any space, shows that what is open there should have ended before it.
func missingBrace(src []byte, filename string, root reflect.Type) (at hcl.Range, message, hint string, found bool) {
	top := homes(root)
	tokens, _ := hclsyntax.LexConfig(src, filename, hcl.InitialPos)
	var open []hclsyntax.Token // the names of the blocks that are open
	for i, t := range tokens {
		switch t.Type {
		case hclsyntax.TokenIdent:
			if len(open) > 0 && t.Range.Start.Column == 1 && top[string(t.Bytes)].isBlock() && headsBlock(src, t) {
				return t.Range, fmt.Sprintf(
						"a closing brace is missing above this line: block %s, opened in line %d, is still open",
						open[len(open)-1].Bytes, open[len(open)-1].Range.Start.Line),
					"write } where that block ends", true
			}
		case hclsyntax.TokenOBrace, hclsyntax.TokenTemplateInterp:
			open = append(open, head(tokens, i))
		case hclsyntax.TokenCBrace, hclsyntax.TokenTemplateSeqEnd:
			open = open[:max(0, len(open)-1)]
		}
	}
	return at, "", "", false
}

var blockHead = regexp.MustCompile(`^\w+[ \t]*("[^"\n]*"[ \t]*)?\{`)

// headsBlock reports whether a name is that of a block that begins there.
func headsBlock(src []byte, name hclsyntax.Token) bool {
	return blockHead.Match(src[name.Range.Start.Byte:])
}

// head gives the name of the block that a brace opens: the first token on its line.
func head(tokens hclsyntax.Tokens, brace int) hclsyntax.Token {
	line := tokens[brace].Range.Start.Line
	for brace > 0 && tokens[brace-1].Range.Start.Line == line && tokens[brace-1].Type != hclsyntax.TokenNewline {
		brace--
	}
	return tokens[brace]
}

// deepest is how far expressions may be nested, and how many operators that the parser nests a
// value may have. No configuration comes near it.
const deepest = 100

// tooDeep finds the place where src is nested deeper than that. The library's parser calls
// itself for each level and has no limit: a damaged file could end a running relay that has
// to read it.
func tooDeep(src []byte, filename string) (hcl.Range, bool) {
	tokens, _ := hclsyntax.LexConfig(src, filename, hcl.InitialPos) // its complaints come again from the parser
	depth, operators := 0, 0
	for _, t := range tokens {
		switch t.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen, hclsyntax.TokenOQuote,
			hclsyntax.TokenOHeredoc, hclsyntax.TokenTemplateInterp:
			depth++
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenCQuote,
			hclsyntax.TokenCHeredoc, hclsyntax.TokenTemplateSeqEnd:
			depth = max(0, depth-1)
		case hclsyntax.TokenTemplateControl:
			depth++ // up to its end, and its "if" up to an "endif"
			operators++
		case hclsyntax.TokenBang, hclsyntax.TokenMinus, hclsyntax.TokenQuestion:
			operators++
		case hclsyntax.TokenEqual:
			operators = 0
		}
		if depth > deepest || operators > deepest {
			return t.Range, true
		}
	}
	return hcl.Range{}, false
}

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
