package sts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
)

// world is the DNS, the web and the disk of a test in virtual time.
type world struct {
	mu      sync.Mutex
	records map[string]string // TXT records of domains, joined with "|"; "SERVFAIL"; "timeout"
	sites   map[string]string // policies of domains; "404"; "slow"
	asked   map[string]int    // TXT look-ups
	fetched map[string]int
	now     int // fetches under way
	most    int // and the most that there were
	kept    map[string][]byte
	broken  error // the disk
	log     strings.Builder
	changed []string // domains, in order
}

func newWorld() *world {
	return &world{records: map[string]string{}, sites: map[string]string{}, asked: map[string]int{}, fetched: map[string]int{}, kept: map[string][]byte{}}
}

func (w *world) set(domain, record, site string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.records[domain], w.sites[domain] = record, site
}

func (w *world) TXT(ctx context.Context, name string) ([]string, error) {
	domain := strings.TrimPrefix(name, "_mta-sts.")
	w.mu.Lock()
	w.asked[domain]++
	record := w.records[domain]
	w.mu.Unlock()
	switch record {
	case "":
		return nil, nil
	case "SERVFAIL":
		return nil, errors.New("SERVFAIL")
	case "timeout":
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return strings.Split(record, "|"), nil
}

func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	domain := strings.TrimPrefix(r.URL.Host, "mta-sts.")
	w.mu.Lock()
	w.fetched[domain]++
	w.now++
	w.most = max(w.most, w.now)
	site := w.sites[domain]
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.now--
		w.mu.Unlock()
	}()
	code := 200
	switch site {
	case "slow":
		<-r.Context().Done()
		return nil, r.Context().Err()
	case "404":
		code = 404
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"text/plain"}}, Body: io.NopCloser(strings.NewReader(site))}, nil
}

func (w *world) Load() (map[string][]byte, error) { return maps.Clone(w.kept), w.broken }

func (w *world) Save(values map[string][]byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != nil {
		return w.broken
	}
	for k, v := range values {
		if v == nil {
			delete(w.kept, k)
			continue
		}
		w.kept[k] = v
	}
	return nil
}

// told is the log.
func (w *world) told() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.String()
}

// lookups is how often a domain was asked for in the DNS, fetches how often at its web server.
func (w *world) lookups(domain string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked[domain]
}

func (w *world) fetches(domain string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fetched[domain]
}

// onDisk is how many policies are kept.
func (w *world) onDisk() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.kept)
}

func (w *world) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(p)
}

// start gives policies that run until the test ends, or stop is called.
func (w *world) start(t *testing.T, change func(*Config)) (p *Policies, stop func()) {
	cfg := Config{Resolver: w, Transport: w, Store: w, Log: slog.New(slog.NewTextHandler(w, nil))}
	cfg.Changed = func(domain string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.changed = append(w.changed, domain)
	}
	if change != nil {
		change(&cfg)
	}
	p = New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { p.Run(ctx) })
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		p.Close()
	})
	t.Cleanup(stop)
	return p, stop
}

// inWorld runs a test in virtual time.
func inWorld(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) { f(t, newWorld()) })
}

// mode looks a domain up and puts what comes of it in a word.
func mode(t *testing.T, p *Policies, domain string) string {
	t.Helper()
	policy, err := p.Lookup(t.Context(), domain)
	if err != nil {
		return err.Error()
	}
	return policy.Mode.String()
}

func policyText(mode string, maxAge time.Duration) string {
	return fmt.Sprintf("version: STSv1\nmode: %s\nmx: mx.a.test\nmax_age: %d\n", mode, maxAge/time.Second)
}

const week = 7 * 24 * time.Hour

