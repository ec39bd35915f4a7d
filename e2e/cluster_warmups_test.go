package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"example.org/mta/operator/api"
)

// TestClusterWarmsUpOnce has three relays send from one warming address, of which one is killed meanwhile. Up to no hour
// of the plan has the host had more than all caps until then, what is above waits, and all relays are at one stage.
func TestClusterWarmsUpOnce(t *testing.T) {
	t.Parallel()
	const hourly, all = 40, 150
	const hour = 4 * time.Second
	const address = "127.31.10.1"
	relays, _, _, port := bigExample(t, address, fmt.Sprintf(`
source "new-1" { address = "127.31.10.2" }
pool "default" {
  overflow = "hold"
  dedicated "new-1" { plan = "live" }
}
plan "live" {
%s
}
`, planText([]warmStage{{warmCaps{hourly, 24 * hourly}, nil}, {warmCaps{2 * hourly, 48 * hourly}, nil}})),
		"MTA_TEST_HOURS="+hour.String())
	host := newToll(t, net.JoinHostPort(address, port))
	status := func(r *relay) api.Warmup {
		var w api.Warmup
		eventually(t, patience, func() (err error) {
			c := api.NewClient(r.dir + "/data/control.sock")
			defer c.Close()
			if w, err = api.OpWarmup.Call(context.Background(), c, api.None{}, "new-1"); err == nil && w.Stage == 0 {
				err = fmt.Errorf("it is %s", w.State)
			}
			return err
		})
		return w
	}
	begun := status(relays[0]).Started
	for i := range all {
		s, err := dialSession(relays[i%3].addr)
		if err != nil {
			t.Fatal(err)
		}
		content := fmt.Sprintf("From: ann@client.example\r\nX-Mta-Test-Id: %d\r\n\r\nhello\r\n", i)
		if _, err := s.send("ann@client.example", []string{"to@big.example"}, content); err != nil {
			t.Fatal(err)
		}
		s.close()
	}
	arrived := func() int { return int(host.record.Tally().Unique) }
	if err := allCome("messages", all/3, arrived); err != nil {
		t.Fatal(err)
	}
	relays[0].kill()
	relays[0].start(t)
	if err := allCome("messages after a kill", all, arrived); err != nil {
		t.Fatalf("%v\n%s", err, relays[0].mta(t, "warmup", "show", "new-1"))
	}

	host.mu.Lock()
	hours := map[int]int{}
	for _, at := range host.began {
		hours[int(at.Sub(begun)/hour)]++
	}
	host.mu.Unlock()
	t.Logf("by hour: %v", hours)
	for h, sum := 0, 0; sum < all; h++ {
		if sum += hours[h]; sum > (h+1)*hourly {
			t.Errorf("up to hour %d: %d, and the caps together are %d", h, sum, (h+1)*hourly)
		}
		if hours[h] > hourly {
			inTime(t, "hour %d: %d of %d", h, hours[h], hourly)
		}
	}

	// A command at one relay holds at all, and they agree in what was sent.
	relays[2].mta(t, "warmup", "set-stage", "new-1", "2")
	relays[1].mta(t, "warmup", "pause", "new-1")
	eventually(t, patience, func() error {
		first := status(relays[0])
		for _, r := range relays {
			if w := status(r); w.Stage != 2 || w.State != "paused" || w.SentStage != first.SentStage ||
				w.SentDay != first.SentDay || !w.Started.Equal(begun) {
				return fmt.Errorf("a relay has %+v, another %+v", w, first)
			}
		}
		return nil
	})
	for _, r := range relays {
		r.drained(t, patience)
	}

	// A relay that stops writes its last reports, though it has left the cluster before.
	if !relays[1].stop(patience) {
		t.Error("it does not stop")
	}
	if log, err := os.ReadFile(relays[1].log); err != nil || strings.Contains(string(log), "warm-up store") {
		t.Errorf("its log has trouble with the warm-ups, %v:\n%s", err, tail(relays[1].log))
	}
}
