package dnscheck

import (
	"context"
	"example.org/mta/internal/dkim"
	"fmt"
	"strings"

	"github.com/emersion/go-msgauth/dmarc"
)

// dmarc checks that a policy exists for the domain of From, and that mail passes it: by SPF from all
// sources, or by DKIM (RFC 7489).
func (c *Checker) dmarc(ctx context.Context, d *Domain, spf, keys []Finding) Finding {
	at, record, err := c.policy(ctx, d.Name)
	var bad *policyError
	switch {
	case err == nil && record == nil:
		return Finding{Check: CheckDMARC, Result: Failed,
			Text:   d.Name + " has no DMARC policy, which large providers require of bulk mail",
			Remedy: "publish this, and watch the reports before you write quarantine or reject",
			Record: textRecord("_dmarc."+d.Name, "v=DMARC1; p=none; rua=mailto:dmarc@"+d.Name)}
	case err == nil:
	case asPolicyError(err, &bad):
		return Finding{Check: CheckDMARC, Result: Failed,
			Text: fmt.Sprintf("receivers can't use the DMARC policy of %s: %v", d.Name, bad), Remedy: bad.remedy}
	default:
		return unanswered(CheckDMARC, "DMARC", err)
	}
	bySPF, spfUnknown := d.alignedSPF(spf, record.SPFAlignment == dmarc.AlignmentStrict)
	domains, keysUnknown := d.aligned(keys, record.DKIMAlignment == dmarc.AlignmentStrict)
	byDKIM := len(domains) > 0
	ways := ""
	switch {
	case bySPF && byDKIM:
		ways = fmt.Sprintf("SPF of %s and DKIM of %s are aligned", d.mailFrom(), both(domains))
	case byDKIM:
		ways = fmt.Sprintf("DKIM of %s is aligned; SPF is not, or does not pass", both(domains))
		if spfUnknown {
			ways = fmt.Sprintf("DKIM of %s is aligned; SPF could not be checked", both(domains))
		}
	case bySPF:
		ways = fmt.Sprintf("SPF of %s is aligned; DKIM is not, so that forwarded mail fails", d.mailFrom())
	case spfUnknown, keysUnknown:
		return Finding{Check: CheckDMARC, Result: Unknown,
			Text: "whether mail passes the DMARC policy at " + at + " could not be checked: SPF or DKIM could not"}
	default:
		return Finding{Check: CheckDMARC, Result: Failed,
			Text: fmt.Sprintf(
				"mail from %s fails its DMARC policy (%s, p=%s): neither SPF nor DKIM passes for a domain that is "+
					"aligned with it", d.Name, at, record.Policy),
			Remedy: "sign with a key of " + d.Name + ": mta dkim keygen --domain " + d.Name +
				", and publish its record; or let SPF pass for a MAIL FROM in the domain"}
	}
	return Finding{Check: CheckDMARC, Result: OK,
		Text: fmt.Sprintf("mail from %s passes its DMARC policy (%s, p=%s): %s", d.Name, at, record.Policy, ways)}
}

// alignedSPF reports whether SPF lets DMARC pass, from whichever source mail leaves; unknown, that it
// might.
func (d *Domain) alignedSPF(spf []Finding, strict bool) (passes, unknown bool) {
	if !aligns(d.mailFrom(), d.Name, strict) || len(spf) == 0 {
		return false, false
	}
	passes = true
	for i := range spf {
		switch spf[i].Result {
		case Unknown:
			passes, unknown = false, true
		case Failed, Warning:
			return false, false
		}
	}
	return passes, unknown
}

// policyError is about a policy that is published and of no use.
type policyError struct{ why, remedy string }

func (e *policyError) Error() string { return e.why }

func asPolicyError(err error, to **policyError) bool {
	e, ok := err.(*policyError)
	*to = e
	return ok
}

// policy finds the policy that applies to a domain, its own or its organization's, and the name at which
// it is (RFC 7489, 6.6.3). nil: there is none.
func (c *Checker) policy(ctx context.Context, domain string) (at string, _ *dmarc.Record, _ error) {
	for _, name := range []string{domain, dkim.Organization(domain)} {
		at = "_dmarc." + name
		texts, err := c.Resolver.Texts(ctx, at)
		if err != nil {
			return at, nil, err
		}
		var policies []string
		for _, t := range texts {
			if version, _, _ := strings.Cut(t, ";"); strings.Join(strings.Fields(version), "") == "v=DMARC1" {
				policies = append(policies, t)
			}
		}
		switch len(policies) {
		case 0:
			continue
		case 1:
			record, err := dmarc.Parse(policies[0])
			if err != nil {
				return at, nil, &policyError{strings.TrimPrefix(err.Error(), "dmarc: "), "correct the record " + at}
			}
			return at, record, nil
		}
		return at, nil, &policyError{fmt.Sprintf("there are %d at %s, and receivers ignore them all", len(policies),
			at), "leave one"}
	}
	return "", nil, nil
}
