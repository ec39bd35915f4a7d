package request

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// data parses JSON as the relay does.
func data(t testing.TB, s string) Data {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		t.Fatal(err)
	}
	return NewData(m)
}

// render compiles and renders one source as text or HTML. Errors come back as text.
func render(t testing.TB, of partials, source string, html, strict bool, values ...Data) string {
	t.Helper()
	m := Mail{Text: source}
	if html {
		m = Mail{HTML: source}
	}
	compiled, faults := compile(m, of)
	if faults != nil {
		return "compile: " + faults[0].Pointer + " " + faults[0].Detail
	}
	out, err := compiled.Render(context.Background(), strict, values...)
	if err != nil {
		var faults Faults
		if !errors.As(err, &faults) {
			t.Fatalf("%q: %v", source, err)
		}
		return "render: " + faults[0].Pointer + " " + faults[0].Detail
	}
	return out.Text + out.HTML
}

func TestRendering(t *testing.T) {
	const values = `{"name":"A & <B>","zero":0,"n":1000000,"big":1e+30,"none":null,"yes":true,"list":[{"x":1},{"x":2}],"names":["a","b"],"o":{"p":{"q":"deep"}},"empty":[],"blank":""}`
	for source, want := range map[string]string{
		"Dear {{name}}":                          "Dear A & <B>",
		"{{n}} {{zero}} {{big}} {{yes}}":         "1000000 0 1e+30 true",
		"[{{none}}] [{{absent}}]":                "[] []",
		"{{#list}}{{x}},{{/list}}":               "1,2,",
		"{{#names}}{{.}} {{/names}}":             "a b ",
		"{{o.p.q}}{{o.p.absent}}":                "deep",
		"{{^empty}}none{{/empty}}":               "none",
		"{{#zero}}zero{{/zero}}":                 "",
		"{{#blank}}x{{/blank}}":                  "",
		"{{#none}}x{{/none}}{{^none}}y{{/none}}": "y",
		"{{=<% %>=}}<%name%> <%& name%>":         "A & <B> A & <B>",
		"{{{name}}} {{&name}}":                   "A & <B> A & <B>",
		"a {{! comment }}b":                      "a b",
		"no tags":                                "no tags",
	} {
		if got := render(t, partials{}, source, false, false, data(t, values)); got != want {
			t.Errorf("%q renders %q, want %q", source, got, want)
		}
	}
	if got := render(t, partials{}, "{{name}} {{{name}}}", true, false, data(t, values)); got != "A &amp; &lt;B&gt; A & <B>" {
		t.Errorf("HTML is rendered as %q", got)
	}
}

func TestOwnDataComesBeforeCommonData(t *testing.T) {
	got := render(t, partials{}, "{{a}} {{b}}", false, true, data(t, `{"a":"own"}`), data(t, `{"a":"common","b":"common"}`))
	if got != "own common" {
		t.Errorf("rendered %q", got)
	}
}

func TestStrict(t *testing.T) {
	for source, want := range map[string]string{
		"{{a}}":                               "1",
		"{{b}}":                               `render: /text the variable "b" is missing`,
		"{{o.x}}":                             `render: /text the variable "o.x" is missing`,
		"{{#b}}{{c}}{{/b}}":                   "",
		"{{^b}}{{c}}{{/b}}":                   `render: /text the variable "c" is missing`,
		"{{#list}}{{x}}{{/list}}":             `render: /text the variable "x" is missing`,
		"{{#list}}{{#x}}{{x}}{{/x}}{{/list}}": "1",
		"{{list}}":                            `render: /text the variable "list" is a list or an object, and no text`,
		"{{none}}":                            "",
		"{{#a}}{{.}}{{/a}}":                   "1",
	} {
		if got := render(t, partials{}, source, false, true, data(t, `{"a":1,"o":{},"list":[{"x":1},{}],"none":null}`)); got != want {
			t.Errorf("%q: %q, want %q", source, got, want)
		}
	}
	of := partials{text: map[string]string{"p": "{{b}}"}}
	if got := render(t, of, "{{>p}}", false, true, Data{}); got != `render: /text the variable "b" is missing` {
		t.Errorf("in a partial: %q", got)
	}
}

