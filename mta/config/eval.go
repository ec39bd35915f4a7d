package config

import (
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
				return cty.NilVal, function.NewArgErrorf(2, "env takes a name and at most one value for when it is not set")
			}
			name := args[0].AsString()
			if v := env(name); v != "" {
				return cty.StringVal(v), nil
			}
			if len(args) == 2 {
				return args[1], nil
			}
			return cty.NilVal, function.NewArgErrorf(0, "the environment variable %s is not set", quoted(name))
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

// syntax puts what the HCL library says into this package's form.
func (c *collector) syntax(diags hcl.Diagnostics, filename string) {
	for _, diag := range diags {
		if diag.Severity != hcl.DiagError {
			continue
		}
		at := hcl.Range{Filename: filename}
		if diag.Subject != nil {
			at = *diag.Subject
		}
		message, hint := plain(diag)
		c.add(at, hint, "%s", message)
	}
}

// settings puts our word in the place of the library's.
var settings = strings.NewReplacer("an argument definition", "a setting", "argument definition", "setting",
	"an argument", "a setting", "argument", "setting")

// plain says in one line what is wrong, and in another what to do.
func plain(diag *hcl.Diagnostic) (message, hint string) {
	switch diag.Summary {
	case "Invalid single-argument block definition":
		return "a block that begins with a setting on its first line must end on that line", "put each setting on a line of its own"
	case "Variables not allowed", "Unknown variable":
		return "there are no variables here", `write text in double quotes, as "..."; env("NAME") gives what the environment has`
	case "Call to unknown function", "Function calls not allowed":
		return "unknown function", `there is one, env("NAME")`
	case "Invalid function argument", "Error in function call":
		if _, reason, ok := strings.Cut(diag.Detail, `"name" parameter: `); ok {
			return strings.TrimSuffix(reason, "."), `set it, or give a value for when it is not: env("NAME", "otherwise")`
		}
	}
	return settings.Replace(lowerFirst(diag.Summary)), settings.Replace(oneLine(diag.Detail))
}

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
