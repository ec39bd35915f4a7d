package dnscheck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

// Asker looks for the name servers of a zone by way of resolvers. The zero value can't be used.
type Asker struct {
	Resolvers []netip.AddrPort // asked in turn; at least one
	Timeout   time.Duration    // for each question to each server
	Port      uint16           // of the name servers; 0 is 53
	// Servers are asked in place of the zone's own, if any are given.
	Servers []netip.AddrPort
}

// Answer is what one name server has.
type Answer struct {
	Server string   // its name, or its address where that was given
	Texts  []string // the TXT records, each joined; none when there are none
	Alias  string   // the name that they are found at, when the one that was asked for is an alias
	Err    error    // why it gave no answer
}

const (
	maxAliases = 8
	maxServers = 16
)

// TXT gives what each server of the zone of name has for it, sorted by server. The error is about the
// zone's servers, which could not be found.
func (a *Asker) TXT(ctx context.Context, name string) ([]Answer, error) {
	return a.txt(ctx, dns.Fqdn(name), 0)
}

func (a *Asker) txt(ctx context.Context, name string, aliases int) ([]Answer, error) {
	servers, err := a.serversOf(ctx, name)
	if err != nil {
		return nil, err
	}
	answers := make([]Answer, len(servers))
	var asking sync.WaitGroup
	for i, s := range servers {
		asking.Go(func() { answers[i] = a.ask(ctx, s, name) })
	}
	asking.Wait()
	return a.follow(ctx, answers, aliases)
}

// follow asks for what aliases stand for, in its own zone. Each server that has the alias is then
// one that has what the servers of that zone agree on.
func (a *Asker) follow(ctx context.Context, answers []Answer, aliases int) ([]Answer, error) {
	var out []Answer
	targets := make(map[string]bool)
	for _, ans := range answers {
		if ans.Alias == "" || len(ans.Texts) > 0 {
			out = append(out, ans)
			continue
		}
		if targets[ans.Alias] {
			continue
		}
		targets[ans.Alias] = true
		if aliases == maxAliases {
			return nil, fmt.Errorf("%s: more than %d aliases lead to each other", ans.Alias, maxAliases)
		}
		behind, err := a.txt(ctx, ans.Alias, aliases+1)
		if err != nil {
			return nil, err
		}
		for _, b := range behind {
			b.Alias = cmp.Or(b.Alias, ans.Alias)
			out = append(out, b)
		}
	}
	return out, nil
}

// server is a name server and its addresses.
type server struct {
	name      string
	addresses []netip.AddrPort
	err       error
}

func (a *Asker) serversOf(ctx context.Context, name string) ([]server, error) {
	if len(a.Servers) > 0 {
		var all []server
		for _, s := range a.Servers {
			all = append(all, server{name: s.String(), addresses: []netip.AddrPort{s}})
		}
		return all, nil
	}
	zone, err := a.zoneOf(ctx, name)
	if err != nil {
		return nil, err
	}
	reply, err := a.resolve(ctx, zone, dns.TypeNS)
	if err != nil {
		return nil, fmt.Errorf("name servers of %s: %w", zone, err)
	}
	var names []string
	for _, rr := range reply.Answer {
		if ns, ok := rr.(*dns.NS); ok && len(names) < maxServers {
			names = append(names, ns.Ns)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("zone %s has no name servers", zone)
	}
	slices.Sort(names)
	all := make([]server, len(names))
	var asking sync.WaitGroup
	for i, n := range slices.Compact(names) {
		asking.Go(func() { all[i] = a.addressesOf(ctx, n) })
	}
	asking.Wait()
	return slices.DeleteFunc(all, func(s server) bool { return s.name == "" }), nil
}

// zoneOf finds the zone that a name is in: the closest name above it that has an SOA record.
func (a *Asker) zoneOf(ctx context.Context, name string) (string, error) {
	for zone := name; zone != "."; zone = parent(zone) {
		reply, err := a.resolve(ctx, zone, dns.TypeSOA)
		if err != nil {
			return "", fmt.Errorf("zone of %s: %w", name, err)
		}
		for _, rr := range reply.Answer {
			if _, ok := rr.(*dns.SOA); ok && strings.EqualFold(rr.Header().Name, zone) {
				return zone, nil
			}
		}
	}
	return "", fmt.Errorf("%s is in no zone of the DNS", name)
}

func parent(name string) string {
	next, end := dns.NextLabel(name, 0)
	if end {
		return "."
	}
	return name[next:]
}

func (a *Asker) addressesOf(ctx context.Context, name string) server {
	s := server{name: strings.TrimSuffix(name, ".")}
	for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
		reply, err := a.resolve(ctx, name, qtype)
		if err != nil {
			s.err = err
			continue
		}
		for _, rr := range reply.Answer {
			var ip net.IP
			switch rr := rr.(type) {
			case *dns.A:
				ip = rr.A
			case *dns.AAAA:
				ip = rr.AAAA
			}
			if addr, ok := netip.AddrFromSlice(ip); ok {
				s.addresses = append(s.addresses, netip.AddrPortFrom(addr.Unmap(), cmp.Or(a.Port, 53)))
			}
		}
	}
	return s
}

