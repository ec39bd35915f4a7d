package submitted

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	nethttp "net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	"example.org/mta/submission/http"
)

// desk is the mail of tenant acme at a node, by all ids that the node knows it by.
type desk struct {
	http.Messages
	known map[envelope.ID]*http.Message
	parts map[envelope.ID][]envelope.ID // what was moved here in several parts
	ids   map[string][]envelope.ID      // by campaign, or key
	moved []string
	out   int                  // recipients that are withheld
	much  bool                 // to look through for a list
	left  map[envelope.ID]bool // messages that leave while they are listed
	fails error

	mu    sync.Mutex
	asked int
}

func (d *desk) look(tenant string, id envelope.ID) (*http.Message, error) {
	d.mu.Lock()
	d.asked++
	d.mu.Unlock()
	if d.fails != nil {
		return nil, d.fails
	}
	if m := d.known[id]; m != nil && tenant == "acme" {
		return m, nil
	}
	return nil, http.ErrNoMessage
}

func (d *desk) Get(_ context.Context, tenant string, id envelope.ID) (http.Message, error) {
	m, err := d.look(tenant, id)
	if err != nil {
		return http.Message{}, err
	}
	return *m, nil
}

func (d *desk) Parts(_ context.Context, tenant string, id envelope.ID) (all []http.Message, err error) {
	for _, id := range d.of(id) {
		m, err := d.look(tenant, id)
		if err != nil {
			return nil, err
		}
		all = append(all, *m)
	}
	return all, nil
}

func (d *desk) of(id envelope.ID) []envelope.ID {
	if parts := d.parts[id]; len(parts) > 0 {
		return parts
	}
	return []envelope.ID{id}
}

func (d *desk) Cancel(_ context.Context, tenant string, what http.Cancel) (done http.Cancelled, err error) {
	ids := d.of(what.ID)
	if what.ID == 0 {
		if ids = d.ids[what.Campaign+what.IdempotencyKey]; what.IdempotencyKey != "" && ids == nil {
			return done, http.ErrNoMessage
		}
		done.MovedTo = slices.Clone(d.moved)
	}
	done.Withheld = d.out
	for _, id := range ids {
		m, err := d.look(tenant, id)
		if err != nil {
			return done, err
		}
		for i := range m.Recipients {
			r := &m.Recipients[i]
			if r.Status == http.Queued || r.Status == http.Canceled {
				r.Status = http.Canceled
				done.Cancelled++
			} else {
				done.TooLate++
			}
			if what.ID != 0 || r.Status != http.Canceled {
				done.Recipients = append(done.Recipients, http.CancelledRecipient{Address: r.Address, Status: r.Status})
			}
		}
	}
	return done, nil
}

func (d *desk) List(_ context.Context, tenant string, q http.MessageQuery) (page http.MessagePage, err error) {
	if d.fails != nil || d.much {
		return page, cmp.Or(d.fails, http.ErrTooMuch)
	}
	shown, last := 0, ""
	for _, id := range slices.Sorted(maps.Keys(d.known)) {
		switch {
		case id <= q.After || tenant != "acme":
			continue
		case shown == q.Limit:
			page.Next = last
			return page, nil
		case !d.left[id]:
			page.Messages = append(page.Messages, *d.known[id])
		}
		shown, last = shown+1, id.String()
	}
	return page, nil
}

// has counts ids that are known here.
func (d *desk) has(ids map[envelope.ID]bool) (n int) {
	for id := range ids {
		if d.known[id] != nil {
			n++
		}
	}
	return n
}

func (d *desk) Move(_ context.Context, tenant string, id envelope.ID, at time.Time) error {
	m, err := d.look(tenant, id)
	switch {
	case err != nil:
		return err
	case m.ID != id.String():
		return http.ErrNoMessage
	case hasMoved(*m):
		return http.ErrReleased
	}
	m.SendAt = at
	return nil
}

