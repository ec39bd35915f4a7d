package intake

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/submission/auth"
)

// store keeps what is committed. The commit of the message with the number broken fails.
type store struct {
	ids      envelope.IDs
	open     int // drafts
	messages []*envelope.Message
	contents []string
	groups   []int // sizes of batches
	broken   int
	during   func() // a batch

	keyed    map[RequestKey]StoredRequest
	keyedErr error
	held     []string // reasons
}

type draft struct {
	bytes.Buffer
	s *store
}

var errDisk = errors.New("write: input/output error")

func (s *store) Begin(Owner, int64) Draft {
	s.open++
	return &draft{s: s}
}

func (d *draft) Abort() { d.s.open-- }

func (d *draft) Commit(m *envelope.Message) error {
	d.s.open--
	if d.s.broken > 0 && len(d.s.messages)+1 >= d.s.broken {
		return errDisk
	}
	m.ID, m.Size = d.s.ids.Next(time.Unix(1e9, 0)), int64(d.Len())
	d.s.messages, d.s.contents = append(d.s.messages, m), append(d.s.contents, d.String())
	return nil
}

func (s *store) CommitBatch(b *Batch) (committed int, err error) {
	if s.during != nil {
		s.during()
	}
	s.groups = append(s.groups, len(b.Drafts))
	for i, d := range b.Drafts {
		if err != nil {
			d.Abort()
		} else if err = d.Commit(b.Messages[i]); err == nil {
			committed++
		}
	}
	if k := b.Keyed; k != nil && err == nil {
		if s.keyed == nil {
			s.keyed = make(map[RequestKey]StoredRequest)
		}
		s.keyed[k.Key] = StoredRequest{Request: k.Request, IDs: map[int]envelope.ID{0: b.Messages[0].ID}, Whole: k.Last, Until: k.Until}
	}
	return committed, err
}

func (s *store) Keyed(k RequestKey) (StoredRequest, bool, error) {
	known, ok := s.keyed[k]
	return known, ok, s.keyedErr
}

// newDesk makes a desk with a store.
func newDesk(cfg Config) (*Desk, *store) {
	s := new(store)
	cfg.Hostname, cfg.Store, cfg.Batches = "relay.example.com", s, s
	if cfg.Now == nil {
		cfg.Now = func() time.Time { return time.Unix(1e9, 0).UTC() }
	}
	cfg.Repeats = NewRepeats([]byte("secret"), s)
	return New(cfg), s
}

// webClient submits by HTTP with the key of a tenant.
func webClient() *Client {
	return &Client{Session: "01web", Peer: netip.MustParseAddrPort("192.0.2.7:40000"), Protocol: "HTTPS", MayRelay: true, Tenant: "acme", APIKey: "shop"}
}

func begin(t *testing.T, d *Desk, c *Client, recipients ...envelope.Address) *Message {
	t.Helper()
	m, refused := d.Begin(t.Context(), c, Envelope{Sender: "a@acme.example"})
	if refused != nil {
		t.Fatal(refused)
	}
	for _, a := range recipients {
		if r := m.Recipient(t.Context(), envelope.Recipient{Address: a}); r != nil {
			t.Fatal(r)
		}
	}
	t.Cleanup(m.Drop)
	return m
}

