package http

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
)

// someMessages are accepted messages of tests, by tenant and id.
type someMessages map[string]map[string]Message

func (s someMessages) Get(_ context.Context, tenant string, id envelope.ID) (Message, error) {
	if m, ok := s[tenant][id.String()]; ok {
		return m, nil
	}
	switch id.String() {
	case "00000000000b0":
		return Message{}, ErrBusy
	case "00000000000c0":
		return Message{}, ErrTooMuch
	case "00000000000e0":
		return Message{}, Unanswered{2, 3}
	case "00000000000d0":
		return Message{}, errors.New("secret of the disk")
	}
	return Message{}, ErrNoMessage
}

func (s someMessages) List(_ context.Context, tenant string, q MessageQuery) (page MessagePage, err error) {
	if q.Campaign == "much" {
		return page, ErrTooMuch
	}
	for _, m := range s[tenant] {
		if q.Campaign == "" || q.Campaign == m.Campaign {
			page.Messages = append(page.Messages, m)
		}
	}
	if q.After != 0 {
		page.Next = q.After.String()
	}
	return page, nil
}

func (s someMessages) Cancel(ctx context.Context, tenant string, what Cancel) (Cancelled, error) {
	if what.ID == 0 {
		return Cancelled{Cancelled: len(s[tenant])}, nil
	}
	m, err := s.Get(ctx, tenant, what.ID)
	if err != nil {
		return Cancelled{}, err
	}
	c := Cancelled{}
	for _, r := range m.Recipients {
		status := Canceled
		if r.Status == Sending {
			status = Sending
			c.TooLate++
		} else {
			c.Cancelled++
		}
		c.Recipients = append(c.Recipients, CancelledRecipient{Address: r.Address, Status: status})
	}
	return c, nil
}

func (s someMessages) Move(ctx context.Context, tenant string, id envelope.ID, at time.Time) error {
	m, err := s.Get(ctx, tenant, id)
	switch {
	case err != nil:
		return err
	case m.Status != Waiting:
		return ErrReleased
	case !m.ExpiresAt.IsZero() && at.After(m.ExpiresAt):
		return ErrExpires
	}
	return nil
}

