package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/textproto"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/lab/sink"
)

// How hard the relay is tortured. MTA_TORTURE=60 makes it 60 kills.
const (
	tortureKills   = 8
	tortureClients = 20
	// tortureRate is how many messages a second each client submits at most: what is accepted is
	// to be delivered within the test.
	tortureRate = 60
	// tortureLeast is how many accepted messages say something.
	tortureLeast = 100
	// inFlight is how long before a kill a first copy can have been taken of which the relay then knows nothing: the
	// journal's next sync. It is counted in beats of the pulse: 2 s, and more where nobody gets time or the disk.
	inFlight = 40
)

// TestTortureNoAcceptedMessageIsLost kills the relay at random moments under load, some of them
// while it starts, and starts it again on the same data. In the end each recipient of each
// message that got a 250 has been delivered, or its sender has a report, or the queue has it.
// A second copy is allowed only of what was under way at a kill. And the accounting log has it all.
func TestTortureNoAcceptedMessageIsLost(t *testing.T) {
	parallel(t)
	b, kills, torn := newBattlefield(t), 0, false
	b.storm(t, tortureSize(t, tortureKills), func(r *relay, rng *rand.Rand) (settled bool) {
		r.kill()
		if kills++; kills >= 3 && !torn { // a slow machine may have no records before
			torn = tearRecord(t, r.dir+"/data/log")
		}
		return rng.IntN(3) != 0 // else the next kill may come while it starts
	})
	if !torn {
		t.Error("there was no record to tear")
	}
	queued := b.settle(t)
	b.judge(t, queued)
	if !b.relay.stop(20 * time.Second) {
		t.Error("the relay did not end by itself within 20 s")
	}
	b.recorded(t)
}

// tortureSize is how many kills MTA_TORTURE asks for; small without it.
func tortureSize(t *testing.T, small int) int {
	t.Helper()
	s := os.Getenv("MTA_TORTURE")
	if s == "" {
		return small
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("MTA_TORTURE=%s: want the number of kills", s)
	}
	return n
}

// TestRestartsUnderLoadRepeatNothing stops the relay as an operator does. Nothing is lost, and
// nothing is sent twice: what is under way may end.
func TestRestartsUnderLoadRepeatNothing(t *testing.T) {
	parallel(t)
	b := newBattlefield(t)
	b.storm(t, 3, func(r *relay, _ *rand.Rand) (settled bool) {
		if !r.stop(20 * time.Second) {
			t.Error("the relay did not end by itself within 20 s")
		}
		return true
	})
	queued := b.settle(t)
	b.ends = nil // none of them excuses a second copy
	b.judge(t, queued)
}

// storm submits from many connections while the relay is ended by end and started again, that
// many times. It waits for each start when end says so.
func (b *battlefield) storm(t *testing.T, times int, end func(*relay, *rand.Rand) bool) {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("%d times, seed %d", times, seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	r := b.startRelay(t)
	b.begin(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var clients sync.WaitGroup
	for i := range b.clients {
		clients.Go(func() { b.submit(ctx, r.addr, i, rand.New(rand.NewPCG(seed, uint64(i+1)))) })
	}
	for i := range times {
		<-time.After(b.pause + untilKill(rng))
		if i == times-1 {
			b.await(t, tortureLeast) // now, as a relay that is short of space takes none later
		}
		wait := end(r, rng)
		b.ends = append(b.ends, time.Now())
		r.process = launchRelay(t, r)
		if !wait {
			continue
		}
		r.listens(t, r.addr)
		b.begin(t)
	}
	r.listens(t, r.addr)
	<-time.After(time.Second) // some load after the last time, too
	cancel()
	clients.Wait()
}

// await waits until so many messages have been accepted, however slow the machine is.
func (b *battlefield) await(t *testing.T, messages int) {
	t.Helper()
	if err := allCome("accepted messages", messages, func() int {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.accepted)
	}); err != nil {
		t.Fatal(err)
	}
}

// begin calls b.started while nobody submits.
func (b *battlefield) begin(t *testing.T) {
	t.Helper()
	if b.started != nil {
		b.calm.Lock()
		defer b.calm.Unlock()
		b.started(t)
	}
}

// startRelay starts the relay for the first time.
func (b *battlefield) startRelay(t *testing.T) *relay {
	t.Helper()
	b.relay = newRelay(t, b.dns, b.port, "queue {\n  segment_size = \"1MiB\"\n"+b.queue+"}\n"+b.config)
	b.relay.start(t)
	return b.relay
}

// untilKill is mostly a second or so, and now and then so short that the relay is starting.
func untilKill(rng *rand.Rand) time.Duration {
	if rng.IntN(4) == 0 {
		return time.Duration(rng.IntN(200)) * time.Millisecond
	}
	return 300*time.Millisecond + time.Duration(rng.IntN(1700))*time.Millisecond
}

func launchRelay(t *testing.T, r *relay) *process {
	t.Helper()
	p, err := launch("relay", r.log, r.command()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !p.ended() {
			p.kill()
		}
	})
	return p
}

