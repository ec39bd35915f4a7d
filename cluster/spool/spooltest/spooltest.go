package spooltest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"example.org/mta/cluster/spool"
)

// Editor changes what an engine has, as nobody may.
type Editor interface {
	// Damage changes an octet of an entry's changes or data.
	Damage(log, entry uint64, data bool) error
	// Lose has a log end at an entry, as after a failover with loss.
	Lose(log, last uint64) error
}

// World is an engine under test.
type World struct {
	spool.Sealer
	Editor
}

// Run tests an engine. fresh gives an empty one.
func Run(t *testing.T, fresh func(*testing.T) World) {
	for name, test := range map[string]func(*tester){
		"entries in order": order, "repeats": repeats, "sessions": sessions, "takes": takes, "parts of a log": parts,
		"drops": drops, "claims": claims, "clears": clears, "status": status, "a log": whole, "losses": losses,
		"damage": damage,
	} {
		t.Run(name, func(t *testing.T) {
			test(&tester{T: t, World: fresh(t), claims: make(map[uint16]spool.Claim)})
		})
	}
}

type tester struct {
	*testing.T
	World
	claims map[uint16]spool.Claim
}

func (x *tester) ok(err error) {
	x.Helper()
	if err != nil {
		x.Fatal(err)
	}
}

// claim is that of a node's directory, with the next session.
func (x *tester) claim(node uint16) spool.Claim {
	c := x.claims[node]
	c.Node, c.Session, c.Zone = node, c.Next, "a"
	c.Next = c.Session + 10
	x.claims[node] = c
	return c
}

func (x *tester) open(node uint16) spool.Opened {
	x.Helper()
	c := x.claim(node)
	o, err := x.OpenLog(x.Context(), c)
	x.ok(err)
	if !o.Done || o.Log == 0 || o.Session != c.Next || c.Log != 0 && o.Log != c.Log {
		x.Fatalf("the claim %+v has opened %+v", c, o)
	}
	c.Log = o.Log
	x.claims[node] = c
	return o
}

// entry is one of a session. Its octets are any: an engine can't read them.
func entry(o spool.Opened, number uint64, text string) spool.Entry {
	return spool.Entry{Log: o.Log, Session: o.Session, Number: number, Hash: sha256.Sum256([]byte(text)),
		Changes: []byte("c\x00\xff\\" + text), Data: []byte("d\x00\xff\\" + text)}
}

// appends appends an entry, and compares the answer.
func (x *tester) appends(e spool.Entry, want spool.Answer) {
	x.Helper()
	got, err := x.AppendEntry(x.Context(), e)
	x.ok(err)
	if got != want {
		x.Errorf("appending entry %d answers %+v, want %+v", e.Number, got, want)
	}
}

// fill appends entries, "i…" with an image.
func (x *tester) fill(o spool.Opened, from uint64, texts ...string) {
	x.Helper()
	for i, text := range texts {
		e := entry(o, from+uint64(i), text)
		e.Image = text[0] == 'i'
		x.appends(e, spool.Answer{Done: true, Session: o.Session, Last: e.Number, Sealed: o.Sealed})
	}
}

// has compares the numbers and changes of what is read.
func (x *tester) has(o spool.Opened, from uint64, most int, want string) {
	x.Helper()
	heads, err := x.ReadLog(x.Context(), o.Log, from, most)
	x.ok(err)
	var got []string
	for _, h := range heads {
		text := strings.TrimPrefix(string(h.Changes), "c\x00\xff\\")
		got = append(got, fmt.Sprint(h.Number, text))
		if h.Image != (text[0] == 'i') {
			x.Errorf("entry %d has %+v", h.Number, h)
		}
		data, err := x.EntryData(x.Context(), o.Log, h.Number)
		if x.ok(err); string(data) != "d\x00\xff\\"+text {
			x.Errorf("entry %d has the data %q", h.Number, data)
		}
	}
	if got := strings.Join(got, " "); got != want {
		x.Errorf("from %d on, %d octets at a time, there is %q, want %q", from, most, got, want)
	}
}

const all = 1 << 20

