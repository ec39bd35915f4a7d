package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestAClusterIsReset has the database lose what it acknowledged in its last seconds: a key among it, and a pause. The
// nodes take no part until one command has reset the cluster, under load. Then, without a restart, they share the limits,
// know the pause and the keys, and the host has never had too many connections.
func TestAClusterIsReset(t *testing.T) {
	t.Parallel() // most of it is waiting
	const rate, places = 100, 7
	const address = "127.31.14.1"
	relays, primary, standby, port := bigExample(t, address, fmt.Sprintf(`
provider "big" {
  mx               = ["mx.big.example"]
  connection_limit = %d
  max_message_rate = "%d/s"
}
tenant "acme" { senders = ["acme.example"] }
keys { file = "KEYS" }
api "web" { address = ["WEB"] }
`, places, rate))
	host := newToll(t, net.JoinHostPort(address, port), 0)
	arrived := func() int { return int(host.record.Tally().Unique) }
	sent := 0
	send := func(n int) {
		t.Helper()
		for _, r := range relays {
			s, err := dialSession(r.addr)
			if err != nil {
				t.Fatal(err)
			}
			for range n {
				sent++
				content := fmt.Sprintf("From: ann@client.example\r\nX-Mta-Test-Id: %d\r\n\r\nhello\r\n", sent)
				if _, err := s.send("ann@client.example", []string{"to@big.example"}, content); err != nil {
					t.Fatal(err)
				}
			}
			s.close()
		}
	}
	c := &customers{T: t, relays: relays}
	c.http.Timeout = 20 * time.Second
	t.Cleanup(c.http.CloseIdleConnections)
	for _, r := range relays {
		eventually(t, patience, func() error {
			if s := r.cluster(); !s.Takes || s.Silent > 2 {
				return fmt.Errorf("it takes no part: %+v", s)
			}
			return nil
		})
	}
	out, err := mta(relays[0].env, "--config", relays[0].config, "key", "add", "--tenant", "acme", "--name", "shop")
	c.key, _, _ = strings.Cut(out, "\n")
	if err != nil || strings.Contains(out, "not known") {
		t.Fatal(out, err)
	}
	answers, bodies := make(map[string]string), make(map[string]string)
	buy := func(at int, key string) {
		t.Helper()
		if bodies[key] == "" {
			bodies[key] = fmt.Sprintf(`{"from":"shop@acme.example","to":"%s@box.example","subject":"x","text":"x","send_at":%q}`,
				key, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		}
		eventually(t, patience, func() error {
			answer, _, code := c.post(at, key, bodies[key])
			switch first := answers[key]; {
			case code != http.StatusAccepted:
				return fmt.Errorf("%s at relay %d: %d %s", key, at, code, answer)
			case first != "" && first != answer:
				t.Errorf("%s at relay %d: %s, and first %s", key, at, answer, first)
			default:
				answers[key] = answer
			}
			return nil
		})
	}
	buy(0, "kept")
	send(100)
	if err := allCome("messages", sent, arrived); err != nil {
		t.Fatal(err)
	}

	primary.ask(t, "ALTER SYSTEM SET synchronous_standby_names = ''")
	primary.ask(t, "SELECT pg_reload_conf()")
	primary.comes(t, "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'async'", "1")
	standby.end()
	for at := range relays {
		buy(at, fmt.Sprint("lost-", at))
	}
	relays[0].mta(t, "pause", "domain", "lost.example")
	time.Sleep(3 * time.Second) // of beats that are lost
	primary.end()
	standby.begin(t)
	standby.ask(t, "SELECT pg_promote(false)")
	standby.comes(t, "SELECT pg_is_in_recovery()", "f")
	if n := standby.ask(t, "SELECT count(*) FROM mta_cluster.keys"); n != "1" {
		t.Fatalf("the database has %s keys", n)
	}
	eventually(t, patience, func() error {
		if s := relays[0].cluster(); !strings.Contains(s.Lost, "the database has lost writes: ") {
			return fmt.Errorf("relay 1 has found nothing lost: %+v", s)
		}
		return nil
	})
	if out := relays[1].mta(t, "cluster", "reset", "--dry-run"); !strings.Contains(out, "node 1: the database has lost writes: ") {
		t.Errorf("mta cluster reset --dry-run prints %s", out)
	}
	send(100) // which waits

	began := time.Now()
	out = relays[1].mta(t, "cluster", "reset", "--reason", "a bad failover")
	t.Logf("mta cluster reset prints after %v: %s", time.Since(began), out)
	if took := time.Since(began); !strings.Contains(out, "all nodes take part again") || took < 150*time.Second {
		t.Errorf("it ended after %v", took)
	}
	for _, r := range relays {
		if s := r.cluster(); s.Lost != "" || !s.Takes {
			t.Errorf("it takes no part: %+v", s)
		}
		eventually(t, patience, func() error {
			if out := r.mta(t, "pause"); !strings.Contains(out, "domain lost.example") {
				return errors.New("a relay does not know the pause: " + out)
			}
			return nil
		})
	}
	for at := range relays {
		for key := range bodies {
			buy(at, key)
		}
		buy(at, fmt.Sprint("new-", at))
	}
	for at := range relays {
		buy(at, "new-0")
	}
	send(200)
	if err := allCome("messages", sent, arrived); err != nil {
		t.Errorf("%v\n%s", err, relays[0].mta(t, "explain", "big.example"))
	}
	if n := host.over(rate, rate+rate/2); n > 0 {
		t.Errorf("%.0f messages were over the rate", n)
	}
	if host.most > places {
		t.Errorf("%d connections of %d", host.most, places)
	}
	if out := relays[1].mta(t, "actions"); !strings.Contains(out, "cluster reset") || !strings.Contains(out, "a bad failover") {
		t.Errorf("the audit log has %s", out)
	}
}
