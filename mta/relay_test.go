package mta

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/smtp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"example.org/mta/lab/sink"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/config"
	"example.org/mta/mta/listen"
	"example.org/mta/operator/answer/kept"
	"example.org/mta/operator/api"
)

// world is a relay with a DNS server and a provider, all on loopback.
type world struct {
	*Relay
	t        testing.TB
	given    Options // to New, but for its log
	cfg      *config.Config
	recorder *sink.Recorder
	zone     *sink.Zone
	port     string // of the provider; PORT in the configuration
	stop     func() error
	book     logBook // what the relay has logged
}

// logBook keeps a log.
type logBook struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (b *logBook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

const limit = 2 * time.Minute // of a test, when something is wrong, on however slow a machine

func newWorld(t testing.TB, sc sink.Config, extra string) *world {
	t.Helper()
	return newWorldWith(t, Options{}, sc, extra)
}

func newWorldWith(t testing.TB, opts Options, sc sink.Config, extra string, change ...func(*config.Config)) *world {
	t.Helper()
	w := &world{t: t, given: opts, recorder: sink.NewRecorder(recorderLevel(t), 0)}
	sc.Recorder = w.recorder
	provider := sink.New(sc)
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.port = socket.Addr().String()[len("127.0.0.1:"):]
	go provider.Serve(socket)
	t.Cleanup(provider.Close)

	w.zone = sink.MustZone(`
		box.example.    MX 10 mx.box.example.
		mx.box.example. A  127.0.0.1
		null.example.   MX 0 .
		client.example. MX 10 mx.box.example.
	`)
	names := sink.NewDNS(w.zone)
	at, err := names.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { names.Close() })

	w.cfg = w.parse(fmt.Sprintf(`
		hostname = "relay.example"
		data_dir = %q
		listener "smtp" { address = "127.0.0.1:0" }
		http { address = "127.0.0.1:0" }
		resolver { servers = [%q] }
		router { allow_loopback = true }
		queue { min_free = 0 }
		%s
	`, t.TempDir(), at, takingAll(strings.ReplaceAll(extra, "PORT", w.port))))
	for _, f := range change {
		f(w.cfg)
	}
	w.start()
	return w
}

// takingAll adds to a configuration that no mail is refused for load, unless it says what is: the machine that runs the
// tests may be as busy as it likes.
func takingAll(text string) string {
	if strings.Contains(text, "admission {") {
		return text
	}
	return text + "\nadmission { mode = \"off\" }"
}

func (w *world) parse(text string) *config.Config {
	w.t.Helper()
	cfg, err := config.Parse([]byte(text), "test.conf", os.Getenv)
	if err != nil {
		w.t.Fatal(err)
	}
	return cfg
}

func (w *world) start() {
	w.t.Helper()
	level := slog.LevelWarn
	if testing.Verbose() {
		level = slog.LevelDebug
	}
	w.given.Log = slog.New(slog.NewTextHandler(io.MultiWriter(w.t.Output(), &w.book), &slog.HandlerOptions{Level: level}))
	given, ready := w.given, make(chan struct{})
	given.Ready = func(r *Relay) {
		if w.given.Ready != nil {
			w.given.Ready(r)
		}
		close(ready)
	}
	r, err := New(w.cfg, given)
	if err != nil {
		w.t.Fatal(err)
	}
	w.Relay = r
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stopped := false
	w.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-ended
	}
	w.t.Cleanup(func() {
		if err := w.stop(); err != nil {
			w.t.Errorf("stopping the relay: %v", err)
		}
	})
	select {
	case <-ready:
	case err := <-ended:
		ended <- err
	}
}

func (w *world) send(from string, content string, to ...string) {
	w.t.Helper()
	w.sendTo(w.listeners.Addresses(listen.SMTP)[0], from, content, to...)
}