func TestPolicyIsFoundAndKept(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.set("a.test", "v=STSv1; id=1", policyText("enforce", week))
		p, _ := w.start(t, nil)
		if _, known := p.Known("a.test"); known {
			t.Error("known before it was looked up")
		}
		if got := mode(t, p, "a.test"); got != "enforce" {
			t.Fatalf("got %s", got)
		}
		for range 100 {
			if policy, known := p.Known("a.test"); !known || !policy.Match("mx.a.test") || policy.Match("mx.b.test") {
				t.Fatalf("%+v, %v", policy, known)
			}
		}
		if w.lookups("a.test") != 1 || w.fetches("a.test") != 1 {
			t.Errorf("asked %d times, fetched %d times", w.lookups("a.test"), w.fetches("a.test"))
		}
		s, known := p.Status("a.test")
		if !known || s.ID != "1" || s.Expires.Sub(s.Fetched) != week || s.Failure != nil || s.Looking {
			t.Errorf("%+v", s)
		}
		if st := p.Stats(); st.Fetched != 1 || st.Policies != 1 || st.Absent != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// What says no policy is no policy, and holds for a while.
func TestDomainsWithoutPolicy(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		ok := policyText("enforce", week)
		for _, tc := range []struct {
			domain, record, site string
			kind                 Kind
			again                time.Duration // after which it is looked up again
			fetched              int
		}{
			{"absent.test", "", ok, Absent, time.Hour, 0},
			{"other.test", "v=spf1 -all", ok, Absent, time.Hour, 0},
			{"two.test", "v=STSv1; id=1|v=STSv1; id=2", ok, Record, 5 * time.Minute, 0},
			{"malformed.test", "v=STSv1; id=?", ok, Record, 5 * time.Minute, 0},
			{"servfail.test", "SERVFAIL", ok, DNS, 5 * time.Minute, 0},
			{"silent.test", "timeout", ok, DNS, 5 * time.Minute, 0},
			{"404.test", "v=STSv1; id=1", "404", Fetch, 5 * time.Minute, 1},
			{"slow.test", "v=STSv1; id=1", "slow", Fetch, 5 * time.Minute, 1},
			{"syntax.test", "v=STSv1; id=1", "hello", Invalid, 5 * time.Minute, 1},
		} {
			p, stop := w.start(t, func(c *Config) { c.Store = nil })
			w.set(tc.domain, tc.record, tc.site)
			began := time.Now()
			if got := mode(t, p, tc.domain); got != "none" {
				t.Errorf("%s: %s", tc.domain, got)
			}
			if took := time.Since(began); took > dnsTimeout+fetchTimeout {
				t.Errorf("%s: mail waited for %s", tc.domain, took)
			}
			s, _ := p.Status(tc.domain)
			if s.Policy != nil || s.Failure == nil || s.Failure.Kind != tc.kind || time.Until(s.Next) != tc.again || w.fetches(tc.domain) != tc.fetched {
				t.Errorf("%s: %+v, fetched %d times", tc.domain, s, w.fetches(tc.domain))
			}
			if st := p.Stats(); st.Failed[tc.kind] != 1 || st.Absent != 1 {
				t.Errorf("%s: %+v", tc.domain, st)
			}
			time.Sleep(tc.again - 1)
			p.Known(tc.domain)
			synctest.Wait()
			if w.lookups(tc.domain) != 1 {
				t.Errorf("%s: looked up again before its time", tc.domain)
			}
			// It publishes a policy: mail that comes doesn't wait, and has it found.
			w.set(tc.domain, "v=STSv1; id=9", ok)
			time.Sleep(time.Nanosecond)
			if policy, known := p.Known(tc.domain); !known || policy.Mode != None {
				t.Errorf("%s: mail waits again", tc.domain)
			}
			synctest.Wait()
			if policy, known := p.Known(tc.domain); !known || policy.Mode != Enforce {
				t.Errorf("%s: its policy is not found: %+v, %v", tc.domain, policy, known)
			}
			stop()
		}
	})
}

// What was found out of a domain without a policy holds for a day at most, if there is no mail for it.
func TestOldAbsenceDoesNotCount(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, _ := w.start(t, nil)
		mode(t, p, "a.test")
		w.set("a.test", "v=STSv1; id=1", policyText("enforce", week))
		time.Sleep(absentFor)
		if got := mode(t, p, "a.test"); got != "enforce" {
			t.Error(got)
		}
	})
}

