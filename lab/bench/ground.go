package bench

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"example.org/mta/lab/sink"
)

// Host is a server of the far side. Its address is given by OpenGround.
type Host struct {
	Name, Address string
	Sink          sink.Config  // Recorder is set to the ground's when it is nil, and Hostname
	Death         Death        // "": it lives
	Server        *sink.Server // nil when it is dead
}

// Domain is where recipients are.
type Domain struct {
	Name  string
	Hosts []*Host // all with one preference; hosts can be common to several domains
}

// alive reports whether any host of the domain is.
func (d *Domain) alive() bool {
	return slices.ContainsFunc(d.Hosts, func(h *Host) bool { return h.Death == "" })
}

// Ground is the far side of a measurement at work.
type Ground struct {
	Domains []*Domain
	Hosts   []*Host
	Port    string         // of all hosts
	DNS     string         // ip:port of the name server
	Taken   *sink.Recorder // by all hosts that had no Recorder of their own
	TLS     *tls.Config    // of all hosts, and for the server that is measured; nil: none

	byName  map[string]*Domain
	server  *sink.DNSServer
	undo    []func()
	serving sync.WaitGroup
}

// GroundOptions are how a ground is opened. The zero one is good.
type GroundOptions struct {
	Port  int    // of all hosts; 0 is any free one
	DNS   string // where the name server listens; "" is any free port of 127.0.0.1
	Limit int64  // of the deliveries that are remembered; 0 is four millions
	TLS   *tls.Config
}

// maxHosts is as many addresses as hostAddress has.
const maxHosts = 40_000

// hostAddress is the address of host i.
func hostAddress(i int) string { return fmt.Sprintf("127.40.%d.%d", i/200, i%200+1) }

// OpenGround makes the hosts of the domains listen, each on an address of its own, and a name server
// that knows them.
func OpenGround(o GroundOptions, domains ...*Domain) (*Ground, error) {
	o.Limit = cmp.Or(o.Limit, 4_000_000)
	g := &Ground{Domains: domains, TLS: o.TLS, Taken: sink.NewRecorder(sink.Deliveries, o.Limit),
		byName: make(map[string]*Domain)}
	if err := g.open(o); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

func (g *Ground) open(o GroundOptions) error {
	var addrs []string
	for _, d := range g.Domains {
		g.byName[d.Name] = d
		for _, h := range d.Hosts {
			if h.Address != "" {
				continue // common to domains
			}
			h.Name = fmt.Sprintf("mx%d.example", len(g.Hosts))
			h.Address = hostAddress(len(g.Hosts))
			g.Hosts, addrs = append(g.Hosts, h), append(addrs, h.Address)
		}
	}
	listeners, port, err := sink.ListenTogether(o.Port, addrs...)
	if err != nil {
		return fmt.Errorf("opening the hosts' addresses (127.40.0.0/16 must be loopback, as it is on Linux): %w", err)
	}
	g.Port = port
	for i, h := range g.Hosts {
		if err := g.serve(h, listeners[i]); err != nil {
			for _, l := range listeners[i+1:] {
				l.Close()
			}
			return err
		}
	}
	return g.openDNS(o.DNS)
}

func (g *Ground) serve(h *Host, l net.Listener) error {
	if h.Death != "" {
		undo, err := h.Death.die(l)
		if err == nil {
			g.undo = append(g.undo, undo)
		}
		return err
	}
	h.Sink.Recorder = cmp.Or(h.Sink.Recorder, g.Taken)
	h.Sink.Hostname = h.Name
	h.Server = sink.New(h.Sink)
	g.undo = append(g.undo, h.Server.Close)
	g.serving.Go(func() { _ = h.Server.Serve(l) })
	return nil
}

func (g *Ground) openDNS(addr string) error {
	addr = cmp.Or(addr, "127.0.0.1:0")
	zone, err := sink.NewZone(g.Zone())
	if err != nil {
		return fmt.Errorf("reading the zone of the hosts: %w", err)
	}
	g.server = sink.NewDNS(zone)
	at, err := g.server.Listen(addr)
	g.DNS = at.String()
	return err
}

// Zone is what the name server answers from.
func (g *Ground) Zone() string {
	var b strings.Builder
	for _, d := range g.Domains {
		for _, h := range d.Hosts {
			fmt.Fprintf(&b, "%s. 600 IN MX 10 %s.\n", d.Name, h.Name)
		}
	}
	for _, h := range g.Hosts {
		fmt.Fprintf(&b, "%s. 600 IN A %s\n", h.Name, h.Address)
	}
	return b.String()
}

// Transports is a line for each domain that tells a server without DNS where it is, in the words of
// Postfix's transport(5).
func (g *Ground) Transports() []string {
	var lines []string
	for _, d := range g.Domains {
		lines = append(lines, fmt.Sprintf("%s smtp:[%s]:%s", d.Name, d.Hosts[0].Address, g.Port))
	}
	return lines
}

// alive reports whether the recipient's domain has a living host.
func (g *Ground) alive(recipient string) bool {
	_, name, _ := strings.Cut(recipient, "@")
	d := g.byName[name]
	return d != nil && d.alive()
}

// dead reports whether any domain has no living host.
func (g *Ground) dead() bool {
	return slices.ContainsFunc(g.Domains, func(d *Domain) bool { return !d.alive() })
}

// Close ends all servers and waits for them.
func (g *Ground) Close() error {
	for _, undo := range g.undo {
		undo()
	}
	g.serving.Wait()
	if g.server == nil {
		return nil
	}
	return g.server.Close()
}

// The names of the files that WriteCertificate writes.
const (
	certificateFile = "certificate.pem"
	keyFile         = "key.pem"
)

// WriteCertificate writes the first certificate of cfg, and its key, as certificate.pem and key.pem.
func WriteCertificate(cfg *tls.Config, dir string) error {
	key, err := x509.MarshalPKCS8PrivateKey(cfg.Certificates[0].PrivateKey)
	if err != nil {
		return fmt.Errorf("writing the key: %w", err)
	}
	for name, block := range map[string]*pem.Block{
		certificateFile: {Type: "CERTIFICATE", Bytes: cfg.Certificates[0].Certificate[0]},
		keyFile:         {Type: "PRIVATE KEY", Bytes: key},
	} {
		var text bytes.Buffer
		_ = pem.Encode(&text, block) // to memory: can't fail
		if err := os.WriteFile(filepath.Join(dir, name), text.Bytes(), 0o600); err != nil {
			return fmt.Errorf("writing the certificate: %w", err)
		}
	}
	return nil
}
