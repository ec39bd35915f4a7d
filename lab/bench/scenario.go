package bench

import (
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"example.org/mta/lab/sink"
)

// Scenario is the mail of a measurement and what the far side is like. DefaultScenario is one to begin
// with.
type Scenario struct {
	// What is submitted.
	Messages    int `json:"messages" flag:"messages" help:"<number> of messages"`
	Connections int `json:"connections" flag:"connections" help:"<number> of submitting connections"`
	Size        int `json:"size" flag:"size" help:"<octets> of a message's content"`
	Recipients  int `json:"recipients" flag:"recipients" help:"<number> of recipients of a message"`
	// so many messages one has that many recipients and the others one; 0: all have
	BigEvery int `json:"big_every,omitempty" flag:"big-every" help:"only every <n>th message has that many recipients, the others have one"`
	Rate     int `json:"rate,omitempty" flag:"rate" help:"messages per <second> (default: as fast as they are accepted)"`
	// ClientMessages is how many messages a client submits on a connection; 0 is any number.
	ClientMessages int `json:"client_messages,omitempty" flag:"client-messages" help:"<number> of messages that a client submits per connection (default: unlimited)"`
	// there are more hosts than domains, all hosts that are i modulo domains, with one preference.
	Domains         int      `json:"domains" flag:"domains" help:"<number> of domains"`
	Hosts           int      `json:"hosts" flag:"hosts" help:"<number> of hosts (default: as many as domains)"`
	Dead            int      `json:"dead,omitempty" flag:"dead" help:"<number> of hosts that don't work"`
	Death           Death    `json:"death,omitempty" flag:"death" help:"how dead hosts fail: silent, unreachable or refusing"`
	Latency         Duration `json:"latency,omitempty" flag:"latency" help:"the delay of a host's replies to each flight of commands"`
	Jitter          Duration `json:"jitter,omitempty" flag:"jitter" help:"the maximum random addition to the latency"`
	NoPipelining    bool     `json:"no_pipelining,omitempty" flag:"no-pipelining" help:"hosts don't offer PIPELINING"`
	NoChunking      bool     `json:"no_chunking,omitempty" flag:"no-chunking" help:"hosts don't offer CHUNKING"`
	Temporary       float64  `json:"temporary,omitempty" flag:"temporary" help:"<share> of messages that hosts defer, 0 to 1"`
	Drop            float64  `json:"drop,omitempty" flag:"drop" help:"<probability> that a host cuts the connection, at each step"`
	HostConnections int      `json:"host_connections,omitempty" flag:"host-connections" help:"<number> of connections that a host accepts at a time (default: unlimited)"`
	HostMessages    int      `json:"host_messages,omitempty" flag:"host-messages" help:"<number> of messages that a host accepts per connection (default: unlimited)"`

	TLS bool `json:"tls,omitempty" flag:"tls" help:"clients and hosts use STARTTLS and resume their sessions"`

	Patience time.Duration `json:"-" flag:"patience" help:"how long to wait after the last arrival"`
	Seed     uint64        `json:"seed,omitempty" flag:"seed" help:"random seed (<number>) of the hosts' behavior"`
	Port     int           `json:"-" flag:"port" help:"the <port> of all hosts (default: any free one)"`
	DNS      string        `json:"-" flag:"dns" help:"the address of the sites' name server, <ip:port> (default: any port of 127.0.0.1)"`
}

// DefaultScenario is scenario (a) of the standard ones: one site without latency.
func DefaultScenario() Scenario {
	return Scenario{Messages: 20_000, Connections: 20, Size: 2048, Recipients: 1, Domains: 1, Hosts: 1, Death: Silent,
		Patience: time.Minute}
}

// maxNames bounds the addresses that a scenario has.
const maxNames = 1_000_000

// Validate returns what can't be done.
func (s *Scenario) Validate() error {
	switch {
	case s.Messages < 1 || s.Connections < 1 || s.Recipients < 1 || s.Domains < 1 || s.Hosts < 1:
		return fmt.Errorf("there must be at least one message, connection, recipient, domain and host")
	case s.Size < 0 || s.BigEvery < 0 || s.Rate < 0 || s.Latency < 0 || s.Jitter < 0 || s.HostConnections < 0 ||
		s.HostMessages < 0 || s.ClientMessages < 0 || s.Dead < 0:
		return fmt.Errorf("numbers can't be negative")
	case s.Messages > math.MaxInt32:
		return fmt.Errorf("%d messages are too many", s.Messages)
	case s.Recipients > maxNames/s.Domains:
		return fmt.Errorf("%d recipients at each of %d domains are too many: at most %d together", s.Recipients,
			s.Domains, maxNames)
	case s.Hosts > maxHosts:
		return fmt.Errorf("%d hosts are too many: at most %d", s.Hosts, maxHosts)
	case s.Dead >= s.Hosts:
		return fmt.Errorf("%d of %d hosts are dead: one must live", s.Dead, s.Hosts)
	case !s.Death.known():
		return fmt.Errorf("hosts can't be %q: want %s, %s or %s", s.Death, Silent, Unreachable, Refusing)
	case !share(s.Temporary) || !share(s.Drop):
		return fmt.Errorf("shares and chances must be from 0 to less than 1")
	case s.Patience <= 0:
		return fmt.Errorf("patience must be more than nothing")
	}
	return nil
}

