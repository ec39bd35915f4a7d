package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/textproto"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/lab/sink"
	"example.org/mta/operator/api"
)

// customers are the clients of a cluster. By SMTP they keep some mail to each host at each relay, all the time; by HTTP
// they send requests with a key to any relay, and more than once.
type customers struct {
	*testing.T
	relays    []*relay
	big, warm *toll  // the second can be nil
	key       string // of the API
	http      http.Client
	wait      time.Duration // the longest that a request may have no answer

	mu       sync.Mutex        // guards what follows
	accepted []string          // the recipients of mail by SMTP
	unsure   map[string]bool   // those of mail whose end was not answered
	answers  map[string]string // the first one to each request, by its key
	later    map[int]int       // tries that were asked to come later, by status; 0: without an answer
}

func newCustomers(t *testing.T, relays []*relay, wait time.Duration) *customers {
	c := &customers{T: t, relays: relays, wait: wait,
		unsure: make(map[string]bool), answers: make(map[string]string), later: make(map[int]int)}
	c.http.Timeout = 20 * time.Second
	t.Cleanup(c.http.CloseIdleConnections)
	meet(t, relays)
	c.key = relays[0].newKey(t)
	return c
}

// feed keeps a number of messages of one kind at a relay, or on their way from there.
func (c *customers) feed(ctx context.Context, at int, kind, tenant string, host *toll, ahead int) {
	name := fmt.Sprint(kind, at+1)
	var s *session
	for n := 0; ctx.Err() == nil; {
		if n-host.arrived(name) >= ahead {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		if s == nil {
			var err error
			if s, err = dialSession(c.relays[at].addr); err != nil {
				time.Sleep(50 * time.Millisecond)
				continue
			}
			defer s.close()
		}
		to := fmt.Sprintf("%s-%d@%s.example", name, n, kind)
		begun, err := s.send("ann@client.example", []string{to}, fmt.Sprintf(
			"From: ann@client.example\r\nX-MTA-Tenant: %s\r\nX-Mta-Test-Id: %s-%d\r\n\r\nhello\r\n", tenant, name, n))
		if refused := (*textproto.Error)(nil); errors.As(err, &refused) && refused.Code != 421 { // it stops
			c.Errorf("mail without a key is refused at node %d: %v", at+1, err)
			return
		}
		c.mu.Lock()
		if err == nil {
			c.accepted = append(c.accepted, to)
		} else if begun {
			c.unsure[to] = true
		}
		c.mu.Unlock()
		if n++; err != nil {
			s.close()
			s = nil
		}
	}
}

// post sends a request once; an answer has a status, unless there is none.
func (c *customers) post(at int, key, body string) (answer string, replayed bool, status int) {
	q, err := http.NewRequest("POST", "http://"+c.relays[at].web+"/v1/messages", strings.NewReader(body))
	if err != nil {
		c.Error(err)
		return "", false, 0
	}
	q.Header.Set("Authorization", "Bearer "+c.key)
	q.Header.Set("Content-Type", "application/json")
	if key != "" {
		q.Header.Set("Idempotency-Key", key)
	}
	a, err := c.http.Do(q)
	if err != nil {
		return err.Error(), false, 0
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		return err.Error(), false, 0
	}
	if a.StatusCode >= 409 && a.StatusCode != 422 && a.Header.Get("Retry-After") == "" {
		c.Errorf("%d %s: no Retry-After", a.StatusCode, text)
	}
	return string(text), a.Header.Get("Idempotent-Replayed") != "", a.StatusCode
}

// order is the request that has a name as its key and its recipient.
func order(name string) string {
	return fmt.Sprintf(`{"from":"shop@acme.example","to":"%s@big.example","subject":"x","text":"x"}`, name)
}

// buy sends a request to random relays, from two clients at once, until both are answered.
func (c *customers) buy(key string) {
	body := order(key)
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
				answer, _, status := c.post(rand.IntN(len(c.relays)), key, body)
				c.mu.Lock()
				first := c.answers[key]
				switch {
				case status == http.StatusAccepted && first == "":
					c.answers[key] = answer
				case status == http.StatusAccepted && answer != first:
					c.Errorf("%s: %s, and again %s", key, first, answer)
				case status != http.StatusAccepted:
					c.later[status]++
				}
				c.mu.Unlock()
				if status == http.StatusAccepted {
					return
				} else if status != 0 && status != 409 && status != 503 || time.Since(began) > c.wait {
					c.Errorf("%s: %d %s after %v", key, status, answer, time.Since(began))
					return
				}
			}
		})
	}
	both.Wait()
}