func order(x *tester) {
	o, other := x.open(1), x.open(2)
	if o.Last != 0 || o.Log == other.Log {
		x.Fatalf("two new logs: %+v, %+v", o, other)
	}
	for _, gap := range []uint64{0, 2, 3} {
		x.appends(entry(o, gap, "x"), spool.Answer{Session: o.Session, Last: 0})
	}
	x.fill(o, 1, "a", "b")
	x.fill(other, 1, "z")
	for _, gap := range []uint64{0, 1, 4, 1 << 40} {
		x.appends(entry(o, gap, "x"), spool.Answer{Session: o.Session, Last: 2})
	}
	x.fill(o, 3, "c")
	x.has(o, 0, all, "1a 2b 3c")
	x.has(other, 0, all, "1z")
	o.Log += 1000
	x.appends(entry(o, 1, "x"), spool.Answer{})
	x.has(o, 0, all, "")
	if data, err := x.EntryData(x.Context(), o.Log, 1); err != nil || data != nil {
		x.Errorf("an entry of no log has %q, %v", data, err)
	}
	big := entry(other, 2, "big") // as large as entries are
	big.Changes, big.Data = bytes.Repeat([]byte("\x00\\\xff'"), 1<<18), bytes.Repeat([]byte("\xff\x00\n1"), 1<<20)
	x.appends(big, spool.Answer{Done: true, Session: other.Session, Last: 2})
	heads, err := x.ReadLog(x.Context(), other.Log, 2, 1)
	x.ok(err)
	data, err := x.EntryData(x.Context(), other.Log, 2)
	x.ok(err)
	if len(heads) != 1 || !bytes.Equal(heads[0].Changes, big.Changes) || !bytes.Equal(data, big.Data) {
		x.Error("a large entry comes back as another")
	}
	none := entry(other, 3, "none")
	none.Changes, none.Data = nil, nil
	x.appends(none, spool.Answer{Done: true, Session: other.Session, Last: 3})
}

// repeats: the last entry may be appended again, by the same session, and no other.
func repeats(x *tester) {
	o := x.open(1)
	x.fill(o, 1, "a", "b", "b2")
	x.fill(o, 3, "b2")
	x.fill(o, 3, "b2")
	x.appends(entry(o, 3, "c"), spool.Answer{Session: o.Session, Last: 3})
	x.appends(entry(o, 2, "b"), spool.Answer{Session: o.Session, Last: 3})
	again := x.open(1)
	x.appends(entry(again, 3, "b2"), spool.Answer{Session: again.Session, Last: 3})
	x.has(o, 0, all, "1a 2b 3b2")
	l := x.log(2)
	for range 2 {
		x.ok(l.Append(x.Context(), 1, void, []byte("a")))
	}
	for changes, data := range map[string]string{string(void): "b", string(create): "a"} {
		x.taken(l.Append(x.Context(), 1, []byte(changes), []byte(data)), false,
			"has another entry 1, by this very session")
	}
}

func sessions(x *tester) {
	o := x.open(1)
	x.fill(o, 1, "a", "b")
	later := x.open(1)
	if later.Log != o.Log || later.Session <= o.Session || later.Last != 2 {
		x.Errorf("%+v is opened after %+v", later, o)
	}
	for n := range uint64(4) {
		x.appends(entry(o, n, "b"), spool.Answer{Session: later.Session, Last: 2})
	}
	o.Session = later.Session + 1
	x.appends(entry(o, 3, "c"), spool.Answer{Session: later.Session, Last: 2})
	x.fill(later, 3, "c")
	if o := x.open(1); o.Last != 3 {
		x.Errorf("%+v is opened last", o)
	}
}

// take has a node take a log with a last entry, and returns it as the node has opened it.
func (x *tester) take(o spool.Opened, by uint16, last uint64, want bool) spool.Opened {
	x.Helper()
	t := spool.Take{Log: o.Log, By: by, Session: o.Session, Last: last, Next: o.Session + 1000, Incarnation: uint64(by)}
	got, err := x.TakeLog(x.Context(), t)
	x.ok(err)
	if got.Done != want || want && got != (spool.Answer{Done: true, Session: t.Next, Last: last, Sealed: by}) {
		x.Errorf("taking %+v answers %+v, want %v", t, got, want)
	}
	return spool.Opened{Log: o.Log, Answer: got}
}

