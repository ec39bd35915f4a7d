package report

import (
	"slices"
	"strings"
)

// isOriginal reports whether a part is the returned message, or its header.
func isOriginal(mediaType string) bool {
	switch mediaType {
	case "message/rfc822", "message/global", "text/rfc822-headers", "text/rfc822-header",
		"message/rfc822-headers", "message/global-headers", "message/partial", "text/rfc822":
		return true
	}
	return false
}

// readOriginal reads the header of what is returned; some of it is quoted with ">".
func readOriginal(content []byte) Header {
	text := strings.TrimLeft(string(content[:min(len(content), MaxSize)]), "\r\n")
	if strings.HasPrefix(text, ">") {
		lines := strings.SplitAfter(text, "\n")
		for i, line := range lines {
			lines[i] = strings.TrimPrefix(strings.TrimPrefix(line, ">"), " ")
			if len(strings.TrimSpace(lines[i])) == 0 {
				lines = lines[:i+1]
				break
			}
		}
		text = strings.Join(lines, "")
	}
	if strings.HasPrefix(text, "From ") {
		_, text, _ = strings.Cut(text, "\n")
	}
	header, _ := ReadHeader([]byte(text))
	return header
}

// maxTo bounds the recipients that are read of a returned header.
const maxTo = 50

func originalOf(h Header) Original {
	o := Original{
		MessageID: clean(strings.TrimSpace(h.Get("Message-ID"))), From: clean(addressOf(h.Get("From"))),
		Subject: clean(h.Decoded("Subject")),
	}
	for _, name := range []string{"To", "Cc"} {
		for _, value := range h.All(name) {
			for _, address := range addressesOf(value, maxTo-len(o.To)) {
				o.To = append(o.To, clean(address))
			}
		}
	}
	return o
}

// returnsAnOriginal reports whether a header is one of a message.
func returnsAnOriginal(h Header) bool {
	n := 0
	for _, name := range []string{
		"From", "To", "Date", "Subject", "Message-ID", "Received", "MIME-Version", "Return-Path",
	} {
		if h.Has(name) {
			n++
		}
	}
	return n >= 2
}

// deliveredTo returns the recipient that the last hosts wrote into the returned header; "" when they did not.
func deliveredTo(h Header) string {
	for _, name := range []string{
		"X-Original-To", "Delivered-To", "Envelope-To", "X-Envelope-To", "X-Rcpt-To",
		"X-HmXmrOriginalRecipient", "Apparently-To",
	} {
		if address := addressOf(h.Get(name)); address != "" {
			return address
		}
	}
	for _, value := range h.All("Received") {
		lower := strings.ToLower(value)
		if i := strings.Index(lower, " for "); i >= 0 {
			if address := addressOf(value[i+5:]); address != "" &&
				strings.HasPrefix(strings.TrimLeft(value[i+5:], " <"), address) {
				return address
			}
		}
	}
	return ""
}

// onlyRecipient returns the address that a returned header was sent to, when there is only one. The header of a
// mailing list names the list.
func onlyRecipient(h Header, to []string) string {
	if slices.ContainsFunc([]string{"List-Id", "List-Post", "List-Help", "Mailing-List"}, h.Has) {
		return ""
	}
	if address := deliveredTo(h); address != "" {
		return address
	}
	if len(to) == 1 && !sameAddress(to[0], addressOf(h.Get("From"))) { // who writes to himself has hidden the others
		return to[0]
	}
	return ""
}

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
