package bench

import (
	"crypto/tls"
	"fmt"
	"math"
	"time"

	"example.org/mta/lab/sink"
)

// Scenario is the mail of a measurement and what the far side is like. DefaultScenario is one to begin
// with.
type Scenario struct {
	// What is submitted.
	Messages    int `json:"messages"`
	Connections int `json:"connections"` // that submit at once
	Size        int `json:"size"`        // octets of content, about
	Recipients  int `json:"recipients"`  // of a message
	// so many messages one has that many recipients and the others one; 0: all have
	BigEvery int `json:"big_every,omitempty"`
	Rate     int `json:"rate,omitempty"` // messages a second; 0: as fast as they are taken
	// ClientMessages is how many messages a client submits on a connection; 0 is any number.
	ClientMessages int `json:"client_messages,omitempty"`

	// Where it goes. Recipients go to the domains in turns. Domain i has host i modulo hosts, or, where
	// there are more hosts than domains, all hosts that are i modulo domains, with one preference.
	Domains int   `json:"domains"`
	Hosts   int   `json:"hosts"`
	Dead    int   `json:"dead,omitempty"` // the last so many hosts, see Death
	Death   Death `json:"death,omitempty"`

	// What the living hosts are like.
	Latency      Duration `json:"latency,omitempty"` // from a flight of commands to its replies
	Jitter       Duration `json:"jitter,omitempty"`  // up to so much on top
	NoPipelining bool     `json:"no_pipelining,omitempty"`
	NoChunking   bool     `json:"no_chunking,omitempty"`
	// share of messages that are told 451 after their content
	Temporary float64 `json:"temporary,omitempty"`
	// chance that the connection is cut, at each step of a session
	Drop            float64 `json:"drop,omitempty"`
	HostConnections int     `json:"host_connections,omitempty"` // that a host takes at once; 0 is any number
	HostMessages    int     `json:"host_messages,omitempty"`    // that a host takes on a connection; 0 is any number

	TLS bool `json:"tls,omitempty"` // by STARTTLS, from clients and to hosts; sessions are resumed

	Patience time.Duration `json:"-"` // without any delivery, before the rest is given up for lost
	Seed     uint64        `json:"seed,omitempty"`
	Port     int           `json:"-"` // of all hosts; 0 is any free one
	DNS      string        `json:"-"` // where the name server listens; "" is any free port
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
		PerConnection: s.ClientMessages, TLS: s.TLS, To: func(n int) []string {
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
