package messages

import (
	"strings"
	"testing"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/dispatch/rules"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/answer/blocks"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
)

// bare answers about a relay that has a configuration and no mail.
func bare(t *testing.T, text string) *Messages {
	t.Helper()
	cfg, err := config.Parse([]byte(text), "test.conf", nil)
	if err != nil {
		t.Fatal(err)
	}
	pol := wiring.New(cfg)
	return &Messages{
		Policy: func() *wiring.Policy { return pol }, Now: time.Now, Delivery: idle{}, Dispatcher: idle{},
		Rules: new(rules.Rules), Warmups: new(blocks.Warmups), Providers: nowhere{},
	}
}

// nowhere knows no provider but of what waits for a warm-up.
type nowhere struct{}

func (nowhere) Provider(k parking.Key) (string, bool)               { return k.Provider, k.Kind == parking.Tokens }
func (w nowhere) ProviderOf(k parking.Key, _ string) (string, bool) { return w.Provider(k) }

// idle is a delivery, and a dispatcher, that has nothing.
type idle struct{ Delivery }

func (idle) WhereaboutsOf([]envelope.ID) map[envelope.ID]delivery.Whereabouts { return nil }
func (idle) Site(string) (delivery.SiteInfo, bool)                            { return delivery.SiteInfo{}, false }

func (idle) LookingUp(envelope.ID, string, int) bool { return false }
func (idle) Signing(envelope.ID) bool                { return false }
func (idle) Cancel(envelope.ID)                      {}

// TestWhatKeepsParkedMail: it is what keeps its own source, as another one's may be suspended for hours.
func TestWhatKeepsParkedMail(t *testing.T) {
	began := time.Now()
	lanes := []delivery.LaneInfo{
		{Site: "mx", Source: "slow", Waiting: 9, Oldest: began, Why: "suspended: a test"},
		{Site: "mx", Source: "fast", Waiting: 9, Oldest: began.Add(time.Second), Why: "max_message_rate 9/s"},
	}
	for source, want := range map[string]string{
		"slow": "waits for mx: suspended: a test", "fast": "waits for mx: max_message_rate 9/s",
		"": "waits for mx: suspended: a test", "gone": "waits for its turn at mx",
	} {
		if got, _ := keptBy(parking.Line{Key: parking.Key{Name: "mx"}, Source: source}, lanes); got != want {
			t.Errorf("from %q: %q, want %q", source, got, want)
		}
	}
}

// TestMailThatLeavesTheQueue: what an operator removes or moves is not shown as given up.
func TestMailThatLeavesTheQueue(t *testing.T) {
	for asked, want := range map[queue.Action]string{0: "given up: ", queue.Remove: "removed: ", queue.Cancel: "removed: ",
		queue.Transfer: "on its way to another relay"} {
		rc := &queue.ItemRecipient{State: queue.StateEnding, Asked: asked}
		if p := bare(t, "").LookOut().Of(new(queue.Item), rc); p.State != api.StateEnding || !strings.HasPrefix(p.Why, want) {
			t.Errorf("after action %v: %+v", asked, p)
		}
	}
}

// TestMailWithinDelivery: what waits there is waiting, with the reason of its lane, whatever that is; only
// what is on a connection is active.
func TestMailWithinDelivery(t *testing.T) {
	until := time.Now().Add(time.Minute)
	host := route.Host{Name: "mx.a.example"}
	k := &Lookout{m: bare(t, ""), where: map[envelope.ID]delivery.Whereabouts{1: {
		Waiting: []delivery.WaitingPart{
			{Site: "a", Recipients: []int{0}, Why: "slow start: 1 connection so far", Until: until},
			{Site: "a", Recipients: []int{1}, Why: "drain after an outage: 1/s", Until: until},
			{Site: "a", Recipients: []int{2}},
		},
		Carriers: []delivery.Carrier{{Host: host, Parts: 1}, {Host: host, Opening: true}},
	}}}
	for index, want := range []Position{
		{api.StateWaiting, "waits for a: slow start: 1 connection so far", until},
		{api.StateWaiting, "waits for a: drain after an outage: 1/s", until},
		{api.StateWaiting, "waits for a connection to a", time.Time{}},
		{api.StateActive, "in transit to " + host.String(), time.Time{}},
	} {
		if got := k.Of(&queue.Item{Message: envelope.Message{ID: 1}}, &queue.ItemRecipient{Index: index, State: queue.StateLeased}); got != want {
			t.Errorf("recipient %d: %+v, want %+v", index, got, want)
		}
	}
	if got := k.Of(&queue.Item{Message: envelope.Message{ID: 2}}, &queue.ItemRecipient{State: queue.StateLeased}); got.State != api.StateWaiting {
		t.Errorf("what delivery does not have is %s", got.State)
	}
}