// takes: a log goes on at another node, and from there at yet another one; what had it before appends nothing more.
func takes(x *tester) {
	o := x.open(1)
	x.fill(o, 1, "a", "b")
	x.take(spool.Opened{Log: o.Log + 1000}, 2, 0, false)
	for _, last := range []uint64{0, 1, 3} {
		x.take(o, 2, last, false)
	}
	x.take(spool.Opened{Log: o.Log, Answer: spool.Answer{Session: o.Session - 1}}, 2, 2, false)
	ended := func(o spool.Opened, is spool.Opened) {
		x.Helper()
		is.Done = false
		x.appends(entry(o, is.Last, "b"), is.Answer)
		x.appends(entry(o, is.Last+1, "c"), is.Answer)
		if a, err := x.DropEntries(x.Context(), o.Log, o.Session, 1, nil); err != nil || a != is.Answer {
			x.Errorf("a session before drops: %+v, %v", a, err)
		}
	}
	two := x.take(o, 2, 2, true)
	ended(o, two)
	if again := x.take(o, 2, 2, true); again != two {
		x.Errorf("%+v is taken as %+v", two, again)
	}
	x.fill(two, 3, "c", "i")
	x.drop(two, spool.Answer{Done: true, Session: two.Session, Last: 4, Sealed: 2}, 4, 2)
	x.take(two, 3, 2, false)
	three := x.take(two, 3, 4, true)
	ended(two, three)
	x.fill(three, 5, "d")
	x.has(o, 1, all, "2b 4i 5d")
	delete(x.claims, 1)
	next := x.open(1)
	if next.Log == o.Log || next.Last != 0 {
		x.Errorf("%+v is opened after a log was taken", next)
	}
	x.fill(next, 1, "n")
	x.has(o, 0, all, "4i 5d")
	end := spool.Take{Log: o.Log, By: 3, Session: three.Session, Last: 5, Next: three.Session + 1, Ends: true}
	for range 2 {
		if a, err := x.TakeLog(x.Context(), end); err != nil || !a.Done {
			x.Errorf("it ends with %+v, %v", a, err)
		}
	}
	three.Session++
	x.take(three, 2, 5, false)
	logs, err := x.Logs(x.Context())
	if x.ok(err); !logs[0].Ended || logs[1].Ended || logs[0].Sealed != 3 || logs[0].Incarnation != 2 ||
		logs[1].Incarnation != 0 {
		x.Errorf("the logs are %+v", logs)
	}
}

// parts: reading begins with the newest image, and gives some at a time.
func parts(x *tester) {
	o := x.open(1)
	x.has(o, 0, all, "")
	x.fill(o, 1, "a", "b")
	x.has(o, 0, all, "1a 2b")
	x.fill(o, 3, "i1", "c", "i2", "d", "e")
	x.has(o, 0, all, "5i2 6d 7e")
	x.has(o, 2, all, "2b 3i1 4c 5i2 6d 7e")
	x.has(o, 0, 1, "5i2")
	x.has(o, 6, 1, "6d")
	x.has(o, 6, 6, "6d 7e")
	x.has(o, 6, 5, "6d")
	x.has(o, 8, all, "")
}

func (x *tester) drop(o spool.Opened, want spool.Answer, image uint64, kept ...uint64) {
	x.Helper()
	got, err := x.DropEntries(x.Context(), o.Log, o.Session, image, kept)
	x.ok(err)
	if got != want {
		x.Errorf("dropping before %d, except %v, answers %+v, want %+v", image, kept, got, want)
	}
}

func drops(x *tester) {
	o, other := x.open(1), x.open(2)
	x.fill(other, 1, "z", "i")
	x.fill(o, 1, "a", "b")
	done := spool.Answer{Done: true, Session: o.Session, Last: 2}
	x.drop(o, done, 0)
	x.drop(o, done, 2)
	x.drop(o, done, 3)
	x.has(o, 0, all, "1a 2b") // there is no image yet
	x.fill(o, 3, "i", "c", "d")
	done.Last = 5
	x.drop(o, done, 5)
	x.drop(o, done, 1<<40)
	x.has(o, 1, all, "1a 2b 3i 4c 5d")
	x.drop(o, done, 3, 2, 3, 9)
	x.drop(o, done, 3, 1, 2)
	x.has(o, 1, all, "2b 3i 4c 5d")
	x.has(other, 1, all, "1z 2i")
	later := x.open(1)
	x.drop(o, spool.Answer{Session: later.Session, Last: 5}, 3)
	x.has(o, 1, all, "2b 3i 4c 5d")
	x.fill(later, 6, "i", "e", "i")
	done = spool.Answer{Done: true, Session: later.Session, Last: 8}
	x.drop(later, done, 6, 4)
	x.has(later, 1, all, "4c 6i 7e 8i") // what came after the image of the call stays
	x.drop(later, done, 8)
	x.drop(later, done, 6)
	x.has(later, 1, all, "8i")
	x.fill(later, 9, "f")
	if later = x.open(1); later.Last != 9 {
		x.Errorf("%+v is opened", later)
	}
	later.Log += 1000
	x.drop(later, spool.Answer{}, 1)
}

