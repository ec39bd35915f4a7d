package mta

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/lab/sink"
	"example.org/mta/submission/auth"
)

// TestAStopAnswersRequestsThatWait: 512 requests of 32 tenants wait for events. A relay that stops answers each of them at
// once, with an empty page, and does not wait for their time to end.
func TestAStopAnswersRequestsThatWait(t *testing.T) {
	const tenants, each = 32, 16 // what a tenant may have waiting
	path := filepath.Join(t.TempDir(), "keys")
	var blocks strings.Builder
	var tokens []string
	for i := range tenants {
		name := fmt.Sprintf("t%d", i)
		token, _, err := auth.AddKey(path, auth.Key{Tenant: name, Name: name, Scopes: auth.MayReadEvents}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, token)
		fmt.Fprintf(&blocks, "tenant %q { senders = [\"%s.example\"] }\n", name, name)
	}
	w := newWorld(t, sink.Config{}, fmt.Sprintf("defaults { smtp_port = PORT }\nkeys { file = %q }\napi \"web\" { address = \"127.0.0.1:0\" }\n%s", path, &blocks))
	url := "http://" + w.Status().HTTP[0] + "/v1/events?after=now&wait=60"
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: tenants * each}}
	defer client.CloseIdleConnections()
	get := func(token string) (int, string, error) {
		req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
		if err != nil {
			return 0, "", err
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := client.Do(req)
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text), err
	}
	var all sync.WaitGroup
	var served, refused atomic.Int64
	for _, token := range tokens {
		for range each + 1 { // one is refused, once the others wait
			all.Go(func() {
				status, text, err := get(token)
				switch {
				case err == nil && status == http.StatusOK && strings.Contains(text, `"events":[]`):
					served.Add(1)
				case err == nil && status == http.StatusTooManyRequests:
					refused.Add(1)
				default:
					t.Errorf("%d %s, %v", status, text, err)
				}
			})
		}
	}
	// A stop resets connections whose requests the relay has not begun to read: so those that are refused come first, too.
	for deadline := time.Now().Add(30 * time.Second); w.puller.Waiting() < tenants*each || refused.Load() < tenants; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d requests wait and %d were refused, want %d and %d", w.puller.Waiting(), refused.Load(), tenants*each, tenants)
		}
	}
	began := time.Now()
	var answered time.Duration
	var answers sync.WaitGroup
	answers.Go(func() { all.Wait(); answered = time.Since(began) })
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	answers.Wait()
	if n := served.Load(); n != tenants*each {
		t.Errorf("%d requests that waited were served, want %d", n, tenants*each)
	}
	t.Logf("%d requests were answered after %v, and the relay had stopped after %v", tenants*each, answered, time.Since(began))
	if answered > 30*time.Second {
		t.Error("the requests waited for their own time")
	}
}
