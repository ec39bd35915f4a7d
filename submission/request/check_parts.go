package request

import (
	"fmt"
	"mime"
	"net/mail"
	"slices"
	"strings"

	"example.org/mta/internal/envelope"
)

// reserved are the fields that a caller can't set among Headers, with the remedy. Fields of the groups in
// reservedPrefixes are reserved, too.
var reserved = map[string]string{
	"from":                   `use "from"`,
	"sender":                 `use "sender"`,
	"to":                     `use "to"`,
	"cc":                     `use "cc"`,
	"bcc":                    `use "bcc"`,
	"reply-to":               `use "reply_to"`,
	"subject":                `use "subject"`,
	"mime-version":           "leave it out: the relay writes it",
	"received":               "leave it out: the relay writes it",
	"return-path":            `use "sender": it becomes MAIL FROM, and the receiver writes this field`,
	"delivered-to":           "leave it out: the receiver writes it",
	"authentication-results": "leave it out: the receiver writes it",
	"received-spf":           "leave it out: the receiver writes it",
	"dkim-signature":         "leave it out: the relay signs, see its block dkim",
	"domainkey-signature":    "leave it out: the relay signs, see its block dkim",
	"mt-priority":            `use "priority"`,
}

var reservedPrefixes = []struct{ prefix, remedy string }{
	{"content-", `use "text", "html" and "attachments"`},
	{"resent-", `send the message as "raw"`},
	{"arc-", "leave it out: it belongs to a message that has been received"},
	{"x-mta-", "leave it out: fields of the request and its login stand in its place"},
	{"x-hold-", `use "send_at" and "spread"`},
}

// once are the other fields that a message has at most once (RFC 5322, 3.6; RFC 2369, 3; RFC 8058, 3.1).
var once = map[string]bool{
	"date": true, "message-id": true, "in-reply-to": true, "references": true,
	"list-unsubscribe": true, "list-unsubscribe-post": true, "list-id": true,
}

// Limits of a caller's field, in octets. A line of the header has 998 at most (RFC 5322, 2.1.1).
const (
	maxFieldName  = 126
	maxFieldValue = 16 << 10
)

// CheckHeaders reports what is wrong with the fields that a caller wants among [Letter.Headers]. Pointers
// begin with the position in the list.
func CheckHeaders(headers []Header) Faults {
	var faults Faults
	seen := map[string]bool{}
	for i, h := range headers {
		name := strings.ToLower(h.Name)
		fault := checkHeaderName(h.Name, name)
		if fault == nil && once[name] && seen[name] {
			fault = &Fault{Pointer: "/name", Detail: "a message can have only one " + h.Name + " field",
				Remedy: "send it once"}
		}
		if fault == nil {
			fault = checkHeaderValue(name, h.Value)
		}
		if fault != nil {
			fault.Pointer = fmt.Sprintf("/%d%s", i, fault.Pointer)
			faults = append(faults, *fault)
		}
		seen[name] = true
	}
	return faults
}

func checkHeaderName(name, lower string) *Fault {
	const at = "/name"
	if name == "" || len(name) > maxFieldName {
		return &Fault{Pointer: at, Detail: fmt.Sprintf("a field name has 1 to %d characters", maxFieldName),
			Remedy: "name the field"}
	}
	for _, c := range []byte(name) {
		if c <= ' ' || c > '~' || c == ':' { // RFC 5322, 3.6.8
			return &Fault{Pointer: at, Detail: "a field name is printable ASCII without colon and space",
				Remedy: "use letters, digits and hyphens"}
		}
	}
	if remedy, ok := reserved[lower]; ok {
		return &Fault{Pointer: at, Detail: "the relay writes the field " + name, Remedy: remedy}
	}
	for _, group := range reservedPrefixes {
		if strings.HasPrefix(lower, group.prefix) {
			return &Fault{Pointer: at, Detail: "the field " + name + " can't be set", Remedy: group.remedy}
		}
	}
	return nil
}

