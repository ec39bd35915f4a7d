package api

import (
	"context"
	"time"

	"example.org/mta/delivery/tlspolicy/tlsrpt"
)

// STSPolicy is what is known of the MTA-STS policy of a domain (RFC 8461).
type STSPolicy struct {
	Domain string `json:"domain"` // whose it is
	// what happens to mail for hosts that don't satisfy it; none: it goes as without a policy
	Mode    string    `json:"mode"`
	MX      []string  `json:"mx,omitempty"`        // the patterns of the names that hosts may have
	ID      string    `json:"id,omitempty"`        // that it was published under
	Fetched time.Time `json:"fetched,omitzero"`    // when it was fetched; absent: no policy is cached
	Expires time.Time `json:"expires,omitzero"`    // when it expires, unless it is fetched again before
	Next    time.Time `json:"next_check,omitzero"` // when it is looked up again, if there is mail for the domain
	Failure string    `json:"failure,omitempty"`   // why the last look-up gave no policy
	Failed  time.Time `json:"failed_at,omitzero"`  // when that was
	// the last look-up showed that the domain does not publish a policy
	Absent bool `json:"absent,omitempty"`
	// the setting that has mail sent without regard to the policy; absent: none
	Ignored string `json:"ignored,omitempty"`
}

// STSRefreshed is a policy that was looked up anew.
type STSRefreshed struct {
	Effect
	STSPolicy
}

// TLSReportList is a page of what is counted for TLS reports (RFC 8460), and of what was sent.
type TLSReportList struct {
	On   bool         `json:"on"`             // the configuration has reports sent
	Days []tlsrpt.Day `json:"days"`           // by date and domain
	Next string       `json:"next,omitempty"` // after for the next page; absent on the last
}

// TLSReports is what the server asks of the relay about TLS reports.
type TLSReports interface {
	// TLSReports gives the days of a policy domain, of all when it is "".
	TLSReports(context.Context, TLSReportQuery) (TLSReportList, error)
}

// TLSReportQuery asks for a page of what is counted for TLS reports.
type TLSReportQuery struct {
	Domain string `q:"domain" help:"of this policy <domain> alone: the recipients' domain"`
	Paging
}
