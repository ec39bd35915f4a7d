package dnscheck

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/emersion/go-msgauth/dmarc"

	"example.org/mta/internal/dkim"
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

// goodBits is the least of an RSA key that large providers advise.
const goodBits = 2048

// dkim checks that the records of all keys are published, and that there is a key.
func (c *Checker) dkim(ctx context.Context, d *Domain) []Finding {
	if len(d.Keys) == 0 {
		return []Finding{{Check: CheckDKIM, Result: Failed,
			Text: "mail from " + d.Name + " leaves unsigned: no dkim block matches it",
			Remedy: fmt.Sprintf(
				"mta dkim keygen --domain %s --selector s1 --out /etc/mta/dkim/s1.pem, which prints the record to "+
					"publish", d.Name)}}
	}
	var out []Finding
	for _, k := range d.Keys {
		out = append(out, c.key(ctx, k))
	}
	ed25519Only := !slices.ContainsFunc(d.Keys, func(k Key) bool { return k.Algorithm() != dkim.Ed25519 })
	if ed25519Only {
		out = append(out, Finding{Check: CheckDKIM, Result: Warning,
			Text: "mail from " + d.Name +
				" is signed with Ed25519 only, which many receivers don't verify, Gmail among them",
			Remedy: "add an RSA key: mta dkim keygen --domain " + d.Name + " --selector s2 --out /etc/mta/dkim/s2.pem"})
	}
	return out
}

func (c *Checker) key(ctx context.Context, k Key) Finding {
	texts, err := c.Resolver.Texts(ctx, k.Name())
	if err != nil {
		return unanswered(CheckDKIM, "the record "+k.Name(), err)
	}
	v := k.Judge(texts)
	f := Finding{Check: CheckDKIM, Result: Failed, Text: v.Why, Remedy: v.Remedy}
	switch {
	case v.Result == dkim.Fits && k.Algorithm() == dkim.RSA && k.Bits() < goodBits:
		f.Result, f.Text, f.Remedy = Warning, fmt.Sprintf("%s matches a key of %d bits only", k.Name(), k.Bits()),
			"generate one of 2048 bits with mta dkim keygen, and rotate to it"
	case v.Result == dkim.Fits:
		f.Result, f.Text = OK, k.Name()+" matches its key"
	case v.Result == dkim.Missing, v.Result == dkim.Wrong:
		f.Record = k.ZoneLine()
	}
	if k.Later {
		f.Text += ", which does not sign yet"
	}
	return f
}

// aligned lists the domains of keys that sign now, are published and let DMARC pass for From, and reports
// whether a look-up failed.
func (d *Domain) aligned(keys []Finding, strict bool) (domains []string, unknown bool) {
	for i, k := range d.Keys {
		if k.Later || !aligns(k.Domain, d.Name, strict) {
			continue
		}
		switch keys[i].Result {
		case Unknown:
			unknown = true
		case OK, Warning:
			if !slices.Contains(domains, k.Domain) {
				domains = append(domains, k.Domain)
			}
		}
	}
	return domains, unknown
}

// aligns is what DMARC wants of the domain of SPF or DKIM (RFC 7489, 3.1).
func aligns(domain, from string, strict bool) bool {
	return domain == from || !strict && dkim.SameOrganization(domain, from)
}