// battlefield is the far side, and the account of what was accepted.
type battlefield struct {
	dns, port string
	zone      *sink.Zone
	relay     *relay
	config    string                  // further lines of the relay's configuration
	queue     string                  // and of its block queue
	clients   int                     // how many submit at a time
	domains   []string                // where their mail goes
	pause     time.Duration           // at least so long between kills
	head      func(*rand.Rand) string // further header fields of a message
	senders   []string                // of its messages
	notify    string                  // parameter of RCPT
	started   func(*testing.T)        // called after each start that is waited for, while nobody submits
	calm      sync.RWMutex            // held while one submits
	ends      []time.Time             // when it was ended in a way that excuses second copies
	pulse     *pulse
	taken     *sink.Recorder // what the destinations took
	reports   *sink.Recorder // what the senders got back

	mu       sync.Mutex                 // guards the rest
	accepted map[string]map[string]bool // id -> recipients
	begun    map[string]time.Time       // when the submission of an accepted message began
	unsure   int                        // messages whose 250 nobody saw
	refused  int                        // messages told to come later
}

// newBattlefield opens the hosts. records are further ones for the name server.
func newBattlefield(t *testing.T, records ...string) *battlefield {
	t.Helper()
	b := &battlefield{taken: sink.NewRecorder(sink.Deliveries, 0), reports: sink.NewRecorder(sink.Contents, 0),
		clients: tortureClients, domains: []string{"quick.example", "slow.example", "picky.example"},
		head: func(*rand.Rand) string { return "" }, senders: []string{"boss@home.example"},
		accepted: make(map[string]map[string]bool), begun: make(map[string]time.Time), pulse: newPulse(t, 50*time.Millisecond)}
	sinks := []struct {
		domain, addr string
		cfg          sink.Config
	}{
		{"quick.example", "127.30.0.1", sink.Config{Recorder: b.taken, Without: sink.DSN}},
		{"slow.example", "127.30.0.2", sink.Config{Recorder: b.taken, Without: sink.DSN, Latency: 50 * time.Millisecond, Refusals: []sink.Refusal{sink.TemporaryFailures(0.05)}}},
		{"picky.example", "127.30.0.3", sink.Config{Recorder: b.taken, Without: sink.DSN, Latency: 5 * time.Millisecond, Refusals: []sink.Refusal{sink.UnknownShare(0.3)}}},
		{"home.example", "127.30.0.4", sink.Config{Recorder: b.reports}},
		{"steady.example", "127.30.0.5", sink.Config{Recorder: b.taken, Without: sink.DSN, Latency: 50 * time.Millisecond}},
	}
	var addrs []string
	var zone strings.Builder
	for _, s := range sinks {
		addrs = append(addrs, s.addr)
		fmt.Fprintf(&zone, "%[1]s. 60 IN MX 10 mx.%[1]s.\nmx.%[1]s. 60 IN A %[2]s\n", s.domain, s.addr)
	}
	b.port = commonPort(t, addrs...)
	for _, s := range sinks {
		mailHost(t, net.JoinHostPort(s.addr, b.port), s.cfg)
	}
	b.zone = sink.MustZone(zone.String() + strings.Join(records, ""))
	b.dns = serveNames(t, b.zone)
	return b
}

