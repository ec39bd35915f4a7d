package inbox

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"example.org/mta/bounce/report"
)

// feedback is a feedback report (RFC 5965, 3) as KumoMTA writes it; original_rcpto_to is spelled so there.
type feedback struct {
	Type           string              `json:"feedback_type"`
	UserAgent      string              `json:"user_agent"`
	Version        string              `json:"version"`
	ArrivalDate    *time.Time          `json:"arrival_date"`
	Incidents      *int                `json:"incidents"`
	EnvelopeID     *string             `json:"original_envelope_id"`
	MailFrom       *string             `json:"original_mail_from"`
	ReportingMTA   *remoteMTA          `json:"reporting_mta"`
	SourceIP       *string             `json:"source_ip"`
	Authentication []string            `json:"authentication_results"`
	RcptTo         []string            `json:"original_rcpto_to"`
	Domains        []string            `json:"reported_domain"`
	URIs           []string            `json:"reported_uri"`
	Extensions     map[string][]string `json:"extensions"`
}

type remoteMTA struct {
	Type string `json:"mta_type"`
	Name string `json:"name"`
}

// feedbackJSON writes a complaint's fields as an object, "" when it has none.
func feedbackJSON(f report.Feedback) string {
	if len(f) == 0 {
		return ""
	}
	out := feedback{Authentication: []string{}, RcptTo: []string{}, Domains: []string{}, URIs: []string{},
		Extensions: map[string][]string{}}
	for name, values := range f {
		if len(values) > 0 && !out.set(name, values) {
			out.Extensions[name] = values
		}
	}
	text, err := json.Marshal(out)
	if err != nil {
		return ""
	}
	return string(text)
}

// set takes a field of RFC 5965. One with a malformed value is an extension.
func (f *feedback) set(name string, values []string) bool {
	first := strings.TrimSpace(values[0])
	switch name {
	case "feedback-type":
		f.Type = strings.ToLower(first)
	case "user-agent":
		f.UserAgent = first
	case "version":
		f.Version = first
	case "arrival-date", "received-date":
		t, err := parseDate(first)
		if err != nil {
			return false
		}
		f.ArrivalDate = &t
	case "incidents":
		n, err := strconv.Atoi(first)
		if err != nil {
			return false
		}
		f.Incidents = &n
	case "original-envelope-id":
		f.EnvelopeID = &first
	case "original-mail-from":
		f.MailFrom = &first
	case "reporting-mta":
		kind, mta, ok := strings.Cut(first, ";")
		if !ok {
			kind, mta = "dns", first
		}
		f.ReportingMTA = &remoteMTA{strings.ToLower(strings.TrimSpace(kind)), strings.TrimSpace(mta)}
	case "source-ip":
		f.SourceIP = &first
	case "authentication-results":
		f.Authentication = values
	case "original-rcpt-to":
		f.RcptTo = values
	case "reported-domain":
		f.Domains = values
	case "reported-uri":
		f.URIs = values
	default:
		return false
	}
	return true
}
