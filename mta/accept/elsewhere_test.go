package accept

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/bounce"
	"example.org/mta/bounce/inbox"
	"example.org/mta/bounce/returnpath"
	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
)

// cluster are nodes by number, and what they were asked.
type cluster struct {
	*testing.T
	now   time.Time
	nodes map[int]*Elsewhere
	log   strings.Builder
	asked []int
	away  []int         // nodes without an answer
	since time.Duration // when they were seen last
}

// books have some messages.
type books struct {
	has     []envelope.ID
	written int
	err     error
}

func (b *books) Message(_ context.Context, id envelope.ID) (*inbox.Message, error) {
	if !slices.Contains(b.has, id) {
		return nil, nil
	}
	return &inbox.Message{ID: id, Recipients: []inbox.Recipient{{Address: "ann@example.net"}}}, nil
}

func (b *books) Write(ctx context.Context, all []*inbox.Record) error {
	b.written += len(all)
	return errors.Join(b.err, ctx.Err())
}

func (b *books) Unsubscribe(context.Context, *inbox.Record) error { return b.err }

func newCluster(t *testing.T) *cluster {
	return &cluster{T: t, now: time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC), nodes: make(map[int]*Elsewhere)}
}

// node adds one whose tokens name a maker.
func (c *cluster) node(number int, maker returnpath.Node, has ...envelope.ID) (*Elsewhere, *books) {
	b := &books{has: has}
	now := func() time.Time { return c.now }
	e := NewElsewhere(maker, now, slog.New(slog.NewTextHandler(&c.log, nil)))
	e.Join(inbox.New(inbox.Config{Node: maker, Books: b, Log: slog.New(slog.DiscardHandler),
		Classify: func(r *reply.Reply, _ string) bounce.Class { return bounce.Of(*r) }}), members{c, number})
	c.nodes[number] = e
	return e, b
}

type members struct {
	*cluster
	self int
}

func (m members) Self() int { return m.self }

