package e2e

import (
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"example.org/mta/internal/sidestore"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/accounting"
	"example.org/mta/operator/api"
)

// testRelay runs a relay with a stream to the broker. A broker that is slow to start has trouble only with MTA_EVENTS.
func (k *brokerKind) testRelay(t *testing.T, b *broker, certificate brokerCertificate) {
	k.create(t, b, "relay")
	s := &eventStream{
		config: fmt.Sprintf("  to       = %q\n  user     = %q\n  password = %q\n  ca       = %q\n  format   = \"cloudevents\"",
			fmt.Sprintf(k.address, b.tls, "relay"), brokerUser, brokerPassword, certificate.authority),
		account: newEventAccount(),
	}
	s.listen = func() { k.receive(t, b, "relay", s.account.take) }
	if !k.slow || manyEvents() > 0 {
		s.end, s.begin = b.end, func() { b.begin(t); b.wait(t) }
	}
	s.run(t)
}

// TestHookAmidKills runs a relay with a stream to a web hook.
func TestHookAmidKills(t *testing.T) {
	parallel(t)
	h := &eventHook{addr: freeAddress(t), account: newEventAccount()}
	h.begin(t)
	defer h.end(true)
	s := &eventStream{
		config:  fmt.Sprintf("  to       = \"http://%s/\"", h.addr),
		account: h.account, listen: func() {}, end: h.end, begin: func() { h.begin(t) },
	}
	s.run(t)
}

// eventStream is a stream of a relay to a receiver.
type eventStream struct {
	config  string          // of the stream, besides what it has in common with others
	account *eventAccount   // of what the receiver got
	listen  func()          // begins to take what the receiver has
	end     func(kill bool) // stops the receiver or kills it; nil: it has no trouble
	begin   func()          // has it back
	relay   *relay
	ground  *far

	accepted int // messages
}

// manyEvents is how many events MTA_EVENTS asks for, 0 without it.
func manyEvents() int {
	n, _ := strconv.Atoi(os.Getenv("MTA_EVENTS"))
	return n
}

// run has mail flow while the receiver is stopped and killed, and the relay killed. In the end the receiver has each
// record of the relay's log, those of a message in their order, and nothing else; the cursor is exact. With MTA_EVENTS
// the receiver is then away for longer than hold, and gets a Gap.
func (s *eventStream) run(t *testing.T) {
	messages := cmp.Or(manyEvents()/2, 400)
	s.ground = farSites(t, 1, sink.Config{})
	s.relay = newRelay(t, s.ground.DNS, s.ground.Port, s.block("72h"))
	s.relay.process = launchRelay(t, s.relay.logged(t))
	s.relay.listens(t, s.relay.addr)
	began := time.Now()
	for i := range 4 {
		s.flow(t, messages/4, func() {
			switch {
			case i%2 == 0:
				s.killRelay(t)
			case s.end != nil:
				s.end(i == 3)
				s.begin()
			}
		})
	}
	s.relay.drained(t, 2*patience)
	s.listen() // a consumer would lose what is on its way when the broker is killed
	records := s.complete(t)
	again := s.account.times() - records
	t.Logf("%d events of %d messages in %v, amid kills; %d came again", records, messages, time.Since(began), again)
	s.exact(t)
	if manyEvents() > 0 && s.end != nil {
		s.passHold(t)
	}
	s.relay.stop(20 * time.Second)
	sound(t, s.relay.process)
}

func (s *eventStream) block(hold string) string {
	return fmt.Sprintf("stream \"away\" {\n%s\n  linger   = \"50ms\"\n  lanes    = 2\n  timeout  = \"10s\"\n  hold     = %q\n}\n", s.config, hold)
}

// flow submits messages, and calls amid when half of them are accepted.
func (s *eventStream) flow(t *testing.T, messages int, amid func()) {
	t.Helper()
	l := s.ground.load(messages)
	done := make(chan error, 1)
	go func() { done <- l.Run(t.Context(), s.relay.addr) }()
	if err := allCome("accepted messages", messages/2, l.Accepted); err != nil {
		t.Fatal(err)
	}
	amid()
	if err := <-done; err != nil {
		t.Fatalf("submitting: %v", err)
	}
	s.accepted += l.Accepted()
}

func (s *eventStream) killRelay(t *testing.T) {
	s.relay.kill()
	s.relay.process = launchRelay(t, s.relay)
	s.relay.listens(t, s.relay.addr)
}

// complete waits until the receiver has all of the log, which has all messages that were accepted, and gives the number
// of its records.
func (s *eventStream) complete(t *testing.T) (records int) {
	t.Helper()
	logged, err := s.relay.events()
	if err != nil {
		t.Fatal(err)
	}
	if len(logged) < s.accepted {
		t.Fatalf("the log has the events of %d messages, and %d were accepted", len(logged), s.accepted)
	}
	for _, ids := range logged {
		records += len(ids)
	}
	if err := allCome("events", records, s.account.different); err != nil {
		t.Errorf("%v: %v; the stream is %+v", err, s.account.has(logged), s.status(t))
		s.listen()
		t.Fatalf("once another consumer has begun at the beginning: %v", cmp.Or(allCome("events", records, s.account.different), errors.New("all are there")))
	}
	if err := s.account.has(logged); err != nil {
		t.Error(err)
	}
	if n := s.account.different(); n != records {
		t.Errorf("%d events are there, and the log has %d", n, records)
	}
	return records
}

// exact kills the relay when nothing is under way: nothing comes again.
func (s *eventStream) exact(t *testing.T) {
	t.Helper()
	s.settled(t)
	before := s.account.times()
	s.killRelay(t)
	s.flow(t, 1, func() {})
	s.relay.drained(t, patience)
	s.complete(t)
	s.settled(t)
	if n := s.account.times() - before; n != 2 {
		t.Errorf("%d events came for a message after a kill in a quiet moment, want 2", n)
	}
}

