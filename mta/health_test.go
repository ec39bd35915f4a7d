package mta

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"example.org/mta/mta/config"
	"example.org/mta/operator/api"
)

// ask gets a path of the address for monitoring.
func ask(t *testing.T, r *Relay, path string) (int, string) {
	t.Helper()
	res, err := http.Get(fmt.Sprintf("http://%s%s", r.http.socket.Addr(), path))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, strings.TrimSpace(string(text))
}

// TestHealthFromStartToEnd: a relay that starts is alive and not ready, one that runs is both, and one that drains is
// alive. Only a failed dispatcher ends the life.
func TestHealthFromStartToEnd(t *testing.T) {
	t.Parallel()
	cfg, err := config.Parse([]byte(fmt.Sprintf(`
hostname = "relay.example"
data_dir = %q
listener "smtp" { address = "127.0.0.1:0" }
http { address = "127.0.0.1:0" }
shutdown { drain = "5s" }`, t.TempDir())), "mta.conf", func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	r, err := New(cfg, Options{Ready: func(*Relay) { close(ready) }})
	if err != nil {
		t.Fatal(err)
	}
	expect := func(path string, code int, reason string) {
		t.Helper()
		if got, text := ask(t, r, path); got != code || text != reason {
			t.Errorf("%s: %d %q, want %d %q", path, got, text, code, reason)
		}
	}
	expect("/livez", 200, "ok")
	expect("/readyz", 503, "starting")
	expect("/healthz", 503, "starting")

	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	<-ready
	expect("/livez", 200, "ok")
	expect("/readyz", 200, "ok")
	if code, text := ask(t, r, "/metrics"); code != 200 || !strings.Contains(text, "mta_") {
		t.Errorf("metrics: %d %.100q", code, text)
	}

	for range 2 { // the second one changes nothing
		if _, err := r.Drain(t.Context(), api.Intent{}); err != nil {
			t.Fatal(err)
		}
		expect("/livez", 200, "ok")
	}
	expect("/readyz", 503, "draining")
	for count := 1; count >= 0; count-- {
		if done, err := r.Undrain(t.Context(), api.Intent{}); err != nil || done.Count != count || done.Status.State != api.Running {
			t.Errorf("undrained: %+v, %v", done, err)
		}
	}
	expect("/readyz", 200, "ok")

	r.life.Stop()
	if _, err := r.Undrain(t.Context(), api.Intent{}); err == nil {
		t.Error("a relay that stops takes mail again")
	}
	expect("/livez", 200, "ok")
	expect("/readyz", 503, "shutting down")
	if s := r.Status(); s.State != api.Draining {
		t.Errorf("the state is %s", s.State)
	}
	r.life.Failed.Store(true)
	expect("/livez", 503, "the dispatcher has failed: the relay is stopping")
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	rec := httptest.NewRecorder()
	r.livez(rec, nil)
	if rec.Code != 503 {
		t.Errorf("after the end: %d", rec.Code)
	}
}
