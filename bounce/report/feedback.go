package report

import (
	"slices"
	"strings"

	"example.org/mta/bounce"
)

// maxValues bounds the values of one field of a feedback report.
const maxValues = 100

// feedbackOf reads the fields of a feedback report.
func feedbackOf(fields Header) Feedback {
	f := Feedback{}
	for _, field := range fields {
		name := clean(strings.ToLower(field.Name))
		if name != "" && len(f[name]) < maxValues && len(f) < maxValues {
			f[name] = append(f[name], clean(Words(field.Value)))
		}
	}
	return f
}

// Type is the kind of feedback: "abuse", "fraud", "auth-failure" and so on; "" when the report has none.
func (f Feedback) Type() string {
	if v := f["feedback-type"]; len(v) > 0 {
		return strings.ToLower(v[0])
	}
	return ""
}

// readFeedback reads a feedback report. One of failed authentication (RFC 6591) is about us, not about the
// wish of a recipient: it has no recipient, and is not a reason to stop mail to anybody.
func (r *reader) readFeedback(fields Header) {
	f, class := feedbackOf(fields), bounce.Uncategorized
	r.result.Feedback = f
	switch f.Type() {
	case "not-spam":
		r.result.Kind = Other
		return
	case "opt-out", "opt-out-list":
		r.result.Kind, class = Unsubscribe, bounce.Unsubscribe
	case "auth-failure":
		r.result.Kind = Complaint
		return
	default:
		r.result.Kind = Complaint
	}
	for _, name := range []string{"original-rcpt-to", "removal-recipient"} {
		for _, value := range f[name] {
			if address := addressOf(value); address != "" && !isRedacted(address) && !r.reported(address) {
				r.result.Reports = append(r.result.Reports, Report{Recipient: address, Class: class})
			}
		}
	}
	if len(r.result.Reports) == 0 {
		r.complainOfOriginal()
	}
	if mta := f["reporting-mta"]; len(mta) > 0 {
		r.result.Host = afterType(mta[0])
	}
}

// complainOfOriginal reports the only recipient of what is returned.
func (r *reader) complainOfOriginal() {
	to := r.result.Original.To
	if address := onlyRecipient(r.original, to); address != "" && !isRedacted(address) {
		r.result.Reports = append(r.result.Reports, Report{Recipient: clean(address)})
	}
}

// isRedacted reports whether the address has been made unreadable, as many providers do in complaints.
func isRedacted(address string) bool {
	local := localOf(address)
	return has(local, []string{"redacted", "undisclosed", "fbl-no-reply"}) || strings.Trim(local, "x*-_") == ""
}

func (r *reader) reported(address string) bool {
	return slices.ContainsFunc(r.result.Reports, func(x Report) bool { return sameAddress(x.Recipient, address) })
}
