package request

import (
	"context"
	"strings"
	"testing"
)

// BenchmarkPersonal renders 7 KB of text and HTML, of which ten variables are the recipient's.
func BenchmarkPersonal(b *testing.B) {
	m := Mail{
		Subject: "{{name}}, your order {{order}}",
		Text:    strings.Repeat("A line of text, as mail from a shop has it.\n", 45) + "{{name}} {{order}} {{#items}}{{title}}: {{price}}\n{{/items}}",
		HTML:    strings.Repeat("<p style=\"color: #333\">A line of HTML with markup.</p>\n", 88) + "{{name}} {{order}} {{#items}}<p>{{title}}: {{price}}</p>{{/items}}",
	}
	s, err := LoadTemplates(b.TempDir(), nil)
	if err != nil {
		b.Fatal(err)
	}
	values := data(b, `{"name":"Ann","order":4711,"items":[{"title":"Tea","price":"3.20"},{"title":"Cup","price":"8.00"}]}`)
	common := data(b, `{"shop":"ACME"}`)
	b.Run("render", func(b *testing.B) {
		b.ReportAllocs()
		t, _ := s.Compile("acme", m)
		for b.Loop() {
			if _, err := t.Render(context.Background(), false, values, common); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("compile again", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.Compile("acme", m)
		}
	})
}