// web is the nodes of a cluster, by their numbers.
type web map[int]*desk

// from is what node 1 answers its tenants.
func (w web) from(t *testing.T) *Everywhere {
	all := make(map[int]*Everywhere)
	for n, d := range w {
		all[n] = &Everywhere{Own: d, Name: fmt.Sprint("node", n), Nodes: joined{n, all}, Now: time.Now, Log: slog.New(slog.DiscardHandler)}
	}
	t.Cleanup(func() { delete(all, 0) })
	return all[1]
}

type joined struct {
	self int
	all  map[int]*Everywhere
}

func (j joined) Self() int { return j.self }

func (j joined) Others() ([]int, bool) {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(j.all)), func(n int) bool { return n == j.self }), true
}

func (j joined) Ask(_ context.Context, node int, r *nethttp.Request) (*nethttp.Response, error) {
	if j.all[node].Own.(*desk).fails != nil {
		return nil, j.all[node].Own.(*desk).fails
	}
	w := httptest.NewRecorder()
	j.all[node].ServeHTTP(w, r)
	return w.Result(), nil
}

func mail(id envelope.ID, recipients ...string) *http.Message {
	m := &http.Message{ID: id.String(), From: "ann@acme.example"}
	for _, r := range recipients {
		address, status, _ := strings.Cut(r, "=")
		m.Recipients = append(m.Recipients, http.MessageRecipient{Address: address, Status: http.MessageStatus(status)})
	}
	m.Summarise()
	return m
}

var errGone = errors.New("no answer within 5s")

// TestMailOfAnyNode: a message is found, cancelled and given another time wherever it is.
func TestMailOfAnyNode(t *testing.T) {
	w := web{1: {}, 2: {}, 3: {known: map[envelope.ID]*http.Message{7: mail(7, "a=queued", "b=delivered")}}}
	e := w.from(t)
	if m, err := e.Get(t.Context(), "acme", 7); err != nil || m.ID != envelope.ID(7).String() || len(m.Recipients) != 2 {
		t.Errorf("%+v, %v", m, err)
	}
	at := time.Now().Add(time.Hour)
	if err := e.Move(t.Context(), "acme", 7, at); err != nil || !w[3].known[7].SendAt.Equal(at) {
		t.Error(err)
	}
	if done, err := e.Cancel(t.Context(), "acme", http.Cancel{ID: 7}); err != nil || done.Cancelled != 1 || done.TooLate != 1 || w[3].known[7].Recipients[0].Status != http.Canceled {
		t.Errorf("%+v, %v", done, err)
	}
	for _, tenant := range []string{"other", ""} {
		if _, err := e.Get(t.Context(), tenant, 7); !errors.Is(err, http.ErrNoMessage) {
			t.Error(err)
		}
		if _, err := e.Cancel(t.Context(), tenant, http.Cancel{ID: 7}); !errors.Is(err, http.ErrNoMessage) {
			t.Error(err)
		}
	}
	if err := e.Move(t.Context(), "acme", 8, at); !errors.Is(err, http.ErrNoMessage) {
		t.Error(err)
	}
	w[2].fails = errGone
	if _, err := e.Get(t.Context(), "acme", 7); err != nil {
		t.Error(err)
	}
	var without http.Unanswered
	if _, err := e.Get(t.Context(), "acme", 8); !errors.As(err, &without) || fmt.Sprint([]int(without)) != "[2]" {
		t.Error(err)
	}
	if _, err := e.Cancel(t.Context(), "acme", http.Cancel{ID: 8}); !errors.As(err, &without) {
		t.Error(err)
	}
	w[3].fails = http.ErrBusy // it answers, and not this
	if _, err := e.Get(t.Context(), "acme", 7); !errors.As(err, &without) || len(without) != 2 {
		t.Error(err)
	}
}

