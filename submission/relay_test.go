package submission

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	"example.org/mta/submission/intake"
)

// relay is a Server in a bubble of virtual time, with connections in memory.
type relay struct {
	t      *testing.T
	srv    *Server
	store  *memStore
	events *memEvents
	l      *pipeListener
	serve  chan error
	ends   []net.Conn // the clients' ends
}

// withRelay runs f with a relay whose clients may relay from 192.0.2.0/24 and 2001:db8::/32.
func withRelay(t *testing.T, cfg Config, f func(t *testing.T, r *relay)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		r := startRelay(t, cfg)
		defer func() { // also when f has given up
			for _, c := range r.ends {
				c.Close()
			}
			r.stop()
		}()
		f(t, r)
	})
}

func startRelay(t *testing.T, cfg Config) *relay {
	r := &relay{t: t, store: new(memStore), events: new(memEvents), l: newPipeListener(), serve: make(chan error, 1)}
	cfg.Intake.Hostname = "relay.example.com"
	if cfg.Intake.Store == nil {
		cfg.Intake.Store = r.store
	}
	if cfg.Intake.Events == nil {
		cfg.Intake.Events = r.events
	}
	if cfg.RelayFrom == nil {
		cfg.RelayFrom = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32")}
	}
	r.srv = New(cfg)
	go func() { r.serve <- r.srv.Serve(r.l) }()
	synctest.Wait()
	return r
}

func (r *relay) stop() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := r.srv.Shutdown(ctx); err != nil {
		r.t.Errorf("shutdown: %v", err)
	}
	if err := <-r.serve; err != nil {
		r.t.Errorf("serve: %v", err)
	}
}

// dial connects from addr, as "192.0.2.1", and gives what the client sees.
func (r *relay) dial(addr string) *peer {
	ours, theirs := r.pair(addr)
	r.l.conns <- theirs
	p := newPeer(r.t, ours)
	synctest.Wait()
	return p
}

// pair gives the client's and the server's end of a connection from addr.
func (r *relay) pair(addr string) (ours net.Conn, theirs *pipeConn) {
	ours, server := net.Pipe()
	r.ends = append(r.ends, ours)
	return ours, &pipeConn{Conn: server, remote: &net.TCPAddr{IP: net.ParseIP(addr), Port: 40000}}
}

// greeted connects as a client that may relay and says EHLO.
func (r *relay) greeted() *peer {
	r.t.Helper()
	return r.greetedFrom("192.0.2.1")
}

func (r *relay) greetedFrom(addr string) *peer {
	r.t.Helper()
	p := r.dial(addr)
	p.expect("220 relay.example.com ")
	p.cmd("EHLO app.example.org", "250")
	return p
}

// pipeConn is a connection in memory that has addresses and counts writes.
type pipeConn struct {
	net.Conn
	remote net.Addr
	mu     sync.Mutex
	writes int
}

func (c *pipeConn) RemoteAddr() net.Addr { return c.remote }
func (c *pipeConn) LocalAddr() net.Addr  { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 250), Port: 25} }

func (c *pipeConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.writes++
	c.mu.Unlock()
	return c.Conn.Write(p)
}

func (c *pipeConn) written() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writes
}

type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 250), Port: 25} }

// peer is a client that shows what has come from the server up to now. In virtual time, "up to
// now" is exact: synctest.Wait returns when the server waits for the client.
type peer struct {
	t    *testing.T
	conn net.Conn
	done chan struct{} // closed when the server has closed the connection

	mu  sync.Mutex
	buf bytes.Buffer
}

func newPeer(t *testing.T, c net.Conn) *peer {
	p := &peer{t: t, conn: c, done: make(chan struct{})}
	go p.collect(c)
	return p
}

