package sinks

import (
	"compress/gzip"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/mta/events"
)

func batch(events_ ...string) *events.Batch {
	b := &events.Batch{ID: "evt_1", Stream: "app"}
	for i, line := range events_ {
		b.Events = append(b.Events, events.Event{ID: fmt.Sprint(i), Line: []byte(line)})
	}
	return b
}

// sinkTo makes the sink of a hook.
func sinkTo(url string, change func(*HookOptions)) *Hook {
	o := HookOptions{URL: url, Format: events.Records{}, Gzip: true, Timeout: time.Minute, Agent: "mta/test", Transport: NewTransport(nil, nil)}
	if change != nil {
		change(&o)
	}
	return NewHook(o)
}

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// TestARequest: what a hook gets is JSON, compressed if it is large, and signed as it was before that.
func TestARequest(t *testing.T) {
	for _, size := range []int{10, 10_000} {
		line := `{"type":"Delivery","pad":"` + strings.Repeat("x", size) + `"}`
		var header http.Header
		var body []byte
		h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var in io.Reader = r.Body
			if header = r.Header; header.Get("Content-Encoding") == "gzip" {
				in, _ = gzip.NewReader(r.Body)
			}
			body, _ = io.ReadAll(in)
		}))
		key, err := events.ParseSecret(secret)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Unix(1772366400, 0)
		s := sinkTo(h.URL, func(o *HookOptions) {
			o.Signer = events.NewStandardWebhooks(key)
			o.Headers = http.Header{"X-Relay": {"mta1"}, "Content-Type": {"application/mail+json"}}
			o.Now = func() time.Time { return now }
		})
		if err := s.Send(t.Context(), batch(line, line)); err != nil {
			t.Fatal(err)
		}
		var got []map[string]string
		if err := json.Unmarshal(body, &got); err != nil || len(got) != 2 || got[1]["type"] != "Delivery" {
			t.Fatalf("%s: %v", body, err)
		}
		if zip := header.Get("Content-Encoding") == "gzip"; zip != (size > 1000) {
			t.Errorf("%d octets: gzip is %v", size, zip)
		}
		want := make(http.Header)
		if err := events.NewStandardWebhooks(key).Sign(want, "evt_1", now, body); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"} {
			if header.Get(name) == "" || header.Get(name) != want.Get(name) {
				t.Errorf("%s is %q, want %q", name, header.Get(name), want.Get(name))
			}
		}
		if header.Get("X-Relay") != "mta1" || header.Get("Content-Type") != "application/mail+json" || header.Get("User-Agent") != "mta/test" {
			t.Errorf("%v", header)
		}
		h.Close()
	}
}

// TestAnswers: what becomes of a batch is up to the answer.
func TestAnswers(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		status     int
		retryAfter string
		want       string // "": taken
	}{
		{200, "", ""}, {204, "", ""}, {202, "", ""},
		{400, "", "rejected"}, {413, "", "rejected"}, {422, "120", "rejected"},
		{401, "", "again"}, {404, "", "again"}, {410, "", "again"}, {500, "", "again"}, {503, "soon", "again"},
		{429, "120", "2m0s"}, {503, "Sun, 01 Mar 2026 12:01:00 GMT", "1m0s"}, {503, "Sun, 01 Mar 2020 12:01:00 GMT", "0s"}, {500, "0", "0s"},
	} {
		h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if c.retryAfter != "" {
				w.Header().Set("Retry-After", c.retryAfter)
			}
			w.WriteHeader(c.status)
			if c.status != 204 {
				io.WriteString(w, "busy\x1b[31m\r\nnow\xff")
			}
		}))
		err := sinkTo(h.URL, func(o *HookOptions) { o.Now = func() time.Time { return now } }).Send(t.Context(), batch("{}"))
		var rejected *events.Rejected
		var later *events.Later
		got := ""
		switch {
		case errors.As(err, &rejected):
			got = "rejected"
		case errors.As(err, &later):
			got = later.After.String()
		case err != nil:
			got = "again"
		}
		if got != c.want {
			t.Errorf("%d %q: %q (%v), want %q", c.status, c.retryAfter, got, err, c.want)
		}
		if err != nil && (!strings.Contains(err.Error(), "busy [31m now?") || strings.ContainsAny(err.Error(), "\x1b\n")) {
			t.Errorf("%q", err)
		}
		h.Close()
	}
}

