package messages

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/mta/exported"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
	"example.org/mta/queue/vfs/vfstest"
	"example.org/mta/submission/intake"
)

const letter = "From: ann@client.example\r\nTo: bob@box.example\r\nSubject: hello\r\n\r\nend\r\n"

// movable is a relay as far as mail moves to it and from it.
type movable struct {
	Moves
	t        *testing.T
	disk     queue.Config
	mu       sync.Mutex // imports commit side by side
	received []string   // recipients of which the accounting log hears
}

func newMoving(t *testing.T, text string) *movable {
	m := &movable{t: t, disk: queue.Config{Dir: "/queue", FS: vfstest.Memory(), MinFree: 1}}
	m.Moves = Moves{Messages: bare(t, text), Receptions: m, Version: "0.1.0"}
	m.Log = slog.New(slog.DiscardHandler)
	m.open()
	t.Cleanup(func() { m.Queue.Close() })
	return m
}

func (m *movable) open() {
	m.t.Helper()
	var err error
	if m.Queue, err = queue.Open(m.disk); err != nil {
		m.t.Fatal(err)
	}
	m.Repeats = intake.NewRepeats([]byte("secret"), KeyStore{Queue: m.Queue})
}

func (m *movable) restart() {
	m.t.Helper()
	if err := m.Queue.Close(); err != nil {
		m.t.Fatal(err)
	}
	m.open()
}

func (m *movable) Accepting(*envelope.Message)         {}
func (m *movable) Refused(*envelope.Message)           {}
func (m *movable) Moving(map[envelope.ID]string)       {}
func (m *movable) Moved(map[envelope.ID]bool) []string { return nil }
func (m *movable) Received(x *envelope.Message) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range x.Recipients {
		m.received = append(m.received, string(x.Recipients[i].Address))
	}
}

// imported takes an archive.
func (m *movable) imported(archive []byte, o api.ImportOptions) api.Imported {
	m.t.Helper()
	done, err := m.Import(m.t.Context(), bytes.NewReader(archive), o)
	if err != nil {
		m.t.Fatal(err)
	}
	return done
}

func (m *movable) exported(f api.Filter) []byte {
	m.t.Helper()
	var archive bytes.Buffer
	if err := m.Export(m.t.Context(), &archive, f); err != nil {
		m.t.Fatal(err)
	}
	return archive.Bytes()
}

