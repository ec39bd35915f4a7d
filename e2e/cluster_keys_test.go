package e2e

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// shoppers send requests with a key to any relay of a cluster, and more than once.
type shoppers struct {
	*testing.T
	relays []*relay
	keys   []string // of the API, by relay
	http   http.Client

	mu      sync.Mutex        // guards what follows
	answers map[string]string // the first one to each request, by its key
	later   map[string]int    // tries that were asked to come later, by status
}

// post sends a request once; an answer has a status, unless there is none.
func (s *shoppers) post(at int, key, body string) (answer string, replayed bool, status int) {
	q, err := http.NewRequest("POST", "http://"+s.relays[at].web+"/v1/messages", strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+s.keys[at])
	q.Header.Set("Content-Type", "application/json")
	if key != "" {
		q.Header.Set("Idempotency-Key", key)
	}
	a, err := s.http.Do(q)
	if err != nil {
		return err.Error(), false, 0
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		return err.Error(), false, 0
	}
	if a.StatusCode >= 409 && a.StatusCode != 422 && a.Header.Get("Retry-After") == "" {
		s.Errorf("%d %s: no Retry-After", a.StatusCode, text)
	}
	return string(text), a.Header.Get("Idempotent-Replayed") != "", a.StatusCode
}

// letter is for a time that this test does not reach, so that it stays in the queue.
func (s *shoppers) letter(to string) string {
	return fmt.Sprintf(`{"from":"shop@acme.example","to":%q,"subject":"x","text":"x","send_at":%q}`, to+"@box.example",
		time.Now().Add(6*time.Hour).Truncate(6*time.Hour).Format(time.RFC3339))
}

// buy sends a request to random relays, from two clients at once, until both are answered.
func (s *shoppers) buy(key string) {
	body := s.letter(key)
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
				answer, _, status := s.post(rand.IntN(len(s.relays)), key, body)
				s.mu.Lock()
				first := s.answers[key]
				switch {
				case status == http.StatusAccepted && first == "":
					s.answers[key] = answer
				case status == http.StatusAccepted && answer != first:
					s.Errorf("%s: %s, and again %s", key, first, answer)
				case status != http.StatusAccepted:
					s.later[fmt.Sprint(status)]++
				}
				s.mu.Unlock()
				if status == http.StatusAccepted {
					return
				} else if status != 0 && status != 409 && status != 503 || time.Since(began) > patience {
					s.Errorf("%s: %d %s after %v", key, status, answer, time.Since(began))
					return
				}
			}
		})
	}
	both.Wait()
}

// load has clients buy while something happens, and for some seconds after it.
func (s *shoppers) load(what string, during func()) {
	s.Helper()
	ctx, end := context.WithCancel(s.Context())
	defer end()
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				s.buy(fmt.Sprintf("%s-%d-%d", what, i, n))
			}
		})
	}
	time.Sleep(2 * time.Second)
	during()
	time.Sleep(3 * time.Second)
	end()
	all.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Logf("%s: %d requests so far, tries that came to nothing %v", what, len(s.answers), s.later)
}

// takes are the times of requests to one relay, with keys and without.
func (s *shoppers) times(keyed bool) (p50, p99 time.Duration) {
	s.Helper()
	var all []time.Duration
	for i := range 300 {
		to := fmt.Sprintf("time-%d-%t", i, keyed)
		key, began := "", time.Now()
		if keyed {
			key = to
		}
		answer, _, status := s.post(0, key, s.letter(to))
		if all = append(all, time.Since(began)); status != http.StatusAccepted {
			s.Fatal(status, answer)
		}
		s.answers[to] = answer
	}
	slices.Sort(all)
	return all[len(all)/2], all[len(all)*99/100]
}

// TestClusterTakesRequestsOnce sends requests with keys to random relays, while one is killed, the database is away, and
// fails over. Each is in the queue of one relay, and each repeat gets the first answer.
func TestClusterTakesRequestsOnce(t *testing.T) {
	t.Parallel()
	primary, standby := newPair(t)
	primary.schema(t)
	relays := members(t, []*database{primary, standby}, "127.0.0.1:1", "25", `
tenant "acme" { senders = ["acme.example"] }
keys { file = "`+scratch(t)+`/WEB" }
api "web" { address = ["WEB"] }
`, 3)
	s := &shoppers{T: t, relays: relays, answers: make(map[string]string), later: make(map[string]int)}
	s.http.Timeout = 20 * time.Second
	t.Cleanup(s.http.CloseIdleConnections)
	for _, r := range relays {
		eventually(t, patience, func() error {
			if out := r.mta(t, "cluster", "status"); !strings.Contains(out, "answered 0s ago") && !strings.Contains(out, "answered 1s ago") {
				return fmt.Errorf("mta cluster status prints %s", out)
			}
			return nil
		})
	}
	out, err := mta(relays[0].env, "--config", relays[0].config, "key", "add", "--tenant", "acme", "--name", "shop")
	key, _, _ := strings.Cut(out, "\n")
	if err != nil || strings.Contains(out, "not known") {
		t.Fatal(out, err)
	}
	s.keys = slices.Repeat([]string{key}, len(relays))
	p50, p99 := s.times(false)
	t.Logf("without a key: p50 %v, p99 %v", p50, p99)
	p50, p99 = s.times(true)
	t.Logf("with a key: p50 %v, p99 %v", p50, p99)

	s.load("calm", func() {})
	s.load("kill", func() {
		relays[1].kill()
		time.Sleep(2 * time.Second)
		relays[1].start(t)
	})
	s.load("away", func() {
		primary.end()
		time.Sleep(7 * time.Second)
		for i := range relays {
			if answer, _, status := s.post(i, "key-away", s.letter("key-away")); status != 503 || !strings.Contains(answer, "database") {
				t.Errorf("without the database: %d %s", status, answer)
			}
			to := fmt.Sprint("plain-", i)
			if answer, _, status := s.post(i, "", s.letter(to)); status != 202 {
				t.Errorf("without the database, and without a key: %d %s", status, answer)
			} else {
				s.mu.Lock()
				s.answers[to] = answer
				s.mu.Unlock()
			}
		}
		primary.begin(t)
		primary.comes(t, streaming, "1")
	})
	s.load("failover", func() {
		primary.end()
		if _, err := standby.query(t, "SELECT pg_promote(false)"); err != nil {
			t.Fatal(err)
		}
	})

	for key, answer := range s.answers {
		if strings.HasPrefix(key, "plain-") || strings.HasSuffix(key, "false") {
			continue
		}
		at := rand.IntN(len(relays))
		if again, replayed, status := s.post(at, key, s.letter(key)); status != 202 || !replayed || again != answer {
			t.Errorf("%s: %s, and again, at node %d, %d %s", key, answer, at+1, status, again)
		}
		if other, _, status := s.post(at, key, s.letter("other")); status != 422 {
			t.Errorf("%s, with another body: %d %s", key, status, other)
		}
	}
	times := make(map[string]int)
	for _, r := range relays {
		all, err := r.queued()
		if err != nil {
			t.Fatal(err)
		}
		for _, to := range all {
			times[strings.TrimSuffix(to, "@box.example")]++
		}
	}
	for key := range s.answers {
		if times[key] != 1 {
			t.Errorf("%s was accepted %d times", key, times[key])
		}
	}
	if len(times) != len(s.answers) {
		t.Errorf("%d requests were accepted, and %d answered", len(times), len(s.answers))
	}
}
