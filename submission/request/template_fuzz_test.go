package request

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/cbroglie/mustache"
)

// FuzzTemplate: whatever source and data, rendering ends, within its bounds, and the scanner reads the
// same tags as the library.
func FuzzTemplate(f *testing.F) {
	f.Add("Dear {{name}}{{#l}}{{.}}{{/l}}", `{"name":"x","l":[1,2]}`)
	f.Add("{{=<% %>=}}<%{x}%><%& x%>\n <%#a%>\n<%/a%>", `{"a":{"x":"<>"}}`)
	f.Add("{{>p}} {{^a.b}}{{{c}}}{{/a.b}}{{!x}}", `{"c":null}`)
	f.Add("{{={ }=}}{{x}}{#l}{x}{/l}", `{"x":0,"l":[{"x":1e9}]}`)
	f.Fuzz(func(t *testing.T, source, values string) {
		var m map[string]any
		if json.Unmarshal([]byte(values), &m) != nil {
			return
		}
		of := partials{text: map[string]string{"p": source}, html: map[string]string{"p": source}}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		for _, mail := range []Mail{{Text: source}, {HTML: source}, {Subject: "{{>p}}"}} {
			compiled, faults := compile(mail, of)
			if faults != nil {
				continue
			}
			loose, err := compiled.Render(ctx, false, NewData(m))
			if ctx.Err() != nil {
				t.Fatalf("rendering doesn't end: %v", err)
			}
			strict, strictErr := compiled.Render(ctx, true, NewData(m))
			if err == nil && strictErr == nil && (loose.Text != strict.Text || loose.HTML != strict.HTML) {
				t.Errorf("strict renders %+v, and otherwise %+v", strict, loose)
			}
			if len(loose.Text)+len(loose.HTML) > maxOutput || len(loose.Subject) > maxLine || strings.ContainsAny(loose.Subject, "\r\n\x00") {
				t.Errorf("rendered %q, %d and %d octets", loose.Subject, len(loose.Text), len(loose.HTML))
			}
		}
		checkScan(t, source, NewData(m))
	})
}

// checkScan: the source with unescaped variables renders as the library renders it unescaped.
func checkScan(t *testing.T, source string, values Data) {
	scanned, err := scan(source)
	if err != nil || len(scanned.partials) > 0 {
		return
	}
	none := &mustache.StaticProvider{}
	want, err := mustache.ParseStringPartialsRaw(source, none, true)
	if err != nil {
		return
	}
	got, err := mustache.ParseStringPartials(scanned.raw, none)
	if err != nil {
		t.Fatalf("%q became %q: %v", source, scanned.raw, err)
	}
	a, b := &limited{ctx: context.Background(), room: maxOutput, steps: maxSteps}, &limited{ctx: context.Background(), room: maxOutput, steps: maxSteps}
	_, _ = want.FRender(a, values.values), got.FRender(b, values.values)
	if a.err == nil && b.err == nil && a.out.String() != b.out.String() {
		t.Errorf("%q became %q: it renders %q, not %q", source, scanned.raw, b.out.String(), a.out.String())
	}
}
