package e2e

import (
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestAClusterShown is 'make cluster' at a tenth of its size: three relays that share a limit of a provider, and the
// queue of one of them that moves to the others. With MTA_CLUSTER=1 it prints what one would look at.
func TestAClusterShown(t *testing.T) {
	parallel(t)
	each, rate, places := 60, 30, 3
	say := t.Logf
	if os.Getenv("MTA_CLUSTER") != "" {
		each, rate, places = 600, 100, 7
		say = func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
	}
	const address = "127.31.12.1"
	say("Starting PostgreSQL, its synchronous standby, and three relays ...")
	relays, primary, standby, port := bigExample(t, address, fmt.Sprintf(`
provider "big" {
  mx               = ["mx.big.example"]
  connection_limit = %d
  max_message_rate = "%d/s"
}
`, places, rate))
	host := newToll(t, net.JoinHostPort(address, port), 0)
	say("PostgreSQL: 127.0.0.1:%s, standby 127.0.0.1:%s. The relays:", primary.port, standby.port)
	for i, r := range relays {
		say("  node %d: SMTP at %s, MTA_CONFIG=%s", i+1, r.addr, r.config)
	}
	meet(t, relays)
	say("\n$ mta cluster status\n%s", relays[0].mta(t, "cluster", "status"))

	submit := func(r *relay, name, head string) {
		if err := r.take(each, func(i int) (string, []string, string) {
			return hello(fmt.Sprintf("%sX-Mta-Test-Id: %s-%d\r\n", head, name, i), fmt.Sprintf("%s-%d@big.example", name, i))
		}); err != nil {
			t.Error(err)
		}
	}
	arrived := func() int { return int(host.record.Tally().Unique) }

	say("%d messages at each node for a provider that takes %d a second and %d connections:\n", each, rate, places)
	var clients sync.WaitGroup
	for i, r := range relays {
		clients.Go(func() { submit(r, fmt.Sprint("now-", i+1), "") })
	}
	before, seconds := 0, time.NewTicker(time.Second)
	defer seconds.Stop()
	for second := 1; before < 3*each; second++ {
		<-seconds.C
		n, open := arrived(), host.connections()
		say("  %3d s  %4d  %d connections  %s", second, n-before, open, strings.Repeat("#", (n-before)/2))
		if before = n; second > 300 {
			t.Fatalf("%d of %d have come", n, 3*each)
		}
	}
	clients.Wait()
	// A message takes some time to the host, the more the busier this machine is.
	if over := host.over(float64(rate), float64(rate)*1.5); over > 0 || host.most > places {
		t.Errorf("%.0f messages were over the rate, and there were %d connections of %d", over, host.most, places)
	}
	say("Never more than %d connections.\n", host.most)

	limit := func(from, to string) {
		for _, r := range relays {
			writeFile(t, r.config, strings.Replace(readFile(t, r.config), from, to, 1))
			r.mta(t, "config", "reload")
		}
	}
	usual, slow := fmt.Sprintf(`max_message_rate = "%d/s"`, rate), `max_message_rate = "1/h"`
	limit(usual, slow)
	say("%d messages for later at node 1, and %d that wait for a limit of one an hour. Then the node has to go:\n", each, each)
	submit(relays[0], "later", "X-Hold-For: 7200\r\n")
	submit(relays[0], "slow", "")
	say("$ mta cluster drain 1        # at node 2\n%s", relays[1].mta(t, "cluster", "drain", "1"))
	left := func() (left [3]int, all int) {
		for i, r := range relays {
			n, err := r.left()
			if err != nil {
				t.Fatal(err)
			}
			left[i], all = n, all+n
		}
		return left, all
	}
	queued, all := left()
	for end := time.Now().Add(patience); all+arrived() != 5*each; queued, all = left() { // one may just be leaving
		if time.Now().After(end) {
			t.Fatalf("%d messages are queued, and %d of %d have arrived", all, arrived(), 5*each)
		}
	}
	for i, n := range queued {
		say("  node %d: %d queued", i+1, n)
	}
	if queued[0] > 0 {
		t.Errorf("node 1 has %d messages", queued[0])
	}
	limit(slow, usual)
	say("\n$ mta queue retry --cluster --all --scheduled --now\n%s",
		relays[1].mta(t, "queue", "retry", "--cluster", "--all", "--scheduled", "--now"))
	if err := allCome("messages", 5*each, arrived); err != nil {
		t.Fatal(err)
	}
	for _, r := range relays {
		r.drained(t, patience)
	}
	tally := host.record.Tally()
	if tally.Unique != int64(5*each) || tally.Duplicates() > 0 {
		t.Errorf("of %d messages came %+v", 5*each, tally)
	}
	say("%d messages were accepted, %d have arrived, %d twice.", 5*each, tally.Unique, tally.Duplicates())
}
