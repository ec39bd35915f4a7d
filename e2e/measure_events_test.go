package e2e

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/lab/bench"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/accounting"
)

// TestMeasureBacklog has a web hook dead behind 30 million events, in compressed files of the relay's log: what that costs
// the mail, and how fast the hook catches up when it is back and answers after 50 ms, while new mail flows.
func TestMeasureBacklog(t *testing.T) {
	besideOthers(t, fullSize())
	events, messages := sized(t, 30_000_000, 30_000), sized(t, 100_000, 500)
	g := farSites(t, 1, sink.Config{})
	addr := freeAddress(t)
	stream := fmt.Sprintf("accounting { compress = \"zstd\" }\nstream \"app\" {\n  to   = \"http://%s/\"\n  from = \"oldest\"\n}\n", addr)
	r := newRelay(t, g.DNS, g.Port, stream)
	fillLog(t, r.dir+"/data/log", events)
	with := r.config
	without := r.dir + "/without.conf"
	writeFile(t, without, strings.Replace(readFile(t, with), stream, "accounting { compress = \"zstd\" }\n", 1))
	r.logged(t)
	for range 2 {
		for _, run := range []struct{ name, config string }{{"without the stream", without}, {"with a hook that is dead", with}} {
			r.config = run.config
			r.process = launchRelay(t, r)
			r.listens(t, r.addr)
			idle, err := bench.ProcessorTime(r.cmd.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			g.send(t, r.addr, messages)
			rate := float64(messages) / time.Since(began).Seconds()
			memory, err := bench.Memory(r.cmd.Process.Pid, "VmRSS")
			if err != nil {
				t.Fatal(err)
			}
			used, err := bench.ProcessorTime(r.cmd.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s behind %d events: %.0f messages/s, %.3f s of CPU for 1,000, %d MiB", run.name, events, rate, (used-idle).Seconds()*1000/float64(messages), memory>>20)
			r.stop(20 * time.Second)
		}
	}
	catchUp(t, r, with, g, addr, min(events, 600_000), messages)
	sound(t, r.process)
}

// catchUp has the hook back, and new mail flow, until so many events have come.
func catchUp(t *testing.T, r *relay, config string, g *far, addr string, events, messages int) {
	r.config = config
	h := &slowHook{newest: make(map[string]string)}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h}
	go server.Serve(l)
	defer server.Close()
	r.process = launchRelay(t, r)
	r.listens(t, r.addr)
	load := g.load(messages / 4)
	load.Rate = 1000
	done := make(chan error, 1)
	go func() { done <- load.Run(t.Context(), r.addr) }()
	began, first := time.Now(), h.count()
	eventually(t, 10*patience, func() error {
		if n := h.count() - first; n < events {
			return fmt.Errorf("%d events have come", n)
		}
		return nil
	})
	rate := float64(h.count()-first) / time.Since(began).Seconds()
	memory, err := bench.Memory(r.cmd.Process.Pid, "VmRSS")
	if err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Logf("the hook is back, 50 ms a request: %.0f events/s and %.0f new messages/s accepted, %d MiB", rate, float64(messages/4)/load.Took.Seconds(), memory>>20)
	g.await(t)
	if h.wrong != "" {
		t.Error(h.wrong)
	}
	r.stop(20 * time.Second)
}

// fillLog writes so many records of the last day, two for each message, as a relay does.
func fillLog(t *testing.T, dir string, records int) {
	t.Helper()
	w, err := accounting.Open(accounting.Config{Dir: dir, NodeID: "relay.example", Limits: accounting.Limits{RotateSize: 128 << 20, Compress: true}})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	day := began.Add(-24 * time.Hour)
	for i := range records {
		r := accounting.Record{
			Type: accounting.Reception, Message: accounting.Message{ID: envelope.FirstID(day) + envelope.ID(i/2)}, Recipient: "joe@far0.example", Time: day.Add(time.Duration(i) * 24 * time.Hour / time.Duration(records)),
			Response: reply.Reply{Code: 250},
		}
		if i%2 == 1 {
			r.Type = accounting.Delivery
		}
		if w.Add(&r); i%20_000 == 0 || i == records-1 {
			if err := w.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if i%1_000_000 == 0 { // at most a few files wait to be compressed
			compressed(t, dir, 8)
		}
	}
	compressed(t, dir, 1) // a relay would spend its time on the rest, and end before it is done
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d records written in %v", records, time.Since(began).Round(time.Second))
}

// compressed waits until the log has at most so many files that are not compressed; the newest is one of them.
func compressed(t *testing.T, dir string, most int) {
	t.Helper()
	eventually(t, 5*patience, func() error {
		if plain, _ := filepath.Glob(dir + "/mta-*.jsonl"); len(plain) > most {
			return fmt.Errorf("%d files are not compressed", len(plain))
		}
		return nil
	})
}

// slowHook takes 50 ms for a request, and looks whether the events of each message come in their order, none twice.
type slowHook struct {
	mu     sync.Mutex // guards the rest
	newest map[string]string
	events int
	wrong  string
}

func (h *slowHook) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.events
}

func (h *slowHook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := time.After(50 * time.Millisecond)
	in := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		in, _ = gzip.NewReader(in)
	}
	var batch []struct {
		ID      string
		EventID string `json:"event_id"`
	}
	if err := json.NewDecoder(in).Decode(&batch); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	for _, e := range batch {
		if e.EventID <= h.newest[e.ID] {
			h.wrong = fmt.Sprintf("%s came after %s", e.EventID, h.newest[e.ID])
		}
		h.newest[e.ID] = e.EventID
	}
	h.events += len(batch)
	h.mu.Unlock()
	<-answer
}
