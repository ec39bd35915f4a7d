// Package check judges a configuration on this machine, before a relay runs on it and while it does: Faults keep the
// relay from starting, Warnings are of no use or will not work, and DNS asks how receivers will judge its mail, for
// which Daily has a goroutine.
package check

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/emersion/go-smtp"

	"example.org/mta/internal/dnscheck"
	"example.org/mta/internal/envelope"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/router/resolver"
)

// DNSQuestion says what of a configuration is checked. The zero value is all of it.
type DNSQuestion struct {
	Domains  []string // in From; none: those that the configuration names
	Sources  []string // names, or addresses of sources that are yet to be; none: all
	MailFrom string   // the domain in MAIL FROM; "": as configured
	Running  bool     // a relay runs with the configuration: its listeners are asked
}

// DNS finds out what receivers will think of mail by a configuration. The error is about the
// question or the configuration; what the DNS does not answer is a finding.
func DNS(ctx context.Context, cfg *config.Config, now time.Time, q DNSQuestion) ([]dnscheck.Finding, error) {
	rc, err := wiring.Resolver(cfg.Resolver)
	if err != nil {
		return nil, err
	}
	return dnsBy(ctx, cfg, Fresh(cfg, resolver.New(rc)), now, q)
}

// Fresh answers by a resolver that there is, and by the zones' own servers where that has nothing.
func Fresh(cfg *config.Config, r *resolver.Resolver) dnscheck.Resolver {
	return &dnscheck.Fresh{Resolver: dnsRecords{r}, Stale: cfg.Checks.DNSLists,
		Asker: &dnscheck.Asker{Resolvers: r.Servers(), Timeout: 2 * time.Second}}
}

func dnsBy(ctx context.Context, cfg *config.Config, r dnscheck.Resolver, now time.Time,
	q DNSQuestion) ([]dnscheck.Finding, error) {
	d := dnsSubjects{cfg: cfg, now: now, mailFrom: cmp.Or(q.MailFrom, cfg.Checks.MailFrom), outgoing: outgoing}
	all, used := d.sources(cfg.Sources), d.sources(cfg.SourcesOf(nil))
	if len(q.Sources) > 0 {
		var err error
		if used, err = d.chosen(all, q.Sources); err != nil {
			return nil, err
		}
	}
	names := q.Domains
	if len(names) == 0 {
		names = cfg.SenderDomains()
	}
	var domains []dnscheck.Domain
	for _, name := range names {
		ascii, err := envelope.ToASCII(name)
		if err != nil || ascii == "" {
			return nil, fmt.Errorf("%q is not a domain", name)
		}
		domains = append(domains, d.domain(ascii, used, len(q.Sources) > 0))
	}
	c := dnscheck.Checker{
		Resolver: r, Lists: cfg.Checks.DNSLists,
		StartTLS: func(ctx context.Context, host string) (bool, error) {
			return offersStartTLS(ctx, cfg.Hostname,
				net.JoinHostPort(host, strconv.Itoa(cfg.Defaults.Traffic.SMTPPort)), r)
		},
	}
	found := c.Check(ctx, used, domains)
	if len(q.Domains) == 0 {
		for _, p := range d.returnPaths(ctx, r) {
			found = append(found, c.ReturnPath(ctx, &p)...)
			found = append(found, takesReports(cfg, p.Name)...)
		}
	}
	return append(found, listenersTLS(ctx, cfg, q.Running)...), nil
}

// dnsSubjects makes what is checked of a configuration.
type dnsSubjects struct {
	cfg      *config.Config
	now      time.Time
	mailFrom string
	outgoing func(v6 bool) netip.Addr // the address from which the system makes connections
}

// sources gives each source as receivers see it. One for which the system chooses the address is two, if
// this machine has IPv4 and IPv6.
func (d *dnsSubjects) sources(from []*config.Source) (out []dnscheck.Source) {
	for _, s := range from {
		seen := []netip.Addr{s.Seen()}
		if !seen[0].IsValid() && s.Proxy.Kind == "" {
			seen = d.chosenBySystem()
		}
		for _, a := range seen {
			out = append(out, dnscheck.Source{Name: s.Name, Address: a.Unmap(), EHLO: cmp.Or(s.EHLO, d.cfg.Hostname)})
		}
	}
	return out
}

