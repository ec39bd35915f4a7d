package api

import (
	"context"

	"example.org/mta/delivery/tlspolicy/tlsrpt"
)

// TLSReportList is a page of what is counted for TLS reports (RFC 8460), and of what was sent.
type TLSReportList struct {
	On   bool         `json:"on"`             // the configuration has reports sent
	Days []tlsrpt.Day `json:"days"`           // by date and domain
	Next string       `json:"next,omitempty"` // after for the next page; absent on the last
}

// TLSReports is what the server asks of the relay about TLS reports.
type TLSReports interface {
	// TLSReports gives the days of a policy domain, of all when it is "".
	TLSReports(ctx context.Context, domain, after string, limit int) (TLSReportList, error)
}

type tlsReportQuery struct {
	Domain string `q:"domain" help:"of this policy <domain> alone"`
	Paging
}

// TLSReports gives a page of what is counted for TLS reports.
func (c *Client) TLSReports(ctx context.Context, domain, after string, limit int) (TLSReportList, error) {
	return opTLSReports.call(ctx, c, tlsReportQuery{domain, Paging{after, limit}})
}
