package sink

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// DNSFault is how a name misbehaves. The zero DNSFault is good behaviour.
type DNSFault struct {
	Drop     bool          // never answer: the client runs into its time-out
	Rcode    int           // answer with this code and nothing else: dns.RcodeServerFailure, dns.RcodeRefused...
	Truncate bool          // over UDP answer with the TC bit and no records, so that the client must use TCP
	Garbage  bool          // answer with octets that are no DNS message
	Delay    time.Duration // answer after this time
	Secure   bool          // set the AD bit, as a validating resolver does for a signed name
	NoChase  bool          // give a CNAME without following it, as a server does whose zone ends there

	Types []uint16 // only for these types; nil is all
	First int      // only for the first so many queries; 0 is all
}

// Zone is the records that a DNSServer answers from. It can be changed while being served.
type Zone struct {
	mu struct {
		sync.RWMutex
		names  map[string][]dns.RR // every name that exists, empty non-terminals too; lower case, final dot
		faults map[string]*fault
		negTTL uint32
	}
}

type fault struct {
	DNSFault
	used int // queries that met it
}

// NewZone reads records in zone-file form, each with its owner, names absolute with or without
// the final dot; the TTL is 300 s when there is none:
//
//	example.com.      300 IN MX 10 mx1.example.com.
//	*.wild.example.    60 IN A  127.0.0.1
//
// A name with no SOA at or above it gets negative answers with a made-up SOA of the root, whose
// TTL NegativeTTL sets.
func NewZone(records string) (*Zone, error) {
	z := &Zone{}
	z.mu.names = make(map[string][]dns.RR)
	z.mu.faults = make(map[string]*fault)
	z.mu.negTTL = 60
	return z, z.Add(records)
}

// MustZone is NewZone for records that are part of the program.
func MustZone(records string) *Zone {
	z, err := NewZone(records)
	if err != nil {
		panic(err)
	}
	return z
}

// Add adds records in zone-file form: all of them, or none when one is malformed.
func (z *Zone) Add(records string) error {
	p := dns.NewZoneParser(strings.NewReader(unindent(records)), ".", "")
	p.SetDefaultTTL(300)
	var rrs []dns.RR
	for rr, ok := p.Next(); ok; rr, ok = p.Next() {
		rrs = append(rrs, rr)
	}
	if err := p.Err(); err != nil {
		return fmt.Errorf("parsing zone: %w", err)
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	for _, rr := range rrs {
		name := dns.CanonicalName(rr.Header().Name)
		z.mu.names[name] = append(z.mu.names[name], rr)
		// RFC 4592, 2.2.2: names between an owner and its zone exist, empty as they are.
		for parent := up(name); parent != "."; parent = up(parent) {
			if _, ok := z.mu.names[parent]; !ok {
				z.mu.names[parent] = nil
			}
		}
	}
	return nil
}

// unindent lets a zone stand indented in a Go program. In a zone file space at the start of a
// line means the owner above (RFC 1035, 5.1), which is not supported.
func unindent(records string) string {
	lines := strings.Split(records, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimLeft(l, " \t")
	}
	return strings.Join(lines, "\n")
}

// NegativeTTL sets the TTL of negative answers outside the zone's own SOAs (RFC 2308, 5), in
// whole seconds; 60 s at first.
func (z *Zone) NegativeTTL(d time.Duration) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.mu.negTTL = uint32(d / time.Second)
}

// Fault makes name misbehave; "*.name" is every name below. The zero DNSFault ends it.
func (z *Zone) Fault(name string, f DNSFault) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.mu.faults[dns.CanonicalName(name)] = &fault{DNSFault: f}
}

// faultOf gives the fault that a query meets, and counts it.
func (z *Zone) faultOf(name string, qtype uint16) DNSFault {
	z.mu.Lock()
	defer z.mu.Unlock()
	f := z.mu.faults[name]
	for above := name; f == nil && above != "."; {
		above = up(above)
		f = z.mu.faults[below(above)]
	}
	if f == nil || len(f.Types) > 0 && !slices.Contains(f.Types, qtype) {
		return DNSFault{}
	}
	if f.used++; f.First > 0 && f.used > f.First {
		return DNSFault{}
	}
	return f.DNSFault
}

// find gives the records of a name for a type or, failing that, its CNAME (RFC 1034, 4.3.2).
// Wildcards are as in RFC 4592: the closest encloser decides.
func (z *Zone) find(name string, qtype uint16) (records []dns.RR, exists bool) {
	z.mu.RLock()
	defer z.mu.RUnlock()
	all, exists := z.mu.names[name]
	if !exists {
		encloser := up(name)
		for encloser != "." {
			if _, ok := z.mu.names[encloser]; ok {
				break
			}
			encloser = up(encloser)
		}
		all, exists = z.mu.names[below(encloser)]
	}
	for _, rr := range all {
		if t := rr.Header().Rrtype; t != qtype && t != dns.TypeCNAME && qtype != dns.TypeANY {
			continue
		}
		rr = dns.Copy(rr)
		rr.Header().Name = name // what a wildcard synthesizes is owned by the name asked for
		records = append(records, rr)
	}
	return records, exists
}

// soa gives the SOA for a negative answer: the closest above name. Its TTL is the smaller of its
// own and its minimum field (RFC 2308, 3).
func (z *Zone) soa(name string) dns.RR {
	z.mu.RLock()
	defer z.mu.RUnlock()
	for above := name; above != "."; above = up(above) {
		for _, rr := range z.mu.names[above] {
			if soa, ok := rr.(*dns.SOA); ok {
				soa = dns.Copy(soa).(*dns.SOA)
				soa.Hdr.Ttl = min(soa.Hdr.Ttl, soa.Minttl)
				return soa
			}
		}
	}
	return &dns.SOA{
		Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: z.mu.negTTL},
		Ns:  "ns.invalid.", Mbox: "hostmaster.invalid.", Serial: 1,
		Refresh: 3600, Retry: 600, Expire: 86400, Minttl: z.mu.negTTL,
	}
}

// up is the name without its first label. Labels with escaped dots are not for this server.
func up(name string) string {
	i := strings.IndexByte(name, '.')
	if i < 0 || i == len(name)-1 {
		return "."
	}
	return name[i+1:]
}

// below is the wildcard under a name.
func below(name string) string {
	if name == "." {
		return "*."
	}
	return "*." + name
}
