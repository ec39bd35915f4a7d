package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.org/mta/operator/api"
)

// TestTortureReportsOfSuccess kills the relay under load, and every third time starts it on a disk that is short
// of space. Senders want to know of each success, and the hosts report none (RFC 3461, 5.2.2): each delivered
// recipient is in a report with the header of its message.
func TestTortureReportsOfSuccess(t *testing.T) {
	parallel(t)
	b := newBattlefield(t)
	b.domains, b.notify = []string{"quick.example", "slow.example"}, " NOTIFY=SUCCESS"
	b.queue = "  min_free = \"0\"\n"
	kills := 0
	b.storm(t, 3*tortureSize(t, 2), func(r *relay, _ *rand.Rand) (settled bool) {
		r.kill()
		kills++
		setShort(t, r.config, kills%3 == 0) // the last time, too
		return true
	})
	late := b.waitForReports(t)
	r := b.relay
	r.kill()
	b.ends = append(b.ends, time.Now())
	setShort(t, r.config, false)
	r.process = launchRelay(t, r)
	r.listens(t, r.addr)
	var queued map[string]bool
	for range 3 { // reports that found no space are due later
		retry := api.Change{Action: api.Retry, All: true}
		if _, err := api.OpChange.Call(t.Context(), b.relay.control(t), retry); err != nil {
			t.Fatal(err)
		}
		if queued = b.settle(t); len(queued) == 0 {
			break
		}
	}
	b.judge(t, queued)
	t.Logf("%d delivered recipients waited for their report while the disk was short", late)
	b.judgeSuccess(t)
}

// waitForReports waits until all mail in the queue was delivered, and gives how much of it waits for its report.
func (b *battlefield) waitForReports(t *testing.T) (late int) {
	t.Helper()
	eventually(t, patience, func() error {
		list, err := b.relay.queued()
		if err != nil {
			return err
		}
		for _, rcpt := range list {
			if id := rcpt[:strings.Index(rcpt, ".")]; !b.taken.Has(id, rcpt) {
				return fmt.Errorf("%s was not delivered", rcpt)
			}
		}
		if late = len(list); late == 0 {
			return errors.New("no report waits for space")
		}
		return nil
	})
	return late
}

// setShort has the relay find its disk short of space from its next start on, or no longer.
func setShort(t *testing.T, config string, short bool) {
	t.Helper()
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	free := "0"
	if short {
		free = "1000TiB"
	}
	writeFile(t, config, minFree.ReplaceAllString(string(text), `min_free = "`+free+`"`))
}

var minFree = regexp.MustCompile(`min_free = "\w+"`)

var (
	reportedRecipient = regexp.MustCompile(`(?m)^Final-Recipient: rfc822; ?(\S+)\r?\n(?:[^\r\n]+\r?\n)*?Action: (\S+)\r?$`)
	reportedID        = regexp.MustCompile(`(?m)^X-Mta-Test-Id: (\S+)\r?$`)
)

// judgeSuccess fails the test for deliveries that no report is of, and for reports without the message's header.
func (b *battlefield) judgeSuccess(t *testing.T) {
	t.Helper()
	reports := make(map[string]int) // by id and recipient
	bare := 0
	for _, m := range b.reports.Messages() {
		id := reportedID.FindSubmatch(m.Content)
		if id == nil || !bytes.Contains(m.Content, []byte("Message-ID: <"+string(id[1])+"@home.example>")) {
			if bare++; bare <= 3 {
				t.Errorf("a report without the header:\n%s", m.Content)
			}
			continue
		}
		for _, r := range reportedRecipient.FindAllSubmatch(m.Content, -1) {
			if action := string(r[2]); action == "relayed" || action == "delivered" {
				reports[string(id[1])+" "+string(r[1])]++
			}
		}
	}
	delivered, lost, more := 0, 0, 0
	for id, to := range b.accepted {
		for rcpt := range to {
			if !b.taken.Has(id, rcpt) {
				continue
			}
			switch n := reports[id+" "+rcpt]; {
			case n == 0:
				if lost++; lost <= 5 {
					t.Errorf("no report of the success of %s for %s", id, rcpt)
				}
			case n > 1:
				more++
			}
			delivered++
		}
	}
	t.Logf("%d delivered recipients, %d without a report, %d with more than one; %d reports without the header", delivered, lost, more, bare)
	if lost > 0 {
		t.Errorf("%d of %d successes were not reported", lost, delivered)
	}
}
