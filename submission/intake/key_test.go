package intake

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
)

// appClient submits by SMTP on behalf of a tenant.
func appClient(tenant string) *Client {
	return &Client{Session: "01app", Protocol: "ESMTPSA", Helo: "app.example.org", MayRelay: true, Tenant: tenant, User: "app"}
}

// submit sends a message of tenant acme whose recipients are separated by spaces.
func submit(t *testing.T, d *Desk, recipients, content string) (*envelope.Message, *reply.Reply) {
	t.Helper()
	return submitAs(t, d, "acme", recipients, content)
}

func submitAs(t *testing.T, d *Desk, tenant, recipients, content string) (*envelope.Message, *reply.Reply) {
	t.Helper()
	m, r := d.Begin(t.Context(), appClient(tenant), Envelope{Sender: "a@acme.example"})
	if r != nil {
		return nil, r
	}
	defer m.Drop()
	for a := range strings.FieldsSeq(recipients) {
		m.Recipient(t.Context(), envelope.Recipient{Address: envelope.Address(a)})
	}
	fmt.Fprint(m, content)
	return m.Commit(t.Context())
}

const keyed = "X-MTA-Idempotency-Key: order-7\r\n"

// The table of key, message, state and answer.
func TestMessageSentAgain(t *testing.T) {
	const content = keyed + "Subject: x\r\n\r\nhi\r\n"
	suppressed := false
	d, s := newDesk(Config{MaxHold: time.Hour, Recipients: Recipients{Suppressed: func(_ string, a envelope.Address) (string, bool) {
		return "bounced", suppressed && a == "c@example.net"
	}}})
	first, r := submit(t, d, "b@example.net c@example.net", content)
	if r != nil || len(s.messages) != 1 || strings.Contains(s.contents[0], "Idempotency") {
		t.Fatalf("%v, stored %q", r, s.contents)
	}
	for _, c := range []struct{ name, recipients, content, want string }{
		{"again", "b@example.net c@example.net", content, "again"},
		{"in another order", "c@example.net b@example.net", content, "again"},
		{"the key quoted", "b@example.net c@example.net", strings.Replace(content, "order-7", `"order-7"`, 1), "again"},
		{"the field elsewhere", "b@example.net c@example.net", "Subject: x\r\n" + keyed + "\r\nhi\r\n", "again"},
		{"another body", "b@example.net c@example.net", content + "more\r\n", "554 5.5.4 X-MTA-Idempotency-Key was used for another message"},
		{"another subject", "b@example.net c@example.net", keyed + "Subject: y\r\n\r\nhi\r\n", "554 5.5.4"},
		{"another recipient", "b@example.net d@example.net", content, "554 5.5.4"},
		{"a recipient less", "b@example.net", content, "554 5.5.4"},
		{"another time", "b@example.net c@example.net", "X-Hold-For: 60\r\n" + content, "554 5.5.4"},
		{"two keys", "b@example.net", keyed + content, "554 5.5.4 X-MTA-Idempotency-Key: the field is there twice"},
		{"no key", "b@example.net", "X-MTA-Idempotency-Key:\r\n\r\n", "554 5.5.4 X-MTA-Idempotency-Key: the key has 0 characters"},
		{"long key", "b@example.net", "X-MTA-Idempotency-Key: " + strings.Repeat("x", 256) + "\r\n\r\n", "554 5.5.4 X-MTA-Idempotency-Key: the key has 256 characters"},
		{"two keys in one", "b@example.net", "X-MTA-Idempotency-Key: a, b\r\n\r\n", "554 5.5.4 X-MTA-Idempotency-Key: the key has a character that needs quotes"},
	} {
		got, r := submit(t, d, c.recipients, c.content)
		switch {
		case c.want == "again" && (r != nil || got.ID != first.ID):
			t.Errorf("%s: %v, %v", c.name, got, r)
		case c.want != "again" && (r == nil || !strings.HasPrefix(r.String(), c.want)):
			t.Errorf("%s: %v, want %s", c.name, r, c.want)
		}
	}
	suppressed = true // since it was sent the first time
	if got, r := submit(t, d, "b@example.net c@example.net", content); r != nil || got.ID != first.ID {
		t.Errorf("a recipient that was suppressed since: %v", r)
	}
	if len(s.messages) != 1 || s.open != 0 {
		t.Errorf("%d messages were taken, %d drafts are open", len(s.messages), s.open)
	}
	if got, r := submitAs(t, d, "other", "b@example.net c@example.net", content); r != nil || got.ID == first.ID || len(s.messages) != 2 {
		t.Errorf("another tenant's key: %v", r)
	}
}

// The longest key fits, however it is written.
func TestLongestKey(t *testing.T) {
	for _, field := range []string{strings.Repeat("k", 255), `"` + strings.Repeat(`\\`, 255) + `"`, `"` + strings.Repeat(`\\`, 100) + "\r\n " + strings.Repeat(`\"`, 100) + `"`} {
		d, s := newDesk(Config{})
		for range 2 {
			if _, r := submit(t, d, "b@example.net", "X-MTA-Idempotency-Key: "+field+"\r\n\r\n"); r != nil {
				t.Errorf("%.40s: %v", field, r)
			}
		}
		if len(s.messages) != 1 {
			t.Errorf("%.40s: %d messages", field, len(s.messages))
		}
	}
}