func (d *dnsSubjects) chosenBySystem() (addrs []netip.Addr) {
	if a := d.outgoing(false); d.cfg.Router.IPv4 && a.IsValid() {
		addrs = append(addrs, a)
	}
	if a := d.outgoing(true); d.cfg.Router.IPv6 && a.IsValid() {
		addrs = append(addrs, a)
	}
	if len(addrs) == 0 {
		addrs = []netip.Addr{{}}
	}
	return addrs
}

// chosen finds sources by name, and makes one of each address.
func (d *dnsSubjects) chosen(all []dnscheck.Source, names []string) (out []dnscheck.Source, _ error) {
	for _, name := range names {
		found := false
		for _, s := range all {
			if s.Name == name || s.Address.IsValid() && s.Address.String() == name {
				out, found = append(out, s), true
			}
		}
		if found {
			continue
		}
		a, err := netip.ParseAddr(name)
		if err != nil {
			return nil, fmt.Errorf("there is no source %q, and it is not an IP address either", name)
		}
		out = append(out, dnscheck.Source{Name: name, Address: a.Unmap(), EHLO: d.cfg.Hostname})
	}
	return out, nil
}

// domain is what is checked of a sender's domain, from those of its sources that were chosen.
func (d *dnsSubjects) domain(name string, chosen []dnscheck.Source, asked bool) dnscheck.Domain {
	tenants := d.cfg.TenantsOf(name)
	out := dnscheck.Domain{Name: name, MailFrom: d.mailFrom, Sources: chosen, Keys: d.keys(name, tenants)}
	if !asked {
		out.Sources = d.sources(d.cfg.SourcesOf(tenants))
	}
	out.MailFrom = cmp.Or(out.MailFrom, d.returnPathOf(name, tenants))
	return out
}

// returnPathOf is the domain of the return path that all mail from a sender's domain has, "" when there is none.
func (d *dnsSubjects) returnPathOf(name string, tenants []string) (domain string) {
	if len(tenants) == 0 {
		tenants = []string{""}
	}
	for i, t := range tenants {
		r := d.cfg.ReturnPathFor(t, envelope.Join("postmaster", name))
		if domain != r.Domain && i > 0 {
			return ""
		}
		domain = r.Domain
	}
	return domain
}

// returnPaths makes what is checked of the domains of return paths.
func (d *dnsSubjects) returnPaths(ctx context.Context, r dnscheck.Resolver) (out []dnscheck.ReturnPath) {
	hosts, addrs := d.here(ctx, r)
	for _, name := range d.cfg.ReturnPathDomains() {
		out = append(out, dnscheck.ReturnPath{Name: name,
			Sources: d.sources(d.cfg.SourcesOf(d.cfg.ReturnPathTenants(name))), Hosts: hosts, Addresses: addrs})
	}
	return out
}

// here gives the names and addresses by which hosts can reach this relay, as far as they are known.
func (d *dnsSubjects) here(ctx context.Context, r dnscheck.Resolver) (hosts []string, addrs []netip.Addr) {
	hosts = []string{d.cfg.Hostname}
	for _, l := range d.cfg.Listeners {
		if !slices.Contains(hosts, l.Banner) {
			hosts = append(hosts, l.Banner)
		}
		for _, address := range l.Address {
			if a, err := netip.ParseAddrPort(address); err == nil && !a.Addr().IsUnspecified() {
				addrs = append(addrs, a.Addr().Unmap())
			}
		}
	}
	for _, s := range d.sources(d.cfg.Sources) {
		if s.Address.IsValid() {
			addrs = append(addrs, s.Address)
		}
	}
	for _, host := range hosts {
		if found, err := r.Addresses(ctx, host); err == nil {
			addrs = append(addrs, found...)
		}
	}
	return hosts, addrs
}

// takesReports finds a domain of return paths for which no listener takes mail.
func takesReports(cfg *config.Config, domain string) []dnscheck.Finding {
	if cfg.InboundDomain(domain) {
		return nil
	}
	return []dnscheck.Finding{{
		Check: dnscheck.CheckReturnPath, Domain: domain, Result: dnscheck.Warning,
		Text:   fmt.Sprintf("no listener takes mail for %s: bounces that come here are refused", domain),
		Remedy: fmt.Sprintf("write inbound { domains = [%q] } into a listener that hosts reach on port 25", domain),
	}}
}