func TestLiteralsAndOtherNamesHaveNoPolicy(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, _ := w.start(t, nil)
		for _, domain := range []string{"[192.0.2.1]", "", "a..test", "a_b.test", "a.test/../x", "a.test:80", "ä.test"} {
			if policy, known := p.Known(domain); !known || policy.Mode != None {
				t.Errorf("%s: %+v, %v", domain, policy, known)
			}
			if got := mode(t, p, domain); got != "none" {
				t.Errorf("%s: %s", domain, got)
			}
			if _, err := p.Refresh(t.Context(), domain); err == nil {
				t.Errorf("%s: refreshed", domain)
			}
			p.Doubt(domain)
		}
		if len(w.asked)+len(w.fetched) != 0 {
			t.Errorf("looked up %v", w.asked)
		}
	})
}

// A new id has the policy fetched while the old one is in force.
func TestChangedID(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.set("a.test", "v=STSv1; id=1", policyText("testing", week))
		p, _ := w.start(t, nil)
		mode(t, p, "a.test")
		time.Sleep(checkAfter)
		p.Known("a.test")
		synctest.Wait()
		if w.lookups("a.test") != 2 || w.fetches("a.test") != 1 {
			t.Errorf("same id: asked %d times, fetched %d times", w.lookups("a.test"), w.fetches("a.test"))
		}
		w.set("a.test", "v=STSv1; id=2", policyText("enforce", week))
		time.Sleep(checkAfter)
		if got := mode(t, p, "a.test"); got != "testing" {
			t.Errorf("mail waited for the new policy, %s", got)
		}
		synctest.Wait()
		if got := mode(t, p, "a.test"); got != "enforce" || w.fetches("a.test") != 2 {
			t.Errorf("%s, fetched %d times", got, w.fetches("a.test"))
		}
		if s, _ := p.Status("a.test"); s.ID != "2" {
			t.Errorf("%+v", s)
		}
	})
}

// Nobody who keeps us from the DNS or the web server makes mail go without a policy that is cached, until that expires.
func TestCachedPolicyStands(t *testing.T) {
	for _, attack := range []struct{ name, record, site string }{
		{"record gone", "", policyText("none", week)},
		{"another record", "v=STSv1; id=1|v=STSv1; id=2", policyText("none", week)},
		{"malformed record", "v=STSv1; id=?", policyText("none", week)},
		{"SERVFAIL", "SERVFAIL", policyText("none", week)},
		{"DNS silent", "timeout", policyText("none", week)},
		{"web server says 404", "v=STSv1; id=2", "404"},
		{"web server silent", "v=STSv1; id=2", "slow"},
		{"not a policy", "v=STSv1; id=2", "<html>"},
	} {
		t.Run(attack.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.set("a.test", "v=STSv1; id=1", policyText("enforce", week))
				p, _ := w.start(t, nil)
				mode(t, p, "a.test")
				fetched := time.Now()
				w.set("a.test", attack.record, attack.site)
				for time.Since(fetched) < week-time.Hour {
					if policy, known := p.Known("a.test"); !known || policy.Mode != Enforce {
						t.Fatalf("after %s: %+v, %v", time.Since(fetched), policy, known)
					}
					p.Doubt("a.test")
					time.Sleep(10 * time.Minute)
				}
				s, _ := p.Status("a.test")
				if s.Failure == nil || s.Policy == nil {
					t.Errorf("%+v", s)
				}
				if n := strings.Count(w.told(), "can't be renewed; the cached one stands"); n != 1 {
					t.Errorf("%d warnings:\n%s", n, w.told())
				}
				time.Sleep(time.Until(s.Expires))
				if got := mode(t, p, "a.test"); got != "none" {
					t.Errorf("expired, and still %s", got)
				}
				if !strings.Contains(w.told(), "has expired and can't be renewed") {
					t.Errorf("no warning:\n%s", w.told())
				}
			})
		})
	}
}

// Failures are followed by longer and longer waits, and a good answer ends them.
func TestRetries(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.set("a.test", "v=STSv1; id=1", "404")
		p, _ := w.start(t, nil)
		mode(t, p, "a.test")
		for _, wait := range []time.Duration{5, 10, 20, 40, 60, 60} {
			s, _ := p.Status("a.test")
			if got := time.Until(s.Next); got != wait*time.Minute {
				t.Errorf("waits %s, want %s", got, wait*time.Minute)
			}
			time.Sleep(time.Until(s.Next))
			p.Known("a.test")
			synctest.Wait()
		}
	})
}