// submit sends messages one after the other until ctx ends, whatever happens to the relay.
func (b *battlefield) submit(ctx context.Context, addr string, client int, rng *rand.Rand) {
	pace := time.NewTicker(time.Second / tortureRate)
	defer pace.Stop()
	var s *session
	for n := 0; ; n++ {
		select {
		case <-pace.C:
		case <-ctx.Done():
			if s != nil {
				s.close()
			}
			return
		}
		id := fmt.Sprintf("t-%d-%d", client, n)
		b.calm.RLock()
		s = b.submitOne(s, addr, id, rng)
		b.calm.RUnlock()
	}
}

// submitOne submits a message over a session, or over a new one if there is none; it returns the session unless that has
// broken.
func (b *battlefield) submitOne(s *session, addr, id string, rng *rand.Rand) *session {
	if s == nil {
		var err error
		if s, err = dialSession(addr); err != nil {
			return nil
		}
	}
	to := b.recipients(rng, id)
	began := time.Now()
	s.params = b.notify
	begun, err := s.send(b.senders[rng.IntN(len(b.senders))], to, b.head(rng)+tortureContent(rng, id))
	b.note(id, to, began, begun, err)
	if err != nil {
		s.close()
		return nil
	}
	return s
}

func (b *battlefield) note(id string, to []string, began time.Time, begun bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var refusal *textproto.Error
	switch {
	case err == nil:
		b.begun[id] = began
		b.accepted[id] = make(map[string]bool, len(to))
		for _, rcpt := range to {
			b.accepted[id][rcpt] = true
		}
	case errors.As(err, &refusal):
		b.refused++
	case begun:
		b.unsure++
	}
}

func (b *battlefield) recipients(rng *rand.Rand, id string) []string {
	var to []string
	for i := range 1 + rng.IntN(3) {
		to = append(to, fmt.Sprintf("%s.%d@%s", id, i, b.domains[rng.IntN(len(b.domains))]))
	}
	return to
}

// tortureContent is small mostly, and now and then large enough to go to a file of its own.
func tortureContent(rng *rand.Rand, id string) string {
	lines := 5 + rng.IntN(50)
	if rng.IntN(200) == 0 {
		lines = 6000
	}
	return "From: boss@home.example\r\nMessage-ID: <" + id + "@home.example>\r\nX-Mta-Test-Id: " + id + "\r\n\r\n" +
		strings.Repeat("Whatever happens, this line is to arrive, and once if that can be.\r\n", lines)
}

// settle waits until the queue is empty, and gives what is in it if it won't be.
func (b *battlefield) settle(t *testing.T) map[string]bool {
	t.Helper()
	left := make(map[string]bool)
	deadline := time.Now().Add(patience)
	for look := time.Tick(250 * time.Millisecond); ; <-look {
		list, err := b.relay.queued()
		if err != nil {
			t.Fatalf("listing the queue: %v", err)
		}
		clear(left)
		for _, rcpt := range list {
			left[rcpt] = true
		}
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
	}
}

// judge says where everything is, and fails the test for what is nowhere, or was taken twice
// without need.
func (b *battlefield) judge(t *testing.T, queued map[string]bool) {
	t.Helper()
	bounced := b.bounced()
	var delivered, reported, waiting, lost int
	for id, to := range b.accepted {
		for rcpt := range to {
			switch {
			case b.taken.Has(id, rcpt):
				delivered++
			case bounced[rcpt] > 0:
				reported++
			case queued[rcpt]:
				waiting++
			default:
				if lost++; lost <= 10 {
					t.Errorf("lost: %s for %s was accepted and is nowhere", id, rcpt)
				}
			}
		}
	}
	twice, age, unexcused := b.duplicates(b.ends)
	reportedTwice := 0
	for _, n := range bounced {
		reportedTwice += n - 1
	}
	for i, d := range unexcused {
		if i < 10 {
			t.Errorf("a second copy without a kill near the first: %s for %s at %s", d.ID, d.Recipient, d.At.Format("15:04:05.000"))
		}
	}
	t.Logf("%d messages accepted, %d with an unseen reply, %d told to come later", len(b.accepted), b.unsure, b.refused)
	t.Logf("recipients: %d delivered, %d bounced, %d still queued, %d lost", delivered, reported, waiting, lost)
	t.Logf("second copies: %d, all of mail under way at a kill but %d; the first copies were taken at most %v before it; second reports: %d",
		twice, len(unexcused), age.Round(time.Millisecond), reportedTwice)
	if lost > 0 {
		t.Errorf("%d recipients of accepted messages are lost", lost)
	}
	if t.Failed() {
		t.Logf("the relay's log says at the end:\n%s", tail(b.relay.log))
	}
	if len(b.accepted) < tortureLeast {
		t.Errorf("only %d messages were accepted: that tests nothing", len(b.accepted))
	}
	if picky := slices.Contains(b.domains, "picky.example"); delivered == 0 || picky != (reported > 0) {
		t.Errorf("%d delivered and %d bounced: the test wants some delivered, and reports only about picky.example", delivered, reported)
	}
}