// keys lists the keys that sign mail from a domain, of its tenants or of anybody, and those that will.
func (d *dnsSubjects) keys(from string, tenants []string) (keys []dnscheck.Key) {
	if len(tenants) == 0 {
		tenants = append([]string{""}, d.cfg.Names("tenant")...)
	}
	var blocks []*config.DKIM
	for _, t := range tenants {
		for _, b := range d.cfg.DKIMFor(t, from) {
			if !slices.Contains(blocks, b) {
				blocks = append(blocks, b)
			}
		}
	}
	for _, b := range blocks {
		signing := b.Signing(d.now)
		for _, k := range b.Keys {
			if later := k.From.Time().After(d.now); k.Key() != nil && (later || slices.Contains(signing, k)) {
				keys = append(keys, dnscheck.Key{Key: k.Key(), Later: later})
			}
		}
	}
	return keys
}

// Addresses of the networks for documentation: nothing is sent to them.
var somewhere = map[bool]string{false: "192.0.2.1:9", true: "[2001:db8::1]:9"}

// outgoing is the address from which this machine would make a connection to the world. To connect a
// socket of UDP sends nothing.
func outgoing(v6 bool) netip.Addr {
	c, err := net.Dial("udp", somewhere[v6])
	if err != nil {
		return netip.Addr{}
	}
	defer c.Close()
	at, ok := c.LocalAddr().(*net.UDPAddr)
	if !ok {
		return netip.Addr{}
	}
	return at.AddrPort().Addr().Unmap().WithZone("")
}

// listenersTLS finds listeners to which others than this machine can connect, and that have no TLS. Those of a relay
// that runs are asked.
func listenersTLS(ctx context.Context, cfg *config.Config, running bool) (found []dnscheck.Finding) {
	for _, l := range cfg.Listeners {
		if !slices.ContainsFunc(l.Address, isReachable) {
			continue
		}
		f := dnscheck.Finding{Check: dnscheck.CheckListener, Listener: l.Name, Result: dnscheck.OK}
		switch {
		case l.TLS.Implicit:
			f.Text = fmt.Sprintf("listener %q speaks TLS from the start", l.Name)
		case l.TLS.Enabled():
			f.Text = fmt.Sprintf("listener %q offers STARTTLS", l.Name)
		default:
			f.Result, f.Text = dnscheck.Warning,
				fmt.Sprintf("listener %q takes mail from other machines and has no TLS", l.Name)
			f.Remedy = "write tls { certificate and key, or acme = true } into it"
		}
		switch {
		case running:
			tryListener(ctx, cfg, l, &f)
		case f.Result == dnscheck.OK:
			f.Result, f.Text = dnscheck.Unknown, fmt.Sprintf("listener %q can't be tried: no relay runs here", l.Name)
			f.Remedy = "start it; if it does not stay up, its log has the reason"
		}
		found = append(found, f)
	}
	return found
}

// tryListener connects to a listener of the running relay, from this machine.
func tryListener(ctx context.Context, cfg *config.Config, l *config.Listener, f *dnscheck.Finding) {
	ctx, cancel := context.WithTimeout(ctx, probeTime+l.GreetDelay)
	defer cancel()
	for _, address := range l.Address {
		at, err := netip.ParseAddrPort(address)
		_, port, _ := net.SplitHostPort(address)
		host := "127.0.0.1"
		if err == nil && !at.Addr().IsUnspecified() {
			host = at.Addr().String()
		} else if err == nil && at.Addr().Is6() {
			host = "::1"
		}
		from, err := netip.ParseAddr(host)
		if err != nil || slices.ContainsFunc(l.ProxyFrom, func(p netip.Prefix) bool { return p.Contains(from) }) {
			continue
		}
		c, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(host, port))
		if err != nil {
			f.Result, f.Text = dnscheck.Failed, fmt.Sprintf("listener %q does not answer: %v", l.Name, err)
			f.Remedy = "'mta check' shows how to bring the file into force"
			return
		}
		if why := handshake(ctx, c, cfg.Hostname, l.TLS); why != "" {
			f.Result, f.Text = dnscheck.Failed, fmt.Sprintf("listener %q %s", l.Name, why)
			f.Remedy = "'mta status' shows why there is no certificate, or what waits for a restart"
			return
		}
	}
}

