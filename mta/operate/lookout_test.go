package operate

import (
	"testing"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/route"
	"example.org/mta/mta/config"
	"example.org/mta/mta/control"
	"example.org/mta/mta/pauses"
	"example.org/mta/mta/wiring"
	"example.org/mta/queue"
)

// bare is a relay that has a configuration and no mail.
func bare(t *testing.T, text string) *Relay {
	t.Helper()
	cfg, err := config.Parse([]byte(text), "test.conf", nil)
	if err != nil {
		t.Fatal(err)
	}
	pol := wiring.New(cfg)
	return &Relay{
		Policy: func() *wiring.Policy { return pol }, Now: time.Now, Delivery: knowing(t, 0), Dispatcher: idle{}, Pauses: new(pauses.Pauses),
		Provider: func(parking.Key) (string, bool) { return "", false },
	}
}

// idle is a dispatcher that has nothing.
type idle struct{}

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

// TestMailWithinDelivery: what waits there is waiting, with the reason of its lane, whatever that is; only
// what is on a connection is active.
func TestMailWithinDelivery(t *testing.T) {
	until := time.Now().Add(time.Minute)
	host := route.Host{Name: "mx.a.example"}
	k := &lookout{r: bare(t, ""), where: map[envelope.ID]delivery.Whereabouts{1: {
		Waiting: []delivery.WaitingPart{
			{Site: "a", Recipients: []int{0}, Why: "slow start: 1 connection so far", Until: until},
			{Site: "a", Recipients: []int{1}, Why: "drain after an outage: 1/s", Until: until},
			{Site: "a", Recipients: []int{2}},
		},
		Carriers: []delivery.Carrier{{Host: host, Parts: 1}, {Host: host, Opening: true}},
	}}}
	for index, want := range []position{
		{control.StateWaiting, "waits for a: slow start: 1 connection so far", until},
		{control.StateWaiting, "waits for a: drain after an outage: 1/s", until},
		{control.StateWaiting, "waits for a connection to a", time.Time{}},
		{control.StateActive, "in transit to " + host.String(), time.Time{}},
	} {
		if got := k.of(&queue.Item{ID: 1}, &queue.ItemRecipient{Index: index, State: queue.StateLeased}); got != want {
			t.Errorf("recipient %d: %+v, want %+v", index, got, want)
		}
	}
	if got := k.of(&queue.Item{ID: 2}, &queue.ItemRecipient{State: queue.StateLeased}); got.state != control.StateWaiting {
		t.Errorf("what delivery does not have is %s", got.state)
	}
}

// What is given up is no more active than that.
func TestGivenUp(t *testing.T) {
	k := bare(t, "").lookOut()
	for _, rc := range []queue.ItemRecipient{{State: queue.StateEnding}, {State: queue.StateLeased, Ending: true}} {
		if got := k.of(&queue.Item{ID: 1}, &rc); got.state != control.StateEnding || !got.next.IsZero() {
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
		got := messages{r}.recipient(&queue.Item{}, r.lookOut(), &rc)
		if want := now.Add(min(next, 2*time.Hour)); got.Doing != doing || !got.Next.Equal(want) {
			t.Errorf("due in %v: %q at %v, want %q at %v", next, got.Doing, got.Next, doing, want)
		}
	}
}
