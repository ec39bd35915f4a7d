package http

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/gcra"
	"example.org/mta/submission/intake"
)

// clock is a time that a test moves.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func perSecond(n int) gcra.Rate { return gcra.Rate{Events: n, Per: time.Second} }

func TestLimitsOfKeyAndTenant(t *testing.T) {
	c := &clock{time.Unix(1e9, 0)}
	limits := NewLimits(c.now)
	routes := append(slices.Clone(testRoutes), Route{Method: "POST", Pattern: "/recipients", Handle: func(c *Call) error {
		if err := c.Recipients(int(c.Request.ContentLength)); err != nil {
			return err
		}
		return c.JSON(http.StatusOK, nil)
	}})
	make := func(change func(*Config)) *Server {
		return testServer(t, func(cfg *Config) { cfg.Now, cfg.Limits, cfg.Routes = c.now, limits, routes; change(cfg) })
	}
	one := make(func(cfg *Config) {
		cfg.Rates = Rates{Requests: perSecond(2)}
		cfg.TenantRates = func(tenant string) Rates {
			return map[string]Rates{"acme": {Requests: perSecond(3), Recipients: perSecond(10), Octets: perSecond(1000)}}[tenant]
		}
	})
	other := make(func(cfg *Config) { cfg.TenantRates = one.config.TenantRates }) // another listener: no limits of keys
	expect := func(s *Server, token string, octets int, target string, status int, retry, violated string) http.Header {
		t.Helper()
		w := ask(s, "POST", target, token, strings.NewReader(strings.Repeat("a", octets)))
		var p struct {
			Type     string
			Violated []string `json:"violated-policies"`
		}
		json.Unmarshal(w.Body.Bytes(), &p)
		if w.Code != status || w.Header().Get("Retry-After") != retry || strings.Join(p.Violated, " ") != violated {
			t.Errorf("%d %v %s, want %d, %q, %q", w.Code, w.Header(), w.Body, status, retry, violated)
		}
		return w.Header()
	}
	h := expect(one, "good", 10, "/v1/messages", 202, "", "")
	if got, want := h.Get("RateLimit-Policy"), `"key-requests";q=2;w=1, "tenant-requests";q=3;w=1, "tenant-recipients";q=10;w=1, "tenant-octets";q=1000;w=1;qu="content-bytes"`; got != want {
		t.Errorf("RateLimit-Policy: %s, want %s", got, want)
	}
	if got, want := h.Get("RateLimit"), `"key-requests";r=1;t=1, "tenant-requests";r=2;t=1, "tenant-recipients";r=10;t=0, "tenant-octets";r=990;t=1`; got != want {
		t.Errorf("RateLimit: %s, want %s", got, want)
	}
	expect(one, "good", 10, "/v1/messages", 202, "", "")
	expect(one, "good", 10, "/v1/messages", 429, "1", "key-requests") // and the tenant is not charged
	expect(other, "good", 10, "/v1/messages", 202, "", "")
	expect(other, "good", 10, "/v1/messages", 429, "1", "tenant-requests")
	expect(one, "other", 10, "/v1/messages", 202, "", "") // another key, another tenant
	if h := expect(other, "other", 10, "/v1/messages", 202, "", ""); h.Get("RateLimit") != "" {
		t.Errorf("no limit applies: %v", h)
	}
	c.at = c.at.Add(time.Second)
	expect(other, "good", 7, "/recipients", 200, "", "")
	expect(other, "good", 4, "/recipients", 429, "1", "tenant-recipients")
	c.at = c.at.Add(time.Minute)
	expect(other, "good", 5000, "/v1/messages", 202, "", "") // more than fits at once, when all is there
	expect(other, "good", 1, "/v1/messages", 429, "5", "tenant-octets")
	c.at = c.at.Add(5 * time.Second)
	expect(other, "good", 1, "/v1/messages", 202, "", "")
}

func TestLimitsForgetWhoIsPaid(t *testing.T) {
	c := &clock{time.Unix(1e9, 0)}
	b := NewLimits(c.now)
	for i := range 10_000 {
		c.at = c.at.Add(time.Millisecond)
		b.of(c.at, &limit{asker: asker{"key", string(rune(i))}, what: requests}).Take(c.at, perSecond(10), 1)
	}
	if n := len(b.by); n > 2048 {
		t.Errorf("%d are kept", n)
	}
}

// TestALimitIsRaised: nobody waits for what it was before.
func TestALimitIsRaised(t *testing.T) {
	c := &clock{time.Unix(1e9, 0)}
	b := NewLimits(c.now)
	l := limit{asker: asker{"key", "k"}, what: requests, rate: gcra.Rate{Events: 1, Per: time.Hour}}
	ask := func(want time.Duration) {
		t.Helper()
		if wait, _ := b.charge([]limit{l}, [measures]int{requests: 1}); wait != want {
			t.Errorf("it waits for %v, want %v", wait, want)
		}
	}
	ask(0)
	ask(time.Hour)
	l.rate = perSecond(1)
	ask(time.Second)
	c.at = c.at.Add(time.Second)
	ask(0)
}

// TestALimitIsChangedInDebt: a request of more than a burst passes when all of the burst is there, and what it owes is
// owed at whatever rate follows.
func TestALimitIsChangedInDebt(t *testing.T) {
	c := &clock{time.Unix(1e9, 0)}
	b := NewLimits(c.now)
	l := limit{asker: asker{"key", "k"}, what: recipients, rate: perSecond(10)}
	for _, step := range []struct {
		rate int
		want time.Duration // until all of the burst is there
	}{{10, 0}, {10, 80 * time.Second}, {5, 160 * time.Second}, {4, 200 * time.Second}, {20, 40 * time.Second}} {
		l.rate = perSecond(step.rate)
		if wait, _ := b.charge([]limit{l}, [measures]int{recipients: 800}); wait != step.want {
			t.Errorf("at %d/s it waits for %v, want %v", step.rate, wait, step.want)
		}
	}
}

