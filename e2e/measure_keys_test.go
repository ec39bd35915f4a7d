package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/lab/sink"
)

// keyRate is how many messages a second TestMeasureKeys submits.
const keyRate = 100

// keyWay is a way of submission, and the seconds that it took to a relay alone and to a node, a figure for each run.
type keyWay struct {
	name     string
	send     func(c *keyClient, to string) error
	p50, p99 [2][]float64
}

// caughtUp is whether the standby has applied all that was written.
const caughtUp = "SELECT bool_and(replay_lsn = pg_current_wal_lsn()) FROM pg_stat_replication"

// TestMeasureKeys submits at a fixed rate by HTTP with an Idempotency-Key and without, and by SMTP, to a relay alone and
// to a node of a cluster of three, in turns, and looks how long each message waits for its answer. The database and its
// standby sync.
func TestMeasureKeys(t *testing.T) {
	besideOthers(t, fullSize())
	n := sized(t, 10*keyRate, keyRate/5)
	primary, standby := newPair(t, "fsync=on")
	primary.schema(t)
	hasRun(t, primary, standby)
	const address = "127.31.15.1"
	port := commonPort(t, address)
	taken := sink.NewRecorder(sink.Deliveries, 0)
	mailHost(t, net.JoinHostPort(address, port), sink.Config{Recorder: taken})
	dns := serveNames(t, sink.MustZone(mxRecords("big", address)))
	const settings = `
tenant "acme" { }
keys { file = "KEYS" }
api "web" { address = ["WEB"] }
`
	relays := members(t, []*database{primary, standby}, dns, port, settings, 3)
	meet(t, relays)
	text, at := filled(t, settings)
	alone := newRelay(t, dns, port, takingAll+text)
	alone.places = at
	alone.start(t)
	var clients []*keyClient
	for _, r := range []*relay{alone, relays[0]} {
		c := &keyClient{relay: r, key: r.newKey(t), http: &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: n}}}
		defer c.close()
		clients = append(clients, c)
	}

	ways := []*keyWay{{name: "HTTP, `Idempotency-Key`", send: (*keyClient).keyed}, {name: "HTTP", send: (*keyClient).plain}, {name: "SMTP", send: (*keyClient).smtp}}
	for run := range runs(t) {
		for i, way := range ways {
			for j, c := range clients {
				took := c.waits(t, n, func(n int) error { return way.send(c, fmt.Sprintf("%d-%d-%d-%d@big.example", run, i, j, n)) })
				way.p50[j] = append(way.p50[j], took[len(took)/2].Seconds())
				way.p99[j] = append(way.p99[j], took[len(took)*99/100].Seconds())
			}
		}
	}
	if err := allCome("messages", n*runs(t)*len(ways)*len(clients), func() int { return int(taken.Tally().Deliveries) }); err != nil {
		t.Error(err)
	}
	for to, n := range copies(taken) {
		if n != 1 {
			t.Errorf("%d messages have come to %s", n, to)
		}
	}
	if !fullSize() {
		return
	}
	rows := [][]string{{"", "p50: alone", "a node", "difference", "p99: alone", "a node", "difference"}}
	for _, way := range ways {
		row := []string{way.name}
		for _, both := range [][2][]float64{way.p50, way.p99} {
			alone, node := median(both[0]), median(both[1])
			row = append(row, duration(alone), duration(node), fmt.Sprintf("%+.1f ms", 1000*(node-alone)))
		}
		rows = append(rows, row)
	}
	publish(t, fmt.Sprintf("Submission to a node of a cluster, %d messages a second", keyRate), markdown(rows), footnote(t))
}

// hasRun gives databases files of WAL that wait to be used again, as those have that have run for a while.
func hasRun(t *testing.T, primary, standby *database) {
	t.Helper()
	for range 12 {
		primary.ask(t, "SELECT pg_logical_emit_message(true, 'a', 'b')")
		primary.ask(t, "SELECT pg_switch_wal()")
	}
	for _, d := range []*database{primary, standby} {
		primary.comes(t, caughtUp, "t")
		d.ask(t, "CHECKPOINT")
	}
}

// keyClient submits to a relay, over connections that stay open.
type keyClient struct {
	*relay
	key  string // of the API
	http *http.Client

	mu   sync.Mutex // guards idle
	idle []*session
}

func (c *keyClient) close() {
	c.http.CloseIdleConnections()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.idle {
		s.close()
	}
}

// waits submits n messages at keyRate, each at its time whatever became of those before, and returns how long each took
// from that time to its answer, in ascending order.
func (c *keyClient) waits(t *testing.T, n int, send func(n int) error) []time.Duration {
	t.Helper()
	took := make([]time.Duration, n)
	var all sync.WaitGroup
	began := time.Now()
	for i := range n {
		at := began.Add(time.Duration(i) * time.Second / keyRate)
		time.Sleep(time.Until(at))
		all.Go(func() {
			if err := send(i); err != nil {
				t.Error(err)
			}
			took[i] = time.Since(at)
		})
	}
	all.Wait()
	slices.Sort(took)
	return took
}

func (c *keyClient) keyed(to string) error { return c.post(to, to) }
func (c *keyClient) plain(to string) error { return c.post(to, "") }

func (c *keyClient) post(to, key string) error {
	q, err := http.NewRequest("POST", "http://"+c.web+"/v1/messages",
		strings.NewReader(fmt.Sprintf(`{"from":"shop@acme.example","to":%q,"subject":"x","text":"hello"}`, to)))
	if err != nil {
		return err
	}
	q.Header.Set("Authorization", "Bearer "+c.key)
	q.Header.Set("Content-Type", "application/json")
	if key != "" {
		q.Header.Set("Idempotency-Key", key)
	}
	a, err := c.http.Do(q)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err == nil && a.StatusCode != http.StatusAccepted {
		err = fmt.Errorf("%s: %s", a.Status, text)
	}
	return err
}

func (c *keyClient) smtp(to string) (err error) {
	var s *session
	c.mu.Lock()
	if last := len(c.idle) - 1; last >= 0 {
		s, c.idle = c.idle[last], c.idle[:last]
	}
	c.mu.Unlock()
	if s == nil {
		if s, err = dialSession(c.addr); err != nil {
			return err
		}
	}
	from, all, content := hello("X-MTA-Tenant: acme\r\n", to)
	if _, err = s.send(from, all, content); err != nil {
		s.close()
		return err
	}
	c.mu.Lock()
	c.idle = append(c.idle, s)
	c.mu.Unlock()
	return nil
}
