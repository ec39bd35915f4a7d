package e2e

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/smtp"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.org/mta/lab/sink"
)

// TestAClusterKnows has one of two relays learn that a recipient has unsubscribed, and an operator pause mail there: the
// other one acts on both, and knows keys, users and templates. So it does when the database was away meanwhile, and a
// third relay that joins later.
func TestAClusterKnows(t *testing.T) {
	parallel(t)
	const address = "127.31.8.1"
	relays, primary, _, port := bigExample(t, address, `
keys { file = "KEYS" }
users { file = "USERS" }
api "web" { address = "WEB" }
listener "login" {
  address    = "INBOUND"
  relay_from = []
  auth {
    mechanisms        = ["PLAIN"]
    clear_on_loopback = true
  }
}
source "one" { ehlo = "one.example" }
source "two" { ehlo = "two.example" }
tenant "acme" {
  networks    = ["127.0.0.0/8"]
  unsubscribe = "https://mail.acme.example/unsubscribe"
}
`)
	record := sink.NewRecorder(sink.Contents, 0)
	mailHost(t, net.JoinHostPort(address, port), sink.Config{Recorder: record})
	a, b, late := relays[0], relays[1], relays[2]
	if !late.stop(patience) {
		t.Error("it does not stop")
	}

	// mail is refused with these words, or accepted without any.
	mail := func(r *relay, rcpt, words string) error {
		s, err := dialSession(r.addr)
		if err != nil {
			return err
		}
		defer s.close()
		_, err = s.send(hello("", rcpt))
		if words == "" && err == nil || words != "" && err != nil && strings.Contains(err.Error(), words) {
			return nil
		}
		return fmt.Errorf("mail to %s: %w; want %q", rcpt, err, words)
	}
	known := func(what string, does func() error) {
		t.Helper()
		began := time.Now()
		eventually(t, patience, does)
		t.Logf("%s: known after %.1f s", what, time.Since(began).Seconds())
	}
	if err := mail(a, "joe@big.example", ""); err != nil {
		t.Fatal(err)
	}
	if err := allCome("messages", 1, func() int { return int(record.Tally().Unique) }); err != nil {
		t.Fatal(err)
	}
	link := regexp.MustCompile(`https://mail.acme.example(/unsubscribe/[^>]+)>`).FindSubmatch(record.Messages()[0].Content)
	if link == nil {
		t.Fatalf("there is no link in %s", record.Messages()[0].Content)
	}
	// a link that was made at the first, at the second
	resp, err := http.Post("http://"+b.web+string(link[1]), "application/x-www-form-urlencoded",
		strings.NewReader("List-Unsubscribe=One-Click"))
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	resp.Body.Close()
	known("an unsubscription", func() error { return mail(a, "joe@big.example", "the recipient unsubscribed") })

	// a key that was made at the first, at the second; and it is removed there
	run := func(r *relay, args ...string) string {
		t.Helper()
		out, err := mta(append(r.env, "MTA_CONFIG="+r.config), args...)
		if err != nil {
			t.Errorf("mta %s prints %s, %v", args, out, err)
		}
		return out
	}
	out := run(a, "key", "add", "--tenant", "acme", "--name", "shop")
	token := regexp.MustCompile(`(?m)^mta_[A-Za-z0-9_-]{43}$`).FindString(out)
	if token == "" || !strings.Contains(out, "node 3 of the cluster: the change is not known there yet") {
		t.Fatalf("mta key add prints %s", out)
	}
	holder := func(r *relay, valid bool) {
		t.Helper()
		known(fmt.Sprintf("a key (%v)", valid), func() error {
			req, _ := http.NewRequest("GET", "http://"+r.web+"/v1/messages/0123456789abcdef", nil)
			req.Header.Set("Authorization", "Bearer "+token)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			resp.Body.Close()
			if (resp.StatusCode != http.StatusUnauthorized) != valid {
				return fmt.Errorf("a key is answered %d; want it valid: %v", resp.StatusCode, valid)
			}
			return nil
		})
	}
	holder(b, true)
	if out := run(b, "key", "list"); !strings.Contains(out, "shop") {
		t.Errorf("mta key list prints %s", out)
	}
	// a template in the folder of the first, and a change of it
	text, err := os.ReadFile(a.config)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, a.config, string(text)+"templates { path = \""+a.dir+"/templates\" }\n")
	for _, text := range []string{"Welcome, Ann.", "Back, Ann?"} {
		writeFile(t, a.dir+"/templates/acme/welcome.text", strings.Replace(text, "Ann", "{{name}}", 1))
		a.mta(t, "config", "reload")
		known("a template", func() error {
			out, err := mta(append(b.env, "MTA_CONFIG="+b.config), "template", "render", "acme", "welcome")
			if want := strings.Replace(text, "Ann", "", 1); !strings.Contains(out, want) {
				return fmt.Errorf("mta template render prints %s, %w; want %q", out, err, want)
			}
			return nil
		})
		body := strings.NewReader(`{"from": "shop@acme.example", "to": "ann@big.example", "template": "welcome", "data": {"name": "Ann"}}`)
		req, _ := http.NewRequest("POST", "http://"+b.web+"/v1/messages", body)
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil || resp.StatusCode != http.StatusAccepted {
			t.Fatal(resp, err)
		}
		resp.Body.Close()
		if err := allCome("messages with "+text, 1, func() (n int) {
			for _, m := range record.Messages() {
				n += bytes.Count(m.Content, []byte(text))
			}
			return n
		}); err != nil {
			t.Error(err)
		}
	}
	run(b, "key", "remove", "shop")
	holder(b, false)
	holder(a, false)

	// a user who was made at the first, and another password; and it is removed there
	password := func(out string) string {
		found := regexp.MustCompile(`(?m)^password: (\S+)$`).FindStringSubmatch(out)
		if found == nil || !strings.Contains(out, "node 3 of the cluster: the change is not known there yet") {
			t.Fatalf("it prints %s", out)
		}
		return found[1]
	}
	login := func(r *relay, user, password string, valid bool) {
		t.Helper()
		known(fmt.Sprintf("%s (%v)", user, valid), func() error {
			c, err := smtp.Dial(r.inbound)
			if err != nil {
				return err
			}
			defer c.Close()
			if err = c.Auth(smtp.PlainAuth("", user, password, "127.0.0.1")); err == nil && valid {
				return nil
			}
			if err == nil || valid || !strings.Contains(err.Error(), "535") {
				return fmt.Errorf("a login is answered %w; want it valid: %v", err, valid)
			}
			return nil
		})
	}
	one := password(run(a, "user", "add", "ann", "--tenant", "acme", "--generate"))
	login(b, "ann", one, true)
	two := password(run(a, "user", "password", "ann", "--generate"))
	login(b, "ann", two, true)
	login(b, "ann", one, false)
	login(a, "ann", one, false)
	if out := run(b, "user", "list"); !regexp.MustCompile(`(?m)^ann +argon2id +acme `).MatchString(out) {
		t.Errorf("mta user list prints %s", out)
	}
	run(b, "user", "remove", "ann")
	login(b, "ann", two, false)
	login(a, "ann", two, false)
	bobs := password(run(b, "user", "add", "bob", "--generate"))

	suspended := func(r *relay, want bool) {
		t.Helper()
		known(fmt.Sprintf("a suspension (%v)", want), func() error {
			if out := r.mta(t, "sites", "list", "--suspended"); strings.Contains(out, "mx.big.example") != want {
				return fmt.Errorf("mta sites prints %s; want it suspended: %v", out, want)
			}
			return nil
		})
	}
	out, err = a.try("sites", "suspend", "mx.big.example", "--for", "1h")
	if want := "node 3 of the cluster: the change is not known there yet"; err != nil || !strings.Contains(out, want) {
		t.Errorf("mta sites suspend prints %s, %v; want %q", out, err, want)
	}
	suspended(b, true)
	b.mta(t, "sites", "resume", "mx.big.example")
	suspended(a, false)

	out, err = a.try("pools", "weight", "default", "one", "0")
	if want := "node 3 of the cluster: the change is not known there yet"; err != nil || !strings.Contains(out, want) {
		t.Errorf("mta pools weight prints %s, %v; want %q", out, err, want)
	}
	known("a weight", func() error {
		if out := b.mta(t, "pools"); !strings.Contains(out, "weight 0 one") {
			return fmt.Errorf("mta pools prints %s; want the weight", out)
		}
		return nil
	})

	// Their settings are the same, but for what is each node's own, until one has a tenant more.
	settings := func(want string) {
		t.Helper()
		known("settings: "+want, func() error {
			out, _ := a.try("cluster", "status") // which fails while the third is away
			if !regexp.MustCompile(`(?m)^ +2 .*  ` + want + "$").MatchString(out) {
				return fmt.Errorf("mta cluster status prints %s; want %q", out, want)
			}
			return nil
		})
	}
	settings("same")
	text, err = os.ReadFile(b.config)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, b.config, string(text)+"tenant \"late\" {}\n")
	b.mta(t, "config", "reload")
	settings(`differ: tenant "late"`)

	paused := func(r *relay, want bool) {
		t.Helper()
		known(fmt.Sprintf("a pause (%v)", want), func() error {
			if out := r.mta(t, "pause"); strings.Contains(out, "domain big.example, by ") != want {
				return fmt.Errorf("mta pause prints %s; want the pause: %v", out, want)
			}
			return nil
		})
	}
	// The third, which has stopped, is named.
	out, err = a.try("pause", "domain", "big.example", "--reason", "theirs")
	if want := "node 3 of the cluster: the change is not known there yet"; err != nil || !strings.Contains(out, want) {
		t.Errorf("mta pause prints %s, %v; want %q", out, err, want)
	}
	paused(b, true)
	if out := b.mta(t, "pause"); !strings.Contains(out, " at node 1 since ") || !strings.Contains(out, ": theirs") {
		t.Errorf("mta pause prints %s", out)
	}

	// The database is away, and a process ends; one that removes an address and one that adds another.
	primary.end()
	a.mta(t, "suppress", "add", "kim@big.example", "--tenant", "acme")
	a.kill()
	b.mta(t, "resume", "domain", "big.example")
	a.start(t)
	primary.begin(t)
	known("an address that was added without the database", func() error {
		return mail(b, "kim@big.example", "suppressed")
	})
	paused(a, false)
	late.start(t)
	known("all, by a third", func() error {
		if out := late.mta(t, "suppress", "check", "joe@big.example", "--tenant", "acme"); !strings.Contains(out, "unsubscribe") {
			return fmt.Errorf("mta suppress check prints %s", out)
		}
		return nil
	})
	login(late, "bob", bobs, true)
	b.mta(t, "suppress", "remove", "kim@big.example", "--tenant", "acme")
	known("a removal", func() error { return mail(a, "kim@big.example", "") })
	for _, r := range relays {
		eventually(t, patience, func() error {
			if out, err := r.try("cluster", "status"); err != nil {
				return fmt.Errorf("mta cluster status prints %s, %w", out, err)
			}
			return nil
		})
	}
}
