package dnscheck

import (
	"context"
	"fmt"
	"slices"

	"example.org/mta/internal/dkim"
)

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