// A key is kept for a day, for scheduled mail until a day after its release.
func TestKeyIsKept(t *testing.T) {
	d, s := newDesk(Config{MaxHold: 48 * time.Hour})
	now := time.Unix(1e9, 0)
	for fields, want := range map[string]time.Time{
		"": now.Add(24 * time.Hour), "X-Hold-For: 3600\r\nX-Hold-Spread: 60\r\n": now.Add(25*time.Hour + time.Minute),
	} {
		clear(s.keyed)
		submit(t, d, "b@example.net", keyed+fields+"\r\n")
		for _, k := range s.keyed {
			if !k.Until.Equal(want) || !k.Whole {
				t.Errorf("%q: %+v, want it until %v", fields, k, want)
			}
		}
		if len(s.keyed) != 1 {
			t.Errorf("%q: %d keys", fields, len(s.keyed))
		}
	}
}

// What is sent while the first is under way is told to come again, and a message whose commit failed is taken the
// next time.
func TestKeyUnderWay(t *testing.T) {
	const content = keyed + "\r\nhi\r\n"
	d, s := newDesk(Config{})
	s.during = func() {
		if _, r := submit(t, d, "b@example.net", content); r == nil || r.Code != 451 || !strings.Contains(r.Text, "is being taken in") {
			t.Errorf("while the first is under way: %v", r)
		}
		if _, r := submit(t, d, "b@example.net", content+"more\r\n"); r == nil || r.Code != 554 {
			t.Errorf("another message while the first is under way: %v", r)
		}
	}
	s.broken = 1
	if _, r := submit(t, d, "b@example.net", content); r == nil || r.Code != 451 {
		t.Errorf("broken disk: %v", r)
	}
	s.broken = 0
	s.keyedErr = errors.New("reading a segment")
	if _, r := submit(t, d, "b@example.net", content); r == nil || r.Code != 451 || len(s.messages) != 0 {
		t.Errorf("unreadable keys: %v", r)
	}
	s.keyedErr = nil
	if _, r := submit(t, d, "b@example.net", content); r != nil || len(s.messages) != 1 || s.open != 0 {
		t.Errorf("%v, %d messages, %d drafts", r, len(s.messages), s.open)
	}
}

// A message that is sent again uses up nothing of its tenant's limits, and asks for no turn.
func TestSentAgainCostsNothing(t *testing.T) {
	g := new(gate)
	book := NewQuotas(func(string) (QuotaLimits, bool) { return QuotaLimits{Messages: 10}, true }, func(string) QuotaUsage { return QuotaUsage{} }, time.Now)
	d, _ := newDesk(Config{Admission: g, Quotas: book, Tier: 3, TierCeiling: 3})
	for range 5 {
		if _, r := submit(t, d, "b@example.net", keyed+"\r\n"); r != nil {
			t.Fatal(r)
		}
	}
	if g.asked != 5 || g.committed != 1 || g.dropped != 4 {
		t.Errorf("admission: %+v", g)
	}
}

// locked is a store for many goroutines.
type locked struct {
	mu sync.Mutex
	s  *store
}

type lockedDraft struct {
	Draft
	l *locked
}

func (l *locked) Begin(o Owner, n int64) Draft {
	l.mu.Lock()
	defer l.mu.Unlock()
	return lockedDraft{l.s.Begin(o, n), l}
}

func (d lockedDraft) Abort() {
	d.l.mu.Lock()
	defer d.l.mu.Unlock()
	d.Draft.Abort()
}

func (l *locked) CommitBatch(b *Batch) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, d := range b.Drafts {
		b.Drafts[i] = d.(lockedDraft).Draft
	}
	return l.s.CommitBatch(b)
}

func (l *locked) Keyed(k RequestKey) (StoredRequest, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.s.Keyed(k)
}

// Two hundred clients send one message at once, and those that are told so come again: it is taken once.
func TestOneKeyAtOnce(t *testing.T) {
	l := &locked{s: new(store)}
	d := New(Config{Store: l, Batches: l, Repeats: NewRepeats([]byte("secret"), l)})
	var all sync.WaitGroup
	var ids sync.Map
	for range 200 {
		all.Go(func() {
			for {
				m, r := submit(t, d, "b@example.net", keyed+"\r\nhi\r\n")
				if r == nil {
					ids.Store(m.ID, true)
					return
				}
				if r.Code != 451 {
					t.Error(r)
					return
				}
			}
		})
	}
	all.Wait()
	n := 0
	ids.Range(func(any, any) bool { n++; return true })
	if n != 1 || len(l.s.messages) != 1 || l.s.open != 0 {
		t.Errorf("%d ids, %d messages, %d drafts are open", n, len(l.s.messages), l.s.open)
	}
}

// Where nobody recognises repeats, as over HTTP, the field is removed and doesn't count.
func TestKeyFieldThatDoesNotCount(t *testing.T) {
	s := new(store)
	d := New(Config{Store: s, Batches: s})
	for range 2 {
		if _, r := submit(t, d, "b@example.net", keyed+"X-MTA-Idempotency-Key: x\r\n\r\n"); r != nil {
			t.Error(r)
		}
	}
	if len(s.messages) != 2 || strings.Contains(s.contents[0], "Idempotency") {
		t.Errorf("stored %q", s.contents)
	}
}
