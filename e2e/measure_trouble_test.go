package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/mta/lab/bench"
	"example.org/mta/lab/sink"
)

// difficult is a site that does everything a site can do to a client.
func difficult(i int) sink.Config {
	cut := make(map[sink.Phase]float64)
	for _, p := range []sink.Phase{sink.Connect, sink.Greeting, sink.Hello, sink.Mail, sink.Rcpt, sink.Data, sink.Content, sink.End, sink.Kept, sink.Quit} {
		cut[p] = 0.01
	}
	cfg := sink.Config{
		Seed: uint64(i), Drop: cut, DropByReset: i%2 == 1,
		Latency: 5 * time.Millisecond, Jitter: 5 * time.Millisecond,
		Refusals: []sink.Refusal{
			sink.UnknownUsers("refused"),
			{Phase: sink.Mail, Share: 0.02, Reply: "451 4.3.2 try later"},
			{Phase: sink.Rcpt, Share: 0.02, Reply: "450 4.2.1 mailbox busy"},
			{Phase: sink.Data, Share: 0.02, Reply: "451 4.3.0 no"},
			{Phase: sink.End, Share: 0.02, Reply: "452 4.3.1 full"},
			{Phase: sink.Mail, Share: 0.005, Reply: "421 4.3.2 going down"},
		},
		MaxMessages: 20, MaxConnectionsPerClient: 5,
	}
	// A reply that never comes while the session goes on shifts all later ones, against SMTP, which has
	// one for each command (RFC 5321, 4.2). A 354 in the wrong place shows it, or an enhanced code.
	cfg.Swallow = map[sink.Phase]float64{sink.Kept: 0.002}
	switch i % 3 {
	case 1:
		cfg.Greylist = time.Second
		cfg.Without = sink.Chunking
	case 2:
		cfg.Without = sink.Pipelining | sink.Chunking
	}
	return cfg
}

// TestMeasureTrouble sends to sites that drop, refuse, greylist and limit. In the end each
// recipient has been delivered once, or refused once and its sender told; a further copy is one
// that the relay has logged as possible. Nothing is left in the queue, and the process is as it
// was before.
func TestMeasureTrouble(t *testing.T) {
	t.Parallel() // most of it is waiting
	const difficulties = 6
	var hosts []*bench.Host
	for i := range difficulties {
		hosts = append(hosts, &bench.Host{Sink: difficult(i)})
	}
	home := &bench.Host{Sink: sink.Config{Recorder: sink.NewRecorder(sink.Hashes, 0)}} // the senders' own
	g := sites(t, append(hosts, home)...)
	homeDomain := g.Domains[difficulties].Name
	r := measuredRelay(t, g, bench.RelayOptions{Config: `domain "*" {
  idle_timeout            = "1s"
  host_retry_interval     = "1s"
  max_host_retry_interval = "2s"
  timeouts {
    dot  = "3s"
    data = "3s"
    block = "3s"
    mail = "3s"
    rcpt = "3s"
    ehlo = "3s"
    greeting = "3s"
  }
}
`})
	to := func(n int) []string {
		var all []string
		for i := range 1 + n%3 {
			local := "user"
			if n%10 == 3 && i > 0 {
				local = "refused"
			}
			all = append(all, fmt.Sprintf("%s-%d-%d@%s", local, n, i, g.Domains[(n/3+i*(n%2))%difficulties].Name))
		}
		return all
	}
	sender := "sender@" + homeDomain
	// One message wakes everything that is to stay.
	warm := &bench.Load{Messages: 1, Connections: 1, Size: 500, Sender: sender, To: func(int) []string { return []string{"warm@" + homeDomain} }}
	submit(t, warm, r.Address)
	emptied(t, r, 20*time.Second)
	routines, open := goroutines(t, r), files(t, r.PID)

	l := &bench.Load{Messages: sized(t, 12_000, 150), Connections: 10, Size: 1500, Sender: sender, To: to}
	submit(t, l, r.Address)
	submitted := time.Now()
	limit := time.Minute
	if fullSize() {
		limit = 5 * time.Minute
	}
	emptied(t, r, limit)
	waited := time.Since(submitted)
	var routinesAfter, openAfter int
	eventually(t, 20*time.Second, func() error {
		routinesAfter, openAfter = goroutines(t, r), files(t, r.PID)
		if routinesAfter > routines+5 || openAfter > open+5 {
			return fmt.Errorf("%d goroutines and %d files are open, before it were %d and %d", routinesAfter, openAfter, routines, open)
		}
		return nil
	})

	v := judge(t, r, g, l, "refused")
	t.Logf("what the sites did: %s", troubles(hosts))
	if reports := home.Server.Stats().Messages - 1; v.bounced > 0 && reports == 0 {
		t.Errorf("%d recipients bounced and no report came", v.bounced)
	}
	if !fullSize() || t.Failed() {
		return
	}
	publish(t, "Six sites that drop, refuse, greylist and limit", markdown([][]string{
		{"recipients", "delivered", "refused", "lost", "further copies", "attempts logged as ambiguous", "temporary failures", "queue empty after the last was accepted", "goroutines before, after", "files before, after"},
		{fmt.Sprint(l.Recipients()), fmt.Sprint(v.delivered), fmt.Sprint(v.bounced), "0", fmt.Sprint(v.copies), fmt.Sprint(v.ambiguous), fmt.Sprint(v.transient),
			waited.Round(100 * time.Millisecond).String(), fmt.Sprintf("%d, %d", routines, routinesAfter), fmt.Sprintf("%d, %d", open, openAfter)}}),
		"What the sites did: "+troubles(hosts)+".\n", footnote(t))
}

