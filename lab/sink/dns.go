package sink

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// maxCNAME bounds the aliases followed in one answer: zones may have loops.
const maxCNAME = 16

// maxCounted bounds the names that are counted apart, so that a benchmark over millions of
// domains does not measure its own server's memory.
const maxCounted = 100_000

// DNSServer is a small authoritative DNS server over a Zone in memory: it answers over UDP and TCP, and names can
// misbehave. Like a recursive server it follows CNAMEs inside its zone.
//
// Order of use: NewZone, NewDNS, Listen, Close. Long-lived goroutines: two for each Listen (UDP and TCP); Close stops
// them, ends the answers that are being delayed, and waits for all.
type DNSServer struct {
	zone    *Zone
	closing chan struct{} // closed by Close
	running sync.WaitGroup

	mu struct {
		sync.Mutex
		closed  bool
		servers []*dns.Server
		queries map[string]int
		total   int
	}
}

// NewDNS makes a server; nothing is listened to yet.
func NewDNS(zone *Zone) *DNSServer {
	s := &DNSServer{zone: zone, closing: make(chan struct{})}
	s.mu.queries = make(map[string]int)
	return s
}

// Listen serves UDP and TCP at one address and port, such as "127.0.0.1:0", and returns it. It
// can be called for several addresses. Addresses other than loopback are refused: this server
// is not for the world.
func (s *DNSServer) Listen(address string) (netip.AddrPort, error) {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return ap, fmt.Errorf("dns server address %q: %w", address, err)
	}
	if !ap.Addr().IsLoopback() {
		return ap, fmt.Errorf("dns server address %s: only loopback addresses are served", address)
	}
	l, pc, err := listenBoth(address)
	if err != nil {
		return ap, fmt.Errorf("dns server listening on %s: %w", address, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		l.Close()
		pc.Close()
		return ap, errors.New("dns server is closed")
	}
	s.serve(&dns.Server{Listener: l, Net: "tcp"})
	s.serve(&dns.Server{PacketConn: pc, Net: "udp", UDPSize: dns.DefaultMsgSize})
	return pc.LocalAddr().(*net.UDPAddr).AddrPort(), nil
}

// serve starts one of the two servers and waits until it takes queries. s.mu is held.
func (s *DNSServer) serve(srv *dns.Server) {
	started := make(chan struct{})
	srv.Handler = dns.HandlerFunc(s.handle)
	srv.NotifyStartedFunc = func() { close(started) }
	srv.MsgAcceptFunc = dns.DefaultMsgAcceptFunc
	s.mu.servers = append(s.mu.servers, srv)
	s.running.Go(func() { _ = srv.ActivateAndServe() })
	<-started
}

// listenBoth gets the same port for TCP and UDP. With port 0 the one that TCP got may be taken
// for UDP: another is tried.
func listenBoth(address string) (net.Listener, net.PacketConn, error) {
	var err error
	for range 20 {
		var l net.Listener
		if l, err = net.Listen("tcp", address); err != nil {
			return nil, nil, err
		}
		var pc net.PacketConn
		if pc, err = net.ListenPacket("udp", l.Addr().String()); err == nil {
			return l, pc, nil
		}
		l.Close()
	}
	return nil, nil, err
}

// Close stops listening, drops the answers that are being delayed, and waits for the goroutines.
func (s *DNSServer) Close() error {
	s.mu.Lock()
	if !s.mu.closed {
		s.mu.closed = true
		close(s.closing)
	}
	servers := s.mu.servers
	s.mu.servers = nil
	s.mu.Unlock()
	var first error
	for _, srv := range servers {
		if err := srv.Shutdown(); err != nil && first == nil {
			first = err
		}
	}
	s.running.Wait()
	return first
}

// Queries is how often a name was asked for, all types and both transports together.
func (s *DNSServer) Queries(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.queries[dns.CanonicalName(name)]
}

// Total is the number of queries, all names together.
func (s *DNSServer) Total() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.total
}