// TestMailThatMovedTwice: the old ids of mail that has moved from node 1 to 2 and to 3 show and cancel it, each
// recipient where it is, at whichever node.
func TestMailThatMovedTwice(t *testing.T) {
	for _, at := range [][3]int{{1, 2, 3}, {2, 3, 1}, {3, 1, 2}} { // the nodes of the mail's way
		for id := envelope.ID(101); id <= 103; id++ {
			w := web{1: {}, 2: {}, 3: {}}
			first, second, third := mail(101, "a=delivered", "b=moved", "c=moved"), mail(102, "b=bounced", "c=moved"), mail(103, "c=queued")
			w[at[0]].known = map[envelope.ID]*http.Message{101: first}
			w[at[1]].known = map[envelope.ID]*http.Message{101: second, 102: second}
			w[at[2]].known = map[envelope.ID]*http.Message{102: third, 103: third}
			e := w.from(t)
			m, err := e.Get(t.Context(), "acme", id)
			if last := m.Recipients[len(m.Recipients)-1]; err != nil || last.Status != http.Queued || id == 101 && (len(m.Recipients) != 3 || m.Recipients[0].Status != http.Delivered || m.Recipients[1].Status != http.Bounced) {
				t.Errorf("by %v: %+v, %v", at, m, err)
			}
			later := time.Now().Add(time.Hour)
			if err := e.Move(t.Context(), "acme", id, later); err != nil || !third.SendAt.Equal(later) {
				t.Errorf("by %v: %v is moved to %v, %v", at, id, third.SendAt, err)
			}
			done, err := e.Cancel(t.Context(), "acme", http.Cancel{ID: id})
			if err != nil || done.Cancelled != 1 || third.Recipients[0].Status != http.Canceled {
				t.Errorf("by %v: %+v, %v", at, done, err)
			}
		}
	}
}

// TestTwoOfOneID: mail of which nobody knows which is meant is not cancelled.
func TestTwoOfOneID(t *testing.T) {
	w := web{1: {}, 2: {known: map[envelope.ID]*http.Message{7: mail(7, "a=queued")}}, 3: {known: map[envelope.ID]*http.Message{7: mail(7, "b=queued")}}}
	e := w.from(t)
	if _, err := e.Cancel(t.Context(), "acme", http.Cancel{ID: 7}); !errors.Is(err, http.ErrTwo) {
		t.Error(err)
	}
	if err := e.Move(t.Context(), "acme", 7, time.Now()); !errors.Is(err, http.ErrTwo) {
		t.Error(err)
	}
	if w[2].known[7].Status != http.Queued || w[2].known[7].Recipients[0].Status != http.Queued || w[3].known[7].Recipients[0].Status != http.Queued {
		t.Error("one is cancelled")
	}
}

// TestCancelsReachAllNodes: what they have done is added up, and those without an answer are named.
func TestCancelsReachAllNodes(t *testing.T) {
	w := web{
		1: {known: map[envelope.ID]*http.Message{1: mail(1, "a=queued")}, ids: map[string][]envelope.ID{"spring": {1}}, moved: []string{"node2", "elsewhere"}},
		2: {known: map[envelope.ID]*http.Message{2: mail(2, "b=queued", "c=sending")}, ids: map[string][]envelope.ID{"spring": {2}, "order-17": {2}}, moved: []string{"node1", "archive"}},
		3: {},
	}
	e := w.from(t)
	done, err := e.Cancel(t.Context(), "acme", http.Cancel{Campaign: "spring"})
	if err != nil || done.Cancelled != 2 || done.TooLate != 1 || len(done.Recipients) != 1 || fmt.Sprint(done.MovedTo) != "[archive elsewhere]" || done.Unanswered != nil {
		t.Errorf("%+v, %v", done, err)
	}
	if done, err := e.Cancel(t.Context(), "acme", http.Cancel{IdempotencyKey: "order-17"}); err != nil || done.Cancelled != 1 {
		t.Errorf("%+v, %v", done, err)
	}
	if _, err := e.Cancel(t.Context(), "acme", http.Cancel{IdempotencyKey: "order-18"}); !errors.Is(err, http.ErrNoMessage) {
		t.Error(err)
	}
	w[3].fails = errGone
	if done, err := e.Cancel(t.Context(), "acme", http.Cancel{Campaign: "spring"}); err != nil || done.Cancelled != 2 || fmt.Sprint(done.Unanswered) != "[3]" {
		t.Errorf("%+v, %v", done, err)
	}
	if _, err := e.Cancel(t.Context(), "acme", http.Cancel{IdempotencyKey: "order-18"}); !errors.As(err, new(http.Unanswered)) {
		t.Error(err)
	}
}