// A policy is fetched again before it expires, if there was mail for its domain of late.
func TestRenewalAheadOfExpiry(t *testing.T) {
	for _, tc := range []struct {
		maxAge  time.Duration
		days    int
		mail    bool // some each day
		least   int  // fetches
		most    int
		expires bool
	}{
		{week, 20, true, 19, 21, false},
		{time.Hour, 2, true, 90, 100, false}, // twice in its lifetime
		{31557600 * time.Second, 60, false, 29, 31, false},
		{week, 60, false, 29, 31, true},
	} {
		inWorld(t, func(t *testing.T, w *world) {
			w.set("a.test", "v=STSv1; id=1", policyText("enforce", tc.maxAge))
			p, _ := w.start(t, nil)
			mode(t, p, "a.test")
			for range tc.days {
				time.Sleep(24*time.Hour - time.Second)
				if tc.mail {
					if policy, known := p.Known("a.test"); !known || policy.Mode != Enforce {
						t.Errorf("%+v, %v", policy, known)
					}
				}
			}
			n := w.fetches("a.test")
			if s, known := p.Status("a.test"); n < tc.least || n > tc.most || known == tc.expires {
				t.Errorf("max_age %s, %d days: fetched %d times, %+v %v", tc.maxAge, tc.days, n, s, known)
			}
		})
	}
}

// Policies with no lifetime are not fetched for each message.
func TestMaxAgeZero(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.set("a.test", "v=STSv1; id=1", policyText("enforce", 0))
		p, _ := w.start(t, nil)
		for range 60 {
			if got := mode(t, p, "a.test"); got != "enforce" {
				t.Error(got)
			}
			time.Sleep(10 * time.Second)
		}
		if n := w.fetches("a.test"); n < 10 || n > 25 {
			t.Errorf("fetched %d times in ten minutes", n)
		}
	})
}

// However many want a domain's policy, one looks it up.
func TestOneLookupForAll(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.set("a.test", "v=STSv1; id=1", "slow")
		p, _ := w.start(t, nil)
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if got := mode(t, p, "a.test"); got != "none" {
					t.Error(got)
				}
			})
		}
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.Lookup(impatient, "a.test"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		wg.Wait()
		if w.lookups("a.test") != 1 || w.fetches("a.test") != 1 {
			t.Errorf("asked %d times, fetched %d times", w.lookups("a.test"), w.fetches("a.test"))
		}
	})
}

// A slow web server holds up mail for its own domain; there are never more fetches at once than may be; and the mail of
// domains without a policy, or with one that is cached, waits for none of that.
func TestSlowWebServers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, _ := w.start(t, func(c *Config) { c.Fetches = 8 })
		w.set("cached.test", "v=STSv1; id=1", policyText("enforce", week))
		mode(t, p, "cached.test")
		w.set("good.test", "v=STSv1; id=1", policyText("enforce", week))
		var wg sync.WaitGroup
		for i := range 7 {
			domain := fmt.Sprintf("slow%d.test", i)
			w.set(domain, "v=STSv1; id=1", "slow")
			wg.Go(func() { mode(t, p, domain) })
		}
		synctest.Wait()
		began := time.Now()
		if got := mode(t, p, "good.test"); got != "enforce" || time.Since(began) != 0 {
			t.Errorf("%s after %s", got, time.Since(began))
		}
		for i := range 40 {
			domain := fmt.Sprintf("late%d.test", i)
			w.set(domain, "v=STSv1; id=1", "slow")
			wg.Go(func() { mode(t, p, domain) })
		}
		synctest.Wait()
		for _, domain := range []string{"cached.test", "without.test"} {
			mode(t, p, domain)
			if took := time.Since(began); took != 0 {
				t.Errorf("%s waited for %s", domain, took)
			}
		}
		wg.Wait()
		if w.most != 8 {
			t.Errorf("%d fetches at once", w.most)
		}
	})
}

