package powermta

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"example.org/mta/importer"
)

// lines reads the text of a file, line by line. A line that ends in a backslash goes on, and so does a list that ends
// in a comma.
func (r *reader) lines(file, text string, depth int) error {
	pending, from := "", 0
	n := 0
	for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		n++
		if pending == "" {
			from = n
		}
		at := &directive{Origin: importer.Origin{File: file, Line: from}}
		line = strings.TrimSpace(withoutComment(line)) // which may be in any character set
		if !utf8.ValidString(line) || strings.IndexByte(line, 0) >= 0 {
			at.Line = n
			r.faults.takeDefinition(at,
				at.fault("the line is not text in UTF-8: convert the file, as with iconv -f latin1 -t utf8"))
			line = strings.ReplaceAll(strings.ToValidUTF8(line, "?"), "\x00", "?")
		}
		whole, more := strings.CutSuffix(line, `\`)
		if windowsFolder.MatchString(line) {
			whole, more = line, false
		}
		if len(pending)+len(whole) > maxLine {
			return at.fault("the line has more than %d octets: a list can be written as several lines", maxLine)
		}
		if more {
			pending += whole + " "
			continue
		}
		line = strings.TrimSpace(pending + line)
		if pending = ""; line == "" {
			continue
		}
		if goesOn(line) {
			pending = line + " "
			continue
		}
		at.value, at.Directive = line, masked(line)
		if err := r.add(at, depth); err != nil {
			return err
		}
	}
	if pending = strings.TrimSpace(pending); pending != "" {
		at := &directive{Origin: importer.Origin{File: file, Line: from, Directive: masked(pending)},
			value: strings.TrimSuffix(pending, ",")}
		return r.add(at, depth)
	}
	return nil
}

// windowsFolder matches a line that ends in the name of a folder, such as D:\logs\, which goes on in no other line.
var windowsFolder = regexp.MustCompile(`(^|[ \t"])([A-Za-z]:|\\)\\[^ \t"]*\\$`)

// goesOn reports whether a list of names goes on in the next line.
func goesOn(line string) bool {
	name, _ := cutWord(line)
	return strings.HasSuffix(line, ",") && name == "domain-macro"
}

// withoutComment cuts off what follows a #, except inside of a regular expression or of quotes.
func withoutComment(line string) string {
	quoted, expression := false, false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\\':
			i++
		case c == '"' && !expression:
			quoted = !quoted
		case c == '/' && !quoted && (expression || i == 0 || line[i-1] == ' ' || line[i-1] == '\t') &&
			(expression || strings.Count(line[i:], "/") > 1 && !path(line)):
			expression = !expression
		case c == '#' && !quoted && !expression:
			return line[:i]
		}
	}
	return line
}

// path reports whether the slashes of a line are those of a path, and not of a regular expression.
func path(line string) bool {
	name, _ := cutWord(line)
	switch name {
	case "reply", "greeting", "connect", "ehlo", "mail-from", "rcpt-to", "data", "header", "address", "mx":
		return false
	}
	return !pattern(strings.TrimSpace(line))
}

// masked is a line as comments may repeat it: without passwords.
func masked(line string) string {
	name, _ := cutWord(line)
	for _, word := range []string{"password", "passphrase", "secret", "token"} {
		if strings.Contains(name, word) {
			return name + " ***"
		}
	}
	if words := strings.Fields(line); strings.HasSuffix(name, "-certificate") && len(words) > 2 {
		return name + " " + words[1] + " ***"
	}
	return line
}