// TestListsOfAllNodes: each message is on one page, in the order of the ids, whatever the pages' size; also two with one
// id. What a silent node has is missing, and it is named.
func TestListsOfAllNodes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := web{1: {known: map[envelope.ID]*http.Message{}}, 2: {known: map[envelope.ID]*http.Message{}}, 3: {}}
		for id := envelope.ID(101); id < 120; id++ {
			w[1+int(id)/4%2].known[id] = mail(id, "a=queued")
		}
		w[2].known[107] = mail(107, "b=queued")
		w[1].known[107] = mail(107, "c=queued")
		e := w.from(t)
		for _, limit := range []int{1, 2, 3, 7, 19, 20, 100} {
			var got []string
			q := http.MessageQuery{Limit: limit}
			for pages := 0; ; pages++ {
				p, err := e.List(t.Context(), "acme", q)
				if err != nil || len(p.Messages) > limit+1 || p.Unanswered != nil || pages > 20 {
					t.Fatalf("limit %d: %+v, %v", limit, p, err)
				}
				for _, m := range p.Messages {
					got = append(got, m.ID)
				}
				if p.Next == "" {
					break
				}
				if q.After, err = envelope.ParseID(p.Next); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
			}
			if len(got) != 20 || !slices.IsSorted(got) {
				t.Errorf("limit %d: %s", limit, got)
			}
		}
		w[2].left = map[envelope.ID]bool{102: true, 103: true, 112: true}
		for _, limit := range []int{1, 2, 3, 7} {
			got, q := 0, http.MessageQuery{Limit: limit}
			for {
				p, err := e.List(t.Context(), "acme", q)
				if err != nil {
					t.Fatal(err)
				}
				if got += len(p.Messages); p.Next == "" {
					break
				}
				q.After, _ = envelope.ParseID(p.Next)
				time.Sleep(time.Second)
			}
			if want := 20 - len(w[2].left) + w[1].has(w[2].left); got != want {
				t.Errorf("limit %d: %d messages beside those that leave, want %d", limit, got, want)
			}
		}
		w[2].much = true
		if _, err := e.List(t.Context(), "acme", http.MessageQuery{Limit: 100}); !errors.Is(err, http.ErrTooMuch) {
			t.Errorf("too much at another node: %v", err)
		}
		w[2].much = false
		w[2].fails = errGone
		if p, err := e.List(t.Context(), "acme", http.MessageQuery{Limit: 100}); err != nil || len(p.Messages) != len(w[1].known) || !slices.Equal(p.Unanswered, []int{2}) {
			t.Errorf("%+v, %v", p, err)
		}
		w[1].fails = http.ErrTooMuch
		if _, err := e.List(t.Context(), "acme", http.MessageQuery{Limit: 100}); !errors.Is(err, http.ErrTooMuch) {
			t.Error(err)
		}
		if p, err := e.List(t.Context(), "other", http.MessageQuery{Limit: 100}); err == nil && len(p.Messages) > 0 {
			t.Errorf("another tenant: %+v", p)
		}
		e.Nodes = strangers{}
		if _, err := e.List(t.Context(), "acme", http.MessageQuery{Limit: 100}); !errors.Is(err, errNodes) {
			t.Error(err)
		}
	})
}