// sendTo hands a message to the listener at an address.
func (w *world) sendTo(listener, from string, content string, to ...string) {
	w.t.Helper()
	c, err := smtp.Dial(listener)
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	if err := c.Mail(from); err != nil {
		w.t.Fatal(err)
	}
	for _, r := range to {
		if err := c.Rcpt(r); err != nil {
			w.t.Fatal(err)
		}
	}
	d, err := c.Data()
	if err != nil {
		w.t.Fatal(err)
	}
	fmt.Fprint(d, content)
	if err := d.Close(); err != nil {
		w.t.Fatal(err)
	}
	if err := c.Quit(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) arrived(n int64) []sink.Message {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := w.recorder.Wait(ctx, n); err != nil {
		w.t.Fatalf("waiting for %d deliveries: %v; have %+v, queue %+v", n, err, w.recorder.Tally(), w.queue.Stats())
	}
	return w.recorder.Messages()
}

// noLeaks fails when goroutines are left. It has more patience than goleak, which looks for less than half a second.
func noLeaks(t *testing.T, before goleak.Option) {
	t.Helper()
	for end := time.Now().Add(limit); ; {
		err := goleak.Find(before)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

const letter = "From: ann@client.example\r\nTo: bob@box.example\r\nSubject: hello\r\n\r\n..two dots\r\nend\r\n"

func TestMessageGoesAllTheWay(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { noLeaks(t, before) }) // after all that is cleaned up later
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	w.send("ann@client.example", letter, "bob@box.example", "eve@box.example")
	ms := w.arrived(2)
	if len(ms) != 1 || len(ms[0].Recipients) != 2 || ms[0].Sender != "ann@client.example" {
		t.Fatalf("arrived %+v, want one message for two", ms)
	}
	if got := string(ms[0].Content); !strings.HasPrefix(got, "Received: ") || !strings.HasSuffix(got, "\r\n\r\n..two dots\r\nend\r\n") {
		t.Errorf("content arrived as\n%s", got)
	}
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	if s := w.queue.Stats(); s.Accepted != 2 || s.Delivered != 2 || s.Queued != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestFailureComesBackAsAReport(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sink.Config{Refusals: []sink.Refusal{sink.UnknownUsers("nobody")}}, `defaults { smtp_port = PORT }`)
	w.send("ann@client.example", letter, "nobody@box.example", "bob@box.example", "x@null.example")
	ms := w.arrived(3)
	reports := 0
	for _, m := range ms {
		if m.Sender != "" {
			continue
		}
		reports++
		text := string(m.Content)
		if m.Recipients[0] != "ann@client.example" || !strings.Contains(text, "multipart/report") {
			t.Errorf("report for %s:\n%s", m.Recipients, text)
		}
		if !strings.Contains(text, "Status: 5.1.1") && !strings.Contains(text, "Status: 5.1.10") {
			t.Errorf("report without the status of its failure:\n%s", text)
		}
	}
	if reports != 2 {
		t.Errorf("%d reports, want one about the unknown user and one about the null MX", reports)
	}
}

func TestGreylistedMailIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sink.Config{Greylist: 100 * time.Millisecond},
		`defaults {
			smtp_port = PORT
			retry_interval = "1s"
		}`)
	w.send("ann@client.example", letter, "bob@box.example")
	if ms := w.arrived(1); len(ms) != 1 {
		t.Fatalf("arrived %+v", ms)
	}
}

