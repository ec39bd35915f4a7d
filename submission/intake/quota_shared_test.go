package intake

import (
	"sync"
	"testing"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/gcra"
)

// parts are this relay's of limits that it shares. It implements SharedQuotas.
type parts struct {
	mu       sync.Mutex
	rate     int64 // messages that may come
	messages int64 // granted
	octets   int64
	held     QuotaUsage
	none     bool
	patience time.Duration
	more     chan struct{}
	refused  int
}

func (p *parts) room(ok bool) Part {
	if ok {
		return Part{OK: true}
	}
	p.refused++
	return Part{None: p.none, Patience: p.patience}
}

func (p *parts) Submit(string, gcra.Rate) Part {
	p.mu.Lock()
	defer p.mu.Unlock()
	ok := p.rate > 0
	if ok {
		p.rate--
	}
	return p.room(ok)
}

func (p *parts) Unsubmit(string, gcra.Rate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rate++
}

func (p *parts) HoldMessages(_ string, _, n int64, forced bool) Part {
	return p.hold(&p.held.Messages, &p.messages, n, forced)
}

func (p *parts) HoldOctets(_ string, _, n int64, forced bool) Part {
	return p.hold(&p.held.Octets, &p.octets, n, forced)
}

func (p *parts) hold(held, granted *int64, n int64, forced bool) Part {
	p.mu.Lock()
	defer p.mu.Unlock()
	ok := n <= *granted || forced
	if ok {
		*held = n
	}
	return p.room(ok)
}

func (p *parts) Await(x Part, until *time.Time) bool {
	if until.IsZero() {
		*until = time.Now().Add(x.Patience)
	}
	p.mu.Lock()
	more := p.more
	p.mu.Unlock()
	select {
	case <-more:
		return true
	case <-time.After(time.Until(*until)):
		return false
	}
}

// give has this relay have more.
func (p *parts) give(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.more)
	p.more = make(chan struct{})
}

func sharing(l QuotaLimits) (*world, *parts) {
	w, p := newWorld(map[string]QuotaLimits{"acme": l, "free": {}}), &parts{more: make(chan struct{})}
	w.Share(p)
	return w, p
}

var three = QuotaLimits{Rate: gcra.Rate{Events: 100}, Messages: 1000, Octets: 1000}

// TestAPartOfTheQuotas is what a relay may use of them, however much there is at others. What did not come is given back,
// what leaves the queue is noted, and exempt mail is beside them.
func TestAPartOfTheQuotas(t *testing.T) {
	w, p := sharing(three)
	p.rate, p.messages, p.octets = 5, 3, 100
	for i := range 4 {
		want := WithinQuota
		if i == 3 {
			want = OverMessages
		}
		if why, _ := w.submit("acme", 10); why != want {
			t.Errorf("message %d: %v", i, why)
		}
	}
	if p.rate != 2 || p.held != (QuotaUsage{3, 30}) {
		t.Errorf("%d left of the rate, %+v in use", p.rate, p.held)
	}
	p.messages = 4
	c, _, over := w.Begin("acme", 10, false)
	if over.Reason != WithinQuota || p.held.Messages != 4 || p.rate != 1 {
		t.Errorf("%+v, %+v in use", over, p.held)
	}
	if _, over := c.Grow(71); over.Reason != OverOctets || p.held.Octets != 40 {
		t.Errorf("71 octets with 30 of 100: %+v, %+v in use", over, p.held)
	}
	if _, over := c.Grow(70); over.Reason != WithinQuota || p.held.Octets != 100 {
		t.Errorf("70 octets with 30 of 100: %+v, %+v in use", over, p.held)
	}
	c.Drop()
	w.queued["acme"] = QuotaUsage{2, 20}
	w.Count("acme")
	if p.rate != 2 || p.held != (QuotaUsage{2, 20}) {
		t.Errorf("%d left of the rate, %+v in use", p.rate, p.held)
	}
	p.messages, p.octets = 0, 0
	if c, _, over := w.Begin("acme", 10, true); c == nil || p.held.Messages != 3 || p.rate != 2 {
		t.Errorf("a report: %+v, %+v in use", over, p.held)
	}
	if c, _, over := w.Begin("acme", 1971, true); c != nil || over.Reason != OverOctets || over.Part != nil {
		t.Errorf("a report that fills twice the quota: %+v", over)
	}
	if why, _ := w.submit("free", 1e6); why != WithinQuota || p.rate != 2 || p.held.Messages != 3 {
		t.Errorf("a tenant without limits: %v", why)
	}
	if s, _ := w.State("acme"); s.Now.Reason != OverOctets || s.Refused[OverMessages] != 1 {
		t.Errorf("%+v", s)
	}
	w.now = w.now.Add(time.Minute)
	if s, _ := w.State("acme"); s.Now.Reason != WithinQuota {
		t.Errorf("a minute later: %+v", s)
	}
}