// TestPartsOfListsAreBounded: a node's part of a page has as many messages as fit.
func TestPartsOfListsAreBounded(t *testing.T) {
	for _, each := range []int{1, mostListed / 4, mostListed * 2} {
		page := http.MessagePage{Next: "105"}
		for id := range 5 {
			page.Messages = append(page.Messages, http.Message{ID: fmt.Sprint(101 + id), Recipients: make([]http.MessageRecipient, each)})
		}
		shorten(&page)
		want := min(max(mostListed/each, 1), 5)
		if len(page.Messages) != want || page.Next != fmt.Sprint(100+want) {
			t.Errorf("%d recipients each: %d messages, next %s", each, len(page.Messages), page.Next)
		}
	}
}

// TestQuestionsAreBounded: an unknown id costs one round, a forwarded question none, and a tenant that asks for more than
// the rate is answered without the others.
func TestQuestionsAreBounded(t *testing.T) {
	w := web{1: {}, 2: {}, 3: {}}
	e := w.from(t)
	if _, err := e.Get(t.Context(), "acme", 7); !errors.Is(err, http.ErrNoMessage) || w[1].asked != 1 || w[2].asked != 1 || w[3].asked != 1 {
		t.Errorf("%v; asked %d, %d and %d times", err, w[1].asked, w[2].asked, w[3].asked)
	}
	busy := 0
	for range 200 {
		if _, err := e.Get(t.Context(), "acme", 7); errors.Is(err, http.ErrBusy) {
			busy++
		}
	}
	if busy < 100 || w[2].asked != w[1].asked-busy {
		t.Errorf("%d of 200 are refused; node 2 was asked %d times", busy, w[2].asked)
	}
	if _, err := e.Get(t.Context(), "other", 7); !errors.Is(err, http.ErrNoMessage) {
		t.Errorf("another tenant: %v", err)
	}
	for _, body := range []string{"", "{", `{"Do":"drop"}`, `{"Do":"get","Tenant":"acme","ID":-1}`, `{"Tenant":"` + strings.Repeat("x", 100<<10) + `"}`} {
		r := httptest.NewRequest("POST", "/", strings.NewReader(body))
		rec := httptest.NewRecorder()
		e.ServeHTTP(rec, r)
		if rec.Code == 200 && !strings.Contains(rec.Body.String(), "no answer to") {
			t.Errorf("%.40s: %d %s", body, rec.Code, rec.Body)
		}
	}
}

// strangers is a cluster whose database has not been read.
type strangers struct{ joined }

func (strangers) Others() ([]int, bool) { return nil, false }

// TestUnknownMembers: what another node may have is not answered as if there were none.
func TestUnknownMembers(t *testing.T) {
	own := mail(101, "a=queued")
	w := web{1: {known: map[envelope.ID]*http.Message{101: own, 102: mail(102, "b=moved")}, ids: map[string][]envelope.ID{"spring": {101}}}}
	e := w.from(t)
	e.Nodes = strangers{}
	if m, err := e.Get(t.Context(), "acme", 101); err != nil || m.Recipients[0].Status != http.Queued {
		t.Errorf("%+v, %v", m, err)
	}
	at := time.Now()
	for _, id := range []envelope.ID{102, 103} {
		if _, err := e.Get(t.Context(), "acme", id); !errors.Is(err, errNodes) {
			t.Errorf("%v: %v", id, err)
		}
		if _, err := e.Cancel(t.Context(), "acme", http.Cancel{ID: id}); !errors.Is(err, errNodes) {
			t.Errorf("%v: %v", id, err)
		}
		if err := e.Move(t.Context(), "acme", id, at); !errors.Is(err, errNodes) {
			t.Errorf("%v: %v", id, err)
		}
	}
	for _, what := range []http.Cancel{{Campaign: "spring"}, {IdempotencyKey: "spring"}} {
		if _, err := e.Cancel(t.Context(), "acme", what); !errors.Is(err, errNodes) || own.Recipients[0].Status != http.Queued {
			t.Error(err)
		}
	}
	if done, err := e.Cancel(t.Context(), "acme", http.Cancel{ID: 101}); err != nil || done.Cancelled != 1 {
		t.Errorf("%+v, %v", done, err)
	}
}

