package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"example.org/mta/lab/sink"
	"example.org/mta/operator/api"
)

// How much mail there is for domains whose name servers are silent: so many messages before each kill.
const (
	silentMessages   = 10
	silentRecipients = 1000 // of each, at domains of their own
)

// TestTortureSilentNameServers kills the relay under load while tens of thousands of recipients wait for
// routes that nobody gives. All other mail is delivered soon after, and an operator who removes what waits
// is rid of it.
func TestTortureSilentNameServers(t *testing.T) {
	parallel(t)
	b := newBattlefield(t)
	b.zone.Fault("*.silent.example", sink.DNSFault{Drop: true})
	floods := 0
	b.storm(t, 3, func(r *relay, _ *rand.Rand) (settled bool) {
		b.flood(t, r, floods)
		floods++
		r.kill()
		return true
	})
	began := time.Now()
	others := 0
	eventually(t, patience, func() error {
		list, err := b.relay.queued()
		if err != nil {
			return err
		}
		others = 0
		for _, rcpt := range list {
			if !strings.HasSuffix(rcpt, ".silent.example") {
				others++
			}
		}
		if others > 0 {
			return fmt.Errorf("%d recipients wait that should not, of %d", others, len(list))
		}
		return nil
	})
	c := b.relay.control(t)
	done, err := api.OpChange.Call(t.Context(), c, api.Change{Action: api.Remove, Filter: api.Filter{Domain: "*.silent.example"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("all other mail was delivered %v after the load, with %d recipients at silent domains in the queue", time.Since(began).Round(time.Millisecond), done.Recipients)
	if want := floods * silentMessages * silentRecipients; done.Recipients != want {
		t.Errorf("removed %d recipients at silent domains, and %d were accepted", done.Recipients, want)
	}
	b.judge(t, b.settle(t))
}

// flood submits mail for silent domains.
func (b *battlefield) flood(t *testing.T, r *relay, n int) {
	t.Helper()
	for m := range silentMessages {
		to := make([]string, silentRecipients)
		for i := range to {
			to[i] = fmt.Sprintf("bob@d%d-%d-%d.silent.example", n, m, i)
		}
		submitOne(t, r, to)
	}
}

// submitOne submits a message until it is accepted: a relay on a slow machine may ask the client to come later.
func submitOne(t *testing.T, r *relay, to []string) {
	t.Helper()
	eventually(t, patience, func() error {
		s, err := dialSession(r.addr)
		if err != nil {
			return err
		}
		defer s.close()
		_, err = s.send("boss@home.example", to, "Subject: nobody answers\r\n\r\n")
		if reply := (*textproto.Error)(nil); err != nil && !(errors.As(err, &reply) && reply.Code/100 == 4) {
			t.Fatal(err)
		}
		return err
	})
}
