package http

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/submission/intake"
)

// shedding refuses what has not waited for long enough, and counts what it has given.
type shedding struct {
	now     func() time.Time
	wait    time.Duration
	disk    bool
	full    bool
	asked   []intake.AdmitRequest
	dropped int
}

func (s *shedding) Admit(r intake.AdmitRequest) (intake.Admitted, *intake.Refused) {
	s.asked = append(s.asked, r)
	if s.disk || s.now().Sub(r.First) < s.wait {
		return nil, &intake.Refused{Disk: s.disk}
	}
	return s, nil
}

func (s *shedding) Full() *intake.Refused {
	if s.full {
		return &intake.Refused{}
	}
	return nil
}

func (s *shedding) Commit(_ context.Context, _ uint8, commit func() error) (*intake.Refused, error) {
	return nil, commit()
}

func (s *shedding) Drop() { s.dropped++ }

// F1: a token counts for its tenant, its message and its time alone; anything else makes a new client of
// its bearer, and never an error.
func TestF1_QueueTokens(t *testing.T) {
	c := &clock{time.Unix(1e9, 0)}
	gate := &shedding{now: c.now, wait: time.Minute}
	serverOf := func(secret string) *Server {
		return testServer(t, func(cfg *Config) {
			cfg.Now, cfg.Admission, cfg.Tokens = c.now, gate, NewTokens([]byte(secret))
			cfg.TierOf = func(tenant string) uint8 { return map[string]uint8{"acme": 2}[tenant] }
		})
	}
	s, heir := serverOf("secret"), serverOf("other")
	if err := heir.config.Tokens.Accept([][]byte{[]byte("third"), []byte("secret")}); err != nil {
		t.Fatal(err)
	}
	send := func(s *Server, key, token, idempotency, body string) (int, string) {
		w := ask(s, "POST", "/v1/messages", key, strings.NewReader(body), "X-Queue-Token", token, "Idempotency-Key", idempotency)
		return w.Code, w.Header().Get("X-Queue-Token")
	}
	code, token := send(s, "good", "", "order-1", "{}")
	if code != http.StatusTooManyRequests || token == "" {
		t.Fatalf("a new client: %d %q", code, token)
	}
	if r := gate.asked[0]; r.Tenant != "acme" || r.Tier != 2 || r.Size != 2 || !r.First.Equal(c.at) {
		t.Errorf("asked for %+v", r)
	}
	_, plain := send(s, "good", "", "", "{}")
	c.at = c.at.Add(30 * time.Second)
	_, again := send(s, "good", token, "order-1", "{}")
	c.at = c.at.Add(30 * time.Second)
	changed := []byte(token)
	changed[len(changed)/2] ^= 1
	for name, tc := range map[string]struct {
		s                             *Server
		key, token, idempotency, body string
		want                          int
	}{
		"its token":               {s, "good", token, "order-1", "{}", 202},
		"that of a second try":    {s, "good", again, "order-1", "{}", 202},
		"after a restart":         {serverOf("secret"), "good", token, "order-1", "{}", 202},
		"without Idempotency-Key": {s, "good", plain, "", "[]", 202},
		"none":                    {s, "good", "", "order-1", "{}", 429},
		"junk":                    {s, "good", "v1.a.b.c", "order-1", "{}", 429},
		"changed":                 {s, "good", string(changed), "order-1", "{}", 429},
		"another tenant":          {s, "other", token, "order-1", "{}", 429},
		"another message":         {s, "good", token, "order-2", "{}", 429},
		"another length":          {s, "good", plain, "", "{ }", 429},
		"another secret":          {serverOf("other"), "good", token, "order-1", "{}", 429},
		"a secret of others":      {heir, "good", token, "order-1", "{}", 202},
	} {
		if code, _ := send(tc.s, tc.key, tc.token, tc.idempotency, tc.body); code != tc.want {
			t.Errorf("%s: %d, want %d", name, code, tc.want)
		}
	}
	if err := heir.config.Tokens.Accept(nil); err != nil {
		t.Fatal(err)
	}
	if code, _ := send(heir, "good", token, "order-1", "{}"); code != 429 {
		t.Errorf("a secret that is none of others any more: %d", code)
	}
	c.at = c.at.Add(2 * time.Hour)
	if code, _ := send(s, "good", token, "order-1", "{}"); code != 429 {
		t.Errorf("an old token: %d", code)
	}
}