func TestQueueOutlivesTheRelay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = 1 }`) // nobody listens there
	w.send("ann@client.example", letter, "bob@box.example")
	w.await("bob@box.example", "TransientFailure")
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	w.start()
	items, err := w.api.Queue.List(context.Background(), api.ListQuery{Page: api.Page{Limit: 10}})
	if err != nil || len(items.Messages) != 1 || items.Messages[0].Recipients[0].Address != "bob@box.example" {
		t.Fatalf("in the queue after a restart: %+v, %v", items, err)
	}
	changed, err := w.api.Queue.Change(context.Background(), api.Change{Action: api.Remove, All: true})
	if err != nil || changed.Recipients != 1 {
		t.Fatalf("removed %+v, %v", changed, err)
	}
	if got := w.eventsOf("bob@box.example"); !slices.Contains(got, "Reception") || got[len(got)-1] != "AdminBounce" {
		t.Errorf("events %v", got)
	}
}

// TestRemovedAmidAnAttemptIsWrittenDown removes a recipient while a host is thinking about it.
func TestRemovedAmidAnAttemptIsWrittenDown(t *testing.T) {
	t.Parallel()
	asked, answer := make(chan struct{}), make(chan struct{})
	w := newWorld(t, sink.Config{Hook: func(c sink.Command) sink.Answer {
		if c.Phase != sink.Rcpt {
			return sink.Answer{}
		}
		close(asked)
		<-answer
		return sink.Answer{Reply: "450 4.2.1 later"}
	}}, `defaults { smtp_port = PORT }`)
	w.send("ann@client.example", letter, "bob@box.example")
	<-asked
	list, err := w.api.Queue.List(context.Background(), api.ListQuery{Filter: api.Filter{State: api.StateActive}})
	if err != nil || len(list.Messages) != 1 || !strings.HasPrefix(list.Messages[0].Recipients[0].Doing, "in transit to mx.box.example") {
		t.Errorf("listed as %+v, %v", list, err)
	}
	changed, err := w.api.Queue.Change(context.Background(), api.Change{Action: api.Remove, All: true})
	if err != nil || changed.Recipients != 1 {
		t.Fatalf("removed %+v, %v", changed, err)
	}
	if got := w.eventsOf("bob@box.example"); slices.Contains(got, "AdminBounce") {
		t.Errorf("it may still be delivered, and is written down as removed: %v", got)
	}
	close(answer)
	w.await("bob@box.example", "AdminBounce")
	if got := w.eventsOf("bob@box.example"); !slices.Equal(got, []string{"Reception", "TransientFailure", "AdminBounce"}) {
		t.Errorf("events %v", got)
	}
}

// eventsOf gives the types of a recipient's accounting records, those of attempts one by one
// once only.
func (w *world) eventsOf(recipient string) []string {
	w.t.Helper()
	var out []string
	err := (kept.Log{Writer: w.accounting, Out: w.log}).Read(context.Background(), api.LogQuery{Recipient: recipient}, func(line []byte) error {
		var rec struct{ Type string }
		if err := json.Unmarshal(line, &rec); err != nil {
			return err
		}
		if !slices.Contains(out, rec.Type) {
			out = append(out, rec.Type)
		}
		return nil
	}, func() {})
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// await returns when a recipient has an accounting record of a type: the first.
func (w *world) await(recipient, kind string) (rec *accounting.Record) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	found := errors.New("found")
	q := api.LogQuery{Recipient: recipient, Types: []string{kind}, Follow: true}
	err := (kept.Log{Writer: w.accounting, Out: w.log}).Read(ctx, q, func(line []byte) (err error) {
		if rec, err = accounting.Parse(line); err != nil {
			return err
		}
		return found
	}, func() {})
	if !errors.Is(err, found) {
		w.t.Fatalf("no %s of %s: %v", kind, recipient, err)
	}
	return rec
}

func TestTwoRelaysInOneProcess(t *testing.T) {
	t.Parallel()
	a := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	b := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	a.send("ann@client.example", letter, "a@box.example")
	b.send("ann@client.example", letter, "b@box.example")
	if got := a.arrived(1)[0].Recipients[0]; got != "a@box.example" {
		t.Errorf("relay a delivered %s", got)
	}
	if got := b.arrived(1)[0].Recipients[0]; got != "b@box.example" {
		t.Errorf("relay b delivered %s", got)
	}
}

// recorderLevel keeps contents in tests; in a benchmark they would fill the memory.
func recorderLevel(t testing.TB) sink.Level {
	if _, ok := t.(*testing.B); ok {
		return sink.Hashes
	}
	return sink.Contents
}

func TestReloadActsOnListeners(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	w.send("ann@client.example", letter, "bob@box.example")
	w.arrived(1)

	w.rewrite("relay_from", `listener "smtp" {
		address = "127.0.0.1:0"
		relay_from = ["192.0.2.0/24"]
	}`)
	if _, err := w.Reload(context.Background()); err != nil {
		t.Fatal(err)
	}
	c, err := smtp.Dial(w.listeners.Addresses(listen.SMTP)[0])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := errors.Join(c.Mail("ann@client.example"), c.Rcpt("bob@box.example")); err == nil {
		t.Error("may still relay after relay_from was taken away")
	}
}

func TestReloadOfOtherThingsDisturbsNoClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	c, err := smtp.Dial(w.listeners.Addresses(listen.SMTP)[0])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Hello("client.example"); err != nil {
		t.Fatal(err)
	}
	w.rewrite("other", `defaults { retry_interval = "3m" }`)
	for range 2 {
		if _, err := w.Reload(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(c.Mail("ann@client.example"), c.Reset()); err != nil {
			t.Errorf("an open session after a reload of something else: %v", err)
		}
	}
}

// TestReloadKeepsWhatIsOpen changes where things are in the file: what runs goes on where it is,
// and says so.
func TestReloadKeepsWhatIsOpen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	w.rewrite("moved", fmt.Sprintf(`
		nodeid = "other.example"
		defaults { smtp_port = %s }
		accounting {
			path = %q
			keep = "3d"
		}
	`, w.port, t.TempDir()))
	done, err := w.Reload(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	has := func(lines []string, what string) bool {
		return slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, what) })
	}
	if !has(done.Restart, "accounting: path = ") || !has(done.Restart, "nodeid = ") || !has(done.Changes, "accounting: keep = ") {
		t.Errorf("the reload says %+v", done)
	}
	if got := w.Status().NodeID; got != w.cfg.NodeID {
		t.Errorf("the status has the node's id %q, records have %q", got, w.cfg.NodeID)
	}
	w.send("ann@client.example", letter, "bob@box.example")
	w.arrived(1)
	w.await("bob@box.example", "Delivery") // by the reader, in the log that is written
}

// TestReloadCanBeCounted: the preview tells what the reload then does, and does none of it.
func TestReloadCanBeCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	before := w.Config()
	w.rewrite("changed", fmt.Sprintf(`
		nodeid = "other.example"
		defaults {
			smtp_port = %s
			connection_limit = 3
		}
	`, w.port))
	client := api.NewLocalClient(w.control.Handler())
	would, err := api.OpReload.Call(t.Context(), client, api.Intent{DryRun: true})
	if err != nil || would.Count != 1 || !would.DryRun || len(would.Restart) == 0 || !strings.Contains(would.Changes[0], "connection_limit") {
		t.Fatalf("%+v, %v", would, err)
	}
	if w.Config() != before {
		t.Error("a dry run has changed the configuration in force")
	}
	ctx := api.WithReason(api.WithActor(t.Context(), api.Actor{Kind: api.ByConsole, User: "anna", Address: "192.0.2.7"}), "they are slow")
	did, err := api.OpReload.Call(ctx, client, api.Intent{Expect: &would.Count})
	if err != nil || !slices.Equal(did.Changes, would.Changes) || !slices.Equal(did.Restart, would.Restart) || w.Config() == before {
		t.Errorf("the reload did %+v, want %+v (%v)", did, would, err)
	}
	w.rewrite("typo", `defaults { conection_limit = 3 }`)
	if _, err := api.OpReload.Call(ctx, client, api.Intent{DryRun: true}); err == nil || !strings.Contains(err.Error(), "connection_limit") {
		t.Errorf("a bad file: %v", err)
	}
	p, err := api.OpActions.Call(t.Context(), client, api.ActionQuery{})
	if err != nil || len(p.Actions) != 1 || p.Actions[0].User != "anna" || p.Actions[0].Action != "config reload" || p.Actions[0].Reason != "they are slow" {
		t.Errorf("the audit log has %+v, %v", p, err)
	}
}

// TestTheNewestRecords: they come in pages, a message's too.
func TestTheNewestRecords(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	w.send("ann@client.example", letter, "bob@box.example")
	w.arrived(1)
	w.await("bob@box.example", "Delivery")
	client := api.NewLocalClient(w.control.Handler())
	p, err := client.NewestRecords(t.Context(), api.LogQuery{}, "", 1)
	if err != nil || len(p.Records) != 1 || p.Complete || !strings.Contains(string(p.Records[0]), `"Delivery"`) {
		t.Fatalf("%+v, %v", p, err)
	}
	p, err = client.NewestRecords(t.Context(), api.LogQuery{Types: []string{"Reception"}, Recipient: "bob@box.example"}, p.Next, 50)
	if err != nil || len(p.Records) != 1 || !p.Complete {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := client.NewestRecords(t.Context(), api.LogQuery{}, "here", 1); err == nil || !strings.Contains(err.Error(), "cursor") {
		t.Errorf("a forged cursor: %v", err)
	}
}

func TestReloadOfABadFileChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	before := w.Config()
	w.rewrite("typo", `defaults { conection_limit = 3 }`)
	if _, err := w.Reload(context.Background()); err == nil || !strings.Contains(err.Error(), "connection_limit") {
		t.Errorf("got %v, want an error that knows what was meant", err)
	}
	if w.Config() != before {
		t.Error("a bad file changed the configuration in force")
	}
	w.send("ann@client.example", letter, "bob@box.example")
	w.arrived(1)
}

func TestReloadIsRefusedWhileStopping(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	w.rewrite("late", "")
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Reload(context.Background()); err == nil {
		t.Error("a reload has started servers that nobody ends")
	}
}

func TestHealthKnowsOfAFullDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	health := func() int {
		rec := httptest.NewRecorder()
		w.readyz(rec, nil)
		return rec.Code
	}
	if got := health(); got != http.StatusOK {
		t.Errorf("all is well, and health is %d", got)
	}
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	w.cfg.Queue.MinFree = 1 << 60
	w.start()
	if got := health(); got != http.StatusServiceUnavailable {
		t.Errorf("all mail is refused, and health is %d", got)
	}
	if s := w.Status(); s.State != "refusing" || !strings.Contains(s.Reason, "disk is full: ") || !strings.Contains(s.Reason, " free in "+w.cfg.DataDir) {
		t.Errorf("all mail is refused, and the status is %s, %q", s.State, s.Reason)
	}
	if strings.Contains(w.book.String(), "mail is refused") {
		t.Error("a question about the health is logged as mail that was refused")
	}
	for range 100 {
		c, err := smtp.Dial(w.listeners.Addresses(listen.SMTP)[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Mail("ann@client.example"); err == nil || !strings.HasPrefix(err.Error(), "452 ") {
			t.Fatalf("MAIL with a full disk: %v", err)
		}
		c.Close()
	}
	if n := strings.Count(w.book.String(), "mail is refused"); n != 1 {
		t.Errorf("%d log lines about a hundred refused messages", n)
	}
}

// rewrite makes a file the one that Reload reads: a minimal configuration with extra in it.
func (w *world) rewrite(name, extra string) {
	w.t.Helper()
	w.opts.ConfigFile = filepath.Join(w.t.TempDir(), name+".conf")
	if !strings.Contains(extra, "listener ") { // as newWorld has it
		extra += "\nlistener \"smtp\" { address = \"127.0.0.1:0\" }"
	}
	text := fmt.Sprintf("hostname = \"relay.example\"\ndata_dir = %q\nrouter { allow_loopback = true }\n%s\n", w.cfg.DataDir, takingAll(extra))
	if err := os.WriteFile(w.opts.ConfigFile, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// TestRemovalsAndDeliveriesAreWrittenDownOnce removes mail while it is taken up and delivered.
func TestRemovalsAndDeliveriesAreWrittenDownOnce(t *testing.T) {
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	var removing sync.WaitGroup
	sent := make(chan struct{})
	removing.Go(func() {
		pace := time.NewTicker(time.Millisecond) // else what it removes waits for the processor
		defer pace.Stop()
		for began := time.Now(); time.Since(began) < limit; <-pace.C {
			if _, err := w.api.Queue.Change(context.Background(), api.Change{Action: api.Remove, All: true}); err != nil {
				t.Error(err)
			}
			select {
			case <-sent:
				if w.queue.Stats().Queued == 0 {
					return
				}
			default:
			}
		}
	})
	for range 300 {
		w.send("ann@client.example", letter, "bob@box.example")
	}
	close(sent)
	removing.Wait()
	s := w.queue.Stats()
	var events map[string]int64
	w.until("all is written down", func() bool { // what was out is told of a moment after it is counted
		events = make(map[string]int64)
		err := (kept.Log{Writer: w.accounting, Out: w.log}).Read(context.Background(), api.LogQuery{Recipient: "bob@box.example"}, func(line []byte) error {
			rec, err := accounting.Parse(line)
			events[string(rec.Type)]++
			return err
		}, func() {})
		if err != nil {
			t.Fatal(err)
		}
		return events["AdminBounce"]+events["Delivery"] >= s.Removed+s.Delivered
	})
	t.Logf("%d removed, %d delivered", s.Removed, s.Delivered)
	if events["AdminBounce"] != s.Removed || events["Delivery"] != s.Delivered {
		t.Errorf("the log has %v, the queue counts %d removed, %d delivered", events, s.Removed, s.Delivered)
	}
}

// records reads the accounting log.