func share(v float64) bool { return v >= 0 && v < 1 }

// Scaled is the scenario with that many times as many messages, at least one for each domain and
// connection.
func (s Scenario) Scaled(by float64) Scenario {
	s.Messages = max(int(float64(s.Messages)*by), s.Domains, s.Connections)
	return s
}

// sink is how a living host behaves.
func (s *Scenario) sink(host int) sink.Config {
	cfg := sink.Config{Latency: time.Duration(s.Latency), Jitter: time.Duration(s.Jitter),
		MaxConnections: s.HostConnections, MaxMessages: s.HostMessages,
		Seed: s.Seed + uint64(host)}
	if s.NoPipelining {
		cfg.Without |= sink.Pipelining
	}
	if s.NoChunking {
		cfg.Without |= sink.Chunking
	}
	if s.Temporary > 0 {
		cfg.Refusals = []sink.Refusal{sink.TemporaryFailures(s.Temporary)}
	}
	if s.Drop > 0 {
		cfg.Drop = make(map[sink.Phase]float64)
		for _, p := range []sink.Phase{sink.Connect, sink.Greeting, sink.Hello, sink.Mail, sink.Rcpt, sink.Data,
			sink.Content, sink.End, sink.Kept, sink.Quit} {
			cfg.Drop[p] = s.Drop
		}
	}
	return cfg
}

// Open makes the far side.
func (s *Scenario) Open() (*Ground, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	var secured *tls.Config
	if s.TLS {
		var err error
		if secured, _, err = sink.SelfSigned("localhost"); err != nil {
			return nil, err
		}
	}
	hosts := make([]*Host, s.Hosts)
	for i := range hosts {
		hosts[i] = &Host{Sink: s.sink(i)}
		hosts[i].Sink.TLS = secured
		if i >= s.Hosts-s.Dead {
			hosts[i].Death = s.Death
		}
	}
	domains := make([]*Domain, s.Domains)
	for i := range domains {
		d := &Domain{Name: fmt.Sprintf("site%d.example", i)}
		for h := i % s.Hosts; h < s.Hosts; h += s.Domains {
			d.Hosts = append(d.Hosts, hosts[h])
			if s.Hosts <= s.Domains {
				break
			}
		}
		domains[i] = d
	}
	return OpenGround(GroundOptions{Port: s.Port, DNS: s.DNS, TLS: secured,
		Limit: int64(s.Messages)*int64(s.Recipients)*2 + 1000}, domains...)
}

// load is the mail of the scenario for g.
func (s *Scenario) load(g *Ground) *Load {
	names := make([][]string, s.Recipients) // by recipient of a message, and domain
	for i := range names {
		names[i] = make([]string, len(g.Domains))
		for d, domain := range g.Domains {
			names[i][d] = fmt.Sprintf("user%d@%s", i, domain.Name)
		}
	}
	return &Load{Messages: s.Messages, Connections: s.Connections, Size: s.Size, Rate: s.Rate,
		PerConnection: s.ClientMessages, TLS: s.TLS, lines: lines(s.Size), To: func(n int) []string {
			if !s.big(n) {
				d := n % s.Domains
				return names[0][d : d+1]
			}
			to := make([]string, s.Recipients)
			for i := range to {
				to[i] = names[i][(n+i)%s.Domains]
			}
			return to
		}}
}

// big reports whether message n has several recipients.
func (s *Scenario) big(n int) bool {
	return s.Recipients > 1 && (s.BigEvery == 0 || n%s.BigEvery == 0)
}

// mixed reports whether there are both kinds of messages.
func (s *Scenario) mixed() bool { return s.Recipients > 1 && s.BigEvery > 1 }

// expected is how many deliveries the load makes where somebody lives.
func (s *Scenario) expected(g *Ground, l *Load) (n int64) {
	for i := range l.Messages {
		for _, rcpt := range l.To(i) {
			if g.alive(rcpt) {
				n++
			}
		}
	}
	return n
}

// Standard is a scenario that has a letter, so that figures of different days and servers are of the
// same work.
type Standard struct {
	Letter   string
	Title    string
	Scenario Scenario
}

