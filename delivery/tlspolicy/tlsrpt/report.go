package tlsrpt

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"example.org/mta/delivery/tlspolicy"
)

// report is the JSON of RFC 8460, 4.4.
type report struct {
	Organization string         `json:"organization-name"`
	Range        dateRange      `json:"date-range"`
	Contact      string         `json:"contact-info"`
	ID           string         `json:"report-id"`
	Policies     []policyReport `json:"policies"`
}

type dateRange struct {
	Start string `json:"start-datetime"`
	End   string `json:"end-datetime"`
}

type policyReport struct {
	Policy   policyText      `json:"policy"`
	Summary  summary         `json:"summary"`
	Failures []failureDetail `json:"failure-details,omitempty"`
}

type policyText struct {
	Type   tlspolicy.PolicyType `json:"policy-type"`
	Text   []string             `json:"policy-string,omitempty"`
	Domain string               `json:"policy-domain"`
	MX     []string             `json:"mx-host,omitempty"`
}

type summary struct {
	Success int64 `json:"total-successful-session-count"`
	Failure int64 `json:"total-failure-session-count"`
}

type failureDetail struct {
	Class  tlspolicy.Class `json:"result-type"`
	Source string          `json:"sending-mta-ip,omitempty"`
	Host   string          `json:"receiving-mx-hostname,omitempty"`
	Addr   string          `json:"receiving-ip,omitempty"`
	Count  int64           `json:"failed-session-count"`
	Reason string          `json:"failure-reason-code,omitempty"`
}

// reportID names the report about a day: at each try the same, so that a receiver knows it again.
func (c *Config) reportID(d *Day) string {
	return fmt.Sprintf("%s.%s@%s", d.Date, d.Domain, c.Submitter)
}

// report writes the report about a day.
func (c *Config) report(d *Day) ([]byte, error) {
	begin := d.begin()
	r := report{
		Organization: c.Organization, Contact: c.Contact, ID: c.reportID(d),
		Range: dateRange{begin.Format(time.RFC3339), begin.Add(24*time.Hour - time.Second).Format(time.RFC3339)},
	}
	for i := range d.Policies {
		r.Policies = append(r.Policies, d.Policies[i].report(d.Domain))
	}
	return json.MarshalIndent(&r, "", "  ")
}

func (p *Policy) report(domain string) policyReport {
	out := policyReport{Policy: policyText{Type: p.Type, Domain: domain}, Summary: summary{p.Success, p.Failure}}
	if p.Mode != "" {
		out.Policy.Text = []string{"version: STSv1", "mode: " + p.Mode}
		for mx := range strings.SplitSeq(p.MX, ",") {
			out.Policy.Text = append(out.Policy.Text, "mx: "+mx)
			out.Policy.MX = append(out.Policy.MX, mx)
		}
		if p.MaxAge > 0 {
			out.Policy.Text = append(out.Policy.Text, fmt.Sprintf("max_age: %d", p.MaxAge))
		}
	}
	if p.Type == tlspolicy.DANEPolicy && p.MX != "" {
		out.Policy.Text = strings.Split(p.MX, ",")
	}
	for _, d := range p.Details {
		out.Failures = append(out.Failures, failureDetail{d.Class, d.Source, d.Host, d.Addr, d.Count, d.Reason})
	}
	return out
}

// filename is the name of the report's file (RFC 8460, 5.1).
func (c *Config) filename(d *Day) string {
	begin := d.begin().Unix()
	return fmt.Sprintf("%s!%s!%d!%d.json.gz", c.Submitter, d.Domain, begin, begin+24*60*60-1)
}

func compressed(text []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(text) // into memory
	_ = z.Close()
	return b.Bytes()
}
