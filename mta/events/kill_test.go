package events_test

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/sidestore"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/events"
	"example.org/mta/mta/events/sinks"
)

// The process that is killed writes a log and sends it, to a hook for each stream.
const (
	childDir  = "MTA_TEST_EVENTS_DIR"
	childHook = "MTA_TEST_EVENTS_HOOK"
	childMore = "MTA_TEST_EVENTS_MORE" // how many records it writes
	// knob has how many events flow, 1000000 for a long run.
	knob = "MTA_TEST_EVENTS"
)

// TestMain is the process that is killed, where TestKills has started it.
func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		fmt.Fprintln(os.Stderr, sendFrom(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// sendFrom writes records into a folder and sends them. It returns with an error only.
func sendFrom(dir string) error {
	log := filepath.Join(dir, "log")
	w, err := accounting.Open(accounting.Config{Dir: log, NodeID: "node1", Limits: accounting.Limits{RotateSize: 2 << 20}})
	if err != nil {
		return err
	}
	s, err := events.Open(events.Config{Log: w, Path: filepath.Join(dir, "streams.db"), NodeID: "node1"})
	if err != nil {
		return err
	}
	stream := func(name string, lanes int) events.Settings {
		return events.Settings{
			Name: name, Batch: 200, Lanes: lanes, Linger: 5 * time.Millisecond, Hold: time.Hour, Format: "records", Oldest: true,
			Open: func() (events.Sink, error) {
				return sinks.NewHook(sinks.HookOptions{URL: os.Getenv(childHook) + name, Format: events.Records{}, Gzip: true, Timeout: time.Minute, Transport: sinks.NewTransport(nil, nil)}), nil
			},
		}
	}
	if err := s.Set([]events.Settings{stream("one", 1), stream("lanes", 4)}); err != nil {
		return err
	}
	s.Start()
	more, _ := strconv.Atoi(os.Getenv(childMore))
	for i := range more {
		w.Add(&accounting.Record{Type: accounting.Delivery, Message: accounting.Message{ID: envelope.ID(1 + i%300)}, Recipient: "r@example.net", Time: time.Now()})
		if i%500 == 499 || i == more-1 {
			if err := w.Flush(context.Background()); err != nil {
				return err
			}
		}
	}
	fmt.Println("written")
	select {} // until it is killed
}

// counter is a hook that counts what comes.
type counter struct {
	mu    sync.Mutex
	seen  map[string]int    // by event_id, how often
	last  map[string]string // by message, its newest event
	wrong string            // an event that came after a newer one of its message
	down  bool
}

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		in, _ = gzip.NewReader(r.Body)
	}
	var batch []struct {
		ID      string `json:"id"`
		EventID string `json:"event_id"`
	}
	err := json.NewDecoder(in).Decode(&batch)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down || err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	for _, e := range batch {
		if c.seen[e.EventID]++; c.seen[e.EventID] > 1 {
			continue
		}
		if e.EventID <= c.last[e.ID] {
			c.wrong = cmp.Or(c.wrong, fmt.Sprintf("%s came after %s", e.EventID, c.last[e.ID]))
		}
		c.last[e.ID] = e.EventID
	}
}

func (c *counter) set(down bool) {
	c.mu.Lock()
	c.down = down
	c.mu.Unlock()
}

// count gives how many events have come, and how many times in all.
func (c *counter) count() (events, times int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.seen {
		times += n
	}
	return len(c.seen), times
}

// TestKills: the relay's part that sends events is killed again and again, and so are the hooks. No event is
// missing, those of a message are in order, and after a kill in a quiet moment nothing comes twice.
func TestKills(t *testing.T) {
	total, _ := strconv.Atoi(cmp.Or(os.Getenv(knob), "30000"))
	const kills = 6
	dir := t.TempDir()
	one, lanes := &counter{seen: map[string]int{}, last: map[string]string{}}, &counter{seen: map[string]int{}, last: map[string]string{}}
	mux := http.NewServeMux()
	mux.Handle("/one", one)
	mux.Handle("/lanes", lanes)
	hook := httptest.NewServer(mux)
	defer hook.Close()
	start := func(more int) (*exec.Cmd, *bufio.Scanner) {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), childDir+"="+dir, childHook+"="+hook.URL+"/", childMore+"="+strconv.Itoa(more), "GORACE=atexit_sleep_ms=0")
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		child.Stderr = os.Stderr
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		return child, bufio.NewScanner(out)
	}
	written := func(out *bufio.Scanner) {
		for out.Scan() && out.Text() != "written" {
		}
	}
	kill := func(child *exec.Cmd) {
		_ = child.Process.Kill()
		_ = child.Wait()
	}
	for i := range kills {
		child, out := start(total / kills)
		time.Sleep(time.Duration(50+60*i) * time.Millisecond)
		one.set(i%2 == 0)
		lanes.set(i%3 == 0)
		hook.CloseClientConnections()
		if i%2 == 1 { // the others are killed while they write
			written(out)
		}
		kill(child)
	}
	one.set(false)
	lanes.set(false)
	child, out := start(1)
	written(out)
	var end events.Position // of the log
	ids := func() (all []string) {
		if _, err := accounting.ReadFrom(t.Context(), filepath.Join(dir, "log"), events.Position{}, events.Position{}, func(at, next events.Position, line []byte) error {
			end = next
			if id := accounting.EventID("node1", at); json.Valid(line) { // a kill can cut a line where it looks whole
				all = append(all, id)
			} else {
				t.Logf("%s is torn: %q", id, line)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return all
	}
	settled := func() bool {
		want := len(ids())
		a, _ := one.count()
		b, _ := lanes.count()
		return a >= want && b >= want
	}
	scratch := filepath.Join(t.TempDir(), "streams.db")
	saved := func() bool { // as a process would find it that starts now: the file has pages whose transaction has not ended
		text, err := os.ReadFile(filepath.Join(dir, "streams.db"))
		if err == nil {
			err = os.WriteFile(scratch, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if sidestore.Check(scratch) != nil { // it was written while it was read
			return false
		}
		f, err := sidestore.Open(sidestore.Config{Path: scratch, Name: "the copy"})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		names, atEnd := []string{"one", "lanes"}, 0
		_ = f.Get("streams-1", len(names), func(i int) []byte { return []byte(names[i]) }, func(_ int, value []byte) error {
			if bytes.HasPrefix(value, []byte(`{"at":"`+end.String()+`"`)) {
				atEnd++
			}
			return nil
		})
		return atEnd == len(names)
	}
	for deadline := time.Now().Add(3*time.Minute + time.Duration(total)*100*time.Microsecond); !settled() || !saved(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("events are missing: %v; the cursors are at the end: %v", !settled(), saved())
		}
	}
	kill(child)
	_, before := one.count()
	child, out = start(1)
	written(out)
	defer func() { kill(child) }()
	for deadline := time.Now().Add(time.Minute); !settled() && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
	all := ids()
	for name, c := range map[string]*counter{"one": one, "lanes": lanes} {
		n, times := c.count()
		t.Logf("stream %s: %d events of %d records, %d came again", name, n, len(all), times-n)
		c.mu.Lock()
		for _, id := range all {
			if c.seen[id] == 0 {
				t.Fatalf("stream %s lacks %s", name, id)
			}
		}
		if c.wrong != "" {
			t.Errorf("stream %s: %s", name, c.wrong)
		}
		c.mu.Unlock()
	}
	if _, after := one.count(); after > before+5 {
		t.Errorf("%d events came again after a kill in a quiet moment", after-before-1)
	}
}
