package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/textproto"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/lab/sink"
	"example.org/mta/operator/api"
)

// warmGround is a relay with a warming source, and providers that tell its mail from that of the
// shared source by the client's address. What they saw is the only witness: no count of the relay's
// own is asked.
type warmGround struct {
	relay             *relay
	dedicated, shared netip.Addr
	taken             *sink.Recorder
	rcpts             *rcptLog
	mailer            *mailer
}

// warmProviders have names in the configuration, but for the last: its mail counts under "other".
var warmProviders = []string{"big", "mid", "small"}

// counted is the name that the ledger has for each.
func counted(provider string) string {
	if provider == "small" {
		return "other"
	}
	return provider
}

// rcptSeen is a RCPT command that a provider has read, whatever it answered.
type rcptSeen struct {
	at        time.Time
	provider  string
	client    netip.Addr
	recipient string
}

// rcptLog is all of them, in the order of their arrival.
type rcptLog struct {
	mu   sync.Mutex // guards the rest
	seen []rcptSeen
}

func (l *rcptLog) add(provider string, c sink.Command) {
	_, rest, _ := strings.Cut(c.Line, "<")
	recipient, _, _ := strings.Cut(rest, ">")
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = append(l.seen, rcptSeen{time.Now(), provider, c.Client.Addr(), recipient})
}

func (l *rcptLog) all() []rcptSeen {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.seen)
}

// from gives those of a client.
func (l *rcptLog) from(client netip.Addr) []rcptSeen {
	return slices.DeleteFunc(l.all(), func(r rcptSeen) bool { return r.client != client })
}

// warmSettings is what a test of the warm-up chooses.
type warmSettings struct {
	plan string        // the inside of plan "live"
	hour time.Duration // of plans
	hold bool          // no shared source
	more string        // of the configuration
	// answer is a provider's own answer to a RCPT; "" leaves it to the sink. May be nil.
	answer func(client netip.Addr, recipient string) string
}

// newWarmGround makes the ground on addresses that no other test's has, and starts the relay.
func newWarmGround(t *testing.T, set warmSettings) *warmGround {
	t.Helper()
	net := warmNets.next()
	at := func(host int) string { return fmt.Sprintf("127.33.%d.%d", net, host) }
	g := &warmGround{
		dedicated: netip.MustParseAddr(at(1)), shared: netip.MustParseAddr(at(2)),
		taken: sink.NewRecorder(sink.Deliveries, 0), rcpts: &rcptLog{},
	}
	var addrs []string
	var zone strings.Builder
	for i, p := range warmProviders {
		addrs = append(addrs, at(10+i))
		fmt.Fprintf(&zone, "%[1]s.example. 60 IN MX 10 mx.%[1]s.example.\nmx.%[1]s.example. 60 IN A %[2]s\n", p, addrs[i])
	}
	listeners, port, err := sink.ListenTogether(0, addrs...)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range warmProviders {
		server := sink.New(sink.Config{Hostname: "mx." + p + ".example", Recorder: g.taken, Hook: g.hook(p, set.answer)})
		go server.Serve(listeners[i])
		t.Cleanup(server.Close)
	}
	g.relay = newRelay(t, serveNames(t, sink.MustZone(zone.String())), port, g.config(set)+takingAll)
	g.relay.env = []string{"MTA_TEST_HOURS=" + set.hour.String()}
	g.relay.start(t)
	g.mailer = newMailer(g.relay.addr)
	t.Cleanup(g.mailer.stop)
	return g
}

// networks gives each test a part of 127.33.0.0/16.
type networks struct {
	mu   sync.Mutex // guards used
	used int
}

var warmNets networks

func (n *networks) next() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.used++
	return n.used
}

