// Package relaytest has a whole relay in memory, for tests in virtual time: hosts, name server, clients and operators
// speak over pipes, the queue stands on a file system in memory, and the clock is that of the bubble, so that the same
// steps give the same answers. Only the small stores of data_dir are files. Tests alone import it.
//
// In the order of use, within a bubble (see package bubble): [New], [Relay.Host], [Relay.Start], then mail and
// questions; [Relay.Stop] and Start again are a restart, between which time passes for nothing.
package relaytest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/smtp"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/linelog"
	"example.org/mta/lab/sink"
	"example.org/mta/mta"
	"example.org/mta/mta/config"
	"example.org/mta/mta/listen"
	"example.org/mta/operator/api"
	"example.org/mta/queue/vfs"
	"example.org/mta/queue/vfs/vfstest"
)

// The addresses at which mail is taken, and the name server.
const (
	SMTP = "127.0.0.1:2525"
	HTTP = "127.0.0.1:8025"
	dns  = "192.0.2.53:53"
)

// Relay is a relay in a world of its own. Its fields are set before Start.
type Relay struct {
	Config string // of the relay, apart from what New gives it
	Dir    string // data_dir
	Zone   *sink.Zone
	Free   atomic.Int64 // octets of the queue's disk
	// Segment is the size of the journal's segments: New has small ones, which take little memory.
	Segment string
	// Missing has the addresses that the machine lacks, with the error of one who tries to use them.
	Missing map[string]error

	*mta.Relay
	t     testing.TB
	queue vfs.FS
	names *sink.DNSServer
	hosts sync.Map // of *sink.PipeListener by address
	doors map[string]*door
	taps  *taps // nil: none
	stop  func()
}

// taps stand between the relay and the machine, where calls can be counted.
type taps struct {
	conn func(net.Conn) net.Conn // around the relay's end of each connection
	log  linelog.Opener          // of the accounting log's files
}

// New makes a world with a name server that knows records, and no host. The relay's configuration is conf.
func New(t testing.TB, records, conf string) *Relay {
	t.Helper()
	zone := sink.MustZone(records)
	r := &Relay{
		Config: conf, Dir: bubble.Folder(t), Segment: "1MiB", Zone: zone, t: t, names: sink.NewDNS(zone),
	}
	r.Free.Store(80 << 30)
	r.queue = disk{vfstest.Memory(), &r.Free}
	t.Cleanup(func() { r.names.Close() })
	t.Cleanup(func() { r.Stop() })
	return r
}

// disk has as much space as the test gives it.
type disk struct {
	vfs.FS
	free *atomic.Int64
}

func (d disk) Free(string) (int64, error) { return d.free.Load(), nil }

// Host puts a server at addresses with ports. Another one that is there ends.
func (r *Relay) Host(name string, c sink.Config, addresses ...string) *sink.Server {
	c.Hostname = name
	server := sink.New(c)
	r.t.Cleanup(server.Close)
	for _, a := range addresses {
		l := sink.NewPipeListener()
		if old, ok := r.hosts.Swap(a, l); ok {
			old.(*sink.PipeListener).Close()
		}
		go server.Serve(l)
	}
	return server
}

// dial connects to a host or the name server. Where there is none, the connection is refused.
func (r *Relay) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if address == dns {
		return r.names.Conn(), nil
	}
	to := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address))
	host, ok := r.hosts.Load(address)
	if !ok {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: to,
			Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	c, err := host.(*sink.PipeListener).Dial(ctx)
	if err != nil {
		return nil, err
	}
	return conn{r.tapped(c), &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 40000}, to}, nil
}

func (r *Relay) tapped(c net.Conn) net.Conn {
	if r.taps == nil {
		return c
	}
	return r.taps.conn(c)
}

// conn is a pipe between addresses.
type conn struct {
	net.Conn
	local, remote net.Addr
}

func (c conn) LocalAddr() net.Addr  { return c.local }
func (c conn) RemoteAddr() net.Addr { return c.remote }

// door is where clients connect to the relay.
type door struct {
	*sink.PipeListener
	at *net.TCPAddr
	of *Relay
}

func (d *door) Addr() net.Addr { return d.at }

// Accept gives a connection from the address that its client has given it.
func (d *door) Accept() (net.Conn, error) {
	c, err := d.PipeListener.Accept()
	if err != nil {
		return nil, err
	}
	return conn{d.of.tapped(c), d.at, client}, nil
}

var client = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 40112}

