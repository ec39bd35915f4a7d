package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"time"
)

// submitters are clients of a tenant at all relays, two for each.
type submitters struct {
	toll // when a message was accepted, in began

	refused map[string]int
}

// submit has clients submit to relays for a while, or until they have so many.
func (s *submitters) submit(t *testing.T, relays []*relay, d time.Duration, most int) {
	t.Helper()
	s.mu.Lock()
	begin := len(s.began)
	s.mu.Unlock()
	end := time.Now().Add(d)
	var all sync.WaitGroup
	for _, r := range relays {
		for range 2 {
			all.Go(func() {
				if err := s.client(r, end, begin+most); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
}

func (s *submitters) client(r *relay, end time.Time, most int) error {
	c, err := dialSession(r.addr)
	if err != nil {
		return err
	}
	defer c.close()
	for time.Now().Before(end) {
		_, err := c.send("ann@acme.example", []string{"to@big.example"}, "X-MTA-Tenant: acme\r\nFrom: ann@acme.example\r\n\r\nhello\r\n")
		var code *textproto.Error
		switch s.mu.Lock(); {
		case err == nil:
			s.began = append(s.began, time.Now())
		case errors.As(err, &code) && code.Code == 450:
			s.refused[code.Msg]++
		default:
			s.mu.Unlock()
			return err
		}
		full := len(s.began) >= most
		s.mu.Unlock()
		if full {
			break
		}
		if err != nil {
			time.Sleep(50 * time.Millisecond)
		}
	}
	return nil
}

// requests has a client of each relay send requests with a key for a while. It returns how many are more than a rate
// allows, and how many had an answer other than 429.
func requests(t *testing.T, relays []*relay, key string, d time.Duration, rate, burst float64) (over float64, answered int) {
	t.Helper()
	var passed toll
	end := time.Now().Add(d)
	var all sync.WaitGroup
	for _, r := range relays {
		for range 3 {
			all.Go(func() {
				for time.Now().Before(end) {
					q, err := http.NewRequest(http.MethodGet, "http://"+r.places.web+"/v1/suppressions?limit=1", nil)
					if err != nil {
						t.Error(err)
						return
					}
					q.Header.Set("Authorization", "Bearer "+key)
					a, err := http.DefaultClient.Do(q)
					if err != nil {
						t.Error(err)
						return
					}
					a.Body.Close()
					switch a.StatusCode {
					case http.StatusOK:
						passed.mu.Lock()
						passed.began = append(passed.began, time.Now())
						passed.mu.Unlock()
					case http.StatusTooManyRequests:
						time.Sleep(50 * time.Millisecond)
					default:
						t.Errorf("a request is answered %s", a.Status)
						return
					}
				}
			})
		}
	}
	all.Wait()
	return passed.over(rate, burst), len(passed.began)
}

// TestClusterSharesQuotas has clients of a tenant submit to three relays at once: never more than its rate, and never more
// in the three queues than its quota, also when a relay is killed and comes back with its queue. What has left makes room
// at every relay. Requests with one key are never more than its limit either.
func TestClusterSharesQuotas(t *testing.T) {
	t.Parallel() // most of it is waiting
	const rate, most = 20, 150
	relays, _, _, _ := bigExample(t, "127.31.7.9", fmt.Sprintf(`
tenant "acme" {
  max_submission_rate = "%d/s"
  max_queued_messages = %d
}
keys { file = "KEYS" }
api "web" {
  address          = "WEB"
  max_request_rate = "%d/s"
}
`, rate, most, rate)) // nobody listens there: all mail waits
	s := &submitters{refused: make(map[string]int)}
	queued := func() (n int) {
		t.Helper()
		for _, r := range relays {
			all, err := r.queued()
			if err != nil {
				t.Fatal(err)
			}
			n += len(all)
		}
		return n
	}
	full := func(what string) {
		t.Helper()
		if n := queued(); n > most || n < most*9/10 {
			t.Errorf("%s: %d messages in the queues, want at most %d and nearly all of them\n%s", what, n, most, relays[0].mta(t, "tenants", "--limits"))
		}
	}

	s.submit(t, relays[:1], patience, 10) // the shards have owners, who have counted
	s.submit(t, relays, 15*time.Second, 1000)
	full("three relays")
	if n := s.over(rate, rate+rate/2); n > 0 { // replies take some time
		t.Errorf("%.0f messages were over the rate", n)
	}
	if text := relays[1].mta(t, "tenants", "--limits"); !strings.Contains(text, fmt.Sprintf("/%d", most)) || !strings.Contains(text, "messages") {
		t.Errorf("mta tenants --limits:\n%s", text)
	}

	const asking = 8 * time.Second
	over, answered := requests(t, relays, relays[0].newKey(t), asking, rate, rate+rate/2)
	if least := rate * asking.Seconds() * 3 / 4; over > 0 || float64(answered) < least {
		t.Errorf("%d requests with a key of %d a second were answered in %v, want %.0f; %.0f were over the rate",
			answered, rate, asking, least, over)
	}
	t.Logf("%d requests with a key of %d a second were answered in %v", answered, rate, asking)

	relays[0].kill()
	relays[0].start(t)
	s.submit(t, relays, 15*time.Second, 1000)
	full("after a kill")

	relays[1].mta(t, "queue", "remove", "--tenant", "acme", "--reason", "test")
	left := queued()
	s.submit(t, relays[2:], 20*time.Second, 1000)
	if s.submit(t, relays, 10*time.Second, 1000); left > most-20 {
		t.Errorf("%d are left when one of three relays has removed its messages", left)
	}
	full("after some have left")
	t.Logf("%d of the first relays, refused %v", left, s.refused)
	for text := range s.refused {
		if !strings.Contains(text, "of the cluster") {
			t.Error(text)
		}
	}
}

// TestClusterSharesPaces has three relays send a campaign with a pace, and then mail that a rule at one of them slows: the
// host never gets more than either allows.
func TestClusterSharesPaces(t *testing.T) {
	parallel(t)
	const rate, n = 20, 120
	const address = "127.31.7.10"
	relays, _, _, port := bigExample(t, address, "")
	host := newToll(t, net.JoinHostPort(address, port), 0)
	send := func(fields string) {
		t.Helper()
		var all sync.WaitGroup
		for _, r := range relays {
			all.Go(func() {
				if err := r.take(n, func(int) (string, []string, string) { return hello(fields, "to@big.example") }); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	paced := func(what string, most int) {
		t.Helper()
		began := time.Now()
		for _, r := range relays {
			r.drained(t, patience)
		}
		took := time.Since(began)
		if over := host.over(rate, float64(most)+rate/2); over > 0 { // a message takes some time to the host
			t.Errorf("%s: %.0f messages were over the rate", what, over)
		}
		if len(host.began) != len(relays)*n || took > 45*time.Second {
			t.Errorf("%s: %d messages in %v", what, len(host.began), took)
		}
		t.Logf("%s: %v", what, took)
		host.began = nil
	}
	send("X-MTA-Campaign: spring\r\nX-MTA-Pace: 20/s\r\n")
	paced("a campaign", rate+1)
	relays[1].mta(t, "rule", "add", "--domain", "big.example", "slow", "20/s", "--reason", "their new server")
	send("")
	paced("a rule", rate)
}