func (g *warmGround) hook(provider string, answer func(netip.Addr, string) string) func(sink.Command) sink.Answer {
	return func(c sink.Command) sink.Answer {
		if c.Phase != sink.Rcpt {
			return sink.Answer{}
		}
		g.rcpts.add(provider, c)
		if answer == nil {
			return sink.Answer{}
		}
		_, rest, _ := strings.Cut(c.Line, "<")
		recipient, _, _ := strings.Cut(rest, ">")
		return sink.Answer{Reply: answer(c.Client.Addr(), recipient)}
	}
}

func (g *warmGround) config(set warmSettings) string {
	pool := `shared = ["old-1"]
  patience = "0s"`
	if set.hold {
		pool = `overflow = "hold"`
	}
	text := fmt.Sprintf(`
source "new-1" { address = "%s" }
source "old-1" { address = "%s" }
pool "default" {
  %s
  dedicated "new-1" { plan = "live" }
}
plan "live" {
%s
}
`, g.dedicated, g.shared, pool, set.plan)
	for _, p := range warmProviders {
		if counted(p) == p {
			text += fmt.Sprintf("provider %q { mx = [\"mx.%s.example\"] }\n", p, p)
		}
	}
	return text + set.more
}

// warmup asks the relay how its warming source is.
func (g *warmGround) warmup() (api.Warmup, error) {
	c := api.NewClient(g.relay.dir + "/data/control.sock")
	defer c.Close()
	return api.OpWarmup.Call(context.Background(), c, api.None{}, "new-1")
}

// warmDuration is how long a test of the warm-up lasts: its own time, or what MTA_WARMUP says in
// seconds.
func warmDuration(t *testing.T, short time.Duration) time.Duration {
	t.Helper()
	s := os.Getenv("MTA_WARMUP")
	if s == "" {
		return short
	}
	n, err := strconv.Atoi(s)
	if err != nil || n <= 0 {
		t.Fatalf("MTA_WARMUP=%s: want seconds", s)
	}
	return time.Duration(n) * time.Second
}

// warmHour is the hour of a test's plan: the short one, or a share of what MTA_WARMUP says, so that a
// longer test is one that a machine can keep up with.
func warmHour(t *testing.T, short time.Duration, hours int) time.Duration {
	t.Helper()
	return max(short, (warmDuration(t, 0) / time.Duration(hours)).Truncate(time.Second))
}

// mailer submits mail at the pace that it is asked for, over connections that it makes anew when the
// relay has gone away, and knows what was accepted.
type mailer struct {
	addr  string
	work  chan string // domains
	done  chan struct{}
	wait  sync.WaitGroup
	close sync.Once

	mu       sync.Mutex // guards the rest
	next     int
	accepted map[string]time.Time // recipient -> when its 250 came
	unsure   int                  // whose 250 nobody saw
}

const (
	mailerSessions = 16   // connections that a mailer has
	mailerBacklog  = 1000 // messages that wait for them at most, where a machine is too slow for the pace
)

func newMailer(addr string) *mailer {
	m := &mailer{addr: addr, work: make(chan string, 100_000), done: make(chan struct{}), accepted: make(map[string]time.Time)}
	for range mailerSessions {
		m.wait.Go(m.run)
	}
	return m
}

func (m *mailer) stop() {
	m.close.Do(func() { close(m.done) })
	m.wait.Wait()
}

// offer has n messages submitted to a provider.
func (m *mailer) offer(provider string, n int) {
	for range n {
		m.work <- provider + ".example"
	}
}

// steady offers mail to all of the providers, that many messages a second to each, for a while.
func (m *mailer) steady(perSecond float64, lasts time.Duration) {
	stop := make(chan struct{})
	timer := time.AfterFunc(lasts, func() { close(stop) })
	defer timer.Stop()
	m.until(stop, perSecond)
}

// until does so until it is told to stop.
func (m *mailer) until(stop <-chan struct{}, perSecond float64) {
	start, offered := time.Now(), 0
	for tick := time.Tick(5 * time.Millisecond); ; {
		select {
		case <-stop:
			return
		case <-tick:
		}
		for due := int(perSecond * time.Since(start).Seconds()); offered < due; offered++ {
			if len(m.work) > mailerBacklog {
				continue
			}
			for _, p := range warmProviders {
				m.offer(p, 1)
			}
		}
	}
}

