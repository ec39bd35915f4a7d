package request

import (
	"errors"
	"fmt"
	"strings"
)

// Limits of a source.
const (
	maxTagName    = 255    // octets in the name of a variable: the library recurses once for each dot
	maxDelimiter  = 16     // octets in a delimiter: the library searches for it in quadratic time
	maxNesting    = 50     // sections in one another: each round of a loop costs as much as they are deep
	maxIndent     = 16     // blanks before a partial: the library puts them before each of its lines
	maxTags       = 20_000 // each costs the library about 200 octets
	maxPartial    = 64 << 10
	maxInclusions = 8 // partials in one another
)

// scanned is what is known of a source before the library parses it.
type scanned struct {
	partials []string // the names of those that it includes, each once
	// raw is the source with each variable unescaped: the library escapes in partials, whatever includes them.
	raw string
}

// scan reads the tags of a source as the library does, and refuses what the library can't be trusted with.
// It leaves errors of syntax to the library.
func scan(source string) (scanned, error) {
	var s scanned
	if len(source) > maxSource {
		return s, fmt.Errorf("the template is longer than %d octets", maxSource)
	}
	opening, closing := "{{", "}}"
	var raw strings.Builder
	seen := map[string]bool{}
	nesting, copied := 0, 0
	for at, tags := 0, 0; ; tags++ {
		start := strings.Index(source[at:], opening)
		if start < 0 {
			break
		}
		start += at + len(opening)
		end := closing
		if strings.HasPrefix(source[start:], "{") {
			end = "}" + closing
		}
		length := strings.Index(source[start:], end)
		if length < 0 {
			break
		}
		at = start + length + len(end)
		tag := strings.TrimSpace(source[start : at-len(closing)])
		if tag == "" {
			break
		}
		if tags == maxTags {
			return s, fmt.Errorf("the template has more than %d tags", maxTags)
		}
		if tag[0] == '=' {
			if o, c, ok := delimiters(tag); ok {
				if opening, closing = o, c; max(len(o), len(c)) > maxDelimiter || strings.ContainsAny(o+c, " \t\r\n") {
					return s, fmt.Errorf("line %d: delimiters have up to %d octets and one space between them",
						lineOf(source, start), maxDelimiter)
				}
			}
			continue
		}
		name, err := checkTag(tag)
		if err != nil {
			return s, fmt.Errorf("line %d: %w", lineOf(source, start), err)
		}
		switch tag[0] {
		case '#', '^':
			if nesting++; nesting > maxNesting {
				return s, fmt.Errorf("line %d: sections are nested deeper than %d", lineOf(source, start), maxNesting)
			}
		case '/':
			nesting--
		case '>':
			if indent(source[:start-len(opening)]) > maxIndent {
				return s, fmt.Errorf("line %d: the partial %q is indented by more than %d", lineOf(source, start),
					name, maxIndent)
			}
			if !seen[name] {
				seen[name] = true
				s.partials = append(s.partials, name)
			}
		case '!', '&', '{':
		default:
			raw.WriteString(source[copied:start])
			raw.WriteByte('&')
			copied = start
		}
	}
	raw.WriteString(source[copied:])
	s.raw = raw.String()
	return s, nil
}

// delimiters are those that a tag of the form "=| |=" sets.
func delimiters(tag string) (opening, closing string, ok bool) {
	if len(tag) < 3 || tag[len(tag)-1] != '=' {
		return "", "", false
	}
	return strings.Cut(strings.TrimSpace(tag[1:len(tag)-1]), " ")
}

// checkTag returns the name in a tag.
func checkTag(tag string) (string, error) {
	if tag[0] == '!' {
		return "", nil
	}
	name := tag
	if strings.IndexByte("#^/>&{", tag[0]) >= 0 {
		name = strings.TrimSpace(tag[1:])
	}
	if tag[0] == '{' {
		name = strings.TrimSpace(strings.TrimSuffix(name, "}"))
	}
	if len(name) > maxTagName {
		return "", fmt.Errorf("a name is longer than %d octets", maxTagName)
	}
	word, rest, _ := strings.Cut(name, " ")
	if tag[0] != '>' && (word == "if" || word == "each" || word == "unless" || word == "with") && rest != "" {
		return "", fmt.Errorf(
			"{{#%[2]s}} is Mustache for {{#%[1]s %[2]s}}: write {{#%[2]s}}...{{/%[2]s}}, and {{^%[2]s}}...{{/%[2]s}} "+
				"in place of {{else}}", word, rest)
	}
	if name == "else" {
		return "", errors.New(
			"{{else}} is Handlebars, and templates here are Mustache: close the section and write " +
				"{{^name}}...{{/name}}")
	}
	if strings.ContainsAny(name, " \t\r\n") {
		return "", fmt.Errorf("the name %q has a space, and helpers of Handlebars are not known", name)
	}
	return name, nil
}

// indent is the number of blanks at the end of s.
func indent(s string) int { return len(s) - len(strings.TrimRight(s, " \t")) }

func lineOf(source string, at int) int { return 1 + strings.Count(source[:at], "\n") }