// Who keeps what mail goes by hears of it when that is another, and only then.
func TestChangesAreTold(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, _ := w.start(t, nil)
		for i, step := range []struct {
			record, site string
			told         int
		}{
			{"", "", 0},
			{"v=STSv1; id=1", policyText("testing", week), 1},
			{"v=STSv1; id=1", policyText("testing", week), 1},
			{"v=STSv1; id=2", policyText("testing", 2*week), 1},
			{"v=STSv1; id=3", policyText("enforce", week), 2},
			{"v=STSv1; id=4", policyText("enforce", week) + "mx: mx2.a.test\n", 3},
			{"v=STSv1; id=5", "404", 3},
			{"v=STSv1; id=6", policyText("none", time.Hour), 4},
			{"", "", 4},
		} {
			w.set("a.test", step.record, step.site)
			if _, err := p.Refresh(t.Context(), "a.test"); err != nil {
				t.Fatal(err)
			}
			if len(w.changed) != step.told {
				t.Errorf("step %d: told %d times", i, len(w.changed))
			}
		}
		w.set("b.test", "v=STSv1; id=1", policyText("enforce", time.Hour))
		mode(t, p, "b.test") // the first that anybody hears of it
		w.set("b.test", "SERVFAIL", "")
		time.Sleep(time.Hour)
		if got := mode(t, p, "b.test"); got != "none" || len(w.changed) != 5 || w.changed[4] != "b.test" {
			t.Errorf("%s, %q", got, w.changed)
		}
	})
}

func TestDoubt(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.set("a.test", "v=STSv1; id=1", policyText("enforce", week))
		p, _ := w.start(t, nil)
		p.Doubt("a.test") // nothing is known: nothing is doubted
		mode(t, p, "a.test")
		p.Doubt("a.test") // it has only just been fetched
		synctest.Wait()
		if w.fetches("a.test") != 1 {
			t.Errorf("fetched %d times", w.fetches("a.test"))
		}
		time.Sleep(retryAfter)
		w.set("a.test", "v=STSv1; id=1", policyText("none", week)) // and the id was forgotten
		for range 10 {
			p.Doubt("a.test")
		}
		synctest.Wait()
		if got := mode(t, p, "a.test"); got != "none" || w.fetches("a.test") != 2 {
			t.Errorf("%s, fetched %d times", got, w.fetches("a.test"))
		}
		if !strings.Contains(w.told(), "MTA-STS policy changed") {
			t.Errorf("log:\n%s", w.told())
		}
	})
}

func TestRefresh(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, _ := w.start(t, nil)
		if s, err := p.Refresh(t.Context(), "a.test"); err != nil || s.Policy != nil || s.Failure.Kind != Absent {
			t.Errorf("%+v, %v", s, err)
		}
		w.set("a.test", "v=STSv1; id=1", policyText("enforce", week))
		for i := range 3 {
			if s, err := p.Refresh(t.Context(), "a.test"); err != nil || s.Policy == nil || s.ID != "1" || w.fetches("a.test") != i+1 {
				t.Errorf("%+v, %v, fetched %d times", s, err, w.fetches("a.test"))
			}
		}
		w.set("a.test", "v=STSv1; id=2", "404")
		if s, err := p.Refresh(t.Context(), "a.test"); err != nil || s.Policy == nil || s.ID != "1" || s.Failure.Kind != Fetch {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

func TestRestart(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.set("a.test", "v=STSv1; id=1", policyText("enforce", week))
		w.set("short.test", "v=STSv1; id=1", policyText("enforce", time.Hour))
		p, stop := w.start(t, nil)
		mode(t, p, "a.test")
		mode(t, p, "short.test")
		time.Sleep(10 * time.Second)
		if w.onDisk() != 2 {
			t.Errorf("%d kept", w.onDisk())
		}
		before, _ := p.Status("a.test")
		stop()

		time.Sleep(2 * time.Hour)
		w.set("a.test", "timeout", "slow") // the attacker waited for the restart
		w.kept["damaged.test"] = []byte("{")
		w.kept["newer.test"] = []byte(`{"id":"1","mode":"strict","max_age":100000000}`)
		w.kept["[evil]"] = w.kept["a.test"]
		p, stop = w.start(t, nil)
		if policy, known := p.Known("a.test"); !known || policy.Mode != Enforce || !policy.Match("mx.a.test") {
			t.Errorf("%+v, %v", policy, known)
		}
		after, _ := p.Status("a.test")
		if after.ID != before.ID || !after.Fetched.Equal(before.Fetched) || !after.Expires.Equal(before.Expires) {
			t.Errorf("before %+v, after %+v", before, after)
		}
		if st := p.Stats(); st.Policies != 1 {
			t.Errorf("%+v", st)
		}
		time.Sleep(10 * time.Second)
		if w.onDisk() != 1 {
			t.Errorf("%d kept", w.onDisk())
		}
		stop()
	})
}

