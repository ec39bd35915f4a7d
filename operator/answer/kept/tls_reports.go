package kept

import (
	"context"

	"example.org/mta/delivery/tlspolicy/tlsrpt"
	"example.org/mta/internal/envelope"
	"example.org/mta/operator/api"
)

// TLSReports answers about TLS reports; it implements api.TLSReports.
type TLSReports struct{ Reporter *tlsrpt.Reporter } // nil when none are sent

func (t TLSReports) TLSReports(_ context.Context, q api.TLSReportQuery) (api.TLSReportList, error) {
	reports := t.Reporter
	if reports == nil {
		return api.TLSReportList{}, nil
	}
	domain, err := envelope.ToASCII(q.Domain)
	if q.Domain != "" && err != nil {
		return api.TLSReportList{}, api.Invalid("", "%q is not a valid domain: %v", q.Domain, err)
	}
	l := api.TLSReportList{On: true}
	l.Days, l.Next = reports.Days(domain, q.After, q.Limit)
	return l, nil
}