// What is given up is no more active than that.
func TestGivenUp(t *testing.T) {
	k := bare(t, "").LookOut()
	for _, rc := range []queue.ItemRecipient{{State: queue.StateEnding}, {State: queue.StateLeased, Ending: true}} {
		if got := k.Of(&queue.Item{Message: envelope.Message{ID: 1}}, &rc); got.State != api.StateEnding || !got.Next.IsZero() {
			t.Errorf("%+v stands as %+v", rc, got)
		}
	}
}

// Mail that reaches its age before its next attempt has none.
func TestDeferredMailThatExpiresFirst(t *testing.T) {
	r := bare(t, `defaults { max_age = "2h" }`)
	now := time.Now()
	for next, doing := range map[time.Duration]string{time.Hour: "", 2 * time.Hour: "expires before its next attempt", 3 * time.Hour: "expires before its next attempt"} {
		rc := queue.ItemRecipient{State: queue.StateDeferred, Address: "bob@box.example", Start: now, Next: now.Add(next)}
		got := r.Recipient(&queue.Item{}, r.LookOut(), &rc)
		if want := now.Add(min(next, 2*time.Hour)); got.Doing != doing || !got.Next.Equal(want) {
			t.Errorf("due in %v: %q at %v, want %q at %v", next, got.Doing, got.Next, doing, want)
		}
	}
}

// TestExpiresAsDispatchDecides: a recipient's time is that of its own domain and provider; held, that of no other.
func TestExpiresAsDispatchDecides(t *testing.T) {
	r := bare(t, `
		defaults { max_age = "2d" }
		domain "soon.example" { max_age = "1h" }
		provider "slow" {
			mx      = ["*.slow.example"]
			max_age = "7d"
		}`)
	start := time.Unix(1e9, 0)
	for _, x := range []struct {
		to     envelope.Address
		state  queue.State
		key    string
		sender time.Duration // its own time, after start
		want   time.Duration
	}{
		{"a@soon.example", queue.StateParked, "paused: everything", 0, time.Hour},
		{"a@soon.example", queue.StateDue, "", 0, time.Hour},
		{"a@soon.example", queue.StateHeld, "", 0, 7 * 24 * time.Hour},
		{"a@soon.example", queue.StateHeld, "", time.Minute, time.Minute},
		{"a@soon.example", queue.StateDue, "", 2 * time.Hour, time.Hour},
		{"a@far.example", queue.StateDue, "", 0, 7 * 24 * time.Hour}, // its provider may be slow
		{"a@far.example", queue.StateParked, "warmup:p/other", 0, 2 * 24 * time.Hour},
		{"a@far.example", queue.StateParked, "warmup:p/slow", 0, 7 * 24 * time.Hour},
	} {
		it := queue.Item{}
		if x.sender > 0 {
			it.Expires = start.Add(x.sender)
		}
		rc := &queue.ItemRecipient{Address: x.to, State: x.state, Line: parking.Line{Key: parking.Parse(x.key)}, Start: start}
		if got := r.expires(&it, rc).Sub(start); got != x.want {
			t.Errorf("%s, %v under %q: after %v, want %v", x.to, x.state, x.key, got, x.want)
		}
	}
}

// TestEndedAndNotReported: what waits for the report to its sender only is no longer delivered, or tried.
func TestEndedAndNotReported(t *testing.T) {
	r := bare(t, "")
	next := time.Unix(1e9, 0)
	for code, want := range map[int]string{250: "delivered: the report", 550: "refused for good: the report"} {
		rc := &queue.ItemRecipient{Address: "a@x.example", State: queue.StateDeferred, Attempts: 1, Next: next, Last: reply.Reply{Code: code}}
		p := r.LookOut(queue.Item{}).inQueue(1, rc)
		if p.State != api.StateEnding || !strings.HasPrefix(p.Why, want) || !p.Next.Equal(next) {
			t.Errorf("%+v", p)
		}
	}
}