func (m members) Others() (all []int, known bool) {
	for n := range m.nodes {
		if n != m.self {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all, len(m.nodes) > 1
}

func (m members) Away(node int) time.Duration {
	if slices.Contains(m.away, node) {
		return m.since
	}
	return 0
}

func (m members) Ask(ctx context.Context, node int, r *http.Request) (*http.Response, error) {
	m.asked = append(m.asked, node)
	if slices.Contains(m.away, node) {
		return nil, errors.New("no answer")
	}
	w := httptest.NewRecorder()
	gone, cancel := context.WithCancel(ctx)
	cancel() // the other side goes away while the report is written down
	m.nodes[node].ServeHTTP(w, r.WithContext(gone))
	return w.Result(), nil
}

// hands has a node hand over a bounce, which ends in a way after some nodes were asked.
func (c *cluster) hands(e *Elsewhere, id envelope.ID, maker returnpath.Node, want string, asked ...int) {
	c.Helper()
	c.asked = nil
	o, err := e.Hand(c.Context(), &inbox.Handed{Token: returnpath.Token{Node: maker, Message: id, Recipient: 0}, About: inbox.ByToken,
		Mail: inbox.Mail{Content: []byte("Subject: Undelivered Mail\r\n\r\n<ann@example.net>: 550 5.1.1 user unknown\r\n"), Time: c.now}})
	got := string(o)
	if err != nil {
		got = err.Error()
	}
	if got != want || !slices.Equal(c.asked, asked) {
		c.Errorf("message %v of %v: %q, asked %v; want %q, %v", id, maker, got, c.asked, want, asked)
	}
}

const at = envelope.ID(1<<20) * 1024 // the id of a message, without a node

// TestTheNodeThatSentIsAsked: the one that the id names, and for ids of before a cluster each node until it is found.
func TestTheNodeThatSentIsAsked(t *testing.T) {
	c := newCluster(t)
	a, own := c.node(1, 0xa)
	_, second := c.node(2, 0xb, at+2, at+3)
	c.node(3, 0xc)
	c.node(4, 0xd)
	c.hands(a, at+2, 0xb, "recorded", 2)
	c.hands(a, at+2, 0xb, "repeated", 2)
	c.hands(a, at+1026, 0xb, "", 2)         // its records are no longer kept
	c.hands(a, at+3, 0xb, "recorded", 3, 2) // 3 is a sequence
	c.hands(a, at+3, 0xb, "repeated", 3, 2)
	if second.written != 2 || own.written != 0 {
		t.Errorf("%d and %d are written", second.written, own.written)
	}
	// Nobody has made it: each node is asked once a minute, and what this node has made is at no other.
	c.hands(a, at, 0xe, "", 4)
	c.hands(a, at, 0xe, "")
	c.hands(a, at+1, 0xa, "")
	c.now = c.now.Add(metFor)
	c.hands(a, at, 0xe, "", 2, 3, 4)
	// Nodes with one name.
	c.node(5, 0xa, at+5)
	c.hands(a, at+5, 0xa, "recorded", 5)
}

// TestWithoutAnAnswerReportsComeAgain: they fail while a node is away that could have sent the message.
func TestWithoutAnAnswerReportsComeAgain(t *testing.T) {
	c := newCluster(t)
	a, _ := c.node(1, 0xa)
	c.hands(a, at+2, 0xb, "the nodes of the cluster are not known yet, since its database has not been read")
	_, second := c.node(2, 0xb, at+2)
	c.node(3, 0xc)
	c.away = []int{2}
	c.hands(a, at+2, 0xb, "node 2: no answer", 2, 3)
	c.hands(a, at+3, 0xb, "node 2: no answer", 3, 2)
	if got := c.log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "refused with 4xx") {
		t.Errorf("logged %s", got)
	}
	if got := a.Refused(); !maps.Equal(got, map[string]int64{"2": 2}) {
		t.Errorf("refused %v", got)
	}
	c.away = nil
	second.err = errors.New("disk on fire")
	c.hands(a, at+2, 0xb, "node 2: status 503: recording a report: disk on fire", 2)
	second.err = nil
	c.hands(a, at+2, 0xb, "recorded", 2)
	delete(c.nodes, 2) // it was forgotten
	c.hands(a, at+2, 0xb, "")
}

// TestReportsDoNotWaitForOtherNodes than those that can have sent the mail: of a forgotten node, and of before a node
// joined.
func TestReportsDoNotWaitForOtherNodes(t *testing.T) {
	c := newCluster(t)
	a, _ := c.node(1, 0xa)
	c.node(2, 0xb)
	c.node(3, 0xc)
	c.away = []int{3}
	c.hands(a, at, 0xa, "")       // this node's, of before it joined
	c.hands(a, at+2, 0xa, "", 2)  // likewise, or of a node with the same name
	c.hands(a, at, 0xb, "", 2, 3) // the maker has no records of it
	c.hands(a, at+4, 0xd, "node 3: no answer", 3)
	c.hands(a, at+3, 0xa, "node 3: no answer", 3)
	c.since = gone - time.Second
	c.hands(a, at+4, 0xd, "node 3: no answer", 3)
	c.since = gone
	c.hands(a, at+4, 0xd, "", 3)
	c.hands(a, at+3, 0xa, "", 3)
	// A node that has made such tokens is waited for until it is forgotten.
	c.away = nil
	c.hands(a, at+3, 0xc, "", 3)
	c.away = []int{3}
	c.hands(a, at+3, 0xc, "node 3: no answer", 3)
	c.hands(a, at+1027, 0xc, "node 3: no answer", 3)
}

// TestGarbledReportsAreRefused by the node that they are handed to.
func TestGarbledReportsAreRefused(t *testing.T) {
	c := newCluster(t)
	a, b := c.node(1, 0xa, at)
	for _, text := range []string{"", "x", "[]", `{"Token":{"Recipient":"x"}}`, `{"Mail":{"Content":"` + strings.Repeat("a", maxHanded) + `"}}`} {
		w := httptest.NewRecorder()
		a.ServeHTTP(w, httptest.NewRequest("POST", "/", strings.NewReader(text)))
		if w.Code != http.StatusBadRequest {
			t.Errorf("%.40s: %d", text, w.Code)
		}
	}
	for _, text := range []string{"{}", "null", `{"Token":{"Node":10,"Recipient":70000},"About":"x"}`} {
		w := httptest.NewRecorder()
		a.ServeHTTP(w, httptest.NewRequest("POST", "/", strings.NewReader(text)))
		if w.Code != http.StatusOK || !bytes.Contains(w.Body.Bytes(), []byte(`"Outcome":""`)) {
			t.Errorf("%s: %d %s", text, w.Code, w.Body)
		}
	}
	if b.written > 0 {
		t.Error("something is written")
	}
	c.node(2, 0xb)
	for _, answer := range []string{"", "x", `{"Outcome":1}`} {
		a.Join(nil, garbled{members{c, 1}, answer})
		if _, err := a.Hand(t.Context(), &inbox.Handed{Token: returnpath.Token{Node: 0xb, Message: at + 2}}); err == nil || !strings.Contains(err.Error(), "its answer can't be read") {
			t.Errorf("%q: %v", answer, err)
		}
	}
}

// garbled are nodes that answer so.
type garbled struct {
	members
	answer string
}

func (g garbled) Ask(context.Context, int, *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	fmt.Fprint(w, g.answer)
	return w.Result(), nil
}

// TestStrangersLeaveRoomForReports: a neighbourhood that brings many reports about mail of a node has one of them handed
// over at a time, and those of others are next.
func TestStrangersLeaveRoomForReports(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, _ := c.node(1, 0xa)
		c.node(2, 0xb)
		slow := &slowly{members: members{c, 1}}
		a.Join(nil, slow)
		bring := func(from string) error {
			_, err := a.Hand(t.Context(), &inbox.Handed{Token: returnpath.Token{Node: 0xb, Message: at + 2},
				Mail: inbox.Mail{Peer: netip.MustParseAddrPort(from)}})
			return err
		}
		var strangers sync.WaitGroup
		var refused atomic.Int32
		for i := range 50 {
			strangers.Go(func() {
				if err := bring(fmt.Sprintf("192.0.2.%d:4000", i)); err != nil {
					refused.Add(1)
				}
			})
		}
		synctest.Wait()
		if n := slow.now.Load(); n != 1 {
			t.Errorf("%d reports of one neighbourhood are handed over at a time", n)
		}
		var others sync.WaitGroup
		began := time.Now()
		for i := range 12 {
			others.Go(func() {
				if err := bring(fmt.Sprintf("203.0.%d.1:4000", i)); err != nil {
					t.Error(err)
				}
			})
		}
		others.Wait()
		if took := time.Since(began); took > 4*time.Second || slow.most.Load() > 4 {
			t.Errorf("12 reports of others take %s, %d at a time", took, slow.most.Load())
		}
		strangers.Wait()
		if n := refused.Load(); n < 20 || n > 35 { // it is more than the node takes in 20 s
			t.Errorf("%d of 50 are refused", n)
		}
	})
}

// slowly are nodes that take a second for a report.
type slowly struct {
	members
	now, most atomic.Int32
}

func (s *slowly) Ask(ctx context.Context, _ int, _ *http.Request) (*http.Response, error) {
	n := s.now.Add(1)
	defer s.now.Add(-1)
	for most := s.most.Load(); n > most && !s.most.CompareAndSwap(most, n); most = s.most.Load() {
	}
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	w := httptest.NewRecorder()
	fmt.Fprint(w, `{"Node":11,"Outcome":"recorded"}`)
	return w.Result(), nil
}
