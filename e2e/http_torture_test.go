package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// webClients submit by HTTP, and some by SMTP, each request with a key and as often as it takes for an answer.
type webClients struct {
	b    *battlefield
	url  string
	key  string
	http *http.Client

	mu      sync.Mutex // guards the rest
	keyed   []keyedRequest
	want    map[string]bool // test ids of messages that were answered for
	unseen  int             // tries that got no answer
	later   map[int]int     // tries that were asked to come later, by status
	strange []string        // answers that no client should get
}

// keyedRequest is a request that was answered.
type keyedRequest struct {
	key, path, kind, body string
	answer                string
}

const webHTTP, webSMTP = 12, 4 // clients

// newWebBattlefield has a relay that takes mail by HTTP, too.
func newWebBattlefield(t *testing.T, config string) *webClients {
	t.Helper()
	b := newBattlefield(t)
	b.domains, b.taken = []string{"home.example"}, b.reports // the recorder that keeps the contents
	addr := "127.0.0.1:" + commonPort(t, "127.0.0.1")
	b.config = fmt.Sprintf(`
tenant "acme" { senders = ["acme.example"] }
keys { file = "%s/keys" }
api "web" { address = ["%s"] }
%s`, scratch(t), addr, config)
	w := &webClients{b: b, url: "http://" + addr, want: make(map[string]bool), later: make(map[int]int)}
	w.http = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: webHTTP}}
	t.Cleanup(w.http.CloseIdleConnections)
	return w
}

// startRelay starts it, and makes a key.
func (w *webClients) startRelay(t *testing.T) *relay {
	t.Helper()
	r := w.b.startRelay(t)
	w.key = newKey(t, r)
	return r
}