// configuration gives the relay's, with what it needs here.
func (r *Relay) configuration() string {
	return fmt.Sprintf(`
		hostname = "relay.example"
		data_dir = %q
		listener "smtp" {
			address = %q
			tenant_header_from = ["127.0.0.0/8"]
		}
		resolver { servers = [%q] }
		router { allow_loopback = true }
		queue {
			min_free = "1MiB"
			segment_size = %q
		}
		http { address = "" }
		%s
	`, r.Dir, SMTP, dns, r.Segment, r.Config)
}

// Start starts the relay, and returns when it takes mail.
func (r *Relay) Start() {
	r.t.Helper()
	file := filepath.Join(r.Dir, "mta.conf")
	r.must(os.WriteFile(file, []byte(r.configuration()), 0o600))
	cfg, err := config.Parse([]byte(r.configuration()), "mta.conf", func(string) string { return "" })
	r.must(err)
	ready := make(chan struct{})
	opts := mta.Options{
		Log: slog.New(slog.DiscardHandler), Version: "v0", ConfigFile: file, Ready: func(*mta.Relay) { close(ready) },
		QueueFS: r.queue, Dial: r.dial, Control: sink.NewPipeListener(), Chance: func() float64 { return 0.5 },
		Bind: func(a netip.Addr) error { return r.Missing[a.String()] },
		Rand: func() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) },
	}
	switch {
	case r.taps != nil: // without a log of the test, which has costs too
		opts.LogOpen = r.taps.log
	case testing.Verbose():
		opts.Log = slog.New(slog.NewTextHandler(r.t.Output(), nil))
	}
	r.doors = make(map[string]*door)
	for _, l := range cfg.Listeners {
		opts.Sockets = append(opts.Sockets, r.open(l.Name, l.Address[0]))
	}
	for _, a := range cfg.APIs {
		opts.Sockets = append(opts.Sockets, r.open(a.Name, a.Address[0]))
	}
	r.Relay, err = mta.New(cfg, opts)
	r.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	r.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Errorf("stopping the relay: %v", err)
		}
	}
	<-ready
}

func (r *Relay) open(name, address string) listen.Socket {
	r.doors[address] = &door{sink.NewPipeListener(), net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address)), r}
	return listen.Socket{Name: name, Listener: r.doors[address]}
}

// Stop stops the relay.
func (r *Relay) Stop() {
	if r.stop != nil {
		r.stop()
		r.stop = nil
	}
}

func (r *Relay) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// Settle waits until nothing moves, at this moment.
func (r *Relay) Settle() { synctest.Wait() }

// Submit sends a message by SMTP, and fails the test if it is refused.
func (r *Relay) Submit(from, content string, to ...string) {
	r.t.Helper()
	r.must(r.Offer(from, content, to...))
}

// Offer sends a message by SMTP, and returns the reply that refuses its content.
func (r *Relay) Offer(from, content string, to ...string) error {
	r.t.Helper()
	pipe, err := r.doors[SMTP].Dial(context.Background())
	r.must(err)
	c, err := smtp.NewClient(pipe, "relay.example")
	r.must(err)
	r.must(c.Hello("app1.acme.example"))
	r.must(c.Mail(from))
	for _, rcpt := range to {
		r.must(c.Rcpt(rcpt))
	}
	w, err := c.Data()
	r.must(err)
	_, err = io.WriteString(w, content)
	r.must(err)
	if err := w.Close(); err != nil {
		return errors.Join(err, c.Close())
	}
	return c.Quit()
}

// Post sends a request to the HTTP API, and fails the test if it is refused.
func (r *Relay) Post(path, key, body string) {
	r.t.Helper()
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return r.doors[HTTP].Dial(ctx)
		}, DisableKeepAlives: true,
	}
	q, err := http.NewRequest("POST", "http://relay.example"+path, bytes.NewReader([]byte(body)))
	r.must(err)
	q.Header.Set("Authorization", "Bearer "+key)
	q.Header.Set("Content-Type", "application/json")
	a, err := transport.RoundTrip(q)
	r.must(err)
	defer a.Body.Close()
	text, _ := io.ReadAll(a.Body)
	if a.StatusCode >= 300 {
		r.t.Fatalf("POST %s: %s\n%s", path, a.Status, text)
	}
}

// Client asks as operators do.
func (r *Relay) Client() *api.Client { return api.NewLocalClient(r.ControlHandler()) }

// Until lets time pass, as little as it takes.
func Until(t time.Time) { time.Sleep(min(time.Until(t), math.MaxInt64)) }
