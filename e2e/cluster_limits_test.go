package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/lab/sink"
)

// toll is a host that notes when mail begins, and how many connections it has.
type toll struct {
	net.Listener
	record *sink.Recorder

	mu         sync.Mutex // guards what follows
	began      []time.Time
	open, most int
}

type judged struct {
	net.Conn
	j    *toll
	once sync.Once
}

// newToll begins a host at an address.
func newToll(t *testing.T, address string) *toll {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	j := &toll{Listener: l, record: sink.NewRecorder(sink.Deliveries, 0)}
	server := sink.New(sink.Config{Recorder: j.record, Hook: func(c sink.Command) (a sink.Answer) {
		if c.Phase == sink.Mail {
			j.mu.Lock()
			defer j.mu.Unlock()
			j.began = append(j.began, time.Now())
		}
		return a
	}})
	go server.Serve(j)
	t.Cleanup(server.Close)
	return j
}

func (j *toll) Accept() (net.Conn, error) {
	c, err := j.Listener.Accept()
	if err != nil {
		return nil, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.open++
	j.most = max(j.most, j.open)
	return &judged{Conn: c, j: j}, nil
}

func (c *judged) Close() error {
	c.once.Do(func() {
		c.j.mu.Lock()
		defer c.j.mu.Unlock()
		c.j.open--
	})
	return c.Conn.Close()
}

func (j *toll) connections() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.open
}

// over is by how many messages a rate and its burst were exceeded at most, in any time.
func (j *toll) over(perSecond, burst float64) (worst float64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	level, last := 0., time.Time{}
	for _, at := range j.began {
		level = max(0, level-at.Sub(last).Seconds()*perSecond) + 1
		last, worst = at, max(worst, level-burst)
	}
	return worst
}

// members are relays of one cluster, each with its certificate. WEB and INBOUND in their configuration are addresses of
// each, KEYS an empty keys file; env goes to their environment.
func members(t *testing.T, d []*database, dns, port, config string, n int, env ...string) (relays []*relay) {
	t.Helper()
	ca := filepath.Join(scratch(t), "ca")
	runClient(t, "", binary, "cluster", "ca", "init", ca)
	dsn := d[0].dsn("mta", "postgres")
	if len(d) > 1 {
		dsn = both(d[0], d[1])
	}
	for i := range n {
		runClient(t, "", binary, "cluster", "ca", "issue", ca, fmt.Sprint(i+1))
		web, inbound, keys := freeAddress(t), freeAddress(t), filepath.Join(scratch(t), "keys")
		writeFile(t, keys, "")
		if err := os.Chmod(keys, 0o600); err != nil {
			t.Fatal(err)
		}
		r := newRelay(t, dns, port, takingAll+strings.NewReplacer("WEB", web, "INBOUND", inbound, "KEYS", keys).Replace(config)+fmt.Sprintf(`
nodeid = "relay-%[3]d"
cluster {
  database    = env("MTA_CLUSTER_DATABASE")
  address     = %[1]q
  certificate = "%[2]s/node-%[3]d.pem"
  key         = "%[2]s/node-%[3]d-key.pem"
  ca          = "%[2]s/ca.pem"
  secrets_key = "%[2]s/secrets.key"
}
`, freeAddress(t), ca, i+1))
		r.env, r.web, r.inbound = append([]string{"MTA_CLUSTER_DATABASE=" + dsn}, env...), web, inbound
		r.start(t)
		relays = append(relays, r)
	}
	return relays
}

// bigExample are relays of one cluster, with a database that has a standby. For them big.example has one host, at an
// address and the port that is returned.
func bigExample(t *testing.T, address, config string, env ...string) (relays []*relay, primary, standby *database, port string) {
	t.Helper()
	primary, standby = newPair(t)
	primary.schema(t)
	port = commonPort(t, address)
	names := sink.NewDNS(sink.MustZone("big.example. 60 IN MX 10 mx.big.example.\nmx.big.example. 60 IN A " + address + "\n"))
	dns, err := names.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { names.Close() })
	return members(t, []*database{primary, standby}, dns.String(), port, config, 3, env...), primary, standby, port
}

// TestClusterSharesLimits has three relays send to one provider, while the load moves between them, a node that decides is
// killed, another is stopped for 20 s, and the database fails over. The host never has more than the limits.
func TestClusterSharesLimits(t *testing.T) {
	t.Parallel()
	const rate, places = 100, 7
	const address = "127.31.7.1"
	relays, primary, standby, port := bigExample(t, address, fmt.Sprintf(`
provider "big" {
  mx               = ["mx.big.example"]
  connection_limit = %d
  max_message_rate = "%d/s"
}
`, places, rate))
	host := newToll(t, net.JoinHostPort(address, port))
	arrived := func() int { return int(host.record.Tally().Unique) }
	sent := 0
	send := func(r *relay, n int) {
		t.Helper()
		s, err := dialSession(r.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		for range n {
			sent++
			content := fmt.Sprintf("From: ann@client.example\r\nX-Mta-Test-Id: %d\r\n\r\nhello\r\n", sent)
			if _, err := s.send("ann@client.example", []string{"to@big.example"}, content); err != nil {
				t.Fatal(err)
			}
		}
	}
	within := func(what string, n int) {
		t.Helper()
		began := time.Now()
		if err := allCome("messages "+what, n, arrived); err != nil {
			t.Fatalf("%v\n%s", err, relays[0].mta(t, "explain", "big.example"))
		}
		t.Logf("%s: %d after %.1f s", what, n, time.Since(began).Seconds())
	}

	send(relays[0], 700)
	send(relays[1], 200)
	within("two relays", 900)
	send(relays[2], 500)
	within("the third", 1400)

	// A node that decides for a third of the limits is killed and comes back.
	for _, r := range relays {
		send(r, 300)
	}
	relays[0].kill()
	relays[0].start(t)
	within("after a kill", 2300)

	for _, r := range relays {
		send(r, 300)
	}
	relays[1].pause(t)
	time.Sleep(20 * time.Second)
	relays[1].resume()
	within("after a stop", 3200)

	for _, r := range relays {
		send(r, 300)
	}
	primary.end()
	if _, err := standby.query(t, "SELECT pg_promote(false)"); err != nil {
		t.Fatal(err)
	}
	within("after a failover", 4100)

	// A message takes some time to the host, the more the busier this machine is.
	if n := host.over(rate, rate+rate/2); n > 0 {
		t.Errorf("%.0f messages were over the rate", n)
	}
	if host.most > places {
		t.Errorf("%d connections of %d", host.most, places)
	}
	for _, r := range relays {
		r.drained(t, patience)
	}
}