// claims: a log goes on with the directory that has written to it, and no other.
func claims(x *tester) {
	refused := func(c spool.Claim, want spool.Opened, words string) {
		x.Helper()
		if o, err := x.OpenLog(x.Context(), c); err != nil || o != want {
			x.Errorf("the claim %+v opens %+v, %v, want %+v", c, o, err, want)
		}
		if _, err := spool.Open(x.Context(), x, c); !errors.As(err, new(*spool.Taken)) ||
			!strings.Contains(err.Error(), words) {
			x.Errorf("the error is %v, want %q", err, words)
		}
	}
	o := x.open(1)
	x.fill(o, 1, "a")
	is := spool.Opened{Log: o.Log, Answer: spool.Answer{Session: o.Session, Last: 1}}
	refused(spool.Claim{Node: 1, Next: o.Session + 1}, is, "another directory")
	refused(spool.Claim{Node: 1, Log: o.Log, Session: o.Session - 1, Next: o.Session + 1}, is, "another process")
	refused(spool.Claim{Node: 1, Log: o.Log, Session: o.Session + 1, Next: o.Session + 2}, is, "lost writes")
	refused(spool.Claim{Node: 1, Log: o.Log + 1000, Session: o.Session, Next: o.Session + 1}, is, "")
	// A crash has come before, or after, the session was begun.
	for _, c := range []spool.Claim{{Node: 1, Next: o.Session},
		{Node: 1, Log: o.Log, Session: o.Session - 1, Next: o.Session},
		{Node: 1, Log: o.Log, Session: o.Session, Next: o.Session + 1}} {
		is.Done, is.Session = true, c.Next
		if got, err := x.OpenLog(x.Context(), c); err != nil || got != is {
			x.Errorf("the claim %+v opens %+v, %v", c, got, err)
		}
	}
	had := is.Session
	is = x.take(is, 2, 1, true)
	is.Done = false
	refused(spool.Claim{Node: 1, Log: o.Log, Session: had, Next: had + 1}, is, "sealed by node 2")
	is = spool.Opened{Log: o.Log + 1000}
	refused(spool.Claim{Node: 1, Log: is.Log, Session: 1, Next: 2}, is, "lost writes")
	if got, err := x.OpenLog(x.Context(), spool.Claim{Node: 1, Next: 1}); err != nil || !got.Done || got.Log == o.Log {
		x.Errorf("an empty directory opens %+v, %v", got, err)
	}
}

func clears(x *tester) {
	o := x.open(1)
	x.fill(o, 1, "a", "b")
	x.ok(x.ClearLog(x.Context(), o.Log, 2))
	x.has(o, 0, all, "1a 2b")
	o = x.take(o, 2, 2, true)
	x.ok(x.ClearLog(x.Context(), o.Log, 3))
	x.has(o, 0, all, "1a 2b")
	x.ok(x.ClearLog(x.Context(), o.Log, 2))
	x.has(o, 0, all, "")
	x.take(o, 2, 2, true)
}

func status(x *tester) {
	o, other := x.open(3), x.open(1)
	x.fill(o, 1, "a", "b", "iiii")
	x.drop(o, spool.Answer{Done: true, Session: o.Session, Last: 3}, 3, 2)
	taken := x.take(other, 2, 0, true)
	got, err := x.Logs(x.Context())
	x.ok(err)
	first := got[0].Beat
	for i := range got {
		if got[i].Ago < 0 || got[i].Ago > 60 || got[i].Beat == 0 {
			x.Errorf("%+v", got[i])
		}
		got[i].Ago, got[i].Beat = 0, 0
	}
	want := []spool.Status{{Log: o.Log, Node: 3, Zone: "a", Session: o.Session, Last: 3},
		{Log: other.Log, Node: 1, Zone: "a", Session: taken.Session, Sealed: 2, Incarnation: 2, Empty: true}}
	if !slices.Equal(got, want) {
		x.Errorf("the logs are %+v, want %+v", got, want)
	}
	for i, sign := range []func(){
		func() { x.fill(o, 4, "c") },
		func() { _, err = x.OpenLog(x.Context(), x.claims[3]); x.ok(err) },
		func() { x.take(o, 2, 4, true) },
		func() { x.take(o, 2, 4, true) },
	} {
		sign()
		if got, err = x.Logs(x.Context()); err != nil || got[0].Beat <= first {
			x.Errorf("after sign of life %d: %+v, %v", i, got, err)
		}
		first = got[0].Beat
	}
}

// log opens a log as a relay does.
func (x *tester) log(node uint16) *spool.Log {
	x.Helper()
	c := x.claim(node)
	l, err := spool.Open(x.Context(), x, c)
	x.ok(err)
	c.Log = l.Opened().Log
	x.claims[node] = c
	return l
}

// Changes as package shipping writes them.
var (
	create = []byte("\x01\x01\x01a")          // file 1, "a"
	void   = []byte("\x06\x01")               // of file 1
	image  = []byte{7, 1, 1, 1, 1, 'a', 0, 0} // file 1, "a", without parts
)

