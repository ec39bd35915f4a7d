package settings

import (
	"fmt"
	"reflect"
	"regexp"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

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