func (p *peer) collect(c net.Conn) {
	defer close(p.done)
	b := make([]byte, 4096)
	for {
		n, err := c.Read(b)
		p.mu.Lock()
		p.buf.Write(b[:n])
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// send writes s. The server may have gone: that shows in what it said.
func (p *peer) send(s string) {
	io.WriteString(p.conn, s)
	synctest.Wait()
}

// got takes what the server has said since the last call.
func (p *peer) got() string {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.buf.String()
	p.buf.Reset()
	return s
}

// expect checks that the server has given one reply, which starts with want.
func (p *peer) expect(want string) string {
	p.t.Helper()
	got := p.got()
	if !strings.HasPrefix(got, want) || lastLines(got) != 1 {
		p.t.Fatalf("server said %q, want one reply %q", got, want)
	}
	return got
}

// lastLines counts replies: lines without a hyphen after the code.
func lastLines(s string) int {
	n := 0
	for line := range strings.Lines(s) {
		if len(line) < 4 || line[3] != '-' {
			n++
		}
	}
	return n
}

// codes gives the codes of the replies in s.
func codes(s string) string {
	var all []string
	for line := range strings.Lines(s) {
		if len(line) > 3 && line[3] != '-' {
			all = append(all, line[:3])
		}
	}
	return strings.Join(all, " ")
}

func (p *peer) cmd(line, want string) string {
	p.t.Helper()
	p.send(line + "\r\n")
	return p.expect(want)
}

// envelope opens a transaction with one recipient.
func (p *peer) envelope() {
	p.t.Helper()
	p.cmd("MAIL FROM:<a@example.org>", "250")
	p.cmd("RCPT TO:<b@example.net>", "250")
}

// data sends content, dot-stuffed by the caller if need be, and gives the reply.
func (p *peer) data(content string) string {
	p.t.Helper()
	p.envelope()
	p.cmd("DATA", "354")
	p.send(content + ".\r\n")
	return p.got()
}

// chunk sends content as one BDAT chunk, and gives the reply.
func (p *peer) chunk(content string) string {
	p.t.Helper()
	p.envelope()
	p.send(fmt.Sprintf("BDAT %d LAST\r\n%s", len(content), content))
	return p.got()
}

// closed reports whether the server has closed the connection.
func (p *peer) closed() bool {
	synctest.Wait()
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *peer) mustBeClosed() {
	p.t.Helper()
	if !p.closed() {
		p.t.Fatal("connection is still open")
	}
}

func (p *peer) mustBeOpen() {
	p.t.Helper()
	if p.closed() {
		p.t.Fatal("connection is closed")
	}
}

// startTLS puts TLS on and gives the peer above it.
func (p *peer) startTLS() *peer {
	p.t.Helper()
	// The goroutine that collects must not read what belongs to the handshake.
	p.conn.SetReadDeadline(time.Unix(1, 0))
	<-p.done
	p.conn.SetReadDeadline(time.Time{})
	go io.WriteString(p.conn, "STARTTLS\r\n")
	want := "220 2.0.0 ready to start TLS\r\n"
	b := make([]byte, len(want))
	if _, err := io.ReadFull(p.conn, b); err != nil || string(b) != want {
		p.t.Fatalf("STARTTLS: %q, %v", b, err)
	}
	c := tls.Client(p.conn, &tls.Config{InsecureSkipVerify: true})
	if err := c.Handshake(); err != nil {
		p.t.Fatal(err)
	}
	synctest.Wait()
	return newPeer(p.t, c)
}

// memStore keeps what was committed.
type memStore struct {
	mu       sync.Mutex
	ids      envelope.IDs
	messages []stored
	begun    int
	aborted  int

	writeErr  error
	commitErr error
	commit    chan struct{} // when set, Commit waits for it
}

type stored struct {
	*envelope.Message
	content string
}

type memDraft struct {
	s    *memStore
	b    bytes.Buffer
	over bool
}

func (s *memStore) Begin(intake.Owner, int64) intake.Draft {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun++
	return &memDraft{s: s}
}

func (d *memDraft) Write(p []byte) (int, error) {
	if d.over {
		panic("write to a draft that is over")
	}
	if d.s.writeErr != nil {
		return 0, d.s.writeErr
	}
	return d.b.Write(p)
}

func (d *memDraft) Commit(m *envelope.Message) error {
	d.end()
	if d.s.commit != nil {
		<-d.s.commit
	}
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	if d.s.commitErr != nil {
		return d.s.commitErr
	}
	m.ID, m.Size = d.s.ids.Next(time.Now()), int64(d.b.Len())
	d.s.messages = append(d.s.messages, stored{m, d.b.String()})
	return nil
}

func (d *memDraft) Grow(n int) { d.b.Grow(n) }

func (d *memDraft) Abort() {
	d.end()
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	d.s.aborted++
}

func (d *memDraft) end() {
	if d.over {
		panic("a draft ended twice")
	}
	d.over = true
}

// all gives the messages so far; every draft must have come to an end.
func (s *memStore) all(t *testing.T) []stored {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.commitErr == nil && s.begun != s.aborted+len(s.messages) {
		t.Errorf("%d drafts begun, %d aborted, %d committed", s.begun, s.aborted, len(s.messages))
	}
	return s.messages
}

func (s *memStore) one(t *testing.T) stored {
	t.Helper()
	all := s.all(t)
	if len(all) != 1 {
		t.Fatalf("%d messages were accepted, want one", len(all))
	}
	return all[0]
}

func (s *memStore) none(t *testing.T) {
	t.Helper()
	if all := s.all(t); len(all) != 0 {
		t.Fatalf("message was accepted: %q", all[0].content)
	}
}

// body is the content without the fields that the relay has put on top: the Received field, and
// for content that has none, Date and Message-ID.
func (m stored) body() string {
	s := m.content
	for _, name := range []string{"Received: ", "Date: ", "Message-ID: "} {
		if name != "Received: " && !strings.HasPrefix(s, name) {
			continue
		}
		for first := true; first || strings.HasPrefix(s, "\t"); first = false {
			_, s, _ = strings.Cut(s, "\r\n")
		}
	}
	return s
}

type memEvents struct {
	mu       sync.Mutex
	received []*envelope.Message
	missing  []intake.Fields // of each of those
	rejected []intake.Rejection
}

func (e *memEvents) Received(m *envelope.Message, missing intake.Fields) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.received, e.missing = append(e.received, m), append(e.missing, missing)
}

func (e *memEvents) Rejected(r intake.Rejection) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rejected = append(e.rejected, r)
}