func TestStatusAndCancel(t *testing.T) {
	const waits, sends = "0000000000010", "0000000000020"
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	all := someMessages{"acme": {
		waits: {ID: waits, Status: Waiting, From: "a@acme.example", AcceptedAt: now, SendAt: now.Add(time.Hour), ExpiresAt: now.Add(10 * time.Hour), Campaign: "c", Recipients: []MessageRecipient{{Address: "b@box.example", Status: Waiting}}},
		sends: {ID: sends, Status: Sending, AcceptedAt: now, Recipients: []MessageRecipient{{Address: "b@box.example", Status: Sending, Attempts: 2, LastReply: &Reply{Code: 451, Text: "later"}}}},
	}}
	s := testServer(t, func(c *Config) {
		c.Routes, c.Messages, c.Now = nil, all, func() time.Time { return now }
		c.Mail.Intake.MaxHold = 24 * time.Hour
	})
	const path = "/v1/messages"
	for _, c := range []struct {
		method, target, token, body string
		status                      int
		want                        string
	}{
		{"GET", path + "/" + waits, "good", "", 200, `{"id":"0000000000010","status":"scheduled","from":"a@acme.example","size":0,"accepted_at":"2030-01-01T12:00:00Z","send_at":"2030-01-01T13:00:00Z","expires_at":"2030-01-01T22:00:00Z","campaign":"c","recipients":[{"address":"b@box.example","status":"scheduled","attempts":0}]}`},
		{"GET", path + "/" + sends, "reader", "", 200, `"last_reply":{"code":451,"text":"later"}`},
		{"GET", path + "/" + sends, "other", "", 404, "no such message"},
		{"GET", path + "/nonsense", "good", "", 404, "no such message"},
		{"GET", path + "/00000000000b0", "good", "", 503, "searches"},
		{"GET", path + "/00000000000c0", "good", "", 503, "too much to look through"},
		{"GET", path + "/00000000000d0", "good", "", 503, "try again"},
		{"GET", path + "/00000000000e0", "good", "", 503, `"unanswered":[2,3]`},
		{"POST", path + "/00000000000e0/cancel", "good", "", 503, `"unanswered":[2,3]`},
		{"GET", path + "?campaign=none", "good", "", 200, `{"messages":[]}`},
		{"GET", path + "?campaign=c&cursor=" + sends, "good", "", 200, `"next":"0000000000020"`},
		{"GET", path + "?campaign=much", "good", "", 400, "narrow it"},
		{"GET", path + "?limit=x", "good", "", 400, "1 to 1000"},
		{"GET", path + "?state=x", "good", "", 400, "use campaign"},
		{"PATCH", path + "/" + waits, "good", `{"send_at":"2030-01-01T20:00:00Z"}`, 200, `"id":"0000000000010"`},
		{"PATCH", path + "/" + waits, "good", `{"send_at":"2030-01-01T11:00:00Z"}`, 400, "in the past"},
		{"PATCH", path + "/" + waits, "good", `{"send_at":"2030-01-01T23:00:00Z"}`, 400, "expires before"},
		{"PATCH", path + "/" + waits, "good", `{"send_at":"2030-01-03T12:00:00Z"}`, 400, "ahead at most"},
		{"PATCH", path + "/" + waits, "good", `{"send_ta":"2030-01-01T20:00:00Z"}`, 400, "did you mean"},
		{"PATCH", path + "/" + waits, "good", `{}`, 400, "send_at is missing"},
		{"PATCH", path + "/" + sends, "good", `{"send_at":"2030-01-01T20:00:00Z"}`, 409, "released"},
		{"PATCH", path + "/" + waits, "reader", `{"send_at":"2030-01-01T20:00:00Z"}`, 403, ""},
		{"POST", path + "/" + waits + "/cancel", "good", "", 200, `{"id":"0000000000010","recipients":[{"address":"b@box.example","status":"cancelled"}]}`},
		{"POST", path + "/" + sends + "/cancel", "good", "", 409, `"recipients":[{"address":"b@box.example","status":"sending"}]`},
		{"POST", path + "/" + waits + "/cancel", "other", "", 404, "no such message"},
		{"POST", path + "/" + waits + "/cancel", "reader", "", 403, ""},
		{"POST", path + "/cancel", "good", `{"campaign":"c"}`, 200, `{"cancelled":2,"too_late":0}`},
		{"POST", path + "/cancel", "good", `{}`, 400, "name a campaign"},
		{"POST", path + "/cancel", "reader", `{"campaign":"c"}`, 403, ""},
	} {
		w := ask(s, c.method, c.target, c.token, strings.NewReader(c.body), "Content-Type", "application/json")
		got := strings.TrimSpace(w.Body.String())
		if w.Code != c.status || !strings.Contains(got, c.want) || strings.Contains(got, "secret") {
			t.Errorf("%s %s %s by %s: %d %s, want %d %s", c.method, c.target, c.body, c.token, w.Code, got, c.status, c.want)
		}
	}
	for target, methods := range map[string]string{path + "/cancel": "POST, OPTIONS", path + "/" + waits: "GET, HEAD, PATCH, OPTIONS"} {
		if w := ask(s, "OPTIONS", target, "good", strings.NewReader("")); w.Header().Get("Allow") != methods {
			t.Errorf("%s has %q, want %q", target, w.Header().Get("Allow"), methods)
		}
	}
}

func TestAMessageHasWhatItsRecipientsHaveInCommon(t *testing.T) {
	for want, all := range map[MessageStatus][]MessageStatus{"": nil, Queued: {Queued}, Delivered: {Delivered, Delivered}, Mixed: {Delivered, Bounced, Delivered}} {
		m := Message{}
		for i, s := range all {
			m.Recipients = append(m.Recipients, MessageRecipient{Address: fmt.Sprint(i), Status: s})
		}
		if m.Summarise(); m.Status != want {
			t.Errorf("of %v: %q, want %q", all, m.Status, want)
		}
	}
}
