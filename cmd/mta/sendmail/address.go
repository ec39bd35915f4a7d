package sendmail

import "strings"

// addressSpecs takes the addresses out of the value of a To, Cc or Bcc field, as <a@b> or "Name"
// <a@b>, groups and comments included (RFC 5322, 3.4). It is more lenient than that in one way,
// since cron and the like write so: a bare name is an address too. What is not an address comes out
// as it is, for the caller to refuse.
func addressSpecs(value string) []string {
	var s addressScanner
	for i := 0; i < len(value); i++ {
		i = s.next(value, i)
	}
	s.flush()
	return s.found
}

// withDomain gives the value of a field of addresses, and bare names in it the domain, as
// root (Cron Daemon): receivers refuse an author without a domain, and nothing could sign it. What is
// neither an address nor such a name is left alone, and so is all else in the value.
func withDomain(value, domain string) string {
	var s addressScanner
	for i := 0; i < len(value); i++ {
		i = s.next(value, i)
	}
	s.flush()
	var b strings.Builder
	done := 0
	for _, at := range s.bare {
		b.WriteString(value[done:at] + "@" + domain)
		done = at
	}
	return b.String() + value[done:]
}

// isName reports whether an address is a plain name without a domain (RFC 5322, 3.2.3), as that of
// a user.
func isName(spec string) bool {
	return strings.IndexFunc(spec, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("._-+=", r))
	}) < 0
}

// addressScanner goes through a field.
type addressScanner struct {
	found []string
	bare  []int           // where plain names end
	end   int             // of what was last written to the address
	plain strings.Builder // what is outside of angle brackets
	angle strings.Builder // what is inside
	in    bool            // inside
	seen  bool            // this address has angle brackets
}

// next takes what begins at i and gives the index of its last octet.
func (s *addressScanner) next(value string, i int) int {
	switch c := value[i]; {
	case c == '"':
		end := quotedEnd(value, i, '"')
		s.write(value[i:end+1], end+1)
		return end
	case c == '[':
		end := quotedEnd(value, i, ']')
		s.write(value[i:end+1], end+1)
		return end
	case c == '(':
		s.write(" ", i)
		return commentEnd(value, i)
	case c == '<' && !s.in:
		s.in, s.seen = true, true
		s.angle.Reset()
	case c == '>' && s.in:
		s.in = false
	case (c == ',' || c == ';') && !s.in:
		s.flush()
	case c == ':' && !s.in && !s.seen:
		s.plain.Reset() // the name of a group
	default:
		s.write(value[i:i+1], i+1)
	}
	return i
}

// write adds text that ends at an index of the value.
func (s *addressScanner) write(text string, end int) {
	if s.in || !s.seen {
		if strings.Trim(text, " \t\r\n") != "" {
			s.end = end
		}
	}
	if s.in {
		s.angle.WriteString(text)
		return
	}
	s.plain.WriteString(text)
}

// flush ends an address.
func (s *addressScanner) flush() {
	spec := s.plain.String()
	if s.seen {
		spec = s.angle.String()
		if i := strings.IndexByte(spec, ':'); i >= 0 && strings.HasPrefix(strings.TrimSpace(spec), "@") {
			spec = spec[i+1:] // a source route (RFC 5321, 4.1.1.3): only the mailbox counts
		}
	}
	if spec = tighten(spec); spec != "" {
		s.found = append(s.found, spec)
		if isName(spec) {
			s.bare = append(s.bare, s.end)
		}
	}
	s.plain.Reset()
	s.angle.Reset()
	s.in, s.seen = false, false
}

// tighten takes away space at the ends and around the @, where the old syntax allows it
// (RFC 5322, 4.4).
func tighten(spec string) string {
	spec = strings.TrimSpace(spec)
	at := strings.LastIndexByte(spec, '@')
	if at < 0 {
		return spec
	}
	return strings.TrimRight(spec[:at], " \t\r\n") + "@" + strings.TrimLeft(spec[at+1:], " \t\r\n")
}

// quotedEnd gives the index of what ends the quoted string or literal that begins at i, or of
// the last octet.
func quotedEnd(value string, i int, end byte) int {
	for i++; i < len(value); i++ {
		switch value[i] {
		case '\\':
			i++
		case end:
			return i
		}
	}
	return len(value) - 1
}

// commentEnd gives the index of what ends the comment that begins at i, or of the last octet.
func commentEnd(value string, i int) int {
	depth := 0
	for ; i < len(value); i++ {
		switch value[i] {
		case '\\':
			i++
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return len(value) - 1
}