// What comes by HTTP is traced as what comes by SMTP is, and the extras are in its envelope.
func TestMessageByHTTP(t *testing.T) {
	d, s := newDesk(Config{MaxHold: 24 * time.Hour, Tier: 3, TierCeiling: 1})
	c := webClient()
	c.TLS = &tls.ConnectionState{Version: tls.VersionTLS13, CipherSuite: tls.TLS_AES_128_GCM_SHA256}
	m := begin(t, d, c, "b@example.net")
	now := time.Unix(1e9, 0).UTC()
	important := 9
	m.Set(Extras{
		Release: now.Add(time.Hour), Spread: time.Minute, Expires: now.Add(2*time.Hour + time.Millisecond), Campaign: "autumn", Priority: &important,
		Tags: []string{"x"}, Meta: `{"order":7}`, Pool: "bulk",
	})
	fmt.Fprint(m, "X-Hold-For: 7\r\nX-Hold-Until: never\r\nX-MTA-Campaign: spring\r\nMT-Priority: -4\r\nX-MTA-Tenant: other\r\nSubject: hi\r\n\r\nbody")
	got, refused := m.Commit(t.Context())
	if refused != nil {
		t.Fatal(refused)
	}
	const want = "Received: from [192.0.2.7] ([192.0.2.7])\r\n\tby relay.example.com with HTTPS (TLS1.3 TLS_AES_128_GCM_SHA256)\r\n\tid 01web.1\r\n\tfor <b@example.net>;\r\n\t" +
		"Sun, 09 Sep 2001 01:46:40 +0000\r\nDate: Sun, 09 Sep 2001 01:46:40 +0000\r\nMessage-ID: <01web.1@relay.example.com>\r\n" +
		"MT-Priority: -4\r\nSubject: hi\r\n\r\nbody\r\n"
	if s.contents[0] != want {
		t.Errorf("stored\n%s\nwant\n%s", s.contents[0], want)
	}
	if got.Protocol != "HTTPS" || got.Tenant != "acme" || got.APIKey != "shop" || got.Tier != 1 || got.Campaign != "autumn" || got.Meta != `{"order":7}` || got.Pool != "bulk" ||
		!slices.Equal(got.Tags, []string{"x"}) || !got.Release.Equal(now.Add(time.Hour)) || got.Spread != time.Minute || !got.Expires.Equal(now.Add(2*time.Hour)) {
		t.Errorf("message %+v", got)
	}
	m.Drop()
	if s.open != 0 {
		t.Errorf("%d drafts are open", s.open)
	}
}

// A whole message's own fields count where no extra is set in their place.
func TestFieldsCountWithoutExtras(t *testing.T) {
	d, _ := newDesk(Config{MaxHold: 24 * time.Hour, Tier: 3})
	m := begin(t, d, webClient(), "b@example.net")
	m.Set(Extras{Tags: []string{"x"}})
	fmt.Fprint(m, "X-Hold-For: 7\r\nX-MTA-Campaign: spring\r\nMT-Priority: 6\r\n\r\n")
	got, refused := m.Commit(t.Context())
	if refused != nil {
		t.Fatal(refused)
	}
	if got.Campaign != "spring" || got.Tier != 0 || !got.Release.Equal(time.Unix(1e9+7, 0)) || got.Tags[0] != "x" {
		t.Errorf("message %+v", got)
	}
}

func TestSchedulesThatAreRefused(t *testing.T) {
	now := time.Unix(1e9, 0)
	for name, c := range map[string]struct {
		longest time.Duration
		x       Extras
		want    string
	}{
		"not allowed":    {0, Extras{Release: now.Add(time.Minute)}, "550 5.7.1 scheduling"},
		"too long":       {time.Hour, Extras{Release: now.Add(time.Hour), Spread: time.Second}, "554 5.5.4 messages can be scheduled 3600 seconds"},
		"expired":        {time.Hour, Extras{Expires: now}, "554 5.5.4 can't schedule the message: its time of expiry has passed"},
		"expires first":  {time.Hour, Extras{Release: now.Add(time.Minute), Expires: now.Add(time.Minute)}, "554 5.5.4 can't schedule the message: it would expire"},
		"expires within": {time.Hour, Extras{Spread: time.Minute, Expires: now.Add(30 * time.Second)}, "554 5.5.4 can't schedule the message: it would expire"},
	} {
		d, s := newDesk(Config{MaxHold: c.longest})
		m := begin(t, d, webClient(), "b@example.net")
		m.Set(c.x)
		fmt.Fprint(m, "Subject: x\r\n\r\n")
		if r := m.End(t.Context()); r == nil || !strings.HasPrefix(r.String(), c.want) {
			t.Errorf("%s: %v", name, r)
		}
		if m.Drop(); s.open != 0 {
			t.Errorf("%s: %d drafts are open", name, s.open)
		}
	}
}