// A policy that was fetched while the clock was ahead expires when it would have by the right one.
func TestClockThatWasAhead(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.set("a.test", "v=STSv1; id=1", policyText("enforce", week))
		p, stop := w.start(t, func(c *Config) { c.Now = func() time.Time { return time.Now().AddDate(10, 0, 0) } })
		mode(t, p, "a.test")
		stop()
		p, _ = w.start(t, nil)
		if s, known := p.Status("a.test"); !known || time.Until(s.Expires) != week {
			t.Errorf("%+v, %v", s, known)
		}
	})
}

// A store that fails costs nothing but what it should keep, and is tried again.
func TestBrokenStore(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.broken = errors.New("disk on fire")
		w.set("a.test", "v=STSv1; id=1", policyText("enforce", week))
		p, stop := w.start(t, nil)
		if got := mode(t, p, "a.test"); got != "enforce" {
			t.Error(got)
		}
		time.Sleep(time.Minute)
		if n := strings.Count(w.told(), "can't be written"); n != 1 {
			t.Errorf("told %d times", n)
		}
		w.mu.Lock()
		w.broken = nil
		w.mu.Unlock()
		time.Sleep(time.Minute)
		stop()
		if w.onDisk() != 1 {
			t.Errorf("%d kept", w.onDisk())
		}
	})
}

// Memory is bounded: what was used longest ago goes, and domains without policies don't take the place of those with.
func TestMemoryIsBounded(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, stop := w.start(t, func(c *Config) { c.MaxMemory = 1 << 20 })
		large := policyText("enforce", week) + strings.Repeat("mx: "+strings.Repeat("x", 60)+".test\n", 900)
		for i := range 50 {
			domain := fmt.Sprintf("d%d.test", i)
			w.set(domain, "v=STSv1; id=1", large)
			mode(t, p, domain)
			mode(t, p, "d0.test") // the one that is used
		}
		for i := range 10_000 {
			mode(t, p, fmt.Sprintf("absent%d.test", i))
		}
		st := p.Stats()
		if st.Policies < 5 || st.Policies > 20 || st.Absent < 100 || st.Absent > 400 {
			t.Errorf("%+v", st)
		}
		if policy, known := p.Known("d0.test"); !known || policy.Mode != Enforce {
			t.Error("the policy that was used all the time is gone")
		}
		stop()
		if w.onDisk() != st.Policies {
			t.Errorf("%d in memory, %d kept", st.Policies, w.onDisk())
		}
	})
}

// Close does not wait for web servers, and who waits gets no policy that demands nothing.
func TestClose(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.set("slow.test", "v=STSv1; id=1", "slow")
		w.set("silent.test", "timeout", "")
		w.set("line.test", "v=STSv1; id=1", "slow")
		p, stop := w.start(t, func(c *Config) { c.Fetches = 1 })
		var wg sync.WaitGroup
		for _, domain := range []string{"slow.test", "line.test", "silent.test"} {
			wg.Go(func() {
				if _, err := p.Lookup(t.Context(), domain); !errors.Is(err, ErrClosed) {
					t.Errorf("%s: %v", domain, err)
				}
			})
			synctest.Wait()
		}
		began := time.Now()
		stop()
		wg.Wait()
		if took := time.Since(began); took != 0 {
			t.Errorf("took %s", took)
		}
		if _, err := p.Lookup(t.Context(), "new.test"); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		if _, err := p.Refresh(t.Context(), "new.test"); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		p.Doubt("new.test")
		if st := p.Stats(); st.Policies+st.Absent+st.Looking != 0 {
			t.Errorf("%+v", st)
		}
	})
}

func BenchmarkKnown(b *testing.B) {
	w := newWorld()
	p := New(Config{Resolver: w, Transport: w})
	defer p.Close()
	w.set("a.test", "v=STSv1; id=1", policyText("enforce", week))
	if _, err := p.Lookup(b.Context(), "a.test"); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		p.Known("a.test")
	}
}
