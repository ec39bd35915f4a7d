package demo

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"example.org/mta/lab/sink"
)

// world is the far side: a DNS server, and a sink for each exchanger of each provider.
type world struct {
	providers []*side
	home      *side
	dns       *sink.DNSServer
	dnsAddr   string
	port      string // the SMTP port of all sinks, each on addresses of its own
	serving   sync.WaitGroup
}

// side is a provider at work.
type side struct {
	provider
	sinks    []*sink.Server
	recorder *sink.Recorder // of all its sinks
}

// start opens the world. reports is called with each report that reaches the senders.
func startWorld(seed uint64, limit int64, after *aftermath, report func(content []byte)) (*world, error) {
	w := &world{}
	for i, p := range providers() {
		p.sink.Seed = seed + uint64(i)
		p.sink.Hook = after.of(&p)
		w.providers = append(w.providers, &side{provider: p, recorder: sink.NewRecorder(sink.Deliveries, limit)})
	}
	h := home()
	h.sink.Hook = func(c sink.Command) sink.Answer {
		if c.Phase == sink.Kept {
			report(c.Content)
		}
		return sink.Answer{}
	}
	w.home = &side{provider: h, recorder: sink.NewRecorder(sink.Contents, limit)}
	if err := w.open(); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// open finds a port that is free on all addresses, and listens there.
func (w *world) open() error {
	var addrs []string
	for _, s := range w.sides() {
		addrs = append(addrs, s.hosts...)
	}
	listeners, port, err := sink.ListenTogether(0, addrs...)
	if err != nil {
		return fmt.Errorf("opening the providers' addresses (127.10.0.0/16 must be loopback, as it is on Linux): %w",
			err)
	}
	w.port = port
	for _, s := range w.sides() {
		for i := range s.hosts {
			cfg := s.sink
			cfg.Hostname = s.exchanger(len(s.mx) - len(s.hosts) + i)
			cfg.Recorder = s.recorder
			server := sink.New(cfg)
			s.sinks = append(s.sinks, server)
			l := listeners[0]
			listeners = listeners[1:] // in the order of addrs
			w.serving.Go(func() { _ = server.Serve(l) })
		}
	}
	zone, err := sink.NewZone(w.zone())
	if err != nil {
		return fmt.Errorf("reading the demo's zone: %w", err)
	}
	w.dns = sink.NewDNS(zone)
	addr, err := w.dns.Listen("127.0.0.1:0")
	if err != nil {
		return err
	}
	w.dnsAddr = addr.String()
	return nil
}

func (w *world) sides() []*side {
	return append(w.providers[:len(w.providers):len(w.providers)], w.home)
}

// exchanger gives the full name of MX record i.
func (p *provider) exchanger(i int) string {
	_, host, _ := strings.Cut(p.mx[i], " ")
	return host + "." + p.domain
}

// zone gives the records of all providers. The last exchangers of each have its addresses; those
// before them are dead.
func (w *world) zone() string {
	var b strings.Builder
	for _, s := range w.sides() {
		for i, mx := range s.mx {
			preference, host, _ := strings.Cut(mx, " ")
			if host == "." {
				fmt.Fprintf(&b, "%s. 300 IN MX %s .\n", s.domain, preference)
				continue
			}
			fmt.Fprintf(&b, "%s. 300 IN MX %s %s.\n", s.domain, preference, s.exchanger(i))
			addr := deadHost
			if alive := i - (len(s.mx) - len(s.hosts)); alive >= 0 {
				addr = s.hosts[alive]
			}
			fmt.Fprintf(&b, "%s. 300 IN A %s\n", s.exchanger(i), addr)
		}
	}
	return b.String()
}

// close ends all servers and waits for them.
func (w *world) close() error {
	var errs []error
	for _, s := range w.sides() {
		for _, server := range s.sinks {
			server.Close()
		}
	}
	w.serving.Wait()
	if w.dns != nil {
		errs = append(errs, w.dns.Close())
	}
	return errors.Join(errs...)
}

// refusals sums up what the provider's sinks refused, by phase and code.
func (s *side) refusals() map[string]int64 {
	sum := make(map[string]int64)
	for _, server := range s.sinks {
		for what, n := range server.Stats().Replies {
			sum[what] += n
		}
	}
	return sum
}