type fullDisk struct{}

func (fullDisk) Error() string  { return "write /var/lib/mta/0001: no space left on device" }
func (fullDisk) DiskFull() bool { return true }

var errDisk = errors.New("fsync /var/lib/mta/0001: input/output error")

// testTLS has a certificate of its own.
var testTLS = sync.OnceValue(func() *tls.Config {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"relay.example.com"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	cert := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &cert, nil }}
})

func tlsClient(t *testing.T, c net.Conn) *tls.Conn {
	t.Helper()
	s := tls.Client(c, &tls.Config{InsecureSkipVerify: true})
	if err := s.Handshake(); err != nil {
		t.Fatal(err)
	}
	return s
}

// fakeAdmission refuses what refuse does, and remembers what it was asked and what became of it.
type fakeAdmission struct {
	refuse func(intake.AdmitRequest) *intake.Refused // nil: nothing
	full   *intake.Refused                           // at DATA
	line   *intake.Refused                           // at Commit

	mu        sync.Mutex
	asked     []intake.AdmitRequest
	committed []uint8 // tiers
	dropped   int
}

func admitNone(r intake.Refused) *fakeAdmission {
	return &fakeAdmission{refuse: func(intake.AdmitRequest) *intake.Refused { return &r }}
}

func (f *fakeAdmission) Admit(r intake.AdmitRequest) (intake.Admitted, *intake.Refused) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, r)
	if f.refuse != nil {
		if refused := f.refuse(r); refused != nil {
			return nil, refused
		}
	}
	return f, nil
}

func (f *fakeAdmission) Full() *intake.Refused { return f.full }

func (f *fakeAdmission) Commit(_ context.Context, tier uint8, commit func() error) (*intake.Refused, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.line != nil {
		return f.line, nil
	}
	f.committed = append(f.committed, tier)
	return nil, commit()
}

func (f *fakeAdmission) Drop() {
	f.mu.Lock()
	f.dropped++
	f.mu.Unlock()
}