// TestTortureKeyedRequestsAreTakenOnce kills the relay at random moments, while clients send each request again, with its
// key, until it is answered. In the end each message was in the queue exactly once: all its copies have one queue id, and
// an answered request that is sent again takes nothing and gets the same answer.
func TestTortureKeyedRequestsAreTakenOnce(t *testing.T) {
	parallel(t)
	w := newWebBattlefield(t, "")
	seed := uint64(time.Now().UnixNano())
	kills := tortureSize(t, tortureKills)
	t.Logf("%d kills, seed %d", kills, seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	r := w.startRelay(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var clients sync.WaitGroup
	for i := range webHTTP {
		clients.Go(func() { w.byHTTP(ctx, i, rand.New(rand.NewPCG(seed, uint64(i+1)))) })
	}
	for i := range webSMTP {
		clients.Go(func() { w.bySMTP(ctx, r.addr, i) })
	}
	for range kills {
		<-time.After(untilKill(rng))
		r.kill()
		w.b.ends = append(w.b.ends, time.Now())
		r.process = launchRelay(t, r)
		if rng.IntN(3) != 0 { // else the next kill may come while it starts
			r.listens(t, r.addr)
		}
	}
	r.listens(t, r.addr)
	<-time.After(time.Second)
	cancel()
	clients.Wait()
	w.repeat(t, r.addr)
	queued := w.b.settle(t)
	if len(queued) > 0 {
		t.Errorf("%d recipients are still in the queue", len(queued))
	}
	w.judge(t)
	if !r.stop(20 * time.Second) {
		t.Error("the relay did not end by itself within 20 s")
	}
}

// byHTTP sends requests one after the other until ctx ends; the last one, too, until it is answered.
func (w *webClients) byHTTP(ctx context.Context, client int, rng *rand.Rand) {
	for n := 0; ctx.Err() == nil; n++ {
		id := fmt.Sprintf("h-%d-%d", client, n)
		q := keyedRequest{key: "key of " + id, path: "/v1/messages", kind: "application/json"}
		ids := []string{id}
		switch rng.IntN(4) {
		case 0: // personalised
			ids = nil
			var people []string
			for i := range 1 + rng.IntN(40) {
				ids = append(ids, fmt.Sprintf("%s-%d", id, i))
				people = append(people, fmt.Sprintf(`{"to":["%[1]s@home.example"],"data":{"n":"%[1]s"},"headers":{"Message-ID":"<%[1]s@acme.example>"}}`, ids[i]))
			}
			q.body = `{"from":"shop@acme.example","subject":"for {{n}}","text":"Hello {{n}},\n` + strings.Repeat("and so on\\n", rng.IntN(300)) + `","recipients":[` + strings.Join(people, ",") + `]}`
		case 1: // raw
			q.kind = "message/rfc822"
			q.path += "?" + url.Values{"from": {"shop@acme.example"}, "to": {id + "@home.example"}}.Encode()
			q.body = "From: shop@acme.example\r\nMessage-ID: <" + id + "@acme.example>\r\n\r\n" + strings.Repeat("raw\r\n", 1+rng.IntN(5000))
		default:
			q.body = fmt.Sprintf(`{"from":"shop@acme.example","to":["%[1]s@home.example"],"subject":"x","text":"x","headers":{"Message-ID":"<%[1]s@acme.example>"}}`, id)
		}
		if q.answer = w.until(q); q.answer == "" {
			return
		}
		w.answered(q, ids)
	}
}

// until sends a request again and again until it is answered; "" when it can't be.
func (w *webClients) until(q keyedRequest) string {
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(20 * time.Millisecond) {
		status, body, _, err := w.post(q)
		w.mu.Lock()
		switch {
		case err != nil:
			w.unseen++
		case status == http.StatusConflict, status == http.StatusServiceUnavailable, status == http.StatusTooManyRequests:
			w.later[status]++
		case status != http.StatusAccepted:
			w.strange = append(w.strange, fmt.Sprintf("%d %s", status, body))
			w.mu.Unlock()
			return ""
		}
		w.mu.Unlock()
		if err == nil && status == http.StatusAccepted {
			return body
		}
	}
	return ""
}

// post sends a request once.
func (w *webClients) post(q keyedRequest) (status int, body string, replayed bool, err error) {
	req, err := http.NewRequest("POST", w.url+q.path, strings.NewReader(q.body))
	if err != nil {
		return 0, "", false, err
	}
	req.Header.Set("Authorization", "Bearer "+w.key)
	req.Header.Set("Content-Type", q.kind)
	if q.key != "" {
		req.Header.Set("Idempotency-Key", `"`+q.key+`"`)
	}
	answer, err := w.http.Do(req)
	if err != nil {
		return 0, "", false, err
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(b), answer.Header.Get("Idempotent-Replayed") == "true", err
}

// bySMTP does the same by SMTP, with the key in a field.
func (w *webClients) bySMTP(ctx context.Context, addr string, client int) {
	for n := 0; ctx.Err() == nil; n++ {
		id := fmt.Sprintf("s-%d-%d", client, n)
		q := keyedRequest{key: "key-of-" + id, kind: "SMTP", path: id}
		q.body = "From: boss@home.example\r\nX-MTA-Idempotency-Key: " + q.key + "\r\nMessage-ID: <" + id + "@acme.example>\r\n\r\nx\r\n"
		for {
			s, err := dialSession(addr)
			if err == nil {
				_, err = s.send("boss@home.example", []string{id + "@home.example"}, q.body)
				s.close()
			}
			if err == nil {
				break
			}
			w.mu.Lock()
			w.unseen++
			var refusal *textproto.Error
			refused := errors.As(err, &refusal) && refusal.Code >= 500
			if refused {
				w.strange = append(w.strange, err.Error())
			}
			w.mu.Unlock()
			if refused {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		w.answered(q, []string{id})
	}
}

func (w *webClients) answered(q keyedRequest, ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keyed = append(w.keyed, q)
	for _, id := range ids {
		w.want[id] = true
	}
}

// repeat sends requests again that were answered.
func (w *webClients) repeat(t *testing.T, addr string) {
	t.Helper()
	again := 0
	for i, q := range w.keyed {
		if i%max(1, len(w.keyed)/300) != 0 {
			continue
		}
		again++
		if q.kind == "SMTP" {
			eventually(t, patience, func() error { // a busy relay asks to come later
				s, err := dialSession(addr)
				if err == nil {
					defer s.close()
					_, err = s.send("boss@home.example", []string{q.path + "@home.example"}, q.body)
				}
				if err != nil {
					err = fmt.Errorf("%s sent again: %w", q.path, err)
				}
				return err
			})
			continue
		}
		var status int
		var body string
		var replayed bool
		var err error
		eventually(t, patience, func() error {
			if status, body, replayed, err = w.post(q); status == http.StatusTooManyRequests {
				return fmt.Errorf("%s is asked to come later", q.key)
			}
			return nil
		})
		if err != nil || status != http.StatusAccepted || !replayed || idsIn(body) != idsIn(q.answer) || idsIn(body) == "" {
			t.Errorf("%s sent again: %d, replayed %t, %v\n%s\nwant\n%s", q.key, status, replayed, err, body, q.answer)
		}
	}
	t.Logf("%d of %d answered requests were sent again", again, len(w.keyed))
}

// idsIn lists the ids in an answer.
func idsIn(answer string) string {
	var a struct {
		Messages []struct {
			ID     string `json:"id"`
			Status string `json:"status"`
		} `json:"messages"`
	}
	if json.Unmarshal([]byte(answer), &a) != nil {
		return ""
	}
	var ids []string
	for _, m := range a.Messages {
		ids = append(ids, m.ID+" "+m.Status)
	}
	return strings.Join(ids, ", ")
}

// queueID is the relay's id of a message in the field that it has added last.
var queueID = regexp.MustCompile(`(?is)^Received:.*?\sid ([0-9A-Za-z]+)`)

// judge counts the messages of the queue by what arrived.
func (w *webClients) judge(t *testing.T) {
	t.Helper()
	ids := make(map[string][]string) // of the queue, by test id
	for _, m := range w.b.reports.Messages() {
		received := m.Content[max(0, bytes.Index(m.Content, []byte("Received:"))):]
		match := queueID.FindSubmatch(received)
		if match == nil {
			t.Fatalf("no queue id in\n%s", m.Content)
		}
		test, id := strings.TrimSuffix(m.ID, "@acme.example"), string(match[1])
		if !slices.Contains(ids[test], id) {
			ids[test] = append(ids[test], id)
		}
	}
	lost, twice, unasked := 0, 0, 0
	for id := range w.want {
		switch n := len(ids[id]); {
		case n == 0:
			if lost++; lost <= 10 {
				t.Errorf("%s was answered for and has not arrived", id)
			}
		case n > 1:
			if twice++; twice <= 10 {
				t.Errorf("%s was in the queue as %v", id, ids[id])
			}
		}
	}
	for id := range ids {
		if !w.want[id] {
			unasked++
		}
	}
	copies, age, unexcused := w.b.duplicates(w.b.ends)
	t.Logf("%d requests answered, %d messages; %d tries without an answer, %v asked to come later", len(w.keyed), len(w.want), w.unseen, w.later)
	t.Logf("%d lost, %d twice in the queue, %d of requests that were never answered; %d second copies, all but %d of mail that was on its way at a kill (its first copy at most %v before it)",
		lost, twice, unasked, copies, len(unexcused), age.Round(time.Millisecond))
	for _, d := range unexcused[:min(len(unexcused), 5)] {
		t.Errorf("a second copy without a kill near the first: %s for %s", d.ID, d.Recipient)
	}
	for _, s := range w.strange[:min(len(w.strange), 5)] {
		t.Errorf("a client got %s", s)
	}
	if lost+twice+unasked > 0 {
		t.Errorf("%d lost, %d twice, %d unasked", lost, twice, unasked)
	}
	if len(w.want) < 100 {
		t.Errorf("only %d messages were accepted: that tests nothing", len(w.want))
	}
	if t.Failed() {
		t.Logf("the relay's log at the end:\n%s", tail(w.b.relay.log))
	}
}

// TestOverloadFillsTheDiskByHTTP submits by HTTP and SMTP until the disk has its limit, while nothing can be
// delivered. Clients get 503 and 452, nothing is lost, and when mail leaves again, it is taken again.
func TestOverloadFillsTheDiskByHTTP(t *testing.T) {
	parallel(t)
	needRoot(t)
	w := newWebBattlefield(t, "")
	b := w.b
	b.relay = newRelay(t, b.dns, b.port, fmt.Sprintf("queue {\n  segment_size = \"1MiB\"\n  min_free = \"16MiB\"\n}\naccounting { path = %q }\n%s", t.TempDir(), b.config))
	mountSmallDisk(t, b.relay.dir+"/data")
	b.relay.start(t)
	w.key = newKey(t, b.relay)
	runClient(t, "", binary, "--config", b.relay.config, "pause", "domain", "home.example")
	round := 0
	fill := func(most int) (accepted int, refused map[string]int) {
		round++
		return w.fill(round, b.relay.addr, most)
	}
	eventually(t, patience, func() error {
		accepted, refused := fill(math.MaxInt)
		t.Logf("%d accepted, refused: %v", accepted, refused)
		for what := range refused {
			if what != "503" && what != "452" && what != "421" {
				t.Errorf("a client got %s, want 503, or 452 by SMTP, or 421 for trying again and again", what)
			}
		}
		if accepted > 0 || refused["503"] == 0 || refused["452"] == 0 {
			return errors.New("the disk still takes mail")
		}
		return nil
	})
	runClient(t, "", binary, "--config", b.relay.config, "resume", "domain", "home.example")
	eventually(t, patience, func() error {
		if accepted, refused := fill(5); accepted == 0 || len(refused) > 0 {
			return fmt.Errorf("mail is not taken as before: %d accepted, %v", accepted, refused)
		}
		return nil
	})
	b.settle(t)
	w.judge(t)
}

// fill has clients submit for a second, each try once and with its own content, and each client so many at most: a fast
// machine fills the small disk in a second.
func (w *webClients) fill(round int, addr string, most int) (accepted int, refused map[string]int) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	refused = make(map[string]int)
	note := func(id, refusal string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if refusal == "" {
			accepted++
			w.want[id] = true
			return
		}
		refused[refusal]++
	}
	var clients sync.WaitGroup
	for i := range webHTTP {
		clients.Go(func() {
			for n := 0; n < most && ctx.Err() == nil; n++ {
				id := fmt.Sprintf("f-%d-%d-%d", round, i, n)
				status, _, _, err := w.post(keyedRequest{path: "/v1/messages", kind: "application/json", body: fmt.Sprintf(
					`{"from":"shop@acme.example","to":["%[1]s@home.example"],"subject":"x","text":"%[2]s","headers":{"Message-ID":"<%[1]s@acme.example>"}}`, id, strings.Repeat("fill\\n", 2000))})
				switch {
				case err != nil:
					note(id, err.Error())
				case status == http.StatusAccepted:
					note(id, "")
				default:
					note(id, fmt.Sprint(status))
					time.Sleep(10 * time.Millisecond)
				}
			}
		})
	}
	for i := range webSMTP {
		clients.Go(func() {
			for n := 0; n < most && ctx.Err() == nil; n++ {
				id := fmt.Sprintf("g-%d-%d-%d", round, i, n)
				s, err := dialSession(addr)
				if err == nil {
					_, err = s.send("boss@home.example", []string{id + "@home.example"}, "From: boss@home.example\r\nMessage-ID: <"+id+"@acme.example>\r\n\r\n"+strings.Repeat("fill\r\n", 2000))
					s.close()
				}
				if err != nil {
					note(id, err.Error()[:3])
					time.Sleep(10 * time.Millisecond)
					continue
				}
				note(id, "")
			}
		})
	}
	clients.Wait()
	return accepted, refused
}
