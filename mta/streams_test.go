package mta

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/delivery/tlspolicy"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/alarm"
)

// hook is a web hook that keeps events.
type hook struct {
	*httptest.Server
	mu     sync.Mutex
	events []map[string]any
	status int // 0: 204
}

func newHook(t *testing.T) *hook {
	h := &hook{}
	h.Server = httptest.NewServer(h)
	t.Cleanup(h.Close)
	return h
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		in, _ = gzip.NewReader(in)
	}
	var batch []map[string]any
	err := json.NewDecoder(in).Decode(&batch)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err != nil:
		w.WriteHeader(http.StatusBadRequest)
	case h.status != 0:
		w.WriteHeader(h.status)
	default:
		h.events = append(h.events, batch...)
		w.WriteHeader(http.StatusNoContent)
	}
}

// types counts the events by type.
func (h *hook) types() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := make(map[string]int)
	for _, e := range h.events {
		n[fmt.Sprint(e["type"])]++
	}
	return n
}

func (h *hook) answer(status int) {
	h.mu.Lock()
	h.status = status
	h.mu.Unlock()
}

// until waits for so many events of a type.
func (h *hook) until(t *testing.T, kind string, n int) {
	t.Helper()
	for deadline := time.Now().Add(limit); h.types()[kind] < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the hook has %v, want %d of %s", h.types(), n, kind)
		}
	}
}

// streamTo is a configuration with a stream.
func streamTo(url string) string {
	return fmt.Sprintf("defaults { smtp_port = PORT }\nstream \"app\" {\n  to     = %q\n  linger = \"10ms\"\n}\n", url)
}

// TestAStreamOfTheRelay: mail comes in, its events go out; the hook dies and comes back.
func TestAStreamOfTheRelay(t *testing.T) {
	h := newHook(t)
	w := newWorld(t, sink.Config{}, streamTo(h.URL))
	w.send("ann@client.example", "From: ann@client.example\r\n\r\nx\r\n", "joe@box.example")
	h.until(t, "Reception", 1)
	h.until(t, "Delivery", 1)
	h.answer(503)
	w.send("ann@client.example", "From: ann@client.example\r\n\r\nx\r\n", "joe@box.example")
	w.arrived(2)
	h.answer(0)
	h.until(t, "Delivery", 2)
	if n := h.types(); n["Reception"] != 2 || n["Delivery"] != 2 {
		t.Errorf("the hook has %v", n)
	}
}

// TestServersAreFoundByOurResolver: a web hook, and a collector of TLS reports, are where the relay's name servers say.
func TestServersAreFoundByOurResolver(t *testing.T) {
	h := newHook(t)
	reports := make(chan string, 1)
	collector := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		reports <- r.Host + " " + r.Header.Get("Content-Type")
	}))
	t.Cleanup(collector.Close)
	port := func(s *httptest.Server) string { return s.URL[strings.LastIndex(s.URL, ":"):] }
	w := newWorld(t, sink.Config{}, strings.Replace(streamTo("http://hook.app.example"+port(h.Server)), "linger", "allow_clear = true\n  linger", 1)+`tls_reports { from = "tls-reports@client.example" }`)
	if err := w.zone.Add(fmt.Sprintf(`
		hook.app.example. A 127.0.0.1
		reports.box.example. A 127.0.0.1
		_smtp._tls.box.example. TXT "v=TLSRPTv1; rua=https://reports.box.example%s/tls"`, port(collector))); err != nil {
		t.Fatal(err)
	}
	w.send("ann@client.example", "From: ann@client.example\r\n\r\nx\r\n", "joe@box.example")
	h.until(t, "Delivery", 1)
	w.tls.Reports.Record(tlspolicy.Result{Time: time.Now().Add(-48 * time.Hour), Domain: "box.example", Policy: tlspolicy.NoPolicy, Class: tlspolicy.Expired})
	w.tls.Reports.SendDue(t.Context())
	select {
	case got := <-reports:
		if got != "reports.box.example"+port(collector)+" application/tlsrpt+gzip" {
			t.Errorf("the collector got %s", got)
		}
	default:
		t.Error("the collector got no report")
	}
}

// TestAStartKeepsFilesForStreams: a relay that starts deletes old files only when it knows what its streams need.
func TestAStartKeepsFilesForStreams(t *testing.T) {
	h := newHook(t)
	h.answer(503)
	const more = `
		accounting {
			rotate_size = "64KiB"
			keep_size   = "128KiB"
		}
		defaults { smtp_port = PORT }
		stream "app" {
			to     = "HOOK"
			linger = "10ms"
		}
	`
	w := newWorld(t, sink.Config{}, strings.ReplaceAll(more, "HOOK", h.URL))
	const messages = 300
	for range messages {
		w.send("ann@client.example", "From: ann@client.example\r\n\r\nx\r\n", "joe@box.example")
	}
	w.arrived(messages)
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	h.answer(0)
	w.start()
	h.until(t, "Reception", messages)
	if n := h.types(); n["Gap"] != 0 {
		t.Errorf("the hook has %v", n)
	}
}

// TestFilesOfAStreamAreDeleted: the alarm claims no number of events when nobody counted them.
func TestFilesOfAStreamAreDeleted(t *testing.T) {
	h := newHook(t)
	w := newWorld(t, sink.Config{}, streamTo(h.URL))
	w.send("ann@client.example", "From: ann@client.example\r\n\r\nx\r\n", "joe@box.example")
	h.until(t, "Delivery", 1)
	if err := w.streams.Pause("app"); err != nil {
		t.Fatal(err)
	}
	w.send("ann@client.example", "From: ann@client.example\r\n\r\nx\r\n", "joe@box.example")
	w.arrived(2)
	files, err := filepath.Glob(filepath.Join(w.cfg.Accounting.Path, "mta-*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.streams.Resume("app"); err != nil {
		t.Fatal(err)
	}
	h.until(t, "Gap", 1)
	if _, _, gap := alarm.OfStreams(w.streams, w.now()); !strings.Contains(gap, `"app" has lost an unknown number of events`) {
		t.Errorf("the reason is %q", gap)
	}
}