// TestSilentNodesAndOldIDs: nothing is changed under an id that a node without an answer may have given to another
// message. One that ends with a node's number is that node's.
func TestSilentNodesAndOldIDs(t *testing.T) {
	const old, new2 = 7, 1<<20 | 2
	for _, test := range []struct {
		id    envelope.ID
		known *http.Message
		want  int // cancelled, 0 for unanswered
	}{
		{old, mail(old, "a=queued"), 0},
		{1<<20 | 3, mail(1<<20|3, "a=queued"), 0}, // it is node 3's
		{new2, mail(new2, "a=queued"), 1},
		{1<<20 | 3, mail(new2, "a=queued"), 1}, // node 3 has moved it, and ended
	} {
		w := web{1: {}, 2: {known: map[envelope.ID]*http.Message{test.id: test.known}}, 3: {fails: errGone}}
		e := w.from(t)
		err := e.Move(t.Context(), "acme", test.id, time.Now())
		var without http.Unanswered
		if test.want == 0 && (!errors.As(err, &without) || !test.known.SendAt.IsZero()) {
			t.Errorf("%d is moved: %v", test.id, err)
		}
		done, err := e.Cancel(t.Context(), "acme", http.Cancel{ID: test.id})
		if done.Cancelled != test.want || (err != nil) != (test.want == 0) || test.want == 0 && !errors.As(err, &without) {
			t.Errorf("%d: %+v, %v", test.id, done, err)
		}
		if other := test.known.ID != test.id.String(); other && fmt.Sprint(done.Unanswered) != "[3]" {
			t.Errorf("%d: parts may be at node 3: %+v", test.id, done)
		}
	}
}

// TestMailInParts: what has moved in parts, and one of these further, is shown and cancelled whole.
func TestMailInParts(t *testing.T) {
	const id = 1<<20 | 1
	for at := 1; at <= 3; at++ {
		nodes := [4]int{0, at, at%3 + 1, (at+1)%3 + 1}
		last := mail(105, "c=queued")
		w := web{1: {}, 2: {}, 3: {}}
		w[nodes[1]].known = map[envelope.ID]*http.Message{id: mail(id, "a=delivered", "b=moved", "c=moved", "d=moved")}
		*w[nodes[2]] = desk{parts: map[envelope.ID][]envelope.ID{id: {102, 103}},
			known: map[envelope.ID]*http.Message{102: mail(102, "b=queued"), 103: mail(103, "c=moved", "d=queued")}}
		w[nodes[3]].known = map[envelope.ID]*http.Message{103: last, 105: last}
		e := w.from(t)
		m, err := e.Get(t.Context(), "acme", id)
		if err != nil || len(m.Recipients) != 4 || m.Recipients[0].Status != http.Delivered || m.Recipients[1].Status != http.Queued || m.Recipients[2].Status != http.Queued || m.Recipients[3].Status != http.Queued {
			t.Errorf("from %v: %+v, %v", nodes, m, err)
		}
		if err := e.Move(t.Context(), "acme", id, time.Now()); !errors.Is(err, http.ErrReleased) {
			t.Errorf("from %v: %v", nodes, err)
		}
		done, err := e.Cancel(t.Context(), "acme", http.Cancel{ID: id})
		if err != nil || done.Cancelled != 3 || done.TooLate != 1 || last.Recipients[0].Status != http.Canceled || w[nodes[2]].known[103].Recipients[1].Status != http.Canceled {
			t.Errorf("from %v: %+v, %v", nodes, done, err)
		}
	}
}