func TestPartials(t *testing.T) {
	of := partials{
		text: map[string]string{"sign": "-- \n{{name}} {{=| |=}}|name| |&name|\n", "a": "{{>b}}", "b": "{{>a}}", "self": "x{{>self}}", "outer": "<{{>sign}}>", "broken": "{{#a}}"},
		html: map[string]string{"sign": "<i>{{name}}</i>"},
	}
	values := data(t, `{"name":"A & B"}`)
	for source, want := range map[string]string{
		"{{>sign}}":                           "-- \nA & B A & B A & B\n",
		"  {{> sign }}\nx":                    "  -- \n  A & B A & B A & B\nx",
		"{{>outer}}":                          "<-- \nA & B A & B A & B\n>",
		"{{>self}}":                           `compile: /text the partial "self" includes itself: self > self`,
		"{{>a}}":                              `compile: /text the partial "a" includes itself: a > b > a`,
		"{{> /etc/passwd}}":                   `compile: /text there is no partial "/etc/passwd": partials are the stored templates of the tenant`,
		"{{>broken}}":                         `compile: /text partial "broken": line 1: Section a has no closing tag`,
		strings.Repeat(" ", 17) + "{{>sign}}": `compile: /text line 1: the partial "sign" is indented by more than 16`,
	} {
		if got := render(t, of, source, false, false, values); got != want {
			t.Errorf("%q: %q, want %q", source, got, want)
		}
	}
	if got := render(t, of, "{{>sign}}", true, false, values); got != "<i>A &amp; B</i>" {
		t.Errorf("HTML: %q", got)
	}
}

// TestBombs: each of these hangs, or ends the process, with the library alone.
func TestBombs(t *testing.T) {
	hundred := `{"l":[` + strings.Repeat("1,", 99) + `1],"s":"` + strings.Repeat("x", 1000) + `"}`
	loops := strings.Repeat("{{#l}}", 5) + "%s" + strings.Repeat("{{/l}}", 5)
	tens := map[string]string{"0": strings.Repeat("{{s}}", 100)}
	for i := '1'; i < '8'; i++ {
		tens[string(i)] = strings.Repeat("{{>"+string(i-1)+"}}", 10)
	}
	for name, c := range map[string]struct{ source, want string }{
		"loops of text":    {strings.Replace(loops, "%s", "a row\n", 1), "render: /text rendering takes more than 200000 steps"},
		"loops of nothing": {strings.Replace(loops, "%s", "", 1), "render: /text rendering takes more than 200000 steps"},
		"loops of a value": {strings.Replace(loops, "%s", "{{s}}", 1), "render: /text the rendered text is longer than 4194304 octets"},
		"absent in loops":  {strings.Replace(loops, "%s", "{{absent}}", 1), "render: /text rendering takes more than 200000 steps"},
		"partials of ten":  {"{{>7}}", "render: /text the rendered text is longer than 4194304 octets"},
		"dots":             {"{{" + strings.Repeat("a.", 1<<20) + "a}}", "compile: /text line 1: a name is longer than 255 octets"},
		"sections":         {strings.Repeat("{{#a}}", 100_000), "compile: /text line 1: sections are nested deeper than 50"},
		"tags":             {strings.Repeat("{{a}}", 100_000), "compile: /text the template has more than 20000 tags"},
		"delimiters":       {"{{=| " + strings.Repeat("a", 1<<20) + "b=}}" + strings.Repeat("|"+strings.Repeat("a", 1<<20), 2), "compile: /text line 1: delimiters have up to 16 octets and one space between them"},
		"length":           {strings.Repeat("a", maxSource+1), "compile: /text the template is longer than 4194304 octets"},
		"no end":           {"{{#a}}", `compile: /text line 1: Section a has no closing tag`},
		"unclosed":         {"{{a", "compile: /text line 1: unmatched open tag"},
	} {
		if got := render(t, partials{text: tens}, c.source, false, false, data(t, hundred)); got != c.want {
			t.Errorf("%s: %.200q, want %q", name, got, c.want)
		}
	}
	if got := render(t, partials{}, strings.Replace(loops, "%s", "{{s}}", 1), false, true, data(t, hundred)); got != "render: /text rendering takes more than 200000 steps" {
		t.Errorf("strict: %.200q", got)
	}
}