// times are those of requests to one relay, with keys and without.
func (c *customers) times(keyed bool) (p50, p99 time.Duration) {
	c.Helper()
	var all []time.Duration
	for i := range 100 {
		name, key := fmt.Sprintf("time-%d-%t", i, keyed), ""
		if keyed {
			key = name
		}
		began := time.Now()
		answer, _, status := c.post(0, key, order(name))
		if all = append(all, time.Since(began)); status != http.StatusAccepted {
			c.Fatal(status, answer)
		}
		c.answers[name] = answer
	}
	slices.Sort(all)
	return all[len(all)/2], all[len(all)*99/100]
}

// load begins to send all kinds of mail; end returns when the last request is answered.
func (c *customers) load() (end func()) {
	ctx, cancel := context.WithCancel(c.Context())
	var all sync.WaitGroup
	for i := range c.relays {
		all.Go(func() { c.feed(ctx, i, "big", "acme", c.big, 100) })
		if c.warm != nil {
			all.Go(func() { c.feed(ctx, i, "warm", "young", c.warm, 10) })
		}
	}
	for i := range 3 {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				c.buy(fmt.Sprintf("order-%d-%d", i, n))
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

// warmup is the state of the one warming source as a relay has it.
func (r *relay) warmup(t *testing.T) (w api.Warmup) {
	t.Helper()
	c := api.NewClient(r.dir + "/data/control.sock")
	defer c.Close()
	eventually(t, patience, func() (err error) {
		if w, err = api.OpWarmup.Call(context.Background(), c, api.None{}, "new-1"); err == nil && w.Stage == 0 {
			err = fmt.Errorf("it is %s", w.State)
		}
		return err
	})
	return w
}

// span is a time in which a trouble was made.
type span struct{ from, to time.Time }

// beyond is the number of messages that no window has room for, each in the one in which it arrived, or in an earlier
// one if it may have been that late.
func beyond(at []time.Time, begin time.Time, window time.Duration, room func(i int) int,
	late func(time.Time) time.Duration) (n int) {
	used := make(map[int]int)
	for _, when := range at {
		last := int(when.Sub(begin) / window)
		first := max(0, int(when.Add(-late(when)).Sub(begin)/window))
		for first < last && used[first] >= room(first) {
			first++
		}
		if used[first]++; used[first] > room(first) {
			n++
		}
	}
	return n
}

// busiest is the number of messages in the busiest time of that length.
func busiest(at []time.Time, length time.Duration) (most int) {
	first := 0
	for i, when := range at {
		for !at[first].After(when.Add(-length)) {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// TestAClusterLives has five relays send to a provider with a limit, and from a warming source behind a SOCKS5 proxy,
// and take requests with keys at random nodes, all at once and all the time, through each trouble of nodes and of the
// database. Judged at the hosts: nothing is ever over a limit, nothing is lost, and nothing is accepted twice. With
// MTA_CLUSTER=full the troubles last as long as they do in the field, which takes 12 minutes.
func TestAClusterLives(t *testing.T) {
	parallel(t)
	full := os.Getenv("MTA_CLUSTER") == "full"
	lasts := func(short, long time.Duration) time.Duration {
		if full {
			return long
		}
		return short
	}
	const rate, places = 100, 7
	const hourly = 40
	daily := hourly * int(lasts(24, 16)) // there is no time in CI for the day after a full one
	hour := lasts(4*time.Second, 12*time.Second)
	const address, young, out, warming = "127.31.7.1", "127.31.7.2", "127.31.7.3", "127.31.7.4"
	primary, standby := newPair(t)
	primary.schema(t)
	first, second := newCutter(t, "127.0.0.1:"+primary.port), newCutter(t, "127.0.0.1:"+standby.port)
	proxy, err := sink.SOCKS5Proxy(netip.MustParseAddr(warming), "", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	port := commonPort(t, address, young)
	stages := []warmStage{{warmCaps{hourly, daily}, nil}, {warmCaps{2 * hourly, 2 * daily}, nil}}
	relays := newMembers(t, []*database{{port: portOf(first.address)}, {port: portOf(second.address)}},
		serveNames(t, sink.MustZone(mxRecords("big", address)+mxRecords("warm", young))), port, fmt.Sprintf(`
provider "big" {
  mx               = ["mx.big.example"]
  connection_limit = %d
  max_message_rate = "%d/s"
}
source "out" { address = %q }
source "new-1" {
  address = %q
  proxy   = "socks5://%s"
}
domain "warm.example" { max_deliveries_per_connection = 20 }
pool "default" { shared = ["out"] }
pool "warm" {
  overflow = "hold"
  dedicated "new-1" { plan = "live" }
}
plan "live" {
%s
}
tenant "acme" { }
tenant "young" { pool = "warm" }
keys { file = "KEYS" }
api "web" { address = ["WEB"] }
`, places, rate, out, warming, proxy.Addr, planText(stages)), 5, "MTA_TEST_HOURS="+hour.String())
	for _, r := range relays {
		writeFile(t, r.config, strings.Replace(readFile(t, r.config), "cluster {", "cluster {\n  on_loss = \"part\"", 1))
		r.start(t)
	}
	c := newCustomers(t, relays, lasts(patience, 10*time.Minute))
	c.big = newToll(t, net.JoinHostPort(address, port), 50*time.Millisecond) // so that one connection can't take all
	c.warm = newToll(t, net.JoinHostPort(young, port), 0)
	// owner is the relay that decides about the most limits.
	owner := func() *relay {
		return slices.MaxFunc(relays, func(a, b *relay) int { return cmp.Compare(a.cluster().Shards, b.cluster().Shards) })
	}
	begun := relays[0].warmup(t).Started
	p50, p99 := c.times(false)
	t.Logf("without a key: p50 %v, p99 %v", p50, p99)
	p50, p99 = c.times(true)
	t.Logf("with a key: p50 %v, p99 %v", p50, p99)

	end := c.load()
	phase := func(what string, does func(), settles time.Duration) span {
		t.Helper()
		s := span{from: time.Now()}
		came, warm := c.big.record.Tally().Deliveries, c.warm.record.Tally().Deliveries
		does()
		s.to = time.Now()
		time.Sleep(settles)
		took := time.Since(s.from).Seconds()
		c.mu.Lock()
		defer c.mu.Unlock()
		t.Logf("%s, %.0f s: %.0f messages a second, %.1f from the warming source; %d requests so far, "+
			"tries that came to nothing %v", what, took, float64(c.big.record.Tally().Deliveries-came)/took,
			float64(c.warm.record.Tally().Deliveries-warm)/took, len(c.answers), c.later)
		return s
	}
	pass := func(short, long time.Duration) { time.Sleep(lasts(short, long)) }
	settle := lasts(4*time.Second, 20*time.Second)
	commit := func(how string) { // ends one that waits for the standby
		if err := primary.try(t, "DO $$ BEGIN WHILE NOT EXISTS ("+waiting+") LOOP PERFORM pg_stat_clear_snapshot(), "+
			"pg_sleep(0.05); END LOOP; PERFORM "+how+"(pid) FROM ("+waiting+") w; END $$"); err != nil {
			t.Error(err)
		}
	}

	phase("calm", func() {}, settle)
	var killed time.Time
	phase("an owner is killed", func() {
		one := owner()
		one.kill()
		killed = time.Now()
		pass(2*time.Second, 200*time.Second) // the others take over after 3 minutes
		one.start(t)
	}, settle)
	stood := phase("an owner and another node stand still", func() {
		one := owner()
		other := relays[(slices.Index(relays, one)+1)%len(relays)]
		one.pause(t)
		other.pause(t)
		pass(7*time.Second, 20*time.Second)
		one.resume()
		other.resume()
	}, settle)
	phase("the standby is gone, and commits are cut off", func() {
		standby.end()
		pass(2*time.Second, 20*time.Second)
		for range lasts(2, 10) {
			commit("pg_terminate_backend")
			commit("pg_cancel_backend")
		}
		standby.begin(t)
		primary.comes(t, streaming, "1")
	}, settle)
	phase("the database is stopped", func() {
		primary.end()
		pass(10*time.Second, 60*time.Second)
		for i := range relays {
			key, plain := fmt.Sprint("away-", i), fmt.Sprint("plain-", i)
			if answer, _, status := c.post(i, key, order(key)); status != 503 || !strings.Contains(answer, "database") {
				t.Errorf("without the database: %d %s", status, answer)
			}
			answer, _, status := c.post(i, "", order(plain))
			if status != 202 {
				t.Errorf("without the database, and without a key: %d %s", status, answer)
			}
			c.mu.Lock()
			c.answers[plain] = answer
			c.mu.Unlock()
		}
		if pass(10*time.Second, 3*time.Minute); full { // what all have in reserve
			before := c.big.record.Tally().Deliveries
			time.Sleep(30 * time.Second)
			if n := c.big.record.Tally().Deliveries - before; n < rate*30/3 {
				t.Errorf("%d messages in half a minute, 4 minutes after the database", n)
			}
		}
		primary.begin(t)
		primary.comes(t, streaming, "1")
	}, settle)
	phase("a proxy cuts", func() {
		for began := time.Now(); time.Since(began) < lasts(6*time.Second, 30*time.Second); {
			first.cut.Store(true)
			time.Sleep(time.Duration(50+rand.IntN(300)) * time.Millisecond)
			first.cut.Store(false)
			time.Sleep(time.Duration(50+rand.IntN(600)) * time.Millisecond)
		}
	}, settle)
	phase("the primary is killed, and the standby promoted", func() {
		primary.end()
		pass(2*time.Second, 15*time.Second)
		standby.ask(t, "SELECT pg_promote(false)")
	}, settle)
	end()

	for _, r := range relays {
		r.drained(t, c.wait)
	}
	c.judgeMail(killed)
	c.judgeLimits(rate, places)
	plan := recount{stages: stages}
	late := func(at time.Time) time.Duration {
		if since := at.Sub(stood.to); since > 0 && since < 3*time.Second { // commands that were being written
			return at.Sub(stood.from)
		}
		return 2 * time.Second
	}
	for window, room := range map[time.Duration]func(int) int{
		hour:      func(h int) int { return plan.stage(h / 24).hourly },
		24 * hour: func(d int) int { return plan.stage(d).daily },
	} {
		if n := beyond(c.warm.began, begun, window, room, late); n > 0 {
			t.Errorf("%d messages were over the caps of %v", n, window)
		}
		t.Logf("at most %d messages of the warming source in %v", busiest(c.warm.began, window), window)
	}
	c.repeat()

	// A command at one relay holds at all, and they agree in what was sent.
	relays[2].mta(t, "warmup", "set-stage", "new-1", "2")
	relays[1].mta(t, "warmup", "pause", "new-1")
	eventually(t, patience, func() error {
		first := relays[0].warmup(t)
		for _, r := range relays {
			if w := r.warmup(t); w.Stage != 2 || w.State != "paused" || w.SentStage != first.SentStage ||
				w.SentDay != first.SentDay || !w.Started.Equal(begun) {
				return fmt.Errorf("a relay has %+v, another %+v", w, first)
			}
		}
		return nil
	})
	// A relay that stops writes its last reports, though it has left the cluster before.
	before := len(readFile(t, relays[1].log))
	if !relays[1].stop(patience) {
		t.Error("it does not stop")
	}
	if log := readFile(t, relays[1].log)[before:]; strings.Contains(log, "warm-up store") {
		t.Errorf("its log has trouble with the warm-ups:\n%s", log)
	}
}

// judgeMail looks whether all that was accepted has come, once, and nothing else. What a relay had on its way when it
// was killed may have come twice: a busy machine reads a reply seconds after it came.
func (c *customers) judgeMail(killed time.Time) {
	c.Helper()
	copies := make(map[string][]sink.Delivery)
	all := c.big.record.Deliveries()
	if c.warm != nil {
		all = append(all, c.warm.record.Deliveries()...)
	}
	for _, d := range all {
		copies[d.Recipient] = append(copies[d.Recipient], d)
	}
	lost, again, unsure := 0, 0, 0
	wanted := slices.Clone(c.accepted)
	for name := range c.answers {
		wanted = append(wanted, name+"@big.example")
	}
	for _, to := range wanted {
		all := copies[to]
		delete(copies, to)
		if len(all) == 0 {
			lost++
		}
		for i := 1; i < len(all); i++ {
			if all[i].ID != all[0].ID {
				c.Errorf("mail to %s was accepted twice: %+v", to, all)
			} else if again++; killed.Sub(all[0].At).Abs() > 5*time.Second {
				c.Errorf("mail to %s came twice, and its relay was not killed: %+v", to, all)
			}
		}
	}
	for to := range copies {
		if unsure++; !c.unsure[to] {
			c.Errorf("mail to %s came, and was never accepted", to)
		}
	}
	if lost > 0 {
		c.Errorf("%d messages are lost", lost)
	}
	c.Logf("%d messages were accepted, %d of these by HTTP: %d are lost, and %d came again that were on their way at a "+
		"kill; of %d whose end was not answered %d came", len(wanted), len(c.answers), lost, again, len(c.unsure), unsure)
}

// judgeLimits looks whether the host ever had more than a rate and a number of connections.
func (c *customers) judgeLimits(rate float64, places int) {
	c.Helper()
	// A message takes some time to the host, the more the busier this machine is.
	if n := c.big.over(rate, rate*1.5); n > 0 {
		c.Errorf("%.0f messages were over the rate", n)
	}
	if c.big.most > places {
		c.Errorf("%d connections of %d", c.big.most, places)
	}
	c.Logf("at most %d connections; %d messages in a second, %d in ten, %d in a minute", c.big.most,
		busiest(c.big.began, time.Second), busiest(c.big.began, 10*time.Second), busiest(c.big.began, time.Minute))
}

// requests is the number of those that were accepted.
func (c *customers) requests() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.answers)
}

// repeat sends some of the requests once more, at random relays.
func (c *customers) repeat() {
	c.Helper()
	n := 0
	for name, answer := range c.answers {
		if strings.HasPrefix(name, "plain-") || strings.HasSuffix(name, "false") {
			continue
		} else if n++; n > 200 {
			return
		}
		at := rand.IntN(len(c.relays))
		if again, replayed, status := c.post(at, name, order(name)); status != 202 || !replayed || again != answer {
			c.Errorf("%s: %s, and again, at node %d, %d %s", name, answer, at+1, status, again)
		}
		if other, _, status := c.post(at, name, order("other")); status != 422 {
			c.Errorf("%s, with another body: %d %s", name, status, other)
		}
	}
}
