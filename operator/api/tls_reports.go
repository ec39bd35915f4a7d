package api

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"example.org/mta/delivery/tlspolicy/tlsrpt"
)

// TLSReportList is a page of what is counted for TLS reports (RFC 8460), and of what was sent.
type TLSReportList struct {
	On   bool         `json:"on"` // the configuration has them sent
	Days []tlsrpt.Day `json:"days"`
	Next string       `json:"next,omitempty"` // where the next page begins; "" on the last
}

// TLSReports is what the server asks of the relay about TLS reports.
type TLSReports interface {
	// TLSReports gives the days of a policy domain, of all when it is "".
	TLSReports(ctx context.Context, domain, after string, limit int) (TLSReportList, error)
}

var tlsReportParams = []string{"domain", "after", "limit"}

func (s *Server) tlsReports(w http.ResponseWriter, r *http.Request, q *query) error {
	domain, after, limit := q.str("domain"), q.str("after"), q.number("limit", DefaultLimit, 1, MaxLimit)
	if q.err != nil {
		return q.err
	}
	l, err := s.config.TLSReports.TLSReports(r.Context(), domain, after, limit)
	if err != nil {
		return err
	}
	l.Days = append([]tlsrpt.Day{}, l.Days...)
	return writeJSON(w, l)
}

// TLSReports gives a page of what is counted for TLS reports.
func (c *Client) TLSReports(ctx context.Context, domain, after string, limit int) (l TLSReportList, err error) {
	v := url.Values{}
	setText(v, "domain", domain)
	setText(v, "after", after)
	if limit != 0 {
		v.Set("limit", strconv.Itoa(limit))
	}
	return l, c.get(ctx, "/v1/tls-reports", v, &l)
}
