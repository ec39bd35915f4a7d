package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"example.org/mta/operator/api"
)

// scheduled lists the messages of the queue that wait for their time.
func (f *webField) scheduled(t *testing.T, to string) (ids []string) {
	t.Helper()
	c := api.NewClient(f.relay.dir + "/data/control.sock")
	defer c.Close()
	list, err := api.OpList.Call(context.Background(), c, api.ListQuery{Filter: api.Filter{Recipient: to}})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list.Messages {
		ids = append(ids, m.ID)
	}
	return ids
}

// TestSDKsScheduleAndCancel has each SDK send a letter in an hour, see it in the queue, and cancel it, as far as the
// SDK can; and one in two seconds, which must not arrive before.
func TestSDKsScheduleAndCancel(t *testing.T) {
	t.Parallel() // the parts take turns
	clients := sdks(t)
	f := newWebField(t, "", "", postfix)
	s := f.servers[0]
	for i, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			to := fmt.Sprintf("later%d@%s", i, s.domain)
			l := webLetter{From: person{Email: "shop@acme.example"}, To: []person{{Email: to}}, Subject: "later", Text: "x", SendAt: time.Now().Add(time.Hour).Unix()}
			if c.esp == "sendgrid" && !c.anymail {
				batch := c.do(t, f.job("batch_id", nil))
				var answer struct {
					ID string `json:"batch_id"`
				}
				if err := json.Unmarshal([]byte(batch.Body), &answer); err != nil || answer.ID == "" {
					t.Fatalf("no batch: %+v", batch)
				}
				l.Batch = answer.ID
			}
			sent := c.do(t, f.job("send", &l))
			if sent.Error != "" {
				t.Fatalf("%s: %s", sent.Error, sent.Shown)
			}
			if n := len(f.scheduled(t, to)); n != 1 {
				t.Fatalf("%d messages are scheduled, want 1", n)
			}
			f.cancel(t, c, l.Batch, sent)
			if !c.anymail {
				if n := len(f.scheduled(t, to)); n != 0 {
					t.Errorf("%d messages are still scheduled", n)
				}
			}
			f.soon(t, c, s, to)
		})
	}
}

// cancel cancels a scheduled message by the SDK; Anymail can't.
func (f *webField) cancel(t *testing.T, c sdk, batch string, sent webResult) {
	t.Helper()
	job := f.job("cancel", nil)
	switch {
	case c.anymail:
		return
	case c.esp == "sendgrid":
		job.ID = batch
	default:
		job.ID = idOf(t, sent)
		move := f.job("update", nil)
		move.ID, move.SendAt = job.ID, time.Now().Add(2*time.Hour).Unix()
		if r := c.do(t, move); r.Error != "" {
			t.Errorf("moving: %s: %s", r.Error, r.Shown)
		}
		get := f.job("get", nil)
		get.ID = job.ID
		if r := c.do(t, get); r.Error != "" || !strings.Contains(r.Body, `"scheduled"`) {
			t.Errorf("getting: %+v", r)
		}
	}
	if r := c.do(t, job); r.Error != "" {
		t.Errorf("cancelling: %s: %s", r.Error, r.Shown)
	}
}

// soon sends a letter in a moment.
func (f *webField) soon(t *testing.T, c sdk, s *server, to string) {
	t.Helper()
	id := strings.ReplaceAll(c.name, " ", "-")
	at := time.Now().Add(3 * time.Second).Truncate(time.Second)
	l := webLetter{From: person{Email: "shop@acme.example"}, To: []person{{Email: to}}, Subject: "soon", Text: "x", SendAt: at.Unix()}.tagged(id)
	if r := c.do(t, f.job("send", &l)); r.Error != "" {
		t.Fatalf("%s: %s", r.Error, r.Shown)
	}
	s.letter(t, id)
	if early := time.Until(at); early > 0 {
		t.Errorf("the message arrived %v before its time", early)
	}
}
