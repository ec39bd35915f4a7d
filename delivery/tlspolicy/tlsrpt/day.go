package tlsrpt

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"example.org/mta/delivery/tlspolicy"
	"example.org/mta/internal/route"
)

const (
	maxDomains  = 50_000  // a day; attempts for further ones aren't counted
	maxPolicies = 10      // of a domain; the results of further ones count for the last
	maxMX       = 8 << 10 // octets of a policy's patterns or records; further ones are left out
	maxDetails  = 100     // of a policy; further failures have one for each class, which names no host
	maxReason   = 200     // octets

	dayLayout = "2006-01-02"
)

// Day is what was counted for a policy domain on a day of UTC, and what was sent about it.
type Day struct {
	Date     string   `json:"date"`     // as 2006-01-02
	Domain   string   `json:"domain"`   // whose policy applied: the recipients' domain
	Policies []Policy `json:"policies"` // what was counted, by policy
	// a report's way to each destination that the domain has named
	Reports  []Delivery `json:"reports,omitempty"`
	Unwanted bool       `json:"unwanted,omitempty"` // the domain asks for no reports
	// the failed look-up of the record that requests reports
	LookupError string `json:"lookup_error,omitempty"`
	// when the domain's record is looked up, or a report is tried, again
	Next  time.Time `json:"next,omitzero"`
	Began time.Time `json:"began,omitzero"`  // the first try
	Tries int       `json:"tries,omitempty"` // how often the report was tried
	Done  bool      `json:"done,omitempty"`  // nothing is sent any more
}

// Policy is what was counted under one policy (RFC 8460, 4.4).
type Policy struct {
	Type tlspolicy.PolicyType `json:"type"` // tlsa, sts or no-policy-found
	// of an MTA-STS policy; absent when the policy could not be fetched
	Mode string `json:"mode,omitempty"`
	// the patterns of an MTA-STS policy, or a host's TLSA records, with commas between
	MX      string `json:"mx,omitempty"`
	MaxAge  int64  `json:"max_age,omitempty"` // its lifetime in seconds, where known
	Success int64  `json:"success"`           // connection attempts that were as the policy wants
	// those that were not; look-ups that failed, where the policy could not be fetched
	Failure int64    `json:"failure"`
	Details []Detail `json:"details,omitempty"` // what failed
}

// Detail is how often one thing failed.
type Detail struct {
	Class  tlspolicy.Class `json:"class"`            // the result type of RFC 8460, 4.3
	Source string          `json:"source,omitempty"` // IP address from which the attempt was made
	Host   string          `json:"host,omitempty"`   // mail exchanger
	Addr   string          `json:"addr,omitempty"`   // its IP address
	Reason string          `json:"reason,omitempty"` // more about the first of them
	Count  int64           `json:"count"`            // attempts
}

// Delivery is a report's way to one destination.
type Delivery struct {
	To    string    `json:"to"`              // mailto: with an address, or an https URL
	At    time.Time `json:"at"`              // the last try
	Sent  bool      `json:"sent"`            // it was queued, or the web server has taken it
	Error string    `json:"error,omitempty"` // of the last try
}

// add counts a result, and returns the policy under which it did.
func (d *Day) add(r *tlspolicy.Result) *Policy {
	p := d.policy(r)
	if r.Class == "" {
		p.Success++
		return p
	}
	p.Failure++
	p.fail(r)
	return p
}

// fail counts a failure among the details.
func (p *Policy) fail(r *tlspolicy.Result) {
	detail := Detail{Class: r.Class, Host: r.Host.Name, Reason: shortened(r.Reason)}
	if r.Source.IsValid() {
		detail.Source = r.Source.Unmap().String()
	}
	if a := r.Host.Addr.Addr(); a.IsValid() {
		detail.Addr = a.Unmap().String()
	}
	if found := p.detail(&detail); found != nil {
		found.Count++
		return
	}
	if len(p.Details) >= maxDetails {
		detail.Source, detail.Host, detail.Addr = "", "", ""
		if found := p.detail(&detail); found != nil {
			found.Count++
			return
		}
	}
	detail.Count = 1
	p.Details = append(p.Details, detail)
}

// policy finds the counts for a result's policy: a day can have several, when a policy changes.
func (d *Day) policy(r *tlspolicy.Result) *Policy {
	is := Policy{Type: r.Policy}
	if r.Policy == tlspolicy.STSPolicy && r.STS.Mode != route.STSNone {
		is.Mode, is.MX = r.STS.Mode.String(), patterns(r.STS.MX)
	} else if r.Policy == tlspolicy.DANEPolicy {
		is.MX = patterns(strings.Join(r.TLSA, ","))
	}
	for i := range d.Policies {
		if p := &d.Policies[i]; p.Type == is.Type && p.Mode == is.Mode && p.MX == is.MX {
			return p
		}
	}
	if n := len(d.Policies); n >= maxPolicies { // a domain that changes its policy at each check
		return &d.Policies[n-1]
	}
	d.Policies = append(d.Policies, is)
	return &d.Policies[len(d.Policies)-1]
}

// patterns are the first of a policy, or its first records.
func patterns(mx string) string {
	if len(mx) <= maxMX {
		return mx
	}
	mx = mx[:maxMX]
	return strings.Clone(mx[:max(strings.LastIndexByte(mx, ','), 0)])
}

func (p *Policy) detail(is *Detail) *Detail {
	for i := range p.Details {
		if d := &p.Details[i]; d.Class == is.Class && d.Source == is.Source && d.Host == is.Host && d.Addr == is.Addr {
			return d
		}
	}
	return nil
}

// clone copies what add changes.
func (d *Day) clone() Day {
	out := *d
	out.Policies = slices.Clone(d.Policies)
	for i := range out.Policies {
		out.Policies[i].Details = slices.Clone(out.Policies[i].Details)
	}
	out.Reports = slices.Clone(d.Reports)
	return out
}

// begin is when the day begins.
func (d *Day) begin() time.Time {
	t, _ := time.Parse(dayLayout, d.Date)
	return t
}

func shortened(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), maxReason)], "")
}

func compareDays(a, b Day) int {
	return cmp.Or(cmp.Compare(a.Date, b.Date), cmp.Compare(a.Domain, b.Domain))
}
