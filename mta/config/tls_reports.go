package config

import (
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
}

// On reports whether reports are sent.
func (t *TLSReports) On() bool { return t.From != "" }

func (k checker) tlsReports() {
	t := &k.TLSReports
	if !t.On() {
		return
	}
	if a, err := envelope.ParseAddress(t.From); err != nil || a.Null() || !a.ASCII() {
		k.problem(&t.block, "from", `write it as "tls-reports@example.com"`, "from: %s is not a mail address",
			settings.Quoted(t.From))
	}
}