// finish waits until all that was offered has been submitted.
func (m *mailer) finish(t *testing.T) {
	t.Helper()
	eventually(t, patience, func() error {
		if n := len(m.work); n > 0 {
			return fmt.Errorf("%d messages are not submitted yet", n)
		}
		return nil
	})
	m.stop()
}

func (m *mailer) run() {
	var s *session
	defer func() {
		if s != nil {
			s.close()
		}
	}()
	for {
		var domain string
		select {
		case <-m.done:
			return
		case domain = <-m.work:
		}
		for s == nil {
			var err error
			if s, err = dialSession(m.addr); err != nil {
				select {
				case <-m.done:
					return
				case <-time.After(20 * time.Millisecond): // the relay is being started
				}
			}
		}
		if !m.submit(s, domain) {
			s.close()
			s = nil
		}
	}
}

// submit sends one message and reports whether the session is good for more.
func (m *mailer) submit(s *session, domain string) bool {
	m.mu.Lock()
	m.next++
	id := fmt.Sprintf("w%d", m.next)
	m.mu.Unlock()
	to := id + "@" + domain
	begun, err := s.send("boss@home.example", []string{to}, "Subject: warm\r\nX-Mta-Test-Id: "+id+"\r\n\r\nWanted mail.\r\n")
	m.mu.Lock()
	defer m.mu.Unlock()
	var refusal *textproto.Error
	switch {
	case err == nil:
		m.accepted[to] = time.Now()
	case begun && !errors.As(err, &refusal):
		m.unsure++
	}
	return err == nil
}

// judgeDelivery demands that all that was accepted was delivered, and says how long that took from
// each source. Copies beyond the first are allowed when the relay was killed.
func (g *warmGround) judgeDelivery(t *testing.T, killed bool) {
	t.Helper()
	g.mailer.mu.Lock()
	defer g.mailer.mu.Unlock()
	arrived := make(map[string]sink.Delivery)
	for _, d := range g.taken.Deliveries() {
		if _, again := arrived[d.Recipient]; !again {
			arrived[d.Recipient] = d
		}
	}
	took := make(map[netip.Addr][]time.Duration)
	lost := 0
	for recipient, at := range g.mailer.accepted {
		d, ok := arrived[recipient]
		if !ok {
			if lost++; lost <= 10 {
				t.Errorf("lost: %s was accepted and has not arrived", recipient)
			}
			continue
		}
		took[d.Client.Addr()] = append(took[d.Client.Addr()], d.At.Sub(at))
	}
	for _, c := range []struct {
		name string
		addr netip.Addr
	}{{"dedicated", g.dedicated}, {"shared", g.shared}} {
		ds := took[c.addr]
		if slices.Sort(ds); len(ds) > 0 {
			t.Logf("%s: %d delivered; from 250 to arrival: half within %v, 99 %% within %v, all within %v", c.name, len(ds),
				ds[len(ds)/2].Round(time.Millisecond), ds[len(ds)*99/100].Round(time.Millisecond), ds[len(ds)-1].Round(time.Millisecond))
		}
	}
	if others := len(took) - len(slices.DeleteFunc([]netip.Addr{g.dedicated, g.shared}, func(a netip.Addr) bool { return took[a] == nil })); others != 0 {
		t.Errorf("mail came from %d addresses that are no source", others)
	}
	tally := g.taken.Tally()
	t.Logf("%d accepted, %d with an unseen reply, %d lost, %d second copies", len(g.mailer.accepted), g.mailer.unsure, lost, tally.Duplicates())
	if n := tally.Duplicates(); n > 0 && !killed {
		t.Errorf("%d copies came twice, and nobody killed the relay", n)
	}
	if len(g.mailer.accepted) < 100 {
		t.Errorf("only %d were accepted: that tests nothing", len(g.mailer.accepted))
	}
}
