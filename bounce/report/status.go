package report

import (
	"cmp"
	"strconv"
	"strings"

	"example.org/mta/internal/reply"
)

// maxReports bounds the recipients of one message.
const maxReports = 1000

// statusFields are those of one recipient in a delivery status (RFC 3464, 2.3).
type statusFields struct {
	original, final, actual string
	action, status          string
	diagnostic              string
	host                    string
}

func (f *statusFields) empty() bool { return f.original == "" && f.final == "" && f.actual == "" }

// statuses reads the fields of a delivery status. Recipients are divided by empty lines, by the standard; where
// those are missing, by the fields that each recipient has only once.
func statuses(fields Header) (all []statusFields, host string) {
	var now statusFields
	next := func() {
		if !now.empty() && len(all) < maxReports {
			all = append(all, now)
		}
		now = statusFields{}
	}
	for _, f := range fields {
		switch value := f.Value; strings.ToLower(f.Name) {
		case "": // the end of a group
			if !now.empty() {
				next()
			}
		case "reporting-mta", "dsn-gateway", "received-from-mta":
			if host == "" && strings.EqualFold(f.Name, "reporting-mta") {
				host = afterType(value)
			}
		case "original-recipient":
			// Courier writes it between Action and Status
			if now.original != "" || now.final != "" && now.status != "" {
				next()
			}
			now.original = value
		case "final-recipient":
			if now.final != "" {
				next()
			}
			now.final = value
		case "x-actual-recipient":
			if now.actual != "" {
				next()
			}
			now.actual = value
		case "action":
			setFirst(&now.action, value)
		case "status":
			setFirst(&now.status, value)
		case "diagnostic-code", "x-diagnostic-code", "smtp-diagnostic-code":
			setFirst(&now.diagnostic, value)
		case "x-display-name", "x-supplementary-info", "x-notes":
			if now.diagnostic == "" && !strings.EqualFold(f.Name, "x-display-name") {
				now.diagnostic = value
			}
		case "remote-mta":
			setFirst(&now.host, afterType(value))
		}
	}
	next()
	return all, host
}

func setFirst(s *string, value string) {
	*s = cmp.Or(*s, value)
}

// allFields reads the fields of all groups of a report, each with a field without a name after it.
func allFields(content []byte) (all Header) {
	for len(content) > 0 && len(all) < 10*maxReports {
		fields, n := ReadHeader(content)
		all = append(append(all, fields...), Field{})
		if n == 0 { // a line that is not a field
			i := strings.IndexByte(string(content[:min(len(content), 4096)]), '\n')
			if i < 0 {
				return all
			}
			n = i + 1
		}
		content = content[n:]
	}
	return all
}

// afterType takes off the type of an address or a code, "rfc822;".
func afterType(value string) string {
	if kind, rest, ok := strings.Cut(value, ";"); ok && !strings.Contains(kind, "@") &&
		(!strings.ContainsAny(kind, " <") || strings.Contains(rest, "@")) {
		value = rest
	}
	return strings.TrimSpace(value)
}

// recipientOf reads the address of an Original-Recipient or Final-Recipient field; "" when it has none.
func recipientOf(value string) string {
	kind, _, typed := strings.Cut(value, ";")
	rest := afterType(value)
	switch {
	case typed && strings.EqualFold(strings.TrimSpace(kind), "utf-8"):
		rest = fromUnitext(rest)
	default:
		rest = fromXtext(rest)
	}
	if address := addressOf(rest); address != "" {
		return address
	}
	// what is not a valid address was the recipient all the same
	word, _, _ := strings.Cut(strings.Trim(rest, "<>"), " ")
	if i := strings.LastIndexByte(word, '@'); i <= 0 || i == len(word)-1 || isElided(word[:i]) ||
		len(word) > maxAddress {
		return ""
	}
	return word
}

// fromUnitext decodes utf-8-addr-xtext and utf-8-addr-unitext: \x{E9} is a code point (RFC 6533, 3).
func fromUnitext(s string) string {
	if !strings.Contains(s, `\x{`) {
		return s
	}
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(s, `\x{`)
		b.WriteString(before)
		if !found {
			return b.String()
		}
		digits, after, closed := strings.Cut(rest, "}")
		n, err := strconv.ParseUint(digits, 16, 32)
		if !closed || err != nil || n > 0x10ffff {
			b.WriteString(`\x{`)
			s = rest
			continue
		}
		b.WriteRune(rune(n))
		s = after
	}
}

// fromXtext decodes the hexadecimal characters that some leave in Original-Recipient (RFC 3461, 4): only
// those that xtext must encode, since "+40" is part of many addresses, and of "@" where there is no other.
func fromXtext(s string) string {
	if !strings.Contains(s, "+") {
		return s
	}
	s = strings.NewReplacer("+2B", "+", "+3D", "=").Replace(s)
	if !strings.Contains(s, "@") {
		s = strings.Replace(s, "+40", "@", 1)
	}
	return s
}

// actions are known by how they begin: not all are spelled as in the standard.
var actions = []struct {
	prefix string
	action Action
}{
	{"fail", ActionFailed}, {"error", ActionFailed}, {"undeliver", ActionFailed}, {"bounce", ActionFailed},
	{"expired", ActionFailed}, {"delay", ActionDelayed}, {"warning", ActionDelayed},
	{"deliver", ActionDelivered}, {"relay", ActionRelayed}, {"expand", ActionExpanded},
}

// actionOf reads an Action field, or infers the action from the status.
func actionOf(action string, status reply.Enhanced) Action {
	action = strings.ToLower(strings.TrimSpace(action))
	for _, known := range actions {
		if strings.HasPrefix(action, known.prefix) {
			return known.action
		}
	}
	switch status[0] {
	case 2:
		return ActionDelivered
	case 4:
		return ActionDelayed
	}
	return ActionFailed
}

// statusReport makes a report of the fields of one recipient.
func (r *reader) statusReport(f statusFields) Report {
	status, _ := findEnhanced(f.status)
	p := Report{Final: recipientOf(f.final), Status: status}
	for _, s := range []string{f.original, f.final, f.actual} {
		if p.Recipient = recipientOf(s); p.Recipient != "" {
			break
		}
	}
	diagnostic := Words(f.diagnostic)
	if kind, rest, ok := strings.Cut(diagnostic, ";"); ok && len(kind) < 20 && !strings.Contains(kind, " ") {
		diagnostic = strings.TrimSpace(rest)
	}
	p.Action = actionOf(f.action, status)
	r.finish(&p, diagnostic)
	return p
}