// TestPartsAtOneNode: the parts there are shown as one message.
func TestPartsAtOneNode(t *testing.T) {
	w := web{1: {parts: map[envelope.ID][]envelope.ID{101: {102, 103}},
		known: map[envelope.ID]*http.Message{102: mail(102, "b=queued"), 103: mail(103, "c=delivered")}}}
	if m, err := w.from(t).Get(t.Context(), "acme", 101); err != nil || len(m.Recipients) != 2 || m.Status != http.Mixed {
		t.Errorf("%+v, %v", m, err)
	}
}

// TestTheNodeOfAnID: it is asked first, and the others only if it does not have all of the message. What this node has
// no time to look for is asked for, too.
func TestTheNodeOfAnID(t *testing.T) {
	const id = 1<<20 | 3
	w := web{1: {}, 2: {}, 3: {known: map[envelope.ID]*http.Message{id: mail(id, "a=queued")}}}
	e := w.from(t)
	if m, err := e.Get(t.Context(), "acme", id); err != nil || len(m.Recipients) != 1 || w[2].asked > 0 {
		t.Errorf("%+v, %v; node 2 was asked %d times", m, err, w[2].asked)
	}
	w[1].fails = http.ErrBusy
	if m, err := e.Get(t.Context(), "acme", id); err != nil || len(m.Recipients) != 1 {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := e.Get(t.Context(), "acme", id+1); !errors.Is(err, http.ErrBusy) {
		t.Error(err)
	}
}

// TestErrorsBesideAnswers: what some nodes have done or know is in the answer, and so is who has not answered.
func TestErrorsBesideAnswers(t *testing.T) {
	w := web{
		1: {fails: errors.New("disk"), ids: map[string][]envelope.ID{"spring": {1}}},
		2: {known: map[envelope.ID]*http.Message{2: mail(2, "b=queued")}, ids: map[string][]envelope.ID{"spring": {2}}}, 3: {},
	}
	e := w.from(t)
	if done, err := e.Cancel(t.Context(), "acme", http.Cancel{Campaign: "spring"}); err != nil || done.Cancelled != 1 || fmt.Sprint(done.Unanswered) != "[1]" {
		t.Errorf("%+v, %v", done, err)
	}
	const id = 1<<20 | 1
	w = web{1: {known: map[envelope.ID]*http.Message{id: mail(id, "a=moved")}}, 2: {}, 3: {fails: errGone}}
	if m, err := w.from(t).Get(t.Context(), "acme", id); err != nil || m.Status != http.Moved || fmt.Sprint(m.Unanswered) != "[3]" {
		t.Errorf("%+v, %v", m, err)
	}
	done, err := w.from(t).Cancel(t.Context(), "acme", http.Cancel{ID: id})
	if err != nil || done.TooLate != 1 || fmt.Sprint(done.Unanswered) != "[3]" {
		t.Errorf("%+v, %v", done, err)
	}
}

// TestCancelsWhileMailMoves: a node with mail on its way to another is as one that has not answered, and where mail may
// have moved behind the search of a node the client reads of it.
func TestCancelsWhileMailMoves(t *testing.T) {
	spring := map[string][]envelope.ID{"spring": {2}}
	w := web{1: {}, 2: {out: 1, known: map[envelope.ID]*http.Message{2: mail(2, "a=deferred")}, ids: spring, moved: []string{"node3"}}, 3: {}}
	e := w.from(t)
	all := e.Nodes.(joined).all
	for _, what := range []http.Cancel{{Campaign: "spring"}, {ID: 2}} {
		if done, err := e.Cancel(t.Context(), "acme", what); err != nil || fmt.Sprint(done.Unanswered, done.MovedTo) != "[2] []" {
			t.Errorf("%+v, %v", done, err)
		}
		if done, err := all[2].Cancel(t.Context(), "acme", what); err != nil || fmt.Sprint(done.Unanswered, done.MovedTo) != "[2] []" {
			t.Errorf("at node 2: %+v, %v", done, err)
		}
	}
	w[2].out = 0
	turn := 0
	all[2].Moving = func() bool { turn++; return turn == 2 } // it begins meanwhile
	for _, at := range []*Everywhere{e, all[2], all[3]} {
		turn = 0
		if done, err := at.Cancel(t.Context(), "acme", http.Cancel{Campaign: "spring"}); err != nil || fmt.Sprint(done.Unanswered, done.MovedTo) != "[] [node3]" {
			t.Errorf("by %s: %+v, %v", at.Name, done, err)
		}
	}
}

// gated is nodes that answer when the gate opens.
type gated struct {
	joined
	begun, gate chan struct{}
}

func (g gated) Ask(ctx context.Context, node int, r *nethttp.Request) (*nethttp.Response, error) {
	g.begun <- struct{}{}
	<-g.gate
	return g.joined.Ask(ctx, node, r)
}

// TestTenantsTakeTurns: one that asks much has one question at a node, and others have theirs beside it.
func TestTenantsTakeTurns(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		e := web{1: {}, 2: {}}.from(t)
		g := gated{e.Nodes.(joined), make(chan struct{}, 100), make(chan struct{})}
		e.Nodes = g
		var asked sync.WaitGroup
		for range 10 {
			asked.Go(func() { _, _ = e.Get(t.Context(), "acme", 7) })
		}
		synctest.Wait()
		if len(g.begun) != 1 {
			t.Errorf("%d questions of a tenant at a time", len(g.begun))
		}
		asked.Go(func() { _, _ = e.Get(t.Context(), "other", 7) })
		synctest.Wait()
		if len(g.begun) != 2 {
			t.Error("another tenant waits")
		}
		close(g.gate)
		asked.Wait()
	})
}

