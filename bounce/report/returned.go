package report

import (
	"slices"
	"strings"
)

// cutOriginal divides a text where the returned message begins: at a line that announces it, or at its
// header.
func cutOriginal(text string) (notice, original string) {
	fields, first, at := 0, 0, 0
	for line := range strings.Lines(text) {
		start := at
		at += len(line)
		if announces(line) {
			if strings.TrimSpace(text[:start]) != "" {
				return text[:start], text[at:]
			}
			continue
		}
		switch n := headerLine(line); {
		case n == 0:
			fields = 0
		case n > 0 && fields == 0:
			fields, first = n, start
		case n > 0:
			fields += n
		}
		if fields >= 3 && strings.TrimSpace(text[:first]) != "" {
			return text[:first], text[first:]
		}
	}
	return text, ""
}

// headerLine weighs a line as one of a message's header: -1 is the continuation of one, 0 none.
func headerLine(line string) int {
	line = strings.TrimPrefix(strings.TrimPrefix(line, ">"), " ")
	if line != "" && (line[0] == ' ' || line[0] == '\t') && strings.TrimSpace(line) != "" {
		return -1
	}
	name, _, ok := strings.Cut(line, ":")
	if !ok {
		return 0
	}
	switch strings.ToLower(strings.TrimRight(name, " ")) {
	case "received", "return-path", "message-id", "x-originating-ip", "dkim-signature", "delivered-to",
		"domainkey-signature", "authentication-results":
		return 2
	case "from", "to", "subject", "date", "mime-version", "content-type", "reply-to", "cc", "sender",
		"x-mailer", "content-transfer-encoding", "list-id", "list-unsubscribe", "precedence":
		return 1
	}
	return 0
}

// announces reports whether a line says that the returned message follows.
func announces(line string) bool {
	if len(line) > 160 {
		return false
	}
	trimmed := strings.TrimSpace(line)
	bare := strings.Trim(trimmed, "-=*_|>#+~. :<")
	if len(bare) < 4 {
		return false
	}
	bare = strings.ToLower(bare)
	decorated := strings.IndexByte("-=*_|#+~", trimmed[0]) >= 0
	if decorated && has(bare, announcements) && !strings.Contains(bare, "address") {
		return true
	}
	if strings.HasPrefix(bare, "original message") && strings.HasSuffix(trimmed, ":") {
		return true
	}
	return slices.ContainsFunc(openings, func(phrase string) bool { return strings.HasPrefix(bare, phrase) })
}