// TestAllLimitsAreAskedAtOnce: those that have too little are asked for together, and what the others gave goes back.
func TestAllLimitsAreAskedAtOnce(t *testing.T) {
	w, p := sharing(three)
	p.rate = 5
	if why, _ := w.submit("acme", 10); why != OverMessages || p.refused != 2 || p.rate != 5 || p.held != (QuotaUsage{}) {
		t.Errorf("%v, %d limits were asked for more, %d left of the rate, %+v in use", why, p.refused, p.rate, p.held)
	}
	p.rate, p.messages, p.octets = 0, 1, 10
	if why, _ := w.submit("acme", 10); why != OverRate || p.held != (QuotaUsage{}) {
		t.Errorf("%v, %+v in use", why, p.held)
	}
}

// TestALowerPartLowers, and what is lowered counts.
func TestALowerPartLowers(t *testing.T) {
	l := three
	l.Lower = true
	w, p := sharing(l)
	p.rate, p.messages, p.octets = 1, 9, 999
	for i, lowered := range []bool{false, true, true} {
		if why, lower := w.submit("acme", 10); lower != lowered {
			t.Errorf("message %d: lowered is %v (%v)", i, lower, why)
		}
	}
	if p.held != (QuotaUsage{3, 30}) {
		t.Errorf("%+v in use", p.held)
	}
	c, _, _ := w.Begin("acme", 10, false)
	if c.Grow(50); p.held != (QuotaUsage{4, 80}) {
		t.Errorf("%+v in use as lowered content comes", p.held)
	}
}

// TestAMessageWaitsForAPart, and others don't wait for it; not longer than it pays, and then the reply has the reason.
func TestAMessageWaitsForAPart(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w, p := sharing(three)
		p.none, p.patience = true, 2*time.Second
		began := time.Now()
		got := make(chan QuotaReason)
		go func() {
			_, _, over := w.Begin("acme", 10, false)
			got <- over.Reason
		}()
		time.Sleep(time.Second)
		if _, _, over := w.Begin("free", 1, false); over.Reason != WithinQuota || time.Since(began) != time.Second {
			t.Errorf("another tenant: %+v after %v", over, time.Since(began))
		}
		p.give(func() { p.rate, p.messages, p.octets = 1, 1, 10 })
		if why := <-got; why != WithinQuota || time.Since(began) != time.Second {
			t.Errorf("%v after %v", why, time.Since(began))
		}
		_, _, over := w.Begin("acme", 10, false)
		if over.Reason != OverMessages || time.Since(began) != 3*time.Second {
			t.Errorf("%+v after %v", over, time.Since(began))
		}
		want := "450 4.7.1 tenant acme may have 1000 messages in the queues of all relays of the cluster, and this one has no part of that now; try again in a minute"
		if r := overReply("acme", over); r.String() != want {
			t.Error(r)
		}
		over = Excess{Reason: OverRate, Limits: three, Part: &Part{Wait: 1500 * time.Millisecond}, Wait: 1500 * time.Millisecond}
		want = "450 4.7.1 tenant acme may submit 100/s at all relays of the cluster, and this one has used its part; try again in 2 seconds"
		if r := overReply("acme", over); r.String() != want {
			t.Error(r)
		}
	})
}

// TestQuotasOfThisRelayAmongSharedOnes are asked of no other relay.
func TestQuotasOfThisRelayAmongSharedOnes(t *testing.T) {
	l := QuotaLimits{Rate: gcra.Rate{Events: 2}, Messages: 3, Octets: 100, PerRelay: true}
	w, p := sharing(l)
	for i, want := range []QuotaReason{WithinQuota, WithinQuota, OverRate} {
		if why, _ := w.submit("acme", 10); why != want {
			t.Errorf("message %d: %v, want %v", i, why, want)
		}
	}
	w.now = w.now.Add(time.Second)
	c, _, over := w.Begin("acme", 10, false)
	if over.Reason != WithinQuota {
		t.Errorf("a second later: %+v", over)
	}
	if _, over := c.Grow(90); over.Reason != OverOctets || over.Part != nil {
		t.Errorf("90 octets more: %+v", over)
	}
	if s, _ := w.State("acme"); s.Now.Reason != OverMessages {
		t.Errorf("%+v", s)
	}
	c.Drop()
	w.Count("acme")
	if p.held != (QuotaUsage{}) || p.rate != 0 || p.refused > 0 {
		t.Errorf("the others were asked: %+v, %d, %d", p.held, p.rate, p.refused)
	}
	if why, _ := w.submit("acme", 10); why != WithinQuota {
		t.Errorf("after a message that did not come: %v", why)
	}
}