// parts are this relay's of limits that it shares. It implements SharedLimits.
type parts struct {
	left   map[string]int64
	awaits int
	more   func()
}

func (p *parts) Charge(name string, _ gcra.Rate, n int64) intake.Part {
	if p.left[name] < n {
		return intake.Part{Wait: 3 * time.Second, Patience: time.Second}
	}
	p.left[name] -= n
	return intake.Part{OK: true}
}

func (p *parts) Refund(name string, _ gcra.Rate, n int64) { p.left[name] += n }
func (p *parts) Owe(name string, _ gcra.Rate, n int64)    { p.left[name] -= n }
func (p *parts) Left(name string, _ gcra.Rate) int64      { return p.left[name] }
func (p *parts) Await(_ intake.Part, until *time.Time) bool {
	p.awaits++
	if p.more == nil {
		return false
	}
	p.more()
	p.more = nil
	return true
}

// TestLimitsThatRelaysShare are this relay's parts, all or none; a request waits for a larger one.
func TestLimitsThatRelaysShare(t *testing.T) {
	c := &clock{time.Unix(1e9, 0)}
	p := &parts{left: map[string]int64{"key k1: API requests": 2, "tenant acme: API requests": 1, "tenant acme: API octets": 100}}
	limits := NewLimits(c.now)
	limits.Share(p)
	s := testServer(t, func(cfg *Config) {
		cfg.Now, cfg.Limits, cfg.Rates = c.now, limits, Rates{Requests: perSecond(10)}
		cfg.TenantRates = func(string) Rates { return Rates{Requests: perSecond(20), Octets: perSecond(1000)} }
	})
	send := func(octets, status int) http.Header {
		t.Helper()
		w := ask(s, "POST", "/v1/messages", "good", strings.NewReader(strings.Repeat("a", octets)))
		if w.Code != status {
			t.Errorf("%d %s, want %d", w.Code, w.Body, status)
		}
		return w.Header()
	}
	if h := send(30, 202); h.Get("RateLimit") != `"key-requests";r=1;t=1, "tenant-requests";r=0;t=1, "tenant-octets";r=70;t=1` {
		t.Errorf("RateLimit: %s; %v", h.Get("RateLimit"), p.left)
	}
	if h := send(10, 429); h.Get("Retry-After") != "3" || p.awaits != 1 || p.left["key k1: API requests"] != 1 || p.left["tenant acme: API octets"] != 70 {
		t.Errorf("%v, %v after %d waits", h, p.left, p.awaits)
	}
	p.more = func() { p.left["tenant acme: API requests"] = 5 }
	if send(10, 202); p.left["key k1: API requests"] != 0 || p.left["tenant acme: API requests"] != 4 || p.left["tenant acme: API octets"] != 60 {
		t.Errorf("%v", p.left)
	}
	w := ask(s, "POST", "/v1/messages", "good", strings.NewReader(strings.Repeat("a", 61)))
	if !strings.Contains(w.Body.String(), `["key-requests","tenant-octets"]`) || p.left["tenant acme: API requests"] != 4 {
		t.Errorf("%s, %v", w.Body, p.left)
	}
}

// TestALimitOfThisRelayAmongSharedOnes is asked of no other relay, and nothing is taken from the others where it is
// over.
func TestALimitOfThisRelayAmongSharedOnes(t *testing.T) {
	c := &clock{time.Unix(1e9, 0)}
	p := &parts{left: map[string]int64{"key k1: API requests": 5}}
	limits := NewLimits(c.now)
	limits.Share(p)
	s := testServer(t, func(cfg *Config) {
		cfg.Now, cfg.Limits, cfg.Rates = c.now, limits, Rates{Requests: perSecond(10)}
		cfg.TenantRates = func(string) Rates {
			return Rates{Requests: perSecond(2), Octets: perSecond(100), PerRelay: true}
		}
	})
	send := func(octets, status int, left int64, states string) {
		t.Helper()
		w := ask(s, "POST", "/v1/messages", "good", strings.NewReader(strings.Repeat("a", octets)))
		if h := w.Header().Get("RateLimit"); w.Code != status || p.left["key k1: API requests"] != left || h != states {
			t.Errorf("%d, want %d; %v; %s", w.Code, status, p.left, h)
		}
	}
	send(30, 202, 4, `"key-requests";r=4;t=1, "tenant-requests";r=1;t=1, "tenant-octets";r=70;t=1`)
	send(80, 429, 4, `"key-requests";r=4;t=1, "tenant-requests";r=1;t=1, "tenant-octets";r=70;t=1`)
	send(30, 202, 3, `"key-requests";r=3;t=1, "tenant-requests";r=0;t=1, "tenant-octets";r=40;t=1`)
	send(1, 429, 3, `"key-requests";r=3;t=1, "tenant-requests";r=0;t=1, "tenant-octets";r=40;t=1`)
	c.at = c.at.Add(time.Second)
	// The length of this one turns out as it comes.
	ask(s, "POST", "/v1/messages", "good", io.MultiReader(strings.NewReader(strings.Repeat("a", 50))))
	if len(p.left) != 1 {
		t.Errorf("%v", p.left)
	}
	c.at = c.at.Add(time.Second)
	send(10, 202, 1, `"key-requests";r=1;t=1, "tenant-requests";r=1;t=1, "tenant-octets";r=90;t=1`)
}
