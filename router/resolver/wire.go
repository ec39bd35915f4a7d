package resolver

import (
	"cmp"
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// This file alone knows the DNS library's messages. The others see question, message and Type.

const (
	maxAliases = 10
	maxTTL     = (1<<31 - 1) * time.Second // RFC 2181, 8
	maxRecords = 256                       // of one answer; no honest zone has more
	maxTexts   = 16 << 10                  // octets of the TXT records of one answer, likewise
)

// Type is the type of the records looked for.
type Type uint16

const (
	TypeA     = Type(dns.TypeA)
	TypeAAAA  = Type(dns.TypeAAAA)
	TypeMX    = Type(dns.TypeMX)
	TypeCNAME = Type(dns.TypeCNAME)
	TypeTLSA  = Type(dns.TypeTLSA)
	TypeTXT   = Type(dns.TypeTXT)
	TypePTR   = Type(dns.TypePTR)
)

// String gives "MX".
func (t Type) String() string { return dns.Type(t).String() }

// question is a name, lower case without the final dot, and a type.
type question struct {
	name  string
	qtype Type
}

func (q question) pack(id uint16, edns bool) ([]byte, error) {
	m := new(dns.Msg).SetQuestion(q.name+".", uint16(q.qtype))
	m.Id = id
	// RFC 6840, 5.7: we want the AD bit of the answer. DO would ask for the signatures too, which
	// nobody here reads.
	m.AuthenticatedData = true
	if edns {
		m.SetEdns0(udpSize, false)
	}
	return m.Pack()
}

// message is an answer, read for one question.
type message struct {
	name       string // where the aliases end
	alias      string // the same, when it has to be asked for again
	aliases    int    // how many were followed
	mx         []MX
	addrs      []netip.Addr
	texts      []string
	textSize   int
	names      []string
	tlsa       []TLSA
	ttl        time.Duration // the least of all records that count
	secure     bool
	nxdomain   bool
	soa        bool // a negative answer that says how long it holds
	truncated  bool
	wantsPlain bool // the server does not know EDNS
	rcode      errRcode
	lame       bool
}

// records is how many the message has of those that were asked for.
func (m *message) records() int {
	return len(m.mx) + len(m.addrs) + len(m.texts) + len(m.names) + len(m.tlsa)
}

func (m *message) empty() bool { return m.records() == 0 }

// failure is why the message answers nothing, nil when it does.
func (m *message) failure() error {
	switch {
	case m.rcode != "":
		return m.rcode
	case m.lame:
		return errLame
	}
	return nil
}

// errNotOurs is for a message that answers another question.
var errNotOurs = errors.New("answer to another question")

// parse reads the answer to query, which asked q. The id and the question must be those of the
// query (RFC 5452, 9.1).
func parse(raw, query []byte, q question) (*message, error) {
	if len(raw) < 12 || raw[0] != query[0] || raw[1] != query[1] || raw[2]&0x80 == 0 {
		return nil, errNotOurs
	}
	var in dns.Msg
	if err := in.Unpack(raw); err != nil {
		if in.Truncated {
			return &message{truncated: true}, nil // some servers cut in the middle of a record
		}
		return nil, errMalformed
	}
	m := &message{name: q.name, truncated: in.Truncated, secure: in.AuthenticatedData, ttl: maxTTL}
	if len(in.Question) == 0 && in.Rcode == dns.RcodeFormatError {
		m.wantsPlain, m.rcode = true, "FORMERR" // such a server does not have to repeat the question
		return m, nil
	}
	if len(in.Question) != 1 || in.Question[0].Qtype != uint16(q.qtype) ||
		in.Question[0].Qclass != dns.ClassINET || unqualify(in.Question[0].Name) != q.name {
		return nil, errNotOurs
	}
	if in.Truncated {
		return m, nil
	}
	switch in.Rcode {
	case dns.RcodeSuccess, dns.RcodeNameError:
		m.read(&in, q)
	default:
		m.rcode = errRcode(dns.RcodeToString[in.Rcode])
		m.rcode = cmp.Or(m.rcode, "unknown response code")
		m.rcode += explained(in.IsEdns0())
		m.wantsPlain = in.IsEdns0() == nil && (in.Rcode == dns.RcodeFormatError || in.Rcode == dns.RcodeNotImplemented)
	}
	return m, nil
}

// explained is what a server says of its failure by an extended error (RFC 8914), as ", DNSSEC Bogus":
// the registered words alone, for the text beside them is anybody's. The first is meant to be the
// one that counts.
func explained(opt *dns.OPT) errRcode {
	if opt == nil {
		return ""
	}
	for _, o := range opt.Option {
		if e, ok := o.(*dns.EDNS0_EDE); ok {
			if words := dns.ExtendedErrorCodeToString[e.InfoCode]; words != "" &&
				e.InfoCode != dns.ExtendedErrorCodeOther {
				return errRcode(", " + words)
			}
		}
	}
	return ""
}

// read takes what answers the question, and nothing that was not asked for.
func (m *message) read(in *dns.Msg, q question) {
	m.lame = !in.Authoritative && !in.RecursionAvailable
	for q.qtype != TypeCNAME && m.aliases <= maxAliases {
		target, ok := m.cname(in.Answer)
		if !ok {
			break
		}
		m.name = target
		m.aliases++
	}
	for _, rr := range in.Answer {
		if unqualify(rr.Header().Name) == m.name && rr.Header().Rrtype == uint16(q.qtype) && m.records() < maxRecords {
			m.take(rr)
		}
	}
	if !m.empty() {
		return
	}
	// RFC 2308, 2.1: the code is about the last name of the chain.
	m.nxdomain = in.Rcode == dns.RcodeNameError
	for _, rr := range in.Ns {
		if soa, ok := rr.(*dns.SOA); ok {
			m.soa = true
			m.shorten(min(soa.Hdr.Ttl, soa.Minttl)) // RFC 2308, 5
		}
	}
	if m.aliases > 0 && !m.nxdomain && !m.soa {
		m.alias = m.name // the server's zone ends here
	}
}

// cname finds the alias of the name reached so far.
func (m *message) cname(answer []dns.RR) (target string, ok bool) {
	for _, rr := range answer {
		if c, ok := rr.(*dns.CNAME); ok && unqualify(c.Hdr.Name) == m.name {
			m.shorten(c.Hdr.Ttl)
			return unqualify(c.Target), true
		}
	}
	return "", false
}

func (m *message) take(rr dns.RR) {
	switch rr := rr.(type) {
	case *dns.MX:
		m.mx = append(m.mx, MX{rr.Preference, unqualify(rr.Mx)})
	case *dns.A:
		if a, ok := netip.AddrFromSlice(rr.A.To4()); ok {
			m.addrs = append(m.addrs, a)
		}
	case *dns.AAAA:
		if a, ok := netip.AddrFromSlice(rr.AAAA.To16()); ok {
			m.addrs = append(m.addrs, a)
		}
	case *dns.TXT:
		if s := joined(rr.Txt); m.textSize+len(s) <= maxTexts {
			m.texts, m.textSize = append(m.texts, s), m.textSize+len(s)
		}
	case *dns.PTR:
		m.names = append(m.names, unqualify(rr.Ptr))
	case *dns.CNAME:
		m.names = append(m.names, unqualify(rr.Target))
	case *dns.TLSA:
		if data, err := hex.DecodeString(rr.Certificate); err == nil {
			m.tlsa = append(m.tlsa, TLSA{rr.Usage, rr.Selector, rr.MatchingType, data})
		}
	}
	m.shorten(rr.Header().Ttl)
}

// joined puts the strings of a TXT record together, as they are on the wire: the library escapes
// quotes, backslashes and octets that are not printable ASCII (RFC 1035, 5.1).
func joined(parts []string) string {
	text := strings.Join(parts, "")
	if !strings.Contains(text, `\`) {
		return text
	}
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '\\' && i+1 < len(text) {
			i++
			c = text[i]
			if i+2 < len(text) && isDigit(c) {
				c = (text[i]-'0')*100 + (text[i+1]-'0')*10 + text[i+2] - '0'
				i += 2
			}
		}
		out = append(out, c)
	}
	return string(out)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// shorten lowers the message's TTL. One with the top bit set counts as zero (RFC 2181, 8).
func (m *message) shorten(ttl uint32) {
	if ttl > 1<<31-1 {
		ttl = 0
	}
	m.ttl = min(m.ttl, time.Duration(ttl)*time.Second)
}

// unqualify gives a name of a message in lower case without the final dot.
func unqualify(name string) string {
	return strings.ToLower(strings.TrimSuffix(name, "."))
}

// ReverseName is the name of an address below in-addr.arpa or ip6.arpa, without the final dot (RFC
// 1035, 3.5; RFC 3596, 2.5). Of the zero Addr it is "".
func ReverseName(addr netip.Addr) string {
	name, err := dns.ReverseAddr(addr.Unmap().WithZone("").String())
	if err != nil {
		return ""
	}
	return unqualify(name)
}

// canonical is the name as it is asked for, and whether it can be: labels of 1 to 63 octets, at
// most 253 in all, nothing that needs escaping.
func canonical(name string) (string, bool) {
	name = unqualify(name)
	if name == "" || len(name) > 253 {
		return name, false
	}
	label := 0
	for i := range len(name) {
		switch c := name[i]; {
		case c == '.':
			if label == 0 {
				return name, false
			}
			label = 0
			continue
		case c <= ' ' || c >= 0x7f || strings.IndexByte("\\\"();@$", c) >= 0:
			return name, false
		}
		if label++; label > 63 {
			return name, false
		}
	}
	return name, label > 0
}
