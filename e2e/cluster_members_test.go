package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/mta/lab/sink"
	"example.org/mta/operator/api"
)

// toll is a host that notes when mail begins, and how many connections it has.
type toll struct {
	net.Listener
	record *sink.Recorder

	mu    sync.Mutex // guards what follows
	began []time.Time
	came  map[string]int // by what stands before the first hyphen of the recipient
	open  map[*judged]bool
	most  int
}

type judged struct {
	net.Conn
	j    *toll
	once sync.Once
}

// newToll begins a host at an address, which is busy with each message for some time.
func newToll(t *testing.T, address string, busy time.Duration) *toll {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	j := &toll{Listener: l, record: sink.NewRecorder(sink.Deliveries, 0), came: make(map[string]int),
		open: make(map[*judged]bool)}
	work := map[sink.Phase]time.Duration{sink.End: busy}
	server := sink.New(sink.Config{Recorder: j.record, Work: work, Hook: func(c sink.Command) (a sink.Answer) {
		j.mu.Lock()
		defer j.mu.Unlock()
		switch c.Phase {
		case sink.Mail:
			j.began = append(j.began, time.Now())
		case sink.Kept:
			kind, _, _ := strings.Cut(c.Recipients[0], "-")
			j.came[kind]++
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
	connection := &judged{Conn: c, j: j}
	if j.open[connection] = true; len(j.open) > j.most {
		n := 0
		for one := range j.open {
			if one.established() {
				n++
			}
		}
		j.most = max(j.most, n)
	}
	return connection, nil
}

// established reports whether the client has not closed a connection. The host notices it later, when it has read what
// came before, and has answered.
func (c *judged) established() bool {
	const state = 1 // TCP_ESTABLISHED, of tcp_states.h
	raw, err := c.Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return false // closed here
	}
	is := false
	_ = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		is = err == nil && info.State == state
	})
	return is
}

func (c *judged) Close() error {
	c.once.Do(func() {
		c.j.mu.Lock()
		defer c.j.mu.Unlock()
		delete(c.j.open, c)
	})
	return c.Conn.Close()
}

func (j *toll) connections() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.open)
}

// arrived is the number of messages that have come to recipients whose names begin with kind and a hyphen.
func (j *toll) arrived(kind string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.came[kind]
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
// each, KEYS and USERS empty files of keys and users; env goes to their environment.
func members(t *testing.T, d []*database, dns, port, config string, n int, env ...string) (relays []*relay) {
	t.Helper()
	relays = newMembers(t, d, dns, port, config, n, env...)
	for _, r := range relays {
		r.start(t)
	}
	return relays
}

// newMembers is members, which were not started yet.
func newMembers(t *testing.T, d []*database, dns, port, config string, n int, env ...string) (relays []*relay) {
	t.Helper()
	ca := filepath.Join(scratch(t), "ca")
	runClient(t, "", binary, "cluster", "ca", "init", ca)
	dsn := d[0].dsn("mta", "postgres")
	if len(d) > 1 {
		dsn = both(d[0], d[1])
	}
	for i := range n {
		runClient(t, "", binary, "cluster", "ca", "issue", ca, fmt.Sprint(i+1))
		settings, at := filled(t, config)
		r := newRelay(t, dns, port, takingAll+settings+membership(t, ca, i+1))
		r.env, r.places = append([]string{"MTA_CLUSTER_DATABASE=" + dsn}, env...), at
		relays = append(relays, r)
	}
	return relays
}

// membership has a relay be a node, with the certificates in a folder.
func membership(t *testing.T, ca string, n int) string {
	return fmt.Sprintf(`
nodeid = "relay-%[3]d"
cluster {
  database    = env("MTA_CLUSTER_DATABASE")
  address     = %[1]q
  certificate = "%[2]s/node-%[3]d.pem"
  key         = "%[2]s/node-%[3]d-key.pem"
  ca          = "%[2]s/ca.pem"
  secrets_key = "%[2]s/secrets.key"
}
`, freeAddress(t), ca, n)
}

// filled is the configuration of one of members, with its addresses.
func filled(t *testing.T, config string) (settings string, at places) {
	t.Helper()
	dir := scratch(t)
	for _, name := range []string{"keys", "users"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at = places{freeAddress(t), freeAddress(t), freeAddress(t)}
	return strings.NewReplacer("WEB", at.web, "INBOUND", at.inbound, "CONSOLE", at.console,
		"KEYS", filepath.Join(dir, "keys"), "USERS", filepath.Join(dir, "users")).Replace(config), at
}

// cluster is a relay's view of its cluster; of a relay that does not answer it is empty.
func (r *relay) cluster() (s api.Cluster) {
	c := api.NewClient(r.dir + "/data/control.sock")
	defer c.Close()
	s, _ = api.OpCluster.Call(context.Background(), c, api.None{})
	return s
}

// meet waits until relays know each other, and the database answers them.
func meet(t *testing.T, relays []*relay) {
	t.Helper()
	for _, r := range relays {
		eventually(t, patience, func() error { // nodes read who is there every 5 s
			if s := r.cluster(); len(s.Members) != len(relays) || !s.Takes || s.Silent > 2 {
				return fmt.Errorf("a relay's view of the cluster is %+v", s)
			}
			return nil
		})
	}
}

// bigExample are relays of one cluster, with a database that has a standby. For them big.example has one host, at an
// address and the port that is returned.
func bigExample(t *testing.T, address, config string, env ...string) (relays []*relay, primary, standby *database, port string) {
	t.Helper()
	primary, standby = newPair(t)
	primary.schema(t)
	port = commonPort(t, address)
	return members(t, []*database{primary, standby}, serveNames(t, sink.MustZone(mxRecords("big", address))), port, config, 3, env...), primary, standby, port
}
