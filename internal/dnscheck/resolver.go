package dnscheck

import (
	"context"
	"net"
	"net/netip"

	"example.org/mta/internal/dkim"
)

// Resolver asks the DNS. Where there is no such record, or no such name, there is nothing and no
// error; an error says that nothing could be learned. Names have no final dot.
type Resolver interface {
	Addresses(ctx context.Context, host string) ([]netip.Addr, error)
	Exchangers(ctx context.Context, domain string) ([]Exchanger, error)
	Texts(ctx context.Context, name string) ([]string, error)
	Names(ctx context.Context, addr netip.Addr) ([]string, error)
}

// Exchanger is an MX record. Host "" is the root: the domain takes no mail (RFC 7505).
type Exchanger struct {
	Preference uint16
	Host       string
}

// forSPF is a Resolver as the SPF library wants it, which distinguishes "no such record" from "no answer" by
// net.DNSError (RFC 7208, 2.6 and 4.6.4).
type forSPF struct{ r Resolver }

func (f forSPF) LookupTXT(ctx context.Context, name string) ([]string, error) {
	texts, err := f.r.Texts(ctx, name)
	return texts, dnsError(name, len(texts), err)
}

func (f forSPF) LookupMX(ctx context.Context, name string) ([]*net.MX, error) {
	exchangers, err := f.r.Exchangers(ctx, name)
	var out []*net.MX
	for _, e := range exchangers {
		out = append(out, &net.MX{Host: e.Host + ".", Pref: e.Preference})
	}
	return out, dnsError(name, len(out), err)
}

func (f forSPF) LookupIPAddr(ctx context.Context, host string) ([]net.IPAddr, error) {
	addrs, err := f.r.Addresses(ctx, host)
	var out []net.IPAddr
	for _, a := range addrs {
		out = append(out, net.IPAddr{IP: a.AsSlice()})
	}
	return out, dnsError(host, len(out), err)
}

func (f forSPF) LookupAddr(ctx context.Context, addr string) ([]string, error) {
	a, err := netip.ParseAddr(addr)
	if err != nil {
		return nil, err
	}
	names, err := f.r.Names(ctx, a)
	var out []string
	for _, n := range names {
		out = append(out, n+".")
	}
	return out, dnsError(addr, len(out), err)
}

func dnsError(name string, found int, err error) error {
	switch {
	case err != nil:
		return &net.DNSError{Err: err.Error(), Name: name, IsTemporary: true}
	case found == 0:
		return &net.DNSError{Err: "no such record", Name: name, IsNotFound: true}
	}
	return nil
}

// addressRecord is the line of a zone file that gives a name an address.
func addressRecord(name string, a netip.Addr) string {
	if a.Is4() {
		return name + ". IN A " + a.String()
	}
	return name + ". IN AAAA " + a.String()
}

func textRecord(name, text string) string { return dkim.TextRecord(name, text) }

// unanswered is a finding about which the DNS said nothing.
func unanswered(check, what string, err error) Finding {
	return Finding{Check: check, Result: Unknown, Text: what + " could not be checked: " + err.Error(),
		Remedy: "try again later; if this persists, check the domain's name servers and those in resolver { }"}
}