// The content is the same however it is cut into writes.
func TestContentInEveryPiece(t *testing.T) {
	const content = "Subject: x\r\nX-Hold-For: 7\r\n\r\na\r\n\r\nb\r\r\nc\n\rd\r"
	for _, newlines := range []Newlines{RefuseBareNewlines, NormaliseBareNewlines} {
		whole := ""
		for size := len(content); size > 0; size-- {
			d, s := newDesk(Config{MaxHold: time.Hour})
			c := webClient()
			c.Newlines = newlines
			m := begin(t, d, c, "b@example.net")
			for rest := content; rest != ""; {
				n := min(size, len(rest))
				m.Write([]byte(rest[:n]))
				rest = rest[n:]
			}
			got := ""
			if _, r := m.Commit(t.Context()); r != nil {
				got = r.String()
			} else {
				_, got, _ = strings.Cut(s.contents[0], "Subject")
			}
			if whole == "" {
				whole = got
			}
			if got != whole {
				t.Errorf("in pieces of %d: %q, want %q", size, got, whole)
			}
		}
		if want := map[Newlines]string{RefuseBareNewlines: "550 5.6.11 message has", NormaliseBareNewlines: ": x\r\n\r\na\r\n\r\nb\r\n\r\nc\r\n\r\nd\r\n"}[newlines]; !strings.HasPrefix(whole, want) {
			t.Errorf("%q, want %q", whole, want)
		}
	}
}

// A refused message gives back what it holds, and whoever writes hears of it.
func TestRefusalReachesTheWriter(t *testing.T) {
	memory := NewMemory(1 << 20)
	d, s := newDesk(Config{Memory: memory, Limits: Limits{Size: 1000}})
	m := begin(t, d, webClient(), "b@example.net")
	if _, err := fmt.Fprint(m, strings.Repeat("x", 1001)); err == nil || err.Error() != "552 5.3.4 message larger than 1000 octets" {
		t.Errorf("error %v", err)
	}
	if _, r := m.Commit(t.Context()); r == nil || r.Code != 552 {
		t.Errorf("commit: %v", r)
	}
	m.Drop()
	m.Drop()
	if memory.Used() != 0 || s.open != 0 || len(s.messages) != 0 {
		t.Errorf("%d octets, %d drafts, %d messages", memory.Used(), s.open, len(s.messages))
	}
}

func TestMessageWithoutRecipientsIsRefused(t *testing.T) {
	d, s := newDesk(Config{})
	if r := begin(t, d, webClient()).End(t.Context()); r == nil || r.Code != 554 {
		t.Errorf("%v", r)
	}
	m := begin(t, d, &Client{Session: "01x", Peer: netip.MustParseAddrPort("203.0.113.1:1")})
	if r := m.Recipient(t.Context(), envelope.Recipient{Address: "b@example.net"}); r == nil || r.String() != "550 5.7.1 relaying denied for 203.0.113.1" {
		t.Errorf("a stranger may relay: %v", r)
	}
	if len(d.exempted.paces) != 0 || s.open != 0 {
		t.Errorf("exemptions %v, %d drafts", d.exempted.paces, s.open)
	}
}

// A key's own senders and its tenant's both bound the envelope's sender and From.
func TestSendersOfATenant(t *testing.T) {
	d, _ := newDesk(Config{CheckFrom: true, TenantOf: func(string) (Tenant, bool) { return Tenant{Tier: 3, Senders: auth.Senders{"acme.example"}}, true }})
	if _, r := d.Begin(t.Context(), webClient(), Envelope{Sender: "a@other.example"}); r == nil || r.String() != "550 5.7.1 you may not send as a@other.example" {
		t.Errorf("sender: %v", r)
	}
	m := begin(t, d, webClient(), "b@example.net")
	fmt.Fprint(m, "From: b@other.example\r\n\r\n")
	if r := m.End(t.Context()); r == nil || !strings.HasPrefix(r.String(), "550 5.7.1 you may not send as b@other.example, which is in From") {
		t.Errorf("From: %v", r)
	}
}