// TestMoveToAnotherRelay: held mail moves with its times; an import that is repeated takes nothing, one that comes with
// recipients that were left out before takes these; what is refused has a remedy; what was taken can be removed exactly.
func TestMoveToAnotherRelay(t *testing.T) {
	old := newMoving(t, `
		nodeid = "old"
		tenant "acme" {}
		tenant "other" {}
	`)
	accepted := time.Now().Add(-3 * time.Hour)
	put := func(tenant string, s []queue.Standing, to ...string) envelope.ID {
		m := &envelope.Message{Sender: "ann@client.example", Tenant: tenant, Release: accepted.Truncate(time.Second), EnvID: "e1", RequireTLS: false}
		for _, a := range to {
			m.Recipients = append(m.Recipients, envelope.Recipient{Address: envelope.Address(a), Notify: envelope.NotifyNever})
		}
		d := old.Queue.Begin()
		io.WriteString(d, letter)
		d.Continue(s)
		if err := d.Commit(m); err != nil {
			t.Fatal(err)
		}
		return m.ID
	}
	tried := queue.Standing{Attempts: 4, Due: time.Now().Add(2 * time.Hour).Truncate(time.Second).UTC(), Held: true, Site: "mx.box.example", Tried: true,
		Last: queue.Attempt{Reply: reply.Reply{Code: 451, Text: "later", Command: "RCPT"}, Via: "s1"}}
	fresh := queue.Standing{Held: true}
	two := put("acme", []queue.Standing{tried, fresh}, "a@box.example", "b@box.example")
	put("other", []queue.Standing{fresh}, "c@box.example")

	now := newMoving(t, `
		nodeid = "new"
		tenant "acme" {}
	`)
	first := old.exported(api.Filter{Recipient: "a@box.example"})
	if done := now.imported(first, api.ImportOptions{DryRun: true}); done.Recipients != 1 || now.Queue.Stats().Queued != 0 {
		t.Fatalf("a dry run: %+v", done)
	}
	if done := now.imported(first, api.ImportOptions{}); done.Recipients != 1 || done.There != 0 {
		t.Fatalf("%+v", done)
	}
	all := old.exported(api.Filter{})
	done := now.imported(all, api.ImportOptions{})
	want := api.Imported{Messages: 1, Recipients: 1, There: 1, Receipt: []api.MovedMessage{{Node: "old", ID: two.String(), Recipients: []int{0, 1}}}}
	if len(done.Refused) != 1 || !strings.Contains(done.Refused[0].Why, `no tenant "other"`) || done.Refused[0].Remedy == "" {
		t.Errorf("%+v", done.Refused)
	}
	if len(done.Receipt) == 1 {
		want.Receipt[0].To, want.Receipt[0].As = "new", done.Receipt[0].As
		here, err := KeyStore{now.Queue}.MovedHere(two)
		if got := fmt.Sprint(here); err != nil || len(here) != 2 || got != fmt.Sprint(done.Receipt[0].As) {
			t.Errorf("%s is %s here, %v; the receipt has %v", two, got, err, done.Receipt[0].As)
		}
	}
	refused := done.Refused
	if done.Refused = nil; !reflect.DeepEqual(done, want) {
		t.Errorf("%+v\nwant %+v", done, want)
	}
	now.restart()
	want.Messages, want.Recipients, want.There = 0, 0, 2
	if done = now.imported(all, api.ImportOptions{}); !reflect.DeepEqual(done.Refused, refused) {
		t.Errorf("%+v", done.Refused)
	}
	if done.Refused = nil; !reflect.DeepEqual(done, want) {
		t.Errorf("again: %+v\nwant %+v", done, want)
	}
	if done := old.imported(all, api.ImportOptions{}); len(done.Refused) != 2 || !strings.Contains(done.Refused[0].Why, "is in the queue of this relay") || len(done.Receipt) != 0 {
		t.Errorf("into the relay that it comes from: %+v", done)
	}

	var moved []*queue.Exported
	now.Queue.Export(queue.Selector{All: true}, func(x *queue.Exported) error { moved = append(moved, x); return nil })
	if len(moved) != 2 || !reflect.DeepEqual(moved[0].Standings, []queue.Standing{tried}) || !reflect.DeepEqual(moved[1].Standings, []queue.Standing{fresh}) || !moved[0].Message.Start().Equal(accepted.Truncate(time.Second)) || moved[0].Message.EnvID != "e1" {
		t.Errorf("%+v %+v", moved[0], moved[1])
	}
	slices.Sort(now.received)
	if want := []string{"a@box.example", "b@box.example"}; !slices.Equal(now.received, want) {
		t.Errorf("the log hears of %q, want %q", now.received, want)
	}
	removed, err := old.RemoveMoved(t.Context(), api.RemoveMoved{Receipt: want.Receipt})
	if err != nil || removed.Recipients != 2 || removed.Gone != 0 || old.Queue.Stats().Queued != 1 {
		t.Errorf("%+v, %v, %d are left", removed, err, old.Queue.Stats().Queued)
	}
	if removed, err = old.RemoveMoved(t.Context(), api.RemoveMoved{Receipt: want.Receipt}); err != nil || removed.Recipients != 0 || removed.Gone != 2 {
		t.Errorf("again: %+v, %v", removed, err)
	}
	if _, err := now.RemoveMoved(t.Context(), api.RemoveMoved{Receipt: want.Receipt}); err == nil || !strings.Contains(err.Error(), "node old") {
		t.Errorf("at another node: %v", err)
	}
	if _, err := now.Queue.Change(queue.Selector{All: true}, queue.Unhold, false); err != nil {
		t.Fatal(err)
	}
	if _, err := now.Queue.Change(queue.Selector{All: true}, queue.RetryNow, false); err != nil {
		t.Fatal(err)
	}
	seen := map[envelope.Address]int{}
	for range 2 {
		l, err := now.Queue.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		seen[l.Message.Recipients[0].Address]++
	}
	if fmt.Sprint(seen) != "map[a@box.example:1 b@box.example:1]" {
		t.Error(seen)
	}
}