func TestTheEndOfTheContextEndsRendering(t *testing.T) {
	compiled, _ := compile(Mail{Text: "{{#l}}x{{/l}}"}, partials{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, strict := range []bool{false, true} {
		if _, err := compiled.Render(ctx, strict, data(t, `{"l":[`+strings.Repeat("1,", 99)+`1]}`)); !errors.Is(err, context.Canceled) {
			t.Errorf("strict %v: the error is %v", strict, err)
		}
	}
}

func TestHandlebarsIsRefused(t *testing.T) {
	for source, want := range map[string]string{
		"a\n{{#if x}}b{{/if}}":            "compile: /text line 2: {{#x}} is Mustache for {{#if x}}: write {{#x}}...{{/x}}, and {{^x}}...{{/x}} in place of {{else}}",
		"{{#each list}}{{this}}{{/each}}": "compile: /text line 1: {{#list}} is Mustache for {{#each list}}: write {{#list}}...{{/list}}, and {{^list}}...{{/list}} in place of {{else}}",
		"{{#x}}a{{else}}b{{/x}}":          "compile: /text line 1: {{else}} is Handlebars, and templates here are Mustache: close the section and write {{^name}}...{{/name}}",
		"{{formatDate x y}}":              `compile: /text line 1: the name "formatDate x y" has a space, and helpers of Handlebars are not known`,
	} {
		if got := render(t, partials{}, source, false, false); got != want {
			t.Errorf("%q: %q, want %q", source, got, want)
		}
	}
}

// TestOneLine: nothing that is rendered adds a field.
func TestOneLine(t *testing.T) {
	m := Mail{Subject: "Hello\n{{name}}", Headers: []Header{{Name: "X-Name", Value: "{{name}}"}}}
	compiled, faults := compile(m, partials{})
	if faults != nil {
		t.Fatal(faults)
	}
	out, err := compiled.Render(context.Background(), false, data(t, `{"name":"Ann\r\nBcc: all@example.com\u0000"}`))
	if err != nil || out.Subject != "Hello Ann Bcc: all@example.com" || out.Headers[0] != (Header{Name: "X-Name", Value: "Ann Bcc: all@example.com"}) {
		t.Errorf("rendered %+v: %v", out, err)
	}
}

func TestFaultsPointToTheirPlaces(t *testing.T) {
	_, faults := compile(Mail{Subject: "{{", HTML: "{{/a}}", Headers: []Header{{Name: "X"}, {Name: "X", Value: "{{#a}}"}}}, partials{})
	var places []string
	for _, f := range faults {
		places = append(places, f.Pointer)
	}
	if got := strings.Join(places, " "); got != "/subject /html /headers/1/value" {
		t.Errorf("faults at %s: %v", got, faults)
	}
}

// folder makes files of a store.
func folder(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestStoredTemplates(t *testing.T) {
	s, err := LoadTemplates(folder(t, map[string]string{
		"acme/welcome.subject": "Welcome, {{name}}\n", "acme/welcome.text": "Hi {{name}}\n{{>footer}}", "acme/welcome.html": "<b>{{name}}</b>{{>footer}}",
		"acme/footer.text": "ACME", "acme/footer.html": "<i>ACME</i>", "acme/.git": "x", "acme/welcome.html~": "x", "other/x.text": "x", ".hidden": "x",
	}), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range [][2]string{{"other", "welcome"}, {"acme", "x"}, {"..", "acme"}, {"", ""}} {
		if _, ok := s.Stored(name[0], name[1]); ok {
			t.Errorf("%v is a stored template", name)
		}
	}
	welcome, ok := s.Stored("acme", "welcome")
	if !ok {
		t.Fatal("welcome isn't there")
	}
	m, err := welcome.Render(context.Background(), true, data(t, `{"name":"A&B"}`))
	if err != nil || m.Subject != "Welcome, A&B" || m.Text != "Hi A&B\nACME" || m.HTML != "<b>A&amp;B</b><i>ACME</i>" {
		t.Errorf("rendered %+v: %v", m, err)
	}
	if _, faults := s.Compile("other", Mail{Text: "{{>footer}}"}); faults == nil {
		t.Error("a tenant's partial is found by another")
	}
	if _, faults := s.Compile("acme", Mail{Text: "{{>footer}}"}); faults != nil {
		t.Error(faults)
	}
	if _, faults := (*Templates)(nil).Compile("acme", Mail{Text: "{{a}}"}); faults != nil {
		t.Error(faults)
	}
}

func TestFaultyFilesAreNamed(t *testing.T) {
	for _, c := range []struct {
		files map[string]string
		want  string
	}{
		{map[string]string{"acme/a.html": "{{#a}}", "acme/a.subject": "{{"}, "acme/a.html: line 1: Section a has no closing tag\n"},
		{map[string]string{"acme/a.htm": ""}, "acme/a.htm: the files of a template are NAME.subject, NAME.text and NAME.html"},
		{map[string]string{"acme/a.text": "\xff"}, "acme/a.text: the template is not in UTF-8"},
		{map[string]string{"acme/a.text/b": ""}, "acme/a.text: this is not a file"},
		{map[string]string{"file": ""}, "file: not a directory"},
	} {
		if _, err := LoadTemplates(folder(t, c.files), nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: the error is %v, want %q", c.files, err, c.want)
		}
	}
	if _, err := LoadTemplates("/no/such/folder", nil); err == nil {
		t.Error("a folder that isn't there is loaded")
	}
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	s, err := LoadTemplates(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	big := strings.Repeat("x", maxRemembered/10)
	first, _ := s.Compile("acme", Mail{Text: "{{a}}"})
	if again, _ := s.Compile("acme", Mail{Text: "{{a}}"}); again != first {
		t.Error("the same template was compiled twice")
	}
	if other, _ := s.Compile("other", Mail{Text: "{{a}}"}); other == first {
		t.Error("tenants share a template, whose partials are those of one of them")
	}
	for i := range 30 {
		s.Compile("acme", Mail{Text: big, Subject: strings.Repeat("y", i)})
	}
	if s.octets > maxRemembered || s.recent.Len() != len(s.known) || len(s.known) > 10 || len(s.known) < 5 {
		t.Errorf("%d templates of %d octets are remembered, by %d sums", s.recent.Len(), s.octets, len(s.known))
	}
	if again, _ := s.Compile("acme", Mail{Text: "{{a}}"}); again == first {
		t.Error("the oldest template is still remembered")
	}
}

func TestRendersAtTheSameTime(t *testing.T) {
	s, err := LoadTemplates(folder(t, map[string]string{"acme/p.text": "<{{x}}>"}), nil)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 50 {
				compiled, _ := s.Compile("acme", Mail{Text: "{{>p}}", Subject: strings.Repeat("s", i%3)})
				if m, err := compiled.Render(context.Background(), true, NewData(map[string]any{"x": i > 3})); err != nil || m.Text != "<true>" && m.Text != "<false>" {
					t.Errorf("rendered %q: %v", m.Text, err)
				}
			}
		})
	}
	all.Wait()
}