// bounced counts the reports of failure by recipient.
func (b *battlefield) bounced() map[string]int {
	count := make(map[string]int)
	for _, m := range b.reports.Messages() {
		for line := range bytes.Lines(m.Content) {
			if rest, ok := bytes.CutPrefix(line, []byte("Final-Recipient: rfc822;")); ok {
				count[string(bytes.TrimSpace(rest))]++
			}
		}
	}
	return count
}

// duplicates counts copies beyond the first, and lists those that no kill excuses: one shortly
// after the copy before, and before this one. What the relay had written is taken after its kill
// where the destination is slow: the kill came while the connection was open. age is the longest
// time from a first copy to its kill.
func (b *battlefield) duplicates(killed []time.Time) (twice int, age time.Duration, unexcused []sink.Delivery) {
	last := make(map[string]sink.Delivery)
	for _, d := range b.taken.Deliveries() {
		key := d.ID + " " + d.Recipient
		before, again := last[key]
		last[key] = d
		if !again {
			continue
		}
		twice++
		i := slices.IndexFunc(killed, func(k time.Time) bool { return before.Opened.Before(k) && d.Opened.After(k) })
		if i < 0 || b.pulse.between(before.At, killed[i]) > inFlight {
			unexcused = append(unexcused, d)
			continue
		}
		age = max(age, killed[i].Sub(before.At))
	}
	return twice, age, unexcused
}

// session is an SMTP client that knows when a message was accepted, and when nobody can know.
type session struct {
	conn   net.Conn
	r      *textproto.Reader
	w      *bufio.Writer
	params string // of RCPT, with a space before each
}

func dialSession(addr string) (*session, error) { return dialSessionFrom(nil, addr) }

// dialSessionFrom opens a session from an address of this machine; nil: any.
func dialSessionFrom(from net.IP, addr string) (*session, error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	if from != nil {
		d.LocalAddr = &net.TCPAddr{IP: from}
	}
	conn, err := d.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &session{conn: conn, r: textproto.NewReader(bufio.NewReader(conn)), w: bufio.NewWriter(conn)}
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, _, err = s.r.ReadResponse(220); err == nil {
		err = s.command("EHLO client.example\r\n", 250)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return s, nil
}

func (s *session) command(text string, code int) error {
	if _, err := s.w.WriteString(text); err != nil {
		return err
	}
	if err := s.w.Flush(); err != nil {
		return err
	}
	_, _, err := s.r.ReadResponse(code)
	return err
}

// send submits a message; begun says whether its end may have reached the relay.
func (s *session) send(from string, to []string, content string) (begun bool, err error) {
	_ = s.conn.SetDeadline(time.Now().Add(patience))
	if err := s.command("MAIL FROM:<"+from+">\r\n", 250); err != nil {
		return false, err
	}
	for _, rcpt := range to {
		if err := s.command("RCPT TO:<"+rcpt+">"+s.params+"\r\n", 250); err != nil {
			return false, err
		}
	}
	if err := s.command("DATA\r\n", 354); err != nil {
		return false, err
	}
	return true, s.command(content+".\r\n", 250)
}

func (s *session) close() { s.conn.Close() }
