package report

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxLocal bounds a local part, in octets: those of return paths are often longer than RFC 5321 allows.
const maxLocal = 200

// maxAddress bounds an address, in octets (RFC 5321, 4.5.3.1: 64 of the local part, 255 of the domain).
const maxAddress = 400

// span is a piece of a text.
type span struct{ from, to int }

// addresses finds what may be an address in a line: at most limit of them.
func addresses(line string, limit int) (found []span) {
	for at := 0; at < len(line) && len(found) < limit; {
		i := strings.IndexByte(line[at:], '@')
		if i < 0 {
			return found
		}
		i += at
		at = i + 1
		from := localStart(line, i)
		to := domainEnd(line, i+1)
		if from == i || to == i+1 || to-from > maxAddress || isElided(line[from:i]) {
			continue
		}
		if bracketed := from > 0 && line[from-1] == '<'; plausibleDomain(line[i+1:to], bracketed) {
			found = append(found, span{from, to})
			at = to
		}
	}
	return found
}

// localStart returns the start of the local part that ends at end.
func localStart(line string, end int) int {
	if end > 0 && line[end-1] == '"' {
		if i := strings.LastIndexByte(line[:end-1], '"'); i >= 0 && end-i <= 66 {
			return i
		}
		return end
	}
	i := end
	for i > 0 && isLocal(line[i-1]) {
		i--
		if end-i > maxLocal {
			return end
		}
	}
	for i < end && !utf8.RuneStart(line[i]) {
		i++
	}
	i = afterWords(line, i, end)
	// What stands before an address without a space: SMTP=a@b, to=a@b, 'a@b', ...a@b.
	for {
		j := i
		for i < end && strings.IndexByte(".'`*|-=", line[i]) >= 0 {
			i++
		}
		if k := strings.IndexByte(line[i:end], '='); k > 0 && isLabel(line[i:i+k]) {
			i += k + 1
		}
		if i == j {
			return i
		}
	}
}

// afterWords returns the start of the local part in line[from:end], which can directly follow words of a script that
// has no spaces.
func afterWords(line string, from, end int) int {
	at := from
	for i, r := range line[from:end] {
		if r >= utf8.RuneSelf && (!unicode.IsLetter(r) && !unicode.IsMark(r) || unicode.In(r, unspaced...)) {
			at = from + i + utf8.RuneLen(r)
		}
	}
	if at >= end {
		return from // all of the local part is in such a script
	}
	return at
}

// unspaced are the scripts that have no spaces between words.
var unspaced = []*unicode.RangeTable{unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Thai}

// isLabel reports whether a word before "=" is a label of the address after it, and no part of it.
func isLabel(word string) bool {
	switch strings.ToLower(word) {
	case "to", "smtp", "rcpt", "email", "recipient", "address", "dda:smtp", "orig_to", "mailto", "user", "addr":
		return true
	}
	return false
}

func isLocal(c byte) bool {
	return isWord(c) || c >= utf8.RuneSelf || strings.IndexByte("!#$%&'*+-/=?^_`{|}~.", c) >= 0
}

// domainEnd returns the end of the domain that begins at from.
func domainEnd(line string, from int) int {
	if from < len(line) && line[from] == '[' {
		if i := strings.IndexByte(line[from:], ']'); i > 0 && i < 64 {
			return from + i + 1
		}
		return from
	}
	i := from
	for i < len(line) && i-from < 255 && isDomain(line[i]) {
		i++
	}
	ascii := strings.IndexFunc(line[from:i], func(r rune) bool { return r >= utf8.RuneSelf })
	if ascii > 0 && strings.Contains(line[from:from+ascii], ".") && !strings.Contains(line[from+ascii:i], ".") {
		i = from + ascii // words follow without a space
	}
	for i > from && (line[i-1] == '.' || line[i-1] == '-') {
		i--
	}
	return i
}

func isDomain(c byte) bool {
	return isWord(c) || c >= utf8.RuneSelf || c == '-' || c == '.' || c == '_'
}

// plausibleDomain reports whether a domain has two labels at least, the last of which is not a number; between
// angle brackets one will do.
func plausibleDomain(domain string, bracketed bool) bool {
	if domain[0] == '[' {
		return true
	}
	if domain[0] == '.' || strings.Contains(domain, "..") || !utf8.ValidString(domain) {
		return false
	}
	last := domain[strings.LastIndexByte(domain, '.')+1:]
	if len(last) == len(domain) {
		return bracketed
	}
	return last[0] < '0' || last[0] > '9' || bracketed
}

// isElided reports whether somebody has shortened a local part, as archives of mailing lists do.
func isElided(local string) bool { return strings.HasSuffix(local, "...") }

// sameAddress reports whether two addresses are one, for reports: hosts change the case of both parts.
func sameAddress(a, b string) bool { return strings.EqualFold(a, b) }

// addressOf returns the address of a field of a header, or of a report's: "" when it has none.
func addressOf(value string) string {
	if spans := addresses(value, 1); len(spans) > 0 {
		return value[spans[0].from:spans[0].to]
	}
	return ""
}

// addressesOf returns all addresses of a field of a header.
func addressesOf(value string, limit int) (found []string) {
	for _, s := range addresses(value, limit) {
		found = append(found, value[s.from:s.to])
	}
	return found
}

// localOf returns the local part, in lower case.
func localOf(address string) string {
	i := strings.LastIndexByte(address, '@')
	return strings.ToLower(address[:max(i, 0)])
}

// domainOf returns the domain, in lower case.
func domainOf(address string) string {
	return strings.ToLower(address[strings.LastIndexByte(address, '@')+1:])
}
