package dnscheck

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"blitiri.com.ar/go/spf"
)

// spf checks that SPF of the MAIL FROM domain passes from each source (RFC 7208).
func (c *Checker) spf(ctx context.Context, d *Domain) []Finding {
	var out []Finding
	var refused []netip.Addr
	for _, s := range d.Sources {
		f := Finding{Check: CheckSPF, Source: s.Name, Address: s.Address}
		if !Public(s.Address) {
			f.Result, f.Text = Unknown,
				fmt.Sprintf("SPF of %s was not checked for source %s, whose address is not known", d.mailFrom(), s.Name)
			out = append(out, f)
			continue
		}
		f = judgeSPF(f, d.mailFrom(), c.checkHost(ctx, s, "postmaster@"+d.mailFrom()))
		if f.Result == Failed {
			refused = append(refused, s.Address)
		}
		if !slices.ContainsFunc(out, func(o Finding) bool { return o.Text == f.Text }) { // about the record itself
			out = append(out, f)
		}
	}
	c.proposeSPF(ctx, d.mailFrom(), refused, out)
	return out
}

// heloSPF checks SPF of EHLO's name, which is what receivers look at when MAIL FROM is empty, as in
// reports (RFC 7208, 2.4).
func (c *Checker) heloSPF(ctx context.Context, s Source) Finding {
	v := c.checkHost(ctx, s, "postmaster@"+s.EHLO)
	f := judgeSPF(Finding{Check: CheckHELOSPF, Source: s.Name, Address: s.Address}, s.EHLO, v)
	if f.Result == Failed {
		f.Record = textRecord(s.EHLO, "v=spf1 a -all")
		f.Remedy = "publish this, for reports to senders, whose MAIL FROM is empty"
		if v.result == spf.None {
			f.Result = Warning
		}
	}
	return f
}

// spfResult is what the library says; the error explains every result but a pass.
type spfResult struct {
	result spf.Result
	err    error
}

func (c *Checker) checkHost(ctx context.Context, s Source, sender string) spfResult {
	result, err := spf.CheckHostWithSender(s.Address.AsSlice(), s.EHLO, sender, spf.WithContext(ctx),
		spf.WithResolver(forSPF{c.Resolver}))
	var failed *net.DNSError
	if errors.As(err, &failed) {
		err = errors.New(failed.Err)
	}
	return spfResult{result, err}
}

func judgeSPF(f Finding, domain string, v spfResult) Finding {
	f.Result = Failed
	switch v.result {
	case spf.Pass:
		f.Result, f.Text = OK, fmt.Sprintf("SPF of %s passes from %s", domain, f.Address)
	case spf.None:
		f.Text = domain + " has no SPF record"
	case spf.Fail:
		f.Text = fmt.Sprintf("SPF of %s forbids mail from %s", domain, f.Address)
	case spf.SoftFail, spf.Neutral:
		f.Text = fmt.Sprintf("SPF of %s does not allow mail from %s (%s)", domain, f.Address, v.result)
	case spf.PermError:
		f.Text = fmt.Sprintf("receivers can't use the SPF record of %s: %v", domain, v.err)
	default:
		return Finding{Check: f.Check, Source: f.Source, Address: f.Address, Result: Unknown,
			Text: fmt.Sprintf("SPF of %s could not be checked: %v", domain, v.err), Remedy: "try again later"}
	}
	f.Remedy = permErrorRemedy(v)
	return f
}

func permErrorRemedy(v spfResult) string {
	switch {
	case v.result != spf.PermError:
		return ""
	case errors.Is(v.err, spf.ErrMultipleRecords):
		return "leave one record that begins with v=spf1, and write into it what the others have"
	case errors.Is(v.err, spf.ErrLookupLimitReached), errors.Is(v.err, spf.ErrVoidLookupLimitReached):
		return "10 look-ups are allowed, and 2 that find nothing (RFC 7208, 4.6.4): write addresses (ip4:, ip6:) in " +
			"place of include:, a, mx"
	}
	return "correct the record"
}

// proposeSPF writes the record that would let all refused addresses pass into the findings.
func (c *Checker) proposeSPF(ctx context.Context, domain string, refused []netip.Addr, out []Finding) {
	if len(refused) == 0 {
		return
	}
	texts, err := c.Resolver.Texts(ctx, domain)
	if err != nil {
		return
	}
	texts = slices.DeleteFunc(slices.Clone(texts), func(t string) bool { return !isSPF(t) })
	if len(texts) > 1 {
		return
	}
	record, remedy := textRecord(domain, allow("v=spf1 ~all", refused)), "publish this"
	if len(texts) == 1 {
		record, remedy = textRecord(domain, allow(texts[0], refused)), "change the record to this"
	}
	for i := range out {
		if f := &out[i]; f.Result == Failed && f.Remedy == "" {
			f.Remedy, f.Record = remedy, record
		}
	}
}

func isSPF(text string) bool {
	version, _, _ := strings.Cut(text, " ")
	return strings.EqualFold(version, "v=spf1")
}

// allow puts addresses to the front of an SPF record, where they cost receivers no look-up.
func allow(record string, addrs []netip.Addr) string {
	words := strings.Fields(record)
	var mechanisms []string
	for _, a := range addrs {
		kind := "ip6:"
		if a.Is4() {
			kind = "ip4:"
		}
		if m := kind + a.String(); !slices.Contains(mechanisms, m) {
			mechanisms = append(mechanisms, m)
		}
	}
	return strings.Join(slices.Concat(words[:1], mechanisms, words[1:]), " ")
}
