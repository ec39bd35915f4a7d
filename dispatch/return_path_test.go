package dispatch

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"example.org/mta/bounce/returnpath"
	"example.org/mta/delivery"
	"example.org/mta/internal/envelope"
	"example.org/mta/mta/config"
)

// nameRecipient is a token that says what it was made of.
func nameRecipient(p returnpath.Purpose, m *envelope.Message, recipient int) string {
	return fmt.Sprintf("%d.%d", m.ID, recipient)
}

// With per_recipient each job has one recipient, and its part of the tokens: what finds no space in delivery is parked
// together, and gives its tokens back.
func TestPerRecipientSharesTokens(t *testing.T) {
	w := newWarmStage(t, holding+"\n"+`sender_domain "*" {
		return_path   = "b.example"
		per_recipient = true
	}`)
	w.Token = nameRecipient
	w.pass(filling)
	w.room = 3
	w.mail(8)
	flow := delivery.Flow{Site: "mx.x.example", Source: "acme-1", Tenant: "acme"}
	var paths []string
	for _, j := range w.jobs {
		if len(j.Recipients) != 1 {
			t.Errorf("a job has recipients %v", j.Recipients)
		}
		paths = append(paths, string(j.ReturnPath(j.Recipients[0])))
	}
	if want := []string{"b-1.0@b.example", "b-1.1@b.example", "b-1.2@b.example"}; !slices.Equal(paths, want) || w.Parked(lineOf(flow)) != 5 {
		t.Fatalf("return paths %v, want %v; %d parked", paths, want, w.Parked(lineOf(flow)))
	}
	w.pass(10 * time.Second)
	if s, _ := w.ctl.Status("192.0.2.20"); s.SentHour != 3 {
		t.Errorf("%d tokens are spent, want 3", s.SentHour)
	}
	w.room = 1 << 20
	w.mail(7)
	w.wantSources(10, 0)
	w.unpark(flow)
	w.step()
	w.wantSources(10, 0)
	if n := w.throttledNow(); n != 5 {
		t.Errorf("%d wait for tokens, want 5", n)
	}
}

// Delivery has called for one message: further jobs of it need space as any others.
func TestOneJobIsCalled(t *testing.T) {
	c := choice{n: 3, out: 2, called: true}
	var got []string
	for range 3 {
		part := c.cut(1)
		got = append(got, fmt.Sprint(part.n, part.out, part.called))
	}
	if want := []string{"1 1 true", "1 1 false", "1 0 false"}; !slices.Equal(got, want) {
		t.Errorf("parts %v, want %v", got, want)
	}
}

// MAIL names the recipient of each transaction that has one; the header does if the message has only one, or with
// per_recipient, so that the content is otherwise the same in all jobs.
func TestWhatTokensName(t *testing.T) {
	for _, c := range []struct {
		per       bool
		all, job  int // recipients
		only      int // of the transaction
		mail      string
		recipient int // in the header, from 1
	}{
		{false, 1, 1, 0, "b-7.0@b.example", 1},
		{false, 3, 1, 2, "b-7.2@b.example", 0},
		{false, 3, 2, -1, "b-7.-1@b.example", 0},
		{false, 3, 2, 2, "b-7.2@b.example", 0},
		{true, 3, 1, 2, "b-7.2@b.example", 3},
	} {
		m := &envelope.Message{ID: 7}
		for i := range c.all {
			m.Recipients = append(m.Recipients, envelope.Recipient{Address: envelope.Address(fmt.Sprintf("r%d@x.example", i))})
		}
		p := returnPath{ReturnPath: config.ReturnPath{Domain: "b.example", PerRecipient: c.per}, message: m, make: nameRecipient, position: positions(m)}
		var job []int
		for i := range c.job {
			job = append(job, c.all-c.job+i)
		}
		address, top := p.put(job)
		if got := address(c.only); string(got) != c.mail || top.recipient != c.recipient {
			t.Errorf("%+v: MAIL FROM:<%s>, the header names %d", c, got, top.recipient)
		}
	}
}

// An address that a message has twice counts once: the records of the message show no more.
func TestPositions(t *testing.T) {
	m := new(envelope.Message)
	for _, a := range []envelope.Address{"a@x.example", "b@x.example", "a@x.example", "c@x.example", "B@x.example"} {
		m.Recipients = append(m.Recipients, envelope.Recipient{Address: a})
	}
	var got []int
	position := positions(m)
	for i := -1; i < len(m.Recipients); i++ {
		got = append(got, position(i))
	}
	if want := []int{-1, 0, 1, 0, 2, 3}; !slices.Equal(got, want) {
		t.Errorf("positions %v, want %v", got, want)
	}
}