func (s *DNSServer) count(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.total++
	if _, ok := s.mu.queries[name]; ok || len(s.mu.queries) < maxCounted {
		s.mu.queries[name]++
	}
}

func (s *DNSServer) handle(w dns.ResponseWriter, q *dns.Msg) {
	if len(q.Question) != 1 {
		s.write(w, new(dns.Msg).SetRcode(q, dns.RcodeFormatError))
		return
	}
	name, qtype := dns.CanonicalName(q.Question[0].Name), q.Question[0].Qtype
	s.count(name)
	_, tcp := w.LocalAddr().(*net.TCPAddr)
	f := s.zone.faultOf(name, qtype)
	if f.Delay > 0 && !s.wait(f.Delay) || f.Drop {
		return
	}
	switch {
	case f.Garbage:
		_, _ = w.Write([]byte("\x00\x01this is not DNS"))
	case f.Rcode != 0:
		s.write(w, new(dns.Msg).SetRcode(q, f.Rcode))
	case f.Truncate && !tcp:
		m := new(dns.Msg).SetReply(q)
		m.Truncated = true
		s.write(w, m)
	default:
		s.write(w, s.answer(q, name, f, tcp))
	}
}

// wait says false when the server was closed meanwhile.
func (s *DNSServer) wait(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-s.closing:
		return false
	}
}

// answer makes the reply of a well-behaved server.
func (s *DNSServer) answer(q *dns.Msg, name string, f DNSFault, tcp bool) *dns.Msg {
	m := new(dns.Msg).SetReply(q)
	m.Authoritative = true
	m.RecursionAvailable = true
	m.AuthenticatedData = f.Secure
	qtype := q.Question[0].Qtype
	for range maxCNAME {
		records, exists := s.zone.find(name, qtype)
		m.Answer = append(m.Answer, records...)
		if len(records) == 0 {
			m.Ns = []dns.RR{s.zone.soa(name)}
			if !exists {
				m.Rcode = dns.RcodeNameError
			}
			break
		}
		alias, ok := records[0].(*dns.CNAME)
		if !ok || qtype == dns.TypeCNAME || f.NoChase {
			break
		}
		name = dns.CanonicalName(alias.Target)
	}
	size := dns.MinMsgSize
	if opt := q.IsEdns0(); opt != nil {
		m.SetEdns0(dns.DefaultMsgSize, opt.Do())
		size = int(opt.UDPSize())
	}
	if tcp {
		size = dns.MaxMsgSize
	}
	m.Truncate(size)
	return m
}

// write sends m. A client that is gone is of no interest.
func (s *DNSServer) write(w dns.ResponseWriter, m *dns.Msg) { _ = w.WriteMsg(m) }

// Conn gives a client's connection that stands for one over UDP, without a network: nothing in it waits for the
// outside, so it works in a testing/synctest bubble. Close waits until the client has closed it.
func (s *DNSServer) Conn() net.Conn {
	client, server := net.Pipe()
	s.running.Go(func() {
		defer server.Close()
		for datagram := make([]byte, dns.MaxMsgSize); ; {
			n, err := server.Read(datagram)
			if err != nil {
				return
			}
			q := new(dns.Msg)
			if q.Unpack(datagram[:n]) == nil {
				s.handle(memoryWriter{conn: server}, q)
			}
		}
	})
	return client
}

// memoryWriter writes answers into a pipe, each in one piece.
type memoryWriter struct {
	dns.ResponseWriter // of nothing that a handler here calls besides
	conn               net.Conn
}

func (w memoryWriter) LocalAddr() net.Addr            { return w.conn.LocalAddr() }
func (w memoryWriter) Write(text []byte) (int, error) { return w.conn.Write(text) }

func (w memoryWriter) WriteMsg(m *dns.Msg) error {
	text, err := m.Pack()
	if err != nil {
		return err
	}
	_, err = w.conn.Write(text)
	return err
}
