package controltest

import (
	"context"
	"time"

	"example.org/mta/delivery/tlspolicy"
	"example.org/mta/delivery/tlspolicy/tlsrpt"
	"example.org/mta/operator/api"
)

// TLSReports has a day that was reported, and one about which a collector doesn't want to hear.
func (r *Relay) TLSReports(_ context.Context, domain, _ string, _ int) (api.TLSReportList, error) {
	date := r.Now.UTC().AddDate(0, 0, -1).Format("2006-01-02")
	all := []tlsrpt.Day{
		{
			Date: date, Domain: "big.example", Done: true, Tries: 1,
			Policies: []tlsrpt.Policy{
				{Type: tlspolicy.STSPolicy, Mode: "enforce", MX: "mx.big.example", Success: 1204, Failure: 3, Details: []tlsrpt.Detail{
					{Class: tlspolicy.Expired, Source: "192.0.2.10", Host: "mx.big.example", Addr: "198.51.100.7", Reason: "x509: certificate has expired", Count: 3},
				}},
			},
			Reports: []tlsrpt.Delivery{{To: "mailto:tls@big.example", At: r.Now, Sent: true}},
		},
		{
			Date: date, Domain: "slow.example", Tries: 2, Next: r.Now.Add(20 * time.Minute),
			Policies: []tlsrpt.Policy{{Type: tlspolicy.NoPolicy, Success: 7}},
			Reports:  []tlsrpt.Delivery{{To: "https://slow.example/tls", At: r.Now, Error: "the web server answered 503 Service Unavailable"}},
		},
	}
	l := api.TLSReportList{On: true}
	for _, d := range all {
		if domain == "" || d.Domain == domain {
			l.Days = append(l.Days, d)
		}
	}
	return l, nil
}
