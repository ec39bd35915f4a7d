package report

const (
	tokenLength = 43 // of package returnpath
	maxTokens   = 16
)

// collectTokens adds the words of a text that have the form of a token.
func (r *reader) collectTokens(text string) {
	for i := 0; i < len(text); {
		if !isWord(text[i]) {
			i++
			continue
		}
		start := i
		for i < len(text) && isWord(text[i]) {
			i++
		}
		if i-start == tokenLength && text[start] == '1' {
			r.addToken(text[start:i])
		}
	}
}

func (r *reader) addToken(word string) {
	for _, known := range r.result.Tokens {
		if sameAddress(known, word) {
			return
		}
	}
	if len(r.result.Tokens) < maxTokens {
		r.result.Tokens = append(r.result.Tokens, word)
	}
}

func isWord(c byte) bool { return isLetter(c) || isDigit(c) }

// tokensOf collects those of a header.
func (r *reader) tokensOf(h Header) {
	for _, f := range h {
		r.collectTokens(f.Value)
	}
}