// settled waits until the stream has nothing to send, and its cursor is written.
func (s *eventStream) settled(t *testing.T) {
	t.Helper()
	eventually(t, patience, func() error {
		now := s.status(t)
		if now.LagEvents != 0 || now.LagBytes != 0 || now.State != "following" {
			return fmt.Errorf("the stream is %+v", now)
		}
		at, err := s.written(t)
		if err == nil && at != now.At {
			err = fmt.Errorf("the cursor is written as %q: %+v", at, now)
		}
		return err
	})
}

// written is the cursor with which a relay would start now. Bolt writes a transaction's pages and syncs them before the
// page that makes them count, so that the file has the text of a cursor which a kill undoes.
func (s *eventStream) written(t *testing.T) (at string, err error) {
	t.Helper()
	now := filepath.Join(t.TempDir(), "streams.db")
	writeFile(t, now, readFile(t, filepath.Join(s.relay.dir, "data", "streams.db")))
	if err := sidestore.Check(now); err != nil {
		return "", err // it was written to while it was read
	}
	db, err := bolt.Open(now, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		return "", err
	}
	defer db.Close()
	err = db.View(func(tx *bolt.Tx) error {
		var state struct{ At string }
		err := json.Unmarshal(tx.Bucket([]byte("streams-1")).Get([]byte("away")), &state)
		at = state.At
		return err
	})
	return at, err
}

func (s *eventStream) status(t *testing.T) api.Stream {
	t.Helper()
	var list api.StreamList
	if err := json.Unmarshal([]byte(runClient(t, "", binary, "--config", s.relay.config, "streams", "--json")), &list); err != nil || len(list.Streams) != 1 {
		t.Fatalf("mta streams shows %+v (%v)", list, err)
	}
	return list.Streams[0]
}

// passHold has the receiver away for longer than hold: of what waited too long it gets a Gap, and all else.
func (s *eventStream) passHold(t *testing.T) {
	t.Helper()
	config, err := os.ReadFile(s.relay.config)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, s.relay.config, strings.Replace(string(config), s.block("72h"), s.block("1m"), 1))
	s.relay.signal(syscall.SIGHUP)
	eventually(t, patience, func() error {
		log, err := os.ReadFile(s.relay.log)
		if err == nil && !strings.Contains(string(log), "msg=reloaded") {
			err = errors.New("the configuration is not reloaded")
		}
		return err
	})
	s.end(true)
	had := s.account.different()
	s.flow(t, 400, func() {})
	s.relay.drained(t, patience)
	<-time.After(70 * time.Second)
	s.flow(t, 100, func() {})
	s.begin()
	s.listen()
	runClient(t, "", binary, "--config", s.relay.config, "streams", "resume", "away") // now, not with the next attempt
	const all = 2 * (400 + 100)
	eventually(t, 2*patience, func() error {
		now := s.status(t)
		if n := s.account.different() - had; now.Lost < 800 || int64(n) != all-now.Lost+now.Gaps {
			return fmt.Errorf("%d events have come after %+v", n, now)
		}
		return nil
	})
	s.settled(t)
	gaps, now := s.account.of(""), s.status(t)
	gaps = slices.DeleteFunc(gaps, func(id string) bool { return !strings.HasSuffix(id, "-gap-away") })
	if n := int64(s.account.different() - had); now.Lost > all || n != all-now.Lost+now.Gaps || int64(len(gaps)) != now.Gaps {
		t.Errorf("%d events came after hold, and the gaps %q; the stream is %+v", n, gaps, now)
	}
	t.Logf("after hold: %q, %d events lost", gaps, now.Lost)
}

// eventHook is a web hook that can be stopped and killed.
type eventHook struct {
	addr    string
	account *eventAccount
	server  *http.Server
}

func (h *eventHook) begin(t *testing.T) {
	h.server = &http.Server{Handler: h}
	go h.server.Serve(listenAgain(t, h.addr))
}

// end stops the hook, which answers what is under way; a hook that is killed has stored some of that, and answers none.
func (h *eventHook) end(kill bool) {
	if kill {
		h.server.Close()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = h.server.Shutdown(ctx)
	_ = h.server.Close()
}

// ServeHTTP takes a batch.
func (h *eventHook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	in := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		var err error
		if in, err = gzip.NewReader(in); err != nil {
			return
		}
	}
	var batch []struct {
		ID      string
		EventID string `json:"event_id"`
	}
	if json.NewDecoder(in).Decode(&batch) != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	for _, e := range batch {
		h.account.take(e.ID, e.EventID)
	}
}

// logged has the relay's output in a file of its folder, for as many processes as there will be.
func (r *relay) logged(t *testing.T) *relay {
	t.Helper()
	r.process = &process{log: r.dir + "/relay.log"}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last that the relay said:\n%s", tail(r.dir+"/relay.log"))
		}
	})
	return r
}

// events gives the ids of the records in the relay's log, by message ("" for none) and in their order.
func (r *relay) events() (map[string][]string, error) {
	all := make(map[string][]string)
	_, err := accounting.ReadFrom(context.Background(), r.dir+"/data/log", accounting.Position{}, accounting.Position{}, func(_, _ accounting.Position, line []byte) error {
		var record struct {
			ID      string
			EventID string `json:"event_id"`
		}
		if err := json.Unmarshal(line, &record); err != nil {
			return err
		}
		all[record.ID] = append(all[record.ID], record.EventID) // a Rejection has no message
		return nil
	})
	return all, err
}