// TestARedirectIsNotFollowed: events and signatures would go to whom nobody has named.
func TestARedirectIsNotFollowed(t *testing.T) {
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		h := httptest.NewServer(http.RedirectHandler(other.URL, status))
		err := sinkTo(h.URL, nil).Send(t.Context(), batch("{}"))
		if err == nil || !strings.Contains(err.Error(), "redirects are not followed") {
			t.Errorf("%d: %v", status, err)
		}
		h.Close()
	}
	if elsewhere.Load() != 0 {
		t.Error("a redirect was followed")
	}
}

// TestHooksThatTakeTheirTime: each is given up after the time-out.
func TestHooksThatTakeTheirTime(t *testing.T) {
	stop := make(chan struct{})
	drip := func(w http.ResponseWriter, text string) {
		for ; ; time.Sleep(20 * time.Millisecond) {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := io.WriteString(w, text); err != nil {
				return
			}
			w.(http.Flusher).Flush()
		}
	}
	for name, hook := range map[string]http.HandlerFunc{
		"hangs":              func(http.ResponseWriter, *http.Request) { <-stop },
		"drips a refusal":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500); drip(w, "x") },
		"takes and time out": func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body); <-stop },
	} {
		t.Run(name, func(t *testing.T) {
			h := httptest.NewServer(hook)
			defer h.CloseClientConnections()
			began := time.Now()
			err := sinkTo(h.URL, func(o *HookOptions) { o.Timeout = 200 * time.Millisecond }).Send(t.Context(), batch("{}"))
			if took := time.Since(began); err == nil || took > 30*time.Second {
				t.Errorf("%v after %s", err, took)
			}
		})
	}
	close(stop)
}

// TestAnAnswerOfAGigabyte is not read.
func TestAnAnswerOfAGigabyte(t *testing.T) {
	var sent atomic.Int64
	ended := make(chan struct{}, 2)
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { ended <- struct{}{} }()
		if r.URL.Path == "/500" {
			w.WriteHeader(500)
		}
		chunk := make([]byte, 64<<10)
		for range 1 << 14 {
			n, err := w.Write(chunk)
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	}))
	defer h.Close()
	if err := sinkTo(h.URL, nil).Send(t.Context(), batch("{}")); err != nil {
		t.Errorf("the hook has said 200: %v", err)
	}
	if err := sinkTo(h.URL+"/500", nil).Send(t.Context(), batch("{}")); err == nil || len(err.Error()) > 1000 {
		t.Error(err)
	}
	for range 2 {
		<-ended
	}
	if n := sent.Load(); n > 64<<20 {
		t.Errorf("%d octets of the answers were taken", n)
	}
}

// TestAWrongCertificate: a hook that can't prove who it is gets nothing.
func TestAWrongCertificate(t *testing.T) {
	var got atomic.Int64
	h := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { got.Add(1) }))
	h.Config.ErrorLog = nil
	defer h.Close()
	if err := sinkTo(h.URL, nil).Send(t.Context(), batch("{}")); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Error(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(h.Certificate())
	trusting := func(o *HookOptions) { o.Transport = NewTransport(roots, nil) }
	_, port, _ := net.SplitHostPort(h.Listener.Addr().String())
	if err := sinkTo("https://localhost:"+port, trusting).Send(t.Context(), batch("{}")); err == nil || !strings.Contains(err.Error(), "localhost") {
		t.Errorf("a certificate for another name: %v", err)
	}
	if got.Load() != 0 {
		t.Fatal("a hook with a wrong certificate got a request")
	}
	if err := sinkTo(h.URL, trusting).Send(t.Context(), batch("{}")); err != nil || got.Load() != 1 {
		t.Errorf("a hook that an authority of the configuration vouches for: %v", err)
	}
}

// TestAnErrorDoesNotShowTheURL, which may hold a token.
func TestAnErrorDoesNotShowTheURL(t *testing.T) {
	err := sinkTo("http://127.0.0.1:1/token-hunter2", nil).Send(t.Context(), batch("{}"))
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := sinkTo("http://127.0.0.1:1/", nil).Send(ctx, batch("{}")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