// TestImportRefusals: one message that can't be taken keeps no other from being taken, and a content that could smuggle
// another is among those.
func TestImportRefusals(t *testing.T) {
	w := newMoving(t, `nodeid = "new"`)
	var archive bytes.Buffer
	out := exported.NewWriter(&archive, exported.Summary{Node: "old"})
	n := 0
	add := func(content string, change func(*exported.Message)) {
		t.Helper()
		n++
		m := exported.New(&envelope.Message{ID: envelope.ID(n), Sender: "a@client.example", Received: time.Now(), Recipients: []envelope.Recipient{{Address: "b@box.example"}}},
			[]exported.Recipient{{Index: 0, Held: true}})
		change(m)
		if _, err := out.Add(m, func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil }); err != nil {
			t.Fatal(err)
		}
	}
	none := func(*exported.Message) {}
	add("Subject: x\r\n\r\nfirst\r\n", none)
	add("Subject: x\r\n\r\nsmuggled\r\n.\nMAIL FROM:<x@y>\r\n", none)
	add("Subject: x\r\n\r\n\x00\r\n", none)
	add("Subject: x\r\n", func(m *exported.Message) { m.Pool = "gone" })
	add("Subject: x\r\n", func(m *exported.Message) { m.Sender = "no address" })
	add("Subject: x\r\n", func(m *exported.Message) { m.Recipients[0].Last = &exported.Attempt{Pool: "gone"} })
	add("Subject: x\r\n\r\nlast\r\n", none)
	if err := out.Close(exported.Summary{}); err != nil {
		t.Fatal(err)
	}
	done := w.imported(archive.Bytes(), api.ImportOptions{})
	if done.Messages != 2 || len(done.Refused) != 5 || w.Queue.Stats().Held != 2 {
		t.Fatalf("%+v", done)
	}
	for i, want := range []string{"stands alone", "NUL", `no pool "gone"`, "sender: ", `no pool "gone"`} {
		if r := done.Refused[i]; !strings.Contains(r.Why, want) || r.Remedy == "" {
			t.Errorf("%+v, want %q", r, want)
		}
	}
	cut := archive.Bytes()[:archive.Len()-3000]
	done, err := w.Import(t.Context(), bytes.NewReader(cut), api.ImportOptions{})
	if err == nil || api.Hint(err) == "" || done.There == 0 {
		t.Errorf("%+v, %v", done, err)
	}
}

// TestImportOfAnEarlierVersion: what a version has taken that knew a message by its content too is not taken again.
func TestImportOfAnEarlierVersion(t *testing.T) {
	old, now := newMoving(t, `nodeid = "old"`), newMoving(t, `nodeid = "new"`)
	m := &envelope.Message{Sender: "ann@client.example", Recipients: []envelope.Recipient{{Address: "a@box.example"}, {Address: "b@box.example"}}}
	d := old.Queue.Begin()
	io.WriteString(d, letter)
	if err := d.Commit(m); err != nil {
		t.Fatal(err)
	}
	archive := old.exported(api.Filter{})
	written, _, err := exported.NewReader(bytes.NewReader(archive), "archive").Next()
	if err != nil {
		t.Fatal(err)
	}
	key := formerKey(written, 0)
	if err := (KeyStore{now.Queue}).keep(key, []byte{1}, time.Now().Add(time.Hour)); err != nil { // the second recipient
		t.Fatal(err)
	}
	for _, want := range []int{1, 0} {
		if done := now.imported(archive, api.ImportOptions{}); done.Recipients != want || done.There != 2-want {
			t.Errorf("%+v", done)
		}
	}
}

// TestMovedMailIsFoundByItsOldID: a listing names what the old id has become here, and the message where it was accepted,
// and when.
func TestMovedMailIsFoundByItsOldID(t *testing.T) {
	old, now := newMoving(t, `nodeid = "old"`), newMoving(t, `nodeid = "new"`)
	m := &envelope.Message{Sender: "ann@client.example", Recipients: []envelope.Recipient{{Address: "a@box.example"}},
		Received: time.Now().Add(-time.Hour).Truncate(time.Millisecond).UTC()}
	d := old.Queue.Begin()
	io.WriteString(d, letter)
	d.Continue([]queue.Standing{{Held: true}})
	if err := d.Commit(m); err != nil {
		t.Fatal(err)
	}
	done := now.imported(old.exported(api.Filter{}), api.ImportOptions{})
	as := done.Receipt[0].As[0]
	list, err := now.List(t.Context(), api.ListQuery{Filter: api.Filter{IDs: []string{m.ID.String()}}})
	if err != nil || !slices.Equal(list.Moved[m.ID.String()], []string{as}) {
		t.Errorf("%+v, %v", list, err)
	}
	if it, err := now.Get(t.Context(), as); err != nil || it.MovedFrom != "old/"+m.ID.String() || !it.Received.Equal(m.Received) {
		t.Errorf("%+v, %v; it was accepted at %v", it, err, m.Received)
	}
}
