package settings

import (
	"reflect"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
)

// evaluation is what expressions can use: the function env, no variables.
func evaluation(env func(string) string) *hcl.EvalContext {
	return &hcl.EvalContext{Functions: map[string]function.Function{"env": envFunction(env)}}
}

// envFunction gives env("NAME"), which must be set and not empty, and env("NAME", "otherwise").
func envFunction(env func(string) string) function.Function {
	return function.New(&function.Spec{
		Params:   []function.Parameter{{Name: "name", Type: cty.String}},
		VarParam: &function.Parameter{Name: "otherwise", Type: cty.String},
		Type:     function.StaticReturnType(cty.String),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			if len(args) > 2 {
				return cty.NilVal, function.NewArgErrorf(2, "env takes a name and at most one fallback value")
			}
			name := args[0].AsString()
			if v := env(name); v != "" {
				return cty.StringVal(v), nil
			}
			if len(args) == 2 {
				return args[1], nil
			}
			return cty.NilVal, function.NewArgErrorf(0, "the environment variable %s is not set", Quoted(name))
		},
	})
}

// envOnly gives the variable's name when e is just env("NAME").
func envOnly(e hclsyntax.Expression) string {
	call, ok := e.(*hclsyntax.FunctionCallExpr)
	if !ok || call.Name != "env" || len(call.Args) != 1 {
		return ""
	}
	v, diags := call.Args[0].Value(nil)
	if diags.HasErrors() || v.Type() != cty.String || v.IsNull() {
		return ""
	}
	return v.AsString()
}

// syntax adds the complaints of the HCL library. root is the struct of the file's top.
func (c *Collector) syntax(diags hcl.Diagnostics, filename string, root reflect.Type) {
	sane := len(c.src) // what is behind it was taken for text
	for _, diag := range diags {
		if diag.Summary == openQuote && diag.Subject != nil {
			sane = min(sane, diag.Subject.Start.Byte)
		}
	}
	for _, diag := range diags {
		at := hcl.Range{Filename: filename}
		if diag.Subject != nil {
			at = *diag.Subject
		}
		if diag.Severity != hcl.DiagError || at.Start.Byte > sane ||
			at.Start.Byte == sane && sane < len(c.src) && diag.Summary != openQuote {
			continue
		}
		message, hint := plain(diag)
		if diag.Summary == openBlock {
			if place, what, remedy, found := missingBrace(c.src, filename, root); found {
				at, message, hint = place, what, remedy
			}
		}
		c.Add(at, hint, "%s", message)
	}
}

const openQuote = "Invalid multi-line string"

// inPlainWords has, by the summary of a diagnostic of the library, which is written for programmers,
// what is wrong and what to do.
var inPlainWords = map[string][2]string{
	openQuote: {"the string has no closing quote on its line", `write it as "..." on one line`},
	"Invalid single-argument block definition": {"a block with a setting on its first line must end on that line",
		"put each setting on a separate line"},
	"Argument or block definition required": {"this is neither a setting nor a block",
		"write name = value, or name { ... }"},
	openBlock: {"this block has no closing brace",
		"write } where it ends; or another block in it is not closed"},
	"Invalid escape sequence":       {"invalid escape sequence", `write \\ for a backslash, as in "4\\.7\\.0"`},
	"Attribute redefined":           {"this setting appears twice", "remove one of them"},
	"Invalid number literal":        {"this is not a number", `write a string in double quotes: "..."`},
	"Variables not allowed":         {"variables are not supported", noVariables},
	"Unknown variable":              {"variables are not supported", noVariables},
	"Call to unknown function":      {"unknown function", `the only function is env("NAME")`},
	"Function calls not allowed":    {"unknown function", `the only function is env("NAME")`},
	"Not enough function arguments": {"env requires the name of an environment variable", envRemedy},
}

const (
	noVariables = `write a string in double quotes: "..."; env("NAME") reads an environment variable`
	envRemedy   = `set it, or add a fallback: env("NAME", "otherwise")`
)

// plain gives one line about what is wrong, and another about what to do.
func plain(diag *hcl.Diagnostic) (message, hint string) {
	if words, ok := inPlainWords[diag.Summary]; ok {
		return words[0], words[1]
	}
	switch {
	case diag.Summary == "Invalid function argument":
		if _, reason, ok := strings.Cut(diag.Detail, `"name" parameter: `); ok {
			return strings.TrimSuffix(reason, "."), envRemedy
		}
	case diag.Summary == "Invalid block definition" && !strings.Contains(diag.Detail, "same line"):
		words := inPlainWords["Argument or block definition required"]
		return words[0], words[1]
	}
	return ourWords.Replace(lowerFirst(diag.Summary)), ourWords.Replace(oneLine(diag.Detail))
}

// ourWords puts our word in the place of the library's.
var ourWords = strings.NewReplacer("an argument definition", "a setting", "argument definition", "setting",
	"an argument", "a setting", "argument", "setting")

func lowerFirst(s string) string {
	if s == "" || len(s) > 1 && s[1] >= 'A' && s[1] <= 'Z' {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}

// oneLine makes the library's sentences fit below an excerpt.
func oneLine(s string) string {
	return lowerFirst(strings.TrimSuffix(strings.Join(strings.Fields(s), " "), "."))
}
