package queue

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/queue/store"
	"example.org/mta/queue/vfs/vfstest"
)

// exportAll gives what can leave a queue.
func exportAll(t *testing.T, q *Queue) (all []*Exported, w Withheld) {
	t.Helper()
	w, err := q.Export(Selector{All: true}, func(x *Exported) error {
		all = append(all, x)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all, w
}

// continued commits an exported message to another queue, with a key.
func continued(t *testing.T, to *Queue, x *Exported, content string, key Key) *envelope.Message {
	t.Helper()
	m := *x.Message
	m.ID, m.Received, m.Recipients = 0, time.Time{}, nil
	if m.Release.IsZero() {
		m.Release = x.Message.Received.Truncate(time.Second)
	}
	for _, r := range x.Recipients {
		m.Recipients = append(m.Recipients, x.Message.Recipients[r])
	}
	d := to.Begin()
	if _, err := d.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	d.Continue(x.Standings)
	b := &Batch{Drafts: []*Draft{d}, Messages: []*envelope.Message{&m}, Key: key, Last: true, Answer: []byte("all"), Until: time.Now().Add(time.Hour)}
	if n, err := to.CommitBatch(b); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	return &m
}

// TestExportAndContinue moves a message whose recipients are in every state to another queue. What is in delivery stays.
// The other queue has all the rest as it was: at once, after a restart, after compaction, and after a restart then.
func TestExportAndContinue(t *testing.T) {
	inTime(t, func(t *testing.T) {
		q := open(t, small(t, vfstest.Memory()))
		defer shut(t, q)
		m := message(7, "example.net")
		m.EnvID, m.Ret, m.RequireTLS, m.UTF8, m.Tags, m.Meta, m.Pool, m.Campaign = "env", envelope.RetFull, true, true, []string{"a", "b"}, `{"n":1}`, "p", "c"
		m.User, m.APIKey, m.TraceID, m.Marks, m.Headers, m.Tier, m.Body = "ann", "key", strings.Repeat("a", 32), []string{"x"}, `{"h":"v"}`, 2, envelope.Body8BitMIME
		m.Peer, m.HeloName, m.Session, m.Protocol = netip.MustParseAddrPort("192.0.2.1:25"), "client.example", "s1", "ESMTPS"
		m.Expires = time.Now().Add(90 * time.Hour).Truncate(time.Second).UTC()
		m.Recipients[1].Notify, m.Recipients[1].ORcpt = envelope.NotifyDelay|envelope.NotifyFailure, "rfc822;old@example.net"
		content := "Subject: x\r\n\r\n" + strings.Repeat("hello\r\n", 400) // it has a file to itself
		accept(t, q, m, content)
		wait := func(n int) time.Time { return time.Now().Add(time.Duration(n) * time.Hour) }
		sel := Selector{IDs: []envelope.ID{m.ID}}
		if _, err := q.Reroute(Selector{IDs: sel.IDs, Filter: Filter{Recipient: "r2@example.net"}}, backup, false); err != nil {
			t.Fatal(err)
		}
		next(t, q)
		q.Defer(m.ID, []int{0, 1, 2}, wait(5), Attempt{Reply: greylisted, Via: "source1"}, site("mx.example"))
		q.Return(m.ID, []int{3})
		q.Settle(m.ID, []int{6}, Delivered)
		if _, err := q.Change(Selector{IDs: sel.IDs, Filter: Filter{Recipient: "r1@example.net"}}, Hold, false); err != nil {
			t.Fatal(err)
		}
		q.Defer(m.ID, []int{4}, wait(1), Attempt{Reply: greylisted}, site("mx.example"))

		all, withheld := exportAll(t, q)
		if len(all) != 1 || !slices.Equal(all[0].Recipients, []int{0, 1, 2, 3, 4}) || withheld != (Withheld{InDelivery: 1}) {
			t.Fatalf("%+v, %+v", all, withheld)
		}
		want := all[0]
		for i, s := range want.Standings {
			due := wait(5)
			if i == 4 {
				due = wait(1)
			} else if i == 3 {
				due = time.Time{}
			}
			if due.Sub(s.Due).Abs() > 2*time.Second || s.Held != (i == 1) || s.Tried != (i != 3) || s.Tried != (s.Attempts == 1) {
				t.Errorf("recipient %d: %+v", i, s)
			}
		}
		if s := want.Standings[2]; s.Last.Detour != backup || s.Last.Via != "source1" || s.Last.Reply != greylisted || s.Site != "mx.example" {
			t.Errorf("recipient 2: %+v", s)
		}

		cfg := small(t, vfstest.Memory())
		to := open(t, cfg)
		moved := continued(t, to, want, content, testKey(1))
		check := func(when string) {
			t.Helper()
			s := balanced(t, to)
			if s.Held != 1 || s.Deferred != 3 || s.Due != 1 || s.Fault != "" || s.DamagedRecords != 0 {
				t.Errorf("%s: %+v", when, s)
			}
			all, _ := exportAll(t, to)
			if len(all) != 1 || !reflect.DeepEqual(all[0].Standings, want.Standings) {
				t.Fatalf("%s: %+v\nwant %+v", when, all[0].Standings, want.Standings)
			}
			got, old := *all[0].Message, *want.Message
			if !got.Start().Equal(old.Received.Truncate(time.Second)) {
				t.Errorf("%s: its age counts from %v, want %v", when, got.Start(), old.Received)
			}
			old.ID, old.Received, old.Release, old.Recipients = got.ID, got.Received, got.Release, old.Recipients[:5]
			if !reflect.DeepEqual(got, old) {
				t.Errorf("%s: %+v\nwant %+v", when, got, old)
			}
			if bodyOf(t, to, moved.ID) != content {
				t.Errorf("%s: another content", when)
			}
			if k, known, err := to.Keyed(testKey(1)); !known || !k.Whole || string(k.Answer) != "all" || err != nil {
				t.Errorf("%s: key %+v, %v, %v", when, k, known, err)
			}
		}
		check("at once")
		shut(t, to)
		if report, err := store.Fsck(cfg.Dir, cfg.FS, nil); err != nil || report.Damaged() || report.Messages != 1 {
			t.Errorf("fsck: %+v, %v", report, err)
		}
		to = open(t, cfg)
		check("after a restart")
		shut(t, to)
		cfg = small(t, vfstest.Memory())
		to = open(t, cfg)
		moved = continued(t, to, want, content, testKey(1))
		for range 200 {
			accept(t, to, message(1, "churn.example"), strings.Repeat("x", 500))
			for l := next(t, to); ; l = next(t, to) {
				if l.Message.ID == moved.ID {
					to.Return(l.Message.ID, indexes(l))
					continue
				}
				to.Settle(l.Message.ID, indexes(l), Delivered)
				break
			}
		}
		time.Sleep(time.Minute)
		if to.Stats().Moved == 0 {
			t.Fatal("compaction moved nothing")
		}
		check("after compaction")
		shut(t, to)
		to = open(t, cfg)
		defer shut(t, to)
		check("after compaction and a restart")
	})
}

// TestExportSelects: filters and ids say what is exported, and an id that is not there is an error before anything else.
func TestExportSelects(t *testing.T) {
	inTime(t, func(t *testing.T) {
		q := open(t, small(t, vfstest.Memory()))
		defer shut(t, q)
		due, held := inState(t, q, StateDue), inState(t, q, StateHeld)
		got := func(sel Selector) (ids []envelope.ID, err error) {
			_, err = q.Export(sel, func(x *Exported) error { ids = append(ids, x.Message.ID); return nil })
			return ids, err
		}
		for _, c := range []struct {
			sel  Selector
			want []envelope.ID
		}{
			{Selector{All: true}, []envelope.ID{due, held}},
			{Selector{Filter: Filter{States: []State{StateHeld}}}, []envelope.ID{held}},
			{Selector{IDs: []envelope.ID{due}}, []envelope.ID{due}},
			{Selector{IDs: []envelope.ID{due}, Filter: Filter{States: []State{StateHeld}}}, nil},
		} {
			if ids, err := got(c.sel); !slices.Equal(ids, c.want) || err != nil {
				t.Errorf("%+v: %v, %v, want %v", c.sel, ids, err, c.want)
			}
		}
		if ids, err := got(Selector{IDs: []envelope.ID{due, 1}}); len(ids) != 0 || !errors.Is(err, ErrUnknown) {
			t.Errorf("%v, %v", ids, err)
		}
		if _, err := got(Selector{}); err == nil {
			t.Error("nothing was selected, and that is no error")
		}
		failed := fmt.Errorf("the reader went away")
		if _, err := q.Export(Selector{All: true}, func(*Exported) error { return failed }); err != failed {
			t.Error(err)
		}
	})
}

// TestRemoveWhatWasCounted: recipients that are named one by one are removed, and no others of their message.
func TestRemoveWhatWasCounted(t *testing.T) {
	inTime(t, func(t *testing.T) {
		q := open(t, small(t, vfstest.Memory()))
		defer shut(t, q)
		m := accept(t, q, message(3, "example.net"), "x")
		var c Counted
		c.Add(m.ID, []int{0, 2})
		c.Add(m.ID+1, []int{0})
		if n, err := q.Change(Selector{All: true, Counted: &c}, Remove, false); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		if it, err := q.Get(m.ID); err != nil || len(it.Recipients) != 1 || it.Recipients[0].Index != 1 {
			t.Errorf("%+v, %v", it, err)
		}
	})
}

// BenchmarkExport is a message with as many recipients as one can have: the time for each must be that of small ones.
func BenchmarkExport(b *testing.B) {
	for _, n := range []int{100, 10_000, 65_535} {
		b.Run(fmt.Sprintf("recipients=%d", n), func(b *testing.B) {
			q := benchQueue(b, vfstest.Memory())
			d := q.Begin()
			d.Write(body2K)
			if err := d.Commit(message(n, "example.net")); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := q.Export(Selector{All: true}, func(*Exported) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/recipient")
		})
	}
}