// Standards are the scenarios that docs/benchmarks.md has figures of.
func Standards() []Standard {
	with := func(change func(*Scenario)) Scenario {
		s := DefaultScenario()
		change(&s)
		return s
	}
	const far = Duration(50 * time.Millisecond)
	return []Standard{
		{"a", "one site, no latency", with(func(*Scenario) {})},
		{"b", "100 sites, no latency", with(func(s *Scenario) { s.Domains, s.Hosts = 100, 100 })},
		{"c", "ten sites, replies 50 ms late", with(func(s *Scenario) { s.Domains, s.Hosts, s.Latency = 10, 10, far })},
		{"d", "one site, replies 50 ms late", with(func(s *Scenario) { s.Latency = far })},
		{"e", "1 of 6 messages to 50 recipients, ten sites", with(func(s *Scenario) {
			s.Messages, s.Domains, s.Hosts, s.Recipients, s.BigEvery = 6000, 10, 10, 50, 6
		})},
		{"f", "ten sites, replies 20 ms late, one silent", with(func(s *Scenario) {
			s.Messages, s.Domains, s.Hosts, s.Latency, s.Dead = 40_000, 10, 10, Duration(20*time.Millisecond), 1
		})},
		{"g", "messages of 100 KB, one site", with(func(s *Scenario) { s.Messages, s.Size = 4000, 100_000 })},
		{"h", "100/s, 1 of 4 to 100 recipients, ten sites with PIPELINING, replies 50 ms late", with(func(s *Scenario) {
			s.Messages, s.Rate, s.Domains, s.Hosts, s.Latency, s.NoChunking, s.Recipients, s.BigEvery = 3000, 100, 10,
				10, far, true, 100, 4
		})},
		{"i", "one site by TLS, a new connection after each 100 messages, in and out", with(func(s *Scenario) {
			s.TLS, s.ClientMessages, s.HostMessages = true, 100, 100
		})},
	}
}

// FindStandard gives the scenario of a letter.
func FindStandard(letter string) (Scenario, bool) {
	for _, s := range Standards() {
		if s.Letter == letter {
			return s.Scenario, true
		}
	}
	return Scenario{}, false
}

// Duration is a time.Duration that is written in JSON as Go writes it: "50ms".
type Duration time.Duration

// MarshalText gives the text form.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads the text form.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}

// String gives the text form.
func (d Duration) String() string { return time.Duration(d).String() }

// Set reads the text form; with Type it makes a Duration the value of a flag.
func (d *Duration) Set(text string) error {
	if err := d.UnmarshalText([]byte(text)); err != nil {
		return fmt.Errorf("%q is not a valid duration (want one such as 50ms)", text)
	}
	return nil
}

// Type names the kind of a flag.
func (d *Duration) Type() string { return "duration" }

// Death is how a host doesn't work.
type Death string

const (
	Silent      Death = "silent"      // takes connections and never says anything
	Unreachable Death = "unreachable" // answers no request for a connection, as behind a firewall that drops
	Refusing    Death = "refusing"    // refuses connections
)

// Type names the kind of a flag; with String and Set it makes a Death the value of one.
func (d *Death) Type() string { return "death" }

// String gives the word.
func (d *Death) String() string { return string(*d) }

// Set takes one of the words.
func (d *Death) Set(word string) error {
	if !Death(word).known() {
		return fmt.Errorf("want %s, %s or %s", Silent, Unreachable, Refusing)
	}
	*d = Death(word)
	return nil
}

func (d Death) known() bool { return d == Silent || d == Unreachable || d == Refusing }

// die makes the host at the address dead, and gives what ends that. l listens there.
func (d Death) die(l net.Listener) (undo func(), err error) {
	switch d {
	case Silent:
		return silence(l), nil
	case Unreachable:
		addr := l.Addr().String()
		l.Close()
		return deafen(addr)
	}
	l.Close()
	return func() {}, nil
}

// silence accepts connections and says nothing on any.
func silence(l net.Listener) (undo func()) {
	var running sync.WaitGroup
	running.Go(func() {
		var held []net.Conn
		for {
			c, err := l.Accept()
			if err != nil {
				break
			}
			held = append(held, c)
		}
		for _, c := range held {
			c.Close()
		}
	})
	return func() { l.Close(); running.Wait() }
}

// deafen answers no SYN: it listens with a backlog that is full.
func deafen(addr string) (undo func(), err error) {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, err
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, fmt.Errorf("making a host unreachable: %w", err)
	}
	syscall.CloseOnExec(fd)
	var held []net.Conn
	undo = func() {
		for _, c := range held {
			c.Close()
		}
		syscall.Close(fd)
	}
	err = errors.Join(
		syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1),
		syscall.Bind(fd, &syscall.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}),
		syscall.Listen(fd, 0))
	if err != nil {
		undo()
		return nil, fmt.Errorf("making %s unreachable: %w", addr, err)
	}
	for range 16 {
		c, err := net.DialTimeout("tcp", addr, 200*time.Millisecond)
		if err != nil {
			return undo, nil
		}
		held = append(held, c)
	}
	undo()
	return nil, fmt.Errorf("making %s unreachable: a listener with a backlog of none takes 16 connections here", addr)
}
