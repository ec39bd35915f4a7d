package config

import (
	"cmp"
	"strings"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/settings"
)

// TLSReports is the sender of reports to domains on how TLS with their hosts went (RFC 8460). Without From there are none.
type TLSReports struct {
	block
	From         string `conf:"from"`         // the address that reports by mail come from
	Organization string `conf:"organization"` // that sends them; default: the domain of From
	Contact      string `conf:"contact"`      // of its people; default: From
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
				k.problem(&t.block, setting, `write from = "tls-reports@example.com", too`, "tls_reports has no from, and sends nothing")
			}
		}
		return
	}
	if a, err := envelope.ParseAddress(t.From); err != nil || a.Null() || !a.ASCII() {
		k.problem(&t.block, "from", `write it as "tls-reports@example.com"`, "from: %s is not a mail address", settings.Quoted(t.From))
	}
}