// What nobody has taken is given back, and a refusal comes before the body is read.
func TestAdmissionIsAskedBeforeTheBody(t *testing.T) {
	for name, gate := range map[string]*shedding{"shed": {wait: time.Hour}, "line": {full: true}, "disk": {disk: true}, "taken": {}} {
		gate.now = time.Now
		s := testServer(t, func(cfg *Config) { cfg.Admission = gate })
		body := &reading{Reader: strings.NewReader("{}")}
		w := ask(s, "POST", "/v1/messages", "good", body, "Expect", "100-continue")
		want, dropped := http.StatusTooManyRequests, 0
		switch name {
		case "line":
			dropped = 1
		case "disk":
			want = http.StatusServiceUnavailable
		case "taken":
			want, dropped = http.StatusAccepted, 1 // the handler doesn't take it
		}
		if w.Code != want || body.read != (name == "taken") || gate.dropped != dropped {
			t.Errorf("%s: %d, body read: %v, dropped %d", name, w.Code, body.read, gate.dropped)
		}
		if wait := w.Header().Get("Retry-After"); w.Code >= 400 && wait == "" {
			t.Errorf("%s: no Retry-After", name)
		}
		if w := ask(s, "GET", "/v1/messages/x", "good", nil); w.Code != http.StatusOK {
			t.Errorf("%s: a question got %d", name, w.Code)
		}
	}
}

// reading knows whether somebody has read it.
type reading struct {
	*strings.Reader
	read bool
}

func (r *reading) Read(p []byte) (int, error) { r.read = true; return r.Reader.Read(p) }

// holding refuses everything, and has clients wait for the refusal from the second one in a row on.
type holding struct{}

const heldFor = 3 * time.Second

func (holding) Admit(r intake.AdmitRequest) (intake.Admitted, *intake.Refused) {
	refused := &intake.Refused{}
	if r.Refused > 0 {
		refused.Hold = func(ctx context.Context) {
			select {
			case <-time.After(heldFor):
			case <-ctx.Done():
			}
		}
	}
	return nil, refused
}

// TestA18_RefusalsByHTTPAreHeld: who asks again on the same connection waits for the refusal, unless a proxy has that
// connection for many, and holds neither a share of its tenant nor a place that somebody else needs.
func TestA18_RefusalsByHTTPAreHeld(t *testing.T) {
	for _, proxied := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			const most = 4
			s := testServer(t, func(c *Config) {
				c.Admission, c.MaxConnections = holding{}, most
				if proxied {
					c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
				}
			})
			w := newLine(t, s)
			post := func(conn net.Conn, in *bufio.Reader) (status int, took time.Duration) {
				began := time.Now()
				go io.WriteString(conn, "POST /v1/messages HTTP/1.1\r\nHost: relay\r\nAuthorization: Bearer good\r\nX-Forwarded-Proto: https\r\nContent-Length: 0\r\n\r\n")
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					return 0, time.Since(began)
				}
				io.Copy(io.Discard, resp.Body)
				return resp.StatusCode, time.Since(began)
			}
			var all sync.WaitGroup
			defer all.Wait()
			for range most {
				conn, in := w.dial()
				if status, took := post(conn, in); status != http.StatusTooManyRequests || took > 0 {
					t.Errorf("the first try: %d after %v", status, took)
				}
				all.Go(func() {
					want := heldFor
					if proxied {
						want = 0
					}
					if status, took := post(conn, in); took != want && status != 0 {
						t.Errorf("the second try, by a proxy %v: %d after %v, want %v", proxied, status, took, want)
					}
				})
			}
			time.Sleep(2 * time.Second)
			if status, took := post(w.dial()); status != http.StatusTooManyRequests || took > 0 {
				t.Errorf("somebody else, while all places are held: %d after %v", status, took)
			}
		})
	}
}