func whole(x *tester) {
	l := x.log(1)
	if m, err := l.Read(x.Context()); err != nil || m.Entry() != 0 || m.Octets() != 0 {
		x.Fatalf("an empty log: %v", err)
	}
	x.ok(l.Append(x.Context(), 1, create, nil))
	text := bytes.Repeat([]byte("mail "), 1000)
	x.ok(l.Append(x.Context(), 2, append([]byte("\x05\x01\x00\x88\x27"), 1, 2, 3, 4), text))
	if stored, err := x.EntryData(x.Context(), l.Opened().Log, 2); err != nil || len(stored) > 200 {
		x.Errorf("%d octets are stored, %v", len(stored), err)
	}
	l = x.log(1)
	if data, err := l.Data(x.Context(), 2); err != nil || !bytes.Equal(data, text) {
		x.Errorf("%d octets, %v", len(data), err)
	}
	if _, err := l.Data(x.Context(), 3); err == nil ||
		!strings.Contains(err.Error(), "of node 1's queue: entry 3: it is not there") {
		x.Errorf("the error is %v", err)
	}
	m, err := l.Read(x.Context())
	if x.ok(err); m.Entry() != 2 || m.Octets() != 5000 {
		x.Errorf("%d octets at entry %d", m.Octets(), m.Entry())
	}
	x.ok(l.Append(x.Context(), 3, append(slices.Clone(image), void...), nil))
	x.ok(l.Append(x.Context(), 4, void, nil))
	x.ok(l.Drop(x.Context(), 3, nil))
	if left, err := x.ReadLog(x.Context(), l.Opened().Log, 1, all); err != nil || len(left) != 2 {
		x.Errorf("%+v, %v", left, err)
	}
	l = x.log(1)
	if m, err = l.Read(x.Context()); err != nil || m.Entry() != 4 || m.Octets() != 0 {
		x.Errorf("%+v, %v", m, err)
	}
}

// taken expects a *spool.Taken with words.
func (x *tester) taken(err error, lost bool, words string) {
	x.Helper()
	is := (*spool.Taken)(nil)
	if !errors.As(err, &is) || is.Lost() != lost || !strings.Contains(err.Error(), words) {
		x.Errorf("the error is %v, want %q", err, words)
	}
}

func losses(x *tester) {
	a := x.log(1)
	x.ok(a.Append(x.Context(), 1, create, nil))
	x.ok(a.Append(x.Context(), 2, void, nil))
	x.ok(a.Append(x.Context(), 3, void, nil))
	log := a.Opened().Log
	x.ok(x.Lose(log, 1))
	x.taken(a.Append(x.Context(), 4, void, nil), true, fmt.Sprintf(
		"the database has lost writes: log %d of node 1's queue ends at entry 1 there, and entry 3 was", log))
	x.taken(a.Append(x.Context(), 1, void, nil), false, "has another entry 1, by this very session")
	b := x.log(1)
	x.taken(a.Append(x.Context(), 2, void, nil), false, "another process of the node has opened log")
	x.taken(a.Drop(x.Context(), 1, nil), false, "another process of the node has opened log")
	if m, err := b.Read(x.Context()); err != nil || m.Entry() != 1 {
		x.Errorf("the log is %+v, %v", m, err)
	}
	x.ok(x.Lose(log, 0))
	if _, err := b.Read(x.Context()); err == nil ||
		!strings.Contains(err.Error(), "its last entry is 1, and entry 0 is the last that is there") {
		x.Errorf("a log without its end: %v", err)
	}
	x.take(b.Opened(), 3, 0, true)
	x.taken(b.Append(x.Context(), 2, void, nil), false,
		fmt.Sprintf("log %d of node 1's queue was sealed by node 3", log))
}

func damage(x *tester) {
	l := x.log(2)
	x.ok(l.Append(x.Context(), 1, create, nil))
	x.ok(l.Append(x.Context(), 2, append([]byte("\x05\x01\x00\x02"), 1, 2, 3, 4), []byte("ab")))
	l = x.log(2)
	named := func(err error) {
		x.Helper()
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf(
			"log %d of node 2's queue: entry 2: it is damaged, or was edited", l.Opened().Log)) {
			x.Errorf("the error is %v", err)
		}
	}
	x.ok(x.Damage(l.Opened().Log, 2, true))
	_, err := l.Data(x.Context(), 2)
	named(err)
	_, err = l.Read(x.Context())
	x.ok(err)
	x.ok(x.Damage(l.Opened().Log, 2, false))
	_, err = l.Read(x.Context())
	named(err)
}
