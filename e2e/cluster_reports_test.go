package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	"example.org/mta/lab/sink"
)

// TestAClusterTakesReports has bounces, complaints and wishes come to nodes that have not sent the mail: they count as if
// they had come to the one that has, once. While that one is away they come again; when it was forgotten, they are
// recorded.
func TestAClusterTakesReports(t *testing.T) {
	parallel(t)
	type event struct{ Type, ID, Recipient, Tenant string }
	var mu sync.Mutex
	events := map[event]int{}
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var batch []event
		if err := json.NewDecoder(r.Body).Decode(&batch); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, e := range batch {
			events[e]++
		}
	}))
	defer hook.Close()
	const address = "127.31.12.1"
	relays, _, _, port := bigExample(t, address, fmt.Sprintf(`
keys { file = "KEYS" }
api "web" { address = "WEB" }
suppression { feed = true }
tenant "acme" {
  networks         = ["127.0.0.0/8"]
  return_path      = "b.acme.example"
  unsubscribe_mail = true
}
tenant "shop" { unsubscribe = "https://shop.example/unsubscribe" }
listener "mx" {
  address    = "INBOUND"
  relay_from = []
  inbound {
    domains     = ["b.acme.example"]
    complaints  = ["fbl@b.acme.example"]
    unsubscribe = true
  }
}
stream "hook" {
  to     = "%s/"
  linger = "50ms"
}
source "new-1" { address = "127.31.12.2" }
pool "default" {
  overflow = "hold"
  dedicated "new-1" { plan = "live" }
}
plan "live" {
%s
}
`, hook.URL, planText([]warmStage{{warmCaps{36000, 360000}, nil}})))
	record := sink.NewRecorder(sink.Contents, 0)
	mailHost(t, net.JoinHostPort(address, port), sink.Config{Recorder: record})
	a, b, c := relays[0], relays[1], relays[2]

	// sent has a node deliver mail, and returns it as it arrives.
	sent := func(r *relay, name, field string) (m sink.Message) {
		t.Helper()
		to := name + "@big.example"
		r.submit(t, 1, func(int) (string, []string, string) { return hello(field, to) })
		eventually(t, patience, func() error {
			for _, m = range record.Messages() {
				if m.Recipients[0] == to {
					return nil
				}
			}
			return fmt.Errorf("mail to %s has not arrived", to)
		})
		return m
	}
	// brings has a host bring a report to a node, which answers with these words, or accepts it without any.
	brings := func(r *relay, to, content, words string) {
		t.Helper()
		eventually(t, patience, func() error {
			s, err := dialSession(r.inbound)
			if err != nil {
				return err
			}
			defer s.close()
			_, err = s.send("", []string{to}, strings.ReplaceAll(content, "\n", "\r\n"))
			if words == "" && err != nil || words != "" && (err == nil || !strings.Contains(err.Error(), words)) {
				return fmt.Errorf("a report to %s is answered %v; want %q", to, err, words)
			}
			return nil
		})
	}
	bounce := func(m sink.Message) string {
		return "From: MAILER-DAEMON@big.example\nSubject: Undelivered Mail Returned to Sender\n\n<" + m.Recipients[0] + ">: 550 5.1.1 user unknown\n"
	}
	suppressed := func(name, tenant, words string) {
		t.Helper()
		for _, r := range relays {
			eventually(t, patience, func() error {
				out, err := r.try("suppress", "check", name+"@big.example", "--tenant", tenant)
				if !strings.Contains(out, words) {
					return fmt.Errorf("mta suppress check prints %s, %w; want %q", out, err, words)
				}
				return nil
			})
		}
	}
	once := func(kind, name, tenant string) {
		t.Helper()
		eventually(t, patience, func() error {
			mu.Lock()
			defer mu.Unlock()
			for e, n := range events {
				if e.Type == kind && e.Recipient == name+"@big.example" && e.Tenant == tenant && n == 1 {
					return nil
				}
			}
			return fmt.Errorf("there is no %s of %s, of tenant %s, once: %v", kind, name, tenant, events)
		})
	}

	bounced := sent(a, "bounced", "")
	brings(b, bounced.Sender, bounce(bounced), "")
	suppressed("bounced", "acme", "user unknown")
	for _, r := range relays {
		brings(r, bounced.Sender, bounce(bounced), "")
	}
	once("OOB", "bounced", "acme")
	if out := b.mta(t, "log", "--type", "OOB"); strings.Contains(out, "bounced@") {
		t.Errorf("node 2 has on record %s", out)
	}
	if out := a.mta(t, "log", "--type", "OOB"); strings.Count(out, "bounced@big.example") != 1 {
		t.Errorf("node 1 has on record %s", out)
	}

	complained := sent(a, "complained", "")
	arf := strings.ReplaceAll("From: fbl@big.example\nSubject: complaint\nMIME-Version: 1.0\nContent-Type: multipart/report; report-type=feedback-report; boundary=\"b\"\n\n--b\n\nspam\n"+
		"--b\nContent-Type: message/feedback-report\n\nFeedback-Type: abuse\nUser-Agent: FBL/1.0\nVersion: 1\n--b\nContent-Type: message/rfc822\n\n"+string(complained.Content)+"\n--b--\n", "\r", "")
	for _, r := range []*relay{b, c, a} {
		brings(r, "fbl@b.acme.example", arf, "")
	}
	suppressed("complained", "acme", "complained")
	once("Feedback", "complained", "acme")
	eventually(t, patience, func() error {
		out := a.mta(t, "warmup", "show", "new-1", "--json")
		if !strings.Contains(out, `"complaints_today": 1,`) {
			return fmt.Errorf("mta warmup show prints %s; want one complaint", out)
		}
		return nil
	})

	wished := sent(a, "wished", "")
	wish := regexp.MustCompile(`mailto:(u-[^>]*)>`).FindSubmatch(wished.Content)
	if wish == nil {
		t.Fatalf("there is no address to unsubscribe in %s", wished.Content)
	}
	brings(b, string(wish[1]), "From: wished@big.example\nSubject: no more\n\n", "")
	suppressed("wished", "acme", "unsubscribe")
	once("Unsubscribe", "wished", "acme")

	// A link, at two nodes.
	clicked := sent(a, "clicked", "X-MTA-Tenant: shop\r\n")
	link := regexp.MustCompile(`https://shop.example(/unsubscribe/[^>]+)>`).FindSubmatch(clicked.Content)
	if link == nil {
		t.Fatalf("there is no link in %s", clicked.Content)
	}
	for _, r := range []*relay{b, c} {
		resp, err := http.Post("http://"+r.web+string(link[1]), "application/x-www-form-urlencoded", strings.NewReader("List-Unsubscribe=One-Click"))
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(resp, err)
		}
		resp.Body.Close()
		suppressed("clicked", "shop", "unsubscribe")
	}
	once("Unsubscribe", "clicked", "shop")

	// The node is away, and back.
	late := sent(a, "late", "")
	a.kill()
	brings(b, late.Sender, bounce(late), "451")
	brings(c, late.Sender, bounce(late), "451")
	brings(b, "b-1"+strings.Repeat("0", 42)+"@b.acme.example", bounce(late), "550")
	a.start(t)
	brings(b, late.Sender, bounce(late), "")
	suppressed("late", "acme", "user unknown")
	once("OOB", "late", "acme")

	// It is gone for good.
	lost := sent(c, "lost", "")
	c.kill()
	if out, err := mta(append(b.env, "MTA_CONFIG="+b.config), "cluster", "forget", "3", "--dead"); err != nil {
		t.Fatal(out, err)
	}
	relays = relays[:2]
	brings(b, lost.Sender, bounce(lost), "")
	once("OOB", "lost", "")
	suppressed("lost", "acme", "lost@big.example is not suppressed")
}
