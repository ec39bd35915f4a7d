package e2e

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// submitTo submits a message to many recipients of a domain.
func (m *mailer) submitTo(t *testing.T, addr, header, id, domain string, n int) (recipients []string) {
	t.Helper()
	s, err := dialSession(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	for i := range n {
		recipients = append(recipients, fmt.Sprintf("%s-%d@%s", id, i, domain))
	}
	if _, err := s.send("boss@home.example", recipients, header+"Subject: warm\r\nX-Mta-Test-Id: "+id+"\r\n\r\nWanted mail.\r\n"); err != nil {
		t.Fatal(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, to := range recipients {
		m.accepted[to] = time.Now()
	}
	return recipients
}

// arrival gives when a recipient was first seen, and how many of the warming source's were before.
func (g *warmGround) arrival(recipient string) (at time.Time, before int) {
	for i, r := range g.rcpts.from(g.dedicated) {
		if r.recipient == recipient {
			return r.at, i
		}
	}
	return at, 0
}

// TestW8_W18_LiveLargeMessagesLeaveAsTokensCome holds messages to 40 recipients and one to 5,000 (fewer in a
// short run) under an hourly cap that is far below, and kills the relay now and then. No cap is passed and
// nothing is lost; mail of the first tier doesn't wait behind them.
func TestW8_W18_LiveLargeMessagesLeaveAsTokensCome(t *testing.T) {
	parallel(t)
	large, hourly, hours := 5000, 600, 12
	if warmDuration(t, 0) == 0 {
		large, hourly, hours = 200, 60, 8
	}
	hour := warmHour(t, 2*time.Second, hours)
	stages := []warmStage{{warmCaps{hourly, 24 * hourly}, nil}}
	first := "127.0.0.1:" + commonPort(t, "127.0.0.1")
	g := newWarmGround(t, warmSettings{hour: hour, hold: true, plan: planText(stages), more: fmt.Sprintf(`
listener "first" {
  address        = %q
  relay_from     = ["127.0.0.0/8"]
  max_recipients = 10000
  tier           = 1
}
`, first)})
	c := g.recount(t, hour, stages)
	g.relay.listens(t, first)
	const bulk = "MT-Priority: -2\r\n"
	left := large
	g.mailer.submitTo(t, first, bulk, "large", "big.example", large)
	for i := range hourly / 40 {
		g.mailer.submitTo(t, first, bulk, fmt.Sprintf("forty%d", i), "big.example", 40)
		left += 40
	}
	whole := left/hourly - 1 // hours in which bulk waits
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 0))
	kills := 0
	urgent := make(map[string]time.Time)
	for h := range whole {
		c.wait(t, float64(h)+.1+.2*rng.Float64())
		if h%2 == 1 {
			g.relay.kill()
			g.relay.process = launchRelay(t, g.relay)
			g.relay.listens(t, first)
			kills++
		}
		c.wait(t, float64(h)+.6)
		to := g.mailer.submitTo(t, first, "", fmt.Sprintf("urgent%d", h), "big.example", 1)[0]
		urgent[to] = time.Now()
	}
	g.mailer.finish(t)
	g.relay.drained(t, time.Duration(whole)*hour+2*patience)

	c.count(g)
	t.Logf("%d recipients in large messages, %d kills, seed %d; by hour %v", left, kills, seed, c.list(allProviders))
	c.within(t)
	for to, came := range urgent {
		at, before := g.arrival(to)
		took := at.Sub(came)
		t.Logf("%s: arrived after %v, %.1f minutes of the plan, in front of %d of bulk", to, took.Round(time.Millisecond), 60*took.Seconds()/hour.Seconds(), left-before)
		still := c.pulse.worst(came, at)
		if left-before < 0 || took > hour/2+still {
			t.Errorf("%s: it waited %v behind bulk", to, took)
		}
		if took > hour/60+still+100*time.Millisecond {
			inTime(t, "%s: it took %v, more than a minute of the plan, %v", to, took, hour/60)
		}
	}
	g.judgeDelivery(t, true)
}
