package config

import (
	"cmp"
	"strings"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/settings"
)

// TLSReports is the sender of reports to domains on how TLS with their hosts went (RFC 8460).
//
// [Reports to domains](tls-reports.md) about TLS with their hosts (RFC 8460). Without `from` nothing is counted or
// sent.
type TLSReports struct {
	block
	// The sender address of reports by mail, such as `"tls-reports@example.com"`. A `dkim` block must sign mail from
	// its domain, or receivers refuse the reports.
	From string `conf:"from"`
	// The organization named in the reports. Default: the domain of `from`.
	Organization string `conf:"organization"`
	// The contact in the reports: an address or a URL. Default: `from`.
	Contact string `conf:"contact"`
}

// On reports whether reports are sent.
func (t *TLSReports) On() bool { return t.From != "" }

func (t *TLSReports) derive() {
	if _, domain, ok := strings.Cut(t.From, "@"); ok {
		t.Organization, t.Contact = cmp.Or(t.Organization, domain), cmp.Or(t.Contact, t.From)
	}
}

func (k checker) tlsReports() {
	t := &k.TLSReports
	if !t.On() {
		for _, setting := range []string{"organization", "contact"} {
			if t.Set(setting) {
				k.problem(&t.block, setting, `write from = "tls-reports@example.com", too`,
					"tls_reports has no from, and sends nothing")
			}
		}
		return
	}
	if a, err := envelope.ParseAddress(t.From); err != nil || a.Null() || !a.ASCII() {
		k.problem(&t.block, "from", `write it as "tls-reports@example.com"`, "from: %s is not a mail address",
			settings.Quoted(t.From))
	}
}