func checkHeaderValue(name, value string) *Fault {
	const at = "/value"
	switch {
	case strings.ContainsAny(value, "\r\n\x00"):
		return &Fault{Pointer: at, Detail: "the value contains CR, LF or NUL",
			Remedy: "send it in one line: the relay folds it"}
	case len(value) > maxFieldValue:
		return &Fault{Pointer: at, Detail: fmt.Sprintf("the value is longer than %d octets", maxFieldValue),
			Remedy: "shorten it"}
	case isStructured(name) && hasLongWord(value):
		return &Fault{Pointer: at,
			Detail: fmt.Sprintf("a link or id is longer than %d octets, and does not fit in a line", tokenLimit),
			Remedy: "shorten it"}
	case name == "date" && !isDate(value):
		return &Fault{Pointer: at, Detail: "the value is not a valid date",
			Remedy: "send Sun, 22 Nov 2026 12:00:00 +0000, or leave it out"}
	case name == "message-id" && !isMessageID(value):
		return &Fault{Pointer: at, Detail: "the value is not a valid message id",
			Remedy: "send <something-unique@example.com>, or leave it out"}
	}
	return nil
}

// isStructured reports whether receivers read the words of a field as they stand, and decode none.
func isStructured(name string) bool {
	return strings.HasPrefix(name, "list-") || name == "references" || name == "in-reply-to"
}

func hasLongWord(value string) bool {
	return slices.ContainsFunc(strings.Fields(value), func(word string) bool { return len(word) > tokenLimit })
}

func isDate(s string) bool {
	_, err := mail.ParseDate(s)
	return err == nil && printable(s)
}

// isMessageID reports whether s is a msg-id (RFC 5322, 3.6.4) that fits in a line.
func isMessageID(s string) bool {
	s, opened := strings.CutPrefix(strings.TrimSpace(s), "<")
	s, closed := strings.CutSuffix(s, ">")
	left, right, _ := strings.Cut(s, "@")
	return opened && closed && left != "" && right != "" && len(s) <= 900 &&
		!strings.ContainsAny(s, " <>()\"\\,;") && !strings.Contains(right, "@") &&
		envelope.Address(s).ASCII() && printable(s)
}

// CheckAttachment reports what is wrong with an attachment, nil for nothing. The pointer begins with the
// name of the field.
func CheckAttachment(a *Attachment) *Fault {
	if strings.ContainsAny(a.Name, "\r\n\x00") || len(a.Name) > 1024 {
		return &Fault{Pointer: "/name", Detail: "the name contains CR, LF or NUL, or is longer than 1,024 octets",
			Remedy: "send a plain file name"}
	}
	if a.ContentID != "" && (!printable(a.ContentID) || len(a.ContentID) > 900 ||
		strings.ContainsAny(a.ContentID, " <>\"\\")) {
		return &Fault{Pointer: "/content_id", Detail: "a content id is printable ASCII without space, <, > and quotes",
			Remedy: "send it as in cid:logo@example.com, without cid:"}
	}
	if a.Type == "" {
		return nil
	}
	const at, remedy = "/type", "send a type such as application/pdf, or leave it out"
	mediaType, params, err := mime.ParseMediaType(a.Type)
	if err != nil || !strings.Contains(mediaType, "/") || len(a.Type) > 255 {
		return &Fault{Pointer: at, Detail: "the value is not a valid media type", Remedy: remedy}
	}
	if strings.HasPrefix(mediaType, "multipart/") {
		return &Fault{Pointer: at, Detail: "an attachment can't be multipart",
			Remedy: `send the whole message as "raw"`}
	}
	for _, value := range params {
		if strings.ContainsAny(value, "\r\n\x00") {
			return &Fault{Pointer: at, Detail: "a parameter has CR, LF or NUL", Remedy: remedy}
		}
	}
	return nil
}

func printable(s string) bool {
	return !slices.ContainsFunc([]byte(s), func(c byte) bool { return c < ' ' || c > '~' })
}
