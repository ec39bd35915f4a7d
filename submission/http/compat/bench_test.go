package compat

import (
	"fmt"
	"strings"
	"testing"

	"example.org/mta/submission/request"
)

// BenchmarkPersonalizations translates a request with a thousand of them for 7 KB of HTML.
func BenchmarkPersonalizations(b *testing.B) {
	var people []string
	for i := range 1000 {
		people = append(people, fmt.Sprintf(`{"to":[{"email":"u%d@b.example"}],"substitutions":{"-name-":"N%d","-code-":"%d"}}`, i, i, i))
	}
	doc := []byte(`{"from":{"email":"a@acme.example"},"subject":"Hi -name-","content":[{"type":"text/html","value":"` +
		strings.Repeat("<p>Dear -name-, {css} your code is -code-</p>", 150) + `"}],"personalizations":[` + strings.Join(people, ",") + `]}`)
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		root, _ := request.ParseTree(doc, limits)
		all, r := sendGrid(root)
		if len(all) != 1000 || len(r.faults) > 0 {
			b.Fatal(len(all), r.faults)
		}
	}
}
