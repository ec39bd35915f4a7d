package settings

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

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