// emptied waits until the relay's queue is empty.
func emptied(t *testing.T, r *bench.Relay, limit time.Duration) {
	t.Helper()
	eventually(t, limit, func() error {
		left, err := r.Queued(t.Context())
		if err == nil && left > 0 {
			err = fmt.Errorf("%d recipients are still in the queue", left)
		}
		return err
	})
}

// goroutines asks the relay's metrics.
func goroutines(t *testing.T, r *bench.Relay) int {
	t.Helper()
	n, err := r.Metric(t.Context(), "go_goroutines")
	if err != nil {
		t.Fatal(err)
	}
	return int(n)
}

// files counts the open files of the process.
func files(t *testing.T, pid int) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/fd")
	if err != nil {
		cannot(t, "there is no /proc to count open files in")
	}
	return len(entries)
}

// verdict is what became of a load.
type verdict struct {
	delivered, bounced int // recipients
	copies             int // beyond the first
	ambiguous          int // attempts after which the relay didn't know
	transient          int // failures to be tried again
}

// judge joins what the sites have with the relay's logs, and fails the test where they differ, or
// where a second copy came of which the relay says nothing. Recipients that begin with refused are to
// be refused; each recipient of the load has an address of its own.
func judge(t *testing.T, r *bench.Relay, g *bench.Ground, l *bench.Load, refused string) verdict {
	t.Helper()
	var v verdict
	doubts, err := r.Doubts() // message -> attempts
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range doubts {
		v.ambiguous += n
	}
	copies := make(map[string]int)
	for _, d := range g.Taken.Deliveries() {
		copies[d.Recipient]++
	}
	message, ends := make(map[string]string), make(map[string][]string)
	for _, e := range accounts(t, r.Dir) {
		switch e.Type {
		case "Reception":
			message[e.Recipient] = e.ID
		case "TransientFailure":
			v.transient++
		default:
			ends[e.Recipient] = append(ends[e.Recipient], e.Type)
		}
	}
	wrong := 0
	complain := func(format string, args ...any) {
		if wrong++; wrong <= 20 {
			t.Errorf(format, args...)
		}
	}
	for n := range l.Messages {
		for _, rcpt := range l.To(n) {
			want, got := "Delivery", copies[rcpt]
			if strings.HasPrefix(rcpt, refused) {
				want = "Bounce"
			}
			if len(ends[rcpt]) != 1 || ends[rcpt][0] != want {
				complain("%s ends by %v in the accounting log, want one %s", rcpt, ends[rcpt], want)
			}
			if want == "Bounce" {
				v.bounced++
				if got > 0 {
					complain("%s, who was refused, has %d copies", rcpt, got)
				}
				continue
			}
			if got == 0 {
				complain("%s has no copy", rcpt)
				continue
			}
			v.delivered++
			v.copies += got - 1
			if got-1 > doubts[message[rcpt]] {
				complain("%s has %d copies, and message %s was ambiguous %d times", rcpt, got, message[rcpt], doubts[message[rcpt]])
			}
		}
	}
	if wrong > 20 {
		t.Errorf("and %d more", wrong-20)
	}
	return v
}

// account is what the test reads of a line of the accounting log.
type account struct{ Type, ID, Recipient string }

// accounts reads the accounting log of a relay whose folder is dir.
func accounts(t *testing.T, dir string) []account {
	t.Helper()
	// Records are written within 20 ms.
	<-time.After(200 * time.Millisecond)
	var all []account
	for _, line := range logLines(t, dir+"/data/log") {
		var a account
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Errorf("%v in %q", err, line)
		}
		all = append(all, a)
	}
	return all
}

// troubles sums up what the hosts did to their clients.
func troubles(hosts []*bench.Host) string {
	var cut, refused, greyed, crowded, swallowed, connections int64
	for _, h := range hosts {
		st := h.Server.Stats()
		for _, c := range st.Dropped {
			cut += c
		}
		for _, c := range st.Replies {
			refused += c
		}
		greyed, crowded, swallowed, connections = greyed+st.Greylisted, crowded+st.Crowded, swallowed+st.Swallowed, connections+st.Connections
	}
	return fmt.Sprintf("%d connections, %d of them crowded out, %d cut, %d refusals, %d of them greylisting, %d replies swallowed",
		connections, crowded, cut, refused, greyed, swallowed)
}