// gate is an Admission that counts.
type gate struct {
	asked, committed, dropped int
	tier                      uint8
	refuse                    *Refused // at Commit
}

func (g *gate) Admit(AdmitRequest) (Admitted, *Refused) {
	g.asked++
	return g, nil
}

func (g *gate) Full() *Refused { return nil }
func (g *gate) Drop()          { g.dropped++ }

func (g *gate) Commit(_ context.Context, tier uint8, commit func() error) (*Refused, error) {
	if g.tier = tier; g.refuse != nil {
		return g.refuse, nil
	}
	g.committed++
	return nil, commit()
}

func batchOf(t *testing.T, d *Desk, c *Client, n int) (all []*Message) {
	for i := range n {
		m := begin(t, d, c, envelope.Address(fmt.Sprintf("b%d@example.net", i)))
		fmt.Fprintf(m, "Subject: %d\r\n\r\n", i)
		all = append(all, m)
	}
	return all
}

// Many messages take one turn and one batch.
func TestBatchIsCommittedInOneTurn(t *testing.T) {
	for _, whole := range []bool{false, true} {
		g := new(gate)
		d, s := newDesk(Config{Admission: g, Tier: 3, TierCeiling: 3})
		c := webClient()
		if whole {
			a, _ := g.Admit(d.AdmitRequest(c))
			c.Admit(a)
		}
		got, refused := d.CommitAll(t.Context(), batchOf(t, d, c, 100), nil)
		if refused != nil || len(got) != 100 || len(s.messages) != 100 || !slices.Equal(s.groups, []int{100}) || s.open != 0 {
			t.Errorf("%d messages, %d stored in groups of %d, %d open: %v", len(got), len(s.messages), s.groups, s.open, refused)
		}
		c.Leave()
		if g.committed != 1 || g.asked != g.committed+g.dropped || whole && g.asked != 1 || g.tier != 3 {
			t.Errorf("admission: %+v", g)
		}
		for i, m := range got {
			if want := fmt.Sprintf("b%d@example.net", i); string(m.Recipients[0].Address) != want || m.ID == 0 {
				t.Errorf("message %d: %+v", i, m)
			}
		}
	}
}

// What was committed before an error is returned with the reply, and the rest is gone.
func TestBatchThatFailsHalfWay(t *testing.T) {
	events := new(receptions)
	d, s := newDesk(Config{Events: events})
	s.broken = 4
	all := batchOf(t, d, webClient(), 10)
	got, refused := d.CommitAll(t.Context(), all, nil)
	if refused == nil || refused.Code != 451 || len(got) != 3 || len(s.messages) != 3 || s.open != 0 || events.n != 3 {
		t.Errorf("%d messages, %d stored, %d open, %d recorded: %v", len(got), len(s.messages), s.open, events.n, refused)
	}
}

// A batch with a message that is refused, or that Admission does not let in, is not begun.
func TestBatchThatIsRefused(t *testing.T) {
	g := &gate{refuse: &Refused{}}
	d, s := newDesk(Config{Admission: g, Tier: 3, TierCeiling: 3})
	got, refused := d.CommitAll(t.Context(), batchOf(t, d, webClient(), 3), nil)
	if refused == nil || refused.Code != 451 || len(got)+len(s.messages) != 0 {
		t.Errorf("%d messages, %d stored: %v", len(got), len(s.messages), refused)
	}
	all := batchOf(t, d, webClient(), 3)
	fmt.Fprint(all[2], "\x00\r\n")
	if _, refused = d.CommitAll(t.Context(), all, nil); refused == nil || refused.Code != 550 || len(s.messages) != 0 {
		t.Errorf("%d stored: %v", len(s.messages), refused)
	}
	for _, m := range all {
		m.Drop()
	}
	if g.committed != 0 {
		t.Errorf("admission: %+v", g)
	}
}

type receptions struct{ n int }

func (r *receptions) Received(*envelope.Message, Fields) { r.n++ }
func (r *receptions) Rejected(Rejection)                 {}