// TestFaultsOfNodesAreLogged: once each, and not what they have no message of.
func TestFaultsOfNodesAreLogged(t *testing.T) {
	w := web{1: {}, 2: {fails: errGone}, 3: {fails: http.ErrBusy}}
	e := w.from(t)
	var out strings.Builder
	e.Log = slog.New(slog.NewTextHandler(&out, nil))
	for range 3 {
		_, _ = e.Get(t.Context(), "acme", 7)
	}
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "node 2 does not answer about tenants' mail") || !strings.Contains(got, errGone.Error()) {
		t.Error(got)
	}
	w[1].fails = errors.New("disk")
	body := `{"Do":"get","Tenant":"acme","ID":7}`
	for range 2 {
		e.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(body)))
	}
	if got := out.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "node 1 does not answer") || !strings.Contains(got, "error=disk") {
		t.Error(got)
	}
}

// hung is nodes that never answer.
type hung struct{ joined }

func (hung) Ask(ctx context.Context, _ int, _ *nethttp.Request) (*nethttp.Response, error) {
	began := time.Now()
	select {
	case <-ctx.Done():
	case <-time.After(20 * time.Second): // as package asking
	}
	return nil, fmt.Errorf("nothing after %s", time.Since(began))
}

// TestPatience: a cancel of much has longer than a question about one message.
func TestPatience(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		e := web{1: {}, 2: {}}.from(t)
		e.Nodes = hung{e.Nodes.(joined)}
		for what, want := range map[http.Cancel]time.Duration{{ID: 7}: 5 * time.Second, {Tag: "x"}: 20 * time.Second} {
			began := time.Now()
			_, _ = e.Cancel(t.Context(), "acme", what)
			if d := time.Since(began); d != want {
				t.Errorf("%+v takes %s", what, d)
			}
		}
		began := time.Now()
		if _, err := e.List(t.Context(), "acme", http.MessageQuery{Limit: 10}); err != nil || time.Since(began) != 20*time.Second {
			t.Errorf("a list takes %s, %v", time.Since(began), err)
		}
	})
}
