package report

import (
	"strings"

	"golang.org/x/net/html"
)

// fromHTML returns the text of a page, a line for each block.
func fromHTML(page string) string {
	var b strings.Builder
	tokens := html.NewTokenizer(strings.NewReader(page))
	hidden := "" // the element whose text is not shown
	for {
		kind := tokens.Next()
		switch kind {
		case html.ErrorToken:
			return b.String()
		case html.TextToken:
			if hidden == "" {
				appendInline(&b, string(tokens.Text()))
			}
			continue
		}
		name, _ := tokens.TagName()
		tag := string(name)
		switch {
		case kind == html.StartTagToken && (tag == "style" || tag == "script" || tag == "title"):
			hidden = tag
		case kind == html.EndTagToken && tag == hidden:
			hidden = ""
		}
		switch tag {
		case "br", "p", "div", "tr", "li", "h1", "h2", "h3", "h4", "table", "ul", "hr", "pre", "blockquote":
			b.WriteByte('\n')
		case "td", "th":
			b.WriteByte(' ')
		}
	}
}

// appendInline adds text whose line breaks mean nothing.
func appendInline(b *strings.Builder, text string) {
	text = html.UnescapeString(text)
	for _, r := range text {
		switch r {
		case '\n', '\r', '\t', '\u00a0':
			r = ' '
		}
		b.WriteRune(r)
	}
}
