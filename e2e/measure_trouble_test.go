package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"mta/internal/sink"
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
		Swallow: map[sink.Phase]float64{sink.Kept: 0.002},
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
	const sites = 6
	g := newGround(t, sites+1, func(i int) sink.Config {
		if i == sites {
			return sink.Config{Recorder: sink.NewRecorder(sink.Hashes, 0)} // the senders' own
		}
		return difficult(i)
	}, nil)
	home := g.sites[sites]
	r := newRelay(t, g.dns, g.port, `domain "*" {
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
`)
	r.start(t)
	m := &mailer{r.addr, r.process}
	to := func(n int) []string {
		var all []string
		for i := range 1 + n%3 {
			local := "user"
			if n%10 == 3 && i > 0 {
				local = "refused"
			}
			all = append(all, fmt.Sprintf("%s-%d-%d@%s", local, n, i, g.sites[(n/3+i*(n%2))%sites].domain))
		}
		return all
	}
	sender := "sender@" + home.domain
	// One message wakes everything that is to stay.
	warm := &load{messages: 1, connections: 1, size: 500, sender: sender, to: func(int) []string { return []string{"warm@" + home.domain} }}
	warm.submit(t, m.addr)
	r.drained(t, 20*time.Second)
	goroutines, files := r.goroutines(t), m.files(t)

	l := &load{messages: sized(20_000, 150), connections: 10, size: 1500, sender: sender, to: to}
	l.submit(t, m.addr)
	settled := time.Now()
	r.drained(t, time.Duration(sized(240, 60))*time.Second)
	waited := time.Since(settled)
	var afterwards, open int
	eventually(t, 20*time.Second, func() error {
		afterwards, open = r.goroutines(t), m.files(t)
		if afterwards > goroutines+5 || open > files+5 {
			return fmt.Errorf("%d goroutines and %d files are open, before it were %d and %d", afterwards, open, goroutines, files)
		}
		return nil
	})

	v := r.verdict(t, g, l, "refused")
	total := g.troubles(sites)
	t.Logf("%d recipients: %d delivered, %d refused; %d further copies, of %d attempts logged as ambiguous; %d temporary failures; queue empty %v after the last was accepted",
		l.recipients(), v.delivered, v.bounced, v.copies, v.ambiguous, v.transient, waited.Round(100*time.Millisecond))
	t.Logf("goroutines %d, before %d; files %d, before %d; what the sites did: %s", afterwards, goroutines, open, files, total)
	if reports := home.sink.Stats().Messages - 1; v.bounced > 0 && reports == 0 {
		t.Errorf("%d recipients bounced and no report came", v.bounced)
	}
}

// verdict is what became of a load.
type verdict struct {
	delivered, bounced int // recipients
	copies             int // beyond the first
	ambiguous          int // attempts after which the relay didn't know
	transient          int // failures to be tried again
}

var ambiguousLine = regexp.MustCompile(`msg="ambiguous:[^"]*" message=(\S+)`)

// verdict joins what the sites have with the relay's logs, and fails the test where they differ,
// or where a second copy came of which the relay says nothing. Recipients that begin with
// refused are to be refused; each recipient of the load has an address of its own.
func (r *relay) verdict(t *testing.T, g *ground, l *load, refused string) verdict {
	t.Helper()
	var v verdict
	doubts := make(map[string]int) // message -> attempts
	log, err := os.ReadFile(r.log)
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range ambiguousLine.FindAllSubmatch(log, -1) {
		doubts[string(found[1])]++
		v.ambiguous++
	}
	copies := make(map[string]int)
	for _, d := range g.taken.Deliveries() {
		copies[d.Recipient]++
	}
	message, ends := make(map[string]string), make(map[string][]string)
	for _, e := range r.accounts(t) {
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
	for n := range l.messages {
		for _, rcpt := range l.to(n) {
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

func (r *relay) accounts(t *testing.T) []account {
	t.Helper()
	// Records are written within 20 ms.
	<-time.After(200 * time.Millisecond)
	paths, err := filepath.Glob(r.dir + "/data/log/mta-*.jsonl")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no accounting log: %v", err)
	}
	var all []account
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			var a account
			if err := json.Unmarshal([]byte(line), &a); err != nil {
				t.Errorf("%s: %v in %q", p, err, line)
			}
			all = append(all, a)
		}
	}
	return all
}

var monitoringLine = regexp.MustCompile(`msg="answering monitoring" address=(\S+)`)

// goroutines asks the relay's metrics.
func (r *relay) goroutines(t *testing.T) int {
	t.Helper()
	log, err := os.ReadFile(r.log)
	if err != nil {
		t.Fatal(err)
	}
	found := monitoringLine.FindSubmatch(log)
	if found == nil {
		t.Fatal("the relay's log doesn't say where it answers monitoring")
	}
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + string(found[1]) + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	f := families["go_goroutines"]
	if f == nil {
		t.Fatal("there is no metric go_goroutines")
	}
	return int(f.GetMetric()[0].GetGauge().GetValue())
}

// files counts the open files of the process.
func (m *mailer) files(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/" + strconv.Itoa(m.cmd.Process.Pid) + "/fd")
	if err != nil {
		cannot(t, "there is no /proc to count open files in")
	}
	return len(entries)
}

// troubles sums up what the first n sites did to their clients.
func (g *ground) troubles(n int) string {
	var cut, refused, greyed, crowded, swallowed, connections int64
	for _, s := range g.sites[:n] {
		st := s.sink.Stats()
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