// handshake returns what keeps clients from TLS at an open connection; "" for nothing, or what has another cause.
func handshake(ctx context.Context, c net.Conn, hostname string, has config.TLS) string {
	defer c.Close()
	if end, ok := ctx.Deadline(); ok {
		_ = c.SetDeadline(end)
	}
	asks := &tls.Config{ServerName: hostname, InsecureSkipVerify: true} // whether it ends, not with whom
	if has.Implicit {
		if err := tls.Client(c, asks).HandshakeContext(ctx); err != nil {
			return "fails in the TLS handshake: " + err.Error()
		}
		return ""
	}
	if !has.Enabled() {
		return ""
	}
	client, err := smtp.NewClientStartTLS(c, asks)
	refused, lost := (*smtp.SMTPError)(nil), net.Error(nil)
	switch {
	case errors.As(err, &refused), errors.As(err, &lost), errors.Is(err, io.EOF):
		return ""
	case err != nil:
		return "does not offer STARTTLS: it has no certificate"
	}
	if err := client.Hello(hostname); err != nil {
		return "fails in the TLS handshake: " + err.Error()
	}
	_ = client.Quit()
	return ""
}

// isReachable reports whether other machines can connect to an address to listen at.
func isReachable(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	a, err := netip.ParseAddr(host)
	return err != nil || !a.IsLoopback()
}

// probeTime bounds the question for STARTTLS. Hosts that delay their greeting against spammers do so for
// some seconds.
const probeTime = 20 * time.Second

// offersStartTLS asks a mail host for its extensions, without sending mail.
func offersStartTLS(ctx context.Context, hostname, at string, r dnscheck.Resolver) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	host, port, err := net.SplitHostPort(at)
	if err != nil {
		return false, err
	}
	addrs, err := r.Addresses(ctx, host)
	if err != nil {
		return false, err
	}
	failed := errors.New("it has no address")
	for _, a := range addrs {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(a.String(), port))
		if err != nil {
			failed = err
			continue
		}
		return extensions(ctx, c, hostname)
	}
	return false, failed
}

func extensions(ctx context.Context, c net.Conn, hostname string) (starttls bool, _ error) {
	defer c.Close()
	if end, ok := ctx.Deadline(); ok {
		_ = c.SetDeadline(end)
	}
	client := smtp.NewClient(c)
	if err := client.Hello(hostname); err != nil {
		return false, err
	}
	starttls, _ = client.Extension("STARTTLS")
	_ = client.Quit()
	return starttls, nil
}

// dnsRecords lets checks ask our resolver.
type dnsRecords struct{ r *resolver.Resolver }

// Addresses gives those of both families.
func (d dnsRecords) Addresses(ctx context.Context, host string) (addrs []netip.Addr, _ error) {
	for _, ask := range []func(context.Context, string) (*resolver.Answer, error){d.r.A, d.r.AAAA} {
		answer, err := orNothing(ask(ctx, host))
		if err != nil {
			return nil, err
		}
		addrs = append(addrs, answer.Addrs...)
	}
	return addrs, nil
}

// Exchangers gives the MX records of a domain.
func (d dnsRecords) Exchangers(ctx context.Context, domain string) (out []dnscheck.Exchanger, _ error) {
	answer, err := orNothing(d.r.MX(ctx, domain))
	if err != nil {
		return nil, err
	}
	for _, mx := range answer.MX {
		out = append(out, dnscheck.Exchanger{Preference: mx.Preference, Host: mx.Host})
	}
	return out, nil
}

// Texts gives the TXT records of a name.
func (d dnsRecords) Texts(ctx context.Context, name string) ([]string, error) {
	answer, err := orNothing(d.r.TXT(ctx, name))
	if err != nil {
		return nil, err
	}
	return answer.Texts, nil
}

// Names gives the PTR records of an address.
func (d dnsRecords) Names(ctx context.Context, a netip.Addr) ([]string, error) {
	answer, err := orNothing(d.r.PTR(ctx, a))
	if err != nil {
		return nil, err
	}
	return answer.Names, nil
}

// orNothing makes an answer without records of the errors that say that there are none.
func orNothing(a *resolver.Answer, err error) (*resolver.Answer, error) {
	if err != nil && resolver.KindOf(err) != resolver.Temporary {
		return new(resolver.Answer), nil
	}
	return a, err
}