// ask asks a server for texts.
func (a *Asker) ask(ctx context.Context, s server, name string) Answer {
	out := Answer{Server: s.name}
	reply, err := a.reply(ctx, s, name, dns.TypeTXT)
	if out.Err = err; err == nil {
		out.Texts, out.Alias = textsOf(reply, name)
	}
	return out
}

// reply asks a server at one of its addresses after the other, until one answers.
func (a *Asker) reply(ctx context.Context, s server, name string, qtype uint16) (_ *dns.Msg, failed error) {
	failed = s.err
	if len(s.addresses) == 0 && failed == nil {
		failed = errors.New("it has no address")
	}
	for _, at := range s.addresses {
		reply, err := a.exchange(ctx, at, name, qtype, false)
		if err == nil && reply.Rcode != dns.RcodeSuccess && reply.Rcode != dns.RcodeNameError {
			err = fmt.Errorf("it answers %s", dns.RcodeToString[reply.Rcode])
		}
		if err == nil && !reply.Authoritative {
			err = errors.New("it is not authoritative for the name")
		}
		if err == nil {
			return reply, nil
		}
		failed = err
	}
	return nil, failed
}

// records gives what the first server of a name's zone that answers has for it, behind aliases, too.
func (a *Asker) records(ctx context.Context, name string, qtype uint16) ([]dns.RR, error) {
	for range maxAliases {
		servers, failed := a.serversOf(ctx, name)
		var reply *dns.Msg
		for i := 0; i < len(servers) && reply == nil; i++ {
			reply, failed = a.reply(ctx, servers[i], name, qtype)
		}
		if failed != nil || len(reply.Answer) == 0 {
			return nil, failed
		}
		alias, ok := reply.Answer[len(reply.Answer)-1].(*dns.CNAME)
		if !ok {
			return reply.Answer, nil
		}
		name = alias.Target
	}
	return nil, nil
}

// textsOf follows aliases as far as the answer itself has what they lead to.
func textsOf(reply *dns.Msg, name string) (texts []string, alias string) {
	for range maxAliases {
		next := ""
		for _, rr := range reply.Answer {
			if !strings.EqualFold(rr.Header().Name, cmp.Or(alias, name)) {
				continue
			}
			switch rr := rr.(type) {
			case *dns.TXT:
				texts = append(texts, strings.Join(rr.Txt, ""))
			case *dns.CNAME:
				next = rr.Target
			}
		}
		if len(texts) > 0 || next == "" {
			break
		}
		alias = next
	}
	return texts, alias
}

// resolve asks the resolvers.
func (a *Asker) resolve(ctx context.Context, name string, qtype uint16) (*dns.Msg, error) {
	var failed error
	for _, at := range a.Resolvers {
		reply, err := a.exchange(ctx, at, name, qtype, true)
		switch {
		case err != nil:
			failed = err
		case reply.Rcode == dns.RcodeSuccess || reply.Rcode == dns.RcodeNameError:
			return reply, nil
		default:
			failed = fmt.Errorf("resolver %s answers %s for %s", at, dns.RcodeToString[reply.Rcode],
				strconv.Quote(name))
		}
	}
	return nil, failed
}

func (a *Asker) exchange(ctx context.Context, at netip.AddrPort, name string, qtype uint16,
	recursive bool) (*dns.Msg, error) {
	q := new(dns.Msg)
	q.SetQuestion(name, qtype)
	q.RecursionDesired = recursive
	q.SetEdns0(1232, false)
	for _, network := range []string{"udp", "tcp"} {
		reply, _, err := (&dns.Client{Net: network, Timeout: a.Timeout}).ExchangeContext(ctx, q, at.String())
		if err != nil {
			return nil, err
		}
		if !reply.Truncated {
			return reply, nil
		}
	}
	return nil, fmt.Errorf("%s: its answer is truncated over TCP, too", at)
}

// Fresh asks a resolver, and where that has nothing, the name servers of the zone: the resolver may remember for an
// hour that a record which was published since was missing (RFC 2308). Once they can't be reached, they aren't asked
// again.
type Fresh struct {
	Resolver
	Asker *Asker
	Stale []string // domains, such as block lists, for which the resolver's answer is good enough

	deaf atomic.Bool
}

const freshTime = 5 * time.Second // for all servers of a zone

// Addresses gives those of both families.
func (f *Fresh) Addresses(ctx context.Context, host string) ([]netip.Addr, error) {
	return fresh(ctx, f, host, f.Resolver.Addresses, func(rr dns.RR) (a netip.Addr, ok bool) {
		switch rr := rr.(type) {
		case *dns.A:
			a, ok = netip.AddrFromSlice(rr.A)
		case *dns.AAAA:
			a, ok = netip.AddrFromSlice(rr.AAAA)
		}
		return a.Unmap(), ok
	}, dns.TypeA, dns.TypeAAAA)
}

// Exchangers gives the MX records of a domain.
func (f *Fresh) Exchangers(ctx context.Context, domain string) ([]Exchanger, error) {
	return fresh(ctx, f, domain, f.Resolver.Exchangers, func(rr dns.RR) (Exchanger, bool) {
		mx, ok := rr.(*dns.MX)
		if !ok {
			return Exchanger{}, false
		}
		return Exchanger{mx.Preference, strings.TrimSuffix(mx.Mx, ".")}, true
	}, dns.TypeMX)
}

// Texts gives the TXT records of a name.
func (f *Fresh) Texts(ctx context.Context, name string) ([]string, error) {
	return fresh(ctx, f, name, f.Resolver.Texts, func(rr dns.RR) (string, bool) {
		txt, ok := rr.(*dns.TXT)
		if !ok {
			return "", false
		}
		return strings.Join(txt.Txt, ""), true
	}, dns.TypeTXT)
}

func fresh[T any](ctx context.Context, f *Fresh, name string, ask func(context.Context, string) ([]T, error),
	read func(dns.RR) (T, bool), types ...uint16) ([]T, error) {
	found, err := ask(ctx, name)
	stale := func(domain string) bool { return strings.HasSuffix(name, "."+domain) }
	if err != nil || len(found) > 0 || f.deaf.Load() || slices.ContainsFunc(f.Stale, stale) {
		return found, err
	}
	within, cancel := context.WithTimeout(ctx, freshTime)
	defer cancel()
	for _, t := range types {
		records, err := f.Asker.records(within, dns.Fqdn(name), t)
		if err != nil && ctx.Err() == nil {
			f.deaf.Store(true)
		}
		for _, rr := range records {
			if one, ok := read(rr); ok {
				found = append(found, one)
			}
		}
	}
	return found, nil
}
