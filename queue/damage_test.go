package queue

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/queue/store"
	"example.org/mta/queue/vfs"
	"example.org/mta/queue/vfs/vfstest"
)

// logBook keeps what was logged.
type logBook struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logBook) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// fill makes a directory with some messages, and returns them with their contents.
func fill(t *testing.T, fs vfs.FS, n int) map[envelope.ID]string {
	t.Helper()
	q := open(t, small(t, fs))
	rng := rand.New(rand.NewSource(7))
	bodies := map[envelope.ID]string{}
	for i := range n {
		body := strings.Repeat(fmt.Sprint(i, ","), 1+rng.Intn(200))
		bodies[accept(t, q, message(1, "example.net"), body).ID] = body
	}
	shut(t, q)
	return bodies
}

// firstSegment is the name of the first segment's files without the suffix, and its index.
func firstSegment(t *testing.T, fs vfs.FS) (base string, ix *store.Index) {
	t.Helper()
	list, err := fs.List("/q")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		if id, suffix, ok := store.ParseSegmentName(f.Name); ok && suffix == store.SegmentSuffix {
			base = "/q/" + store.SegmentBase(id)
			ix, _, err = store.ScanIndex(fs, base+store.SegmentSuffix, id, store.UnknownEnd)
			if err != nil {
				t.Fatal(err)
			}
			return base, ix
		}
	}
	t.Fatal("no segment")
	return "", nil
}

// firstMessages returns where the messages of the first segment lie.
func firstMessages(t *testing.T, fs vfs.FS) (base string, messages []store.Item) {
	t.Helper()
	base, ix := firstSegment(t, fs)
	return base, slices.DeleteFunc(ix.Items, func(it store.Item) bool { return it.Kind != store.ItemAccepted })
}

func flip(t *testing.T, fs vfs.FS, name string, off int64) {
	t.Helper()
	f, err := fs.OpenWrite(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, off); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 4
	f.WriteAt(b, off)
}

// TestNothingSoundInATrimmedSegment: what a clean end has trimmed was all synced. Without one sound record it is damaged,
// and no segment that was made and never used, which a start removes without a word.
func TestNothingSoundInATrimmedSegment(t *testing.T) {
	inTime(t, func(t *testing.T) {
		fs := vfstest.Memory()
		fill(t, fs, 3)
		base, _ := firstSegment(t, fs)
		f, err := fs.OpenWrite(base + store.SegmentSuffix)
		if err != nil {
			t.Fatal(err)
		}
		size, err := f.Size()
		if err != nil || size >= 16<<10 {
			t.Fatalf("a segment of %d octets was not trimmed: %v", size, err)
		}
		f.WriteAt(bytes.Repeat([]byte{0xa5}, int(size)), 0)
		f.Close()
		fs.Remove(base + store.IndexSuffix)
		if report, err := store.Fsck("/q", fs, nil); err != nil || !report.Damaged() {
			t.Errorf("fsck: %v, %+v", err, report)
		}
		book := &logBook{}
		cfg := small(t, fs)
		cfg.Log = book.logger()
		q := open(t, cfg)
		if s := q.Stats(); s.DamagedRecords != 1 || !strings.Contains(book.String(), "DAMAGE") {
			t.Errorf("the loss is not reported: %+v\n%s", s, book)
		}
		shut(t, q)
		served, _ := fs.List("/q")
		aside, _ := fs.List("/q/" + store.DamagedDir)
		name := filepath.Base(base) + store.SegmentSuffix
		if !slices.ContainsFunc(append(served, aside...), func(i vfs.Info) bool { return i.Name == name }) {
			t.Errorf("the file is gone: %v, %v", served, aside)
		}
	})
}

// TestEmptiedSegment: a kill leaves no segment without octets, since a file has its room before it has the name of one.
func TestEmptiedSegment(t *testing.T) {
	inTime(t, func(t *testing.T) {
		fs := vfstest.Memory()
		fill(t, fs, 3)
		base, _ := firstSegment(t, fs)
		f, err := fs.OpenWrite(base + store.SegmentSuffix)
		if err != nil {
			t.Fatal(err)
		}
		f.Truncate(0)
		f.Close()
		fs.Remove(base + store.IndexSuffix)
		if report, err := store.Fsck("/q", fs, nil); err != nil || !report.Damaged() {
			t.Errorf("fsck: %v, %+v", err, report)
		}
		for range 2 { // it stays
			book := &logBook{}
			cfg := small(t, fs)
			cfg.Log = book.logger()
			q := open(t, cfg)
			if s := q.Stats(); s.DamagedFiles != 1 || !strings.Contains(book.String(), "DAMAGE") {
				t.Errorf("the loss is not reported: %+v\n%s", s, book)
			}
			shut(t, q)
		}
	})
}

// TestOverwrittenAfterAKill: a kill leaves the newest segment as long as it was made, as one that was never used is.
// Where records were synced, their loss is reported, and the file stays; also where its file was used before.
func TestOverwrittenAfterAKill(t *testing.T) {
	inTime(t, func(t *testing.T) {
		disk := vfstest.Memory()
		q := open(t, small(t, disk))
		for i := range 200 { // through some segments, whose files are used again
			m := accept(t, q, message(1, "example.net"), strings.Repeat("x", 900))
			if l := next0(t, q); l == nil || l.Message.ID != m.ID {
				t.Fatalf("message %d: %+v", i, l)
			}
			q.Settle(m.ID, []int{0}, Delivered)
		}
		accept(t, q, message(1, "example.net"), "one")
		accept(t, q, message(1, "example.net"), "two")
		after, newest := copyOf(t, disk), q.dir.SegmentPath(q.w.active.ID)
		shut(t, q)
		f, err := after.OpenWrite(newest)
		if err != nil {
			t.Fatal(err)
		}
		size, _ := f.Size()
		f.WriteAt(make([]byte, size), 0)
		f.Close()
		if report, err := store.Fsck("/q", after, nil); err != nil || !report.Damaged() {
			t.Errorf("fsck: %v, %+v", err, report)
		}
		for range 2 { // it stays
			book := &logBook{}
			cfg := small(t, after)
			cfg.Log = book.logger()
			q := open(t, cfg)
			if s := q.Stats(); s.DamagedFiles != 1 || !strings.Contains(book.String(), "no sound record") {
				t.Errorf("the loss is not reported: %+v\n%s", s, book)
			}
			shut(t, q)
		}
	})
}

// TestFlippedBitInSegment: one message is lost, which is said with file and offset; all others
// are served; the file is kept when it is no longer needed.
func TestFlippedBitInSegment(t *testing.T) {
	for _, indexed := range []bool{true, false} {
		t.Run(fmt.Sprint("indexed=", indexed), func(t *testing.T) {
			inTime(t, func(t *testing.T) { flippedBit(t, indexed) })
		})
	}
}

func flippedBit(t *testing.T, indexed bool) {
	fs := vfstest.Memory()
	bodies := fill(t, fs, 60)
	shut(t, open(t, small(t, fs))) // gives all an index
	base, messages := firstMessages(t, fs)
	victim := messages[3]
	if !indexed {
		fs.Remove(base + store.IndexSuffix)
	}
	flip(t, fs, base+store.SegmentSuffix, victim.Offset()+store.HeaderSize+store.PreludeSize+3)
	report, err := store.Fsck("/q", fs, nil)
	if err != nil || len(report.Damage) != 1 || report.Damage[0].Offset != victim.Offset() || report.Messages != 60 {
		t.Fatalf("fsck: %v, %d messages, damage %+v", err, report.Messages, report.Damage)
	}
	book := &logBook{}
	cfg := small(t, fs)
	cfg.Log = book.logger()
	q := open(t, cfg)
	served := 0
	for q.Stats().Due > 0 {
		l := next0(t, q)
		if l == nil {
			break
		}
		if got := bodyOf(t, q, l.Message.ID); got != bodies[l.Message.ID] || l.Message.ID == envelope.ID(victim.ID) {
			t.Fatalf("message %s has a wrong content", l.Message.ID)
		}
		served++
		q.Settle(l.Message.ID, indexes(l), Delivered)
	}
	s := balanced(t, q)
	if served != 59 || s.DamagedRecords == 0 {
		t.Fatalf("%d of 60 served, %+v", served, s)
	}
	want := fmt.Sprintf("%s: offset %d", base+store.SegmentSuffix, victim.Offset())
	if !strings.Contains(book.String(), "DAMAGE") || !strings.Contains(book.String(), want) {
		t.Fatalf("the log does not tell of %q:\n%s", want, book)
	}
	// The message stays in the queue, and is told of.
	if s.Unreadable != 1 {
		t.Fatalf("%+v", s)
	}
	it, err := q.Get(envelope.ID(victim.ID))
	if err != nil || !it.Unreadable || it.Recipients[0].State != StateUnreadable {
		t.Fatalf("%+v %v", it, err)
	}
	if n, err := q.Change(Selector{IDs: []envelope.ID{envelope.ID(victim.ID)}}, Remove, false); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	time.Sleep(5 * time.Second)
	if s := balanced(t, q); s.Queued != 0 || s.DamagedFiles != 1 {
		t.Fatalf("%+v", s)
	}
	aside, _ := fs.List("/q/" + store.DamagedDir)
	if len(aside) != 1 {
		t.Fatalf("%d files are set aside, want 1", len(aside))
	}
	shut(t, q)
}

// TestFlippedBitInADeferral: a listing shows that a last reply is lost, and the next attempt logs it.
func TestFlippedBitInADeferral(t *testing.T) {
	inTime(t, func(t *testing.T) {
		fs, book := vfstest.Memory(), &logBook{}
		fill(t, fs, 60)
		cfg := small(t, fs)
		cfg.Log = book.logger()
		q := open(t, cfg)
		m := next0(t, q).Message.ID
		q.Defer(m, []int{0}, time.Now().Add(time.Hour), Attempt{Reply: greylisted}, site("mx"))
		for i := range 60 { // its segment is full, and sealed
			accept(t, q, message(1, "example.net"), strings.Repeat(fmt.Sprint(i, ","), 100))
		}
		synctest.Wait() // and has its index
		shut(t, q)
		name, off := findText(t, fs, greylisted.Text)
		flip(t, fs, name, off)

		q = open(t, cfg)
		it, err := q.Get(m)
		if err != nil || !strings.Contains(it.Recipients[0].Last.Text, "is damaged") {
			t.Fatalf("the listing has the reply %v, %v", it.Recipients[0].Last, err)
		}
		time.Sleep(2 * time.Hour)
		for next(t, q).Message.ID != m {
		}
		if !strings.Contains(book.String(), "the reply to the last attempt is lost") || q.Stats().DamagedRecords == 0 {
			t.Errorf("%+v, %s", q.Stats(), book)
		}
		shut(t, q)
	})
}

// findText finds the segment, and the offset in it, that has a text.
func findText(t *testing.T, fs vfs.FS, text string) (name string, off int64) {
	t.Helper()
	files, err := fs.List("/q")
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range files {
		f, err := fs.Open("/q/" + info.Name)
		if err != nil {
			continue
		}
		b := make([]byte, info.Size)
		n, _ := f.ReadAt(b, 0)
		f.Close()
		if i := bytes.Index(b[:n], []byte(text)); i >= 0 {
			return "/q/" + info.Name, int64(i)
		}
	}
	t.Fatalf("no file has %q", text)
	return "", 0
}

// A message that can't be read is no reason to give less than was asked for: who gets nothing believes
// that nothing waits under the key, and doesn't ask again.
func TestTakePassesOverTheUnreadable(t *testing.T) {
	inTime(t, func(t *testing.T) {
		fs := vfstest.Memory()
		fill(t, fs, 10)
		shut(t, open(t, small(t, fs)))
		base, messages := firstMessages(t, fs)
		q := open(t, small(t, fs))
		defer shut(t, q)
		for range 10 {
			l := next(t, q)
			q.Park(l.Message.ID, indexes(l), siteLine("site"), time.Time{})
		}
		for _, it := range messages[:3] {
			flip(t, fs, base+store.SegmentSuffix, it.Offset()+store.HeaderSize+store.PreludeSize+3)
		}
		for i, n := range []int{1, 4, 9, 1} {
			if got, want := len(q.Take(siteLine("site"), n)), []int{1, 4, 2, 0}[i]; got != want {
				t.Errorf("asked for %d, took %d, want %d", n, got, want)
			}
		}
	})
}

// TestExportReportsDamage: an envelope that an export finds damaged is in the log, and counted.
func TestExportReportsDamage(t *testing.T) {
	inTime(t, func(t *testing.T) {
		fs := vfstest.Memory()
		fill(t, fs, 10)
		shut(t, open(t, small(t, fs)))
		base, messages := firstMessages(t, fs)
		book := &logBook{}
		cfg := small(t, fs)
		cfg.Log = book.logger()
		q := open(t, cfg)
		defer shut(t, q)
		victim := messages[0]
		flip(t, fs, base+store.SegmentSuffix, victim.Offset()+store.HeaderSize+store.PreludeSize+3)
		all, withheld := exportAll(t, q)
		if len(all) != 9 || withheld.Unreadable == 0 || q.Stats().DamagedRecords != 1 {
			t.Errorf("%d are exported, %+v, %+v", len(all), withheld, q.Stats())
		}
		want := "message " + envelope.ID(victim.ID).String() + " is left out of an export"
		if !strings.Contains(book.String(), want) || !strings.Contains(book.String(), base+store.SegmentSuffix) {
			t.Errorf("the log has no %q:\n%s", want, book)
		}
	})
}

// next0 is Next, nil when there is nothing for a second.
func next0(t *testing.T, q *Queue) *Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	l, err := q.Next(ctx)
	if err != nil {
		return nil
	}
	return l
}

func TestDamagedIndexIsMadeAgain(t *testing.T) {
	inTime(t, func(t *testing.T) {
		fs := vfstest.Memory()
		bodies := fill(t, fs, 60)
		base, _ := firstSegment(t, fs)
		shut(t, open(t, small(t, fs))) // gives all an index
		size := fileSize(t, fs, base+store.IndexSuffix)
		for off := int64(0); off < size; off += 11 {
			flip(t, fs, base+store.IndexSuffix, off)
			q := open(t, small(t, fs))
			if s := balanced(t, q); s.Queued != int64(len(bodies)) || s.DamagedRecords != 0 {
				t.Fatalf("bit flipped at %d of the index: %+v", off, s)
			}
			shut(t, q)
		}
	})
}

func fileSize(t *testing.T, fs vfs.FS, name string) int64 {
	t.Helper()
	f, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestDamagedLargeContent(t *testing.T) {
	inTime(t, func(t *testing.T) {
		fs := vfstest.Memory()
		q := open(t, small(t, fs))
		defer shut(t, q)
		a := accept(t, q, message(1, "example.net"), strings.Repeat("a", 9000))
		flip(t, fs, q.dir.LargePath(1), 8000)
		next(t, q)
		for range 2 {
			if _, err := q.Body(a.ID); !errors.Is(err, ErrDamaged) {
				t.Fatalf("%v; want an error before the first octet", err)
			}
		}
		q.Defer(a.ID, []int{0}, time.Now().Add(time.Hour), Attempt{Reply: greylisted}, site("site"))
		began := time.Now()
		if l := next(t, q); l.Why != Damaged || time.Since(began) > time.Minute {
			t.Fatalf("handed out as %v after %v", l.Why, time.Since(began))
		}
		q.Defer(a.ID, []int{0}, time.Now().Add(time.Hour), Attempt{Reply: greylisted, Untried: true}, site("site")) // its report failed
		nothing(t, q)
		if l := next(t, q); l.Why != Damaged || time.Since(began) < time.Hour {
			t.Fatalf("handed out as %v after %v", l.Why, time.Since(began))
		}
		if s := balanced(t, q); s.DamagedRecords != 1 {
			t.Fatalf("%+v", s)
		}
	})
}

func TestMissingLargeContent(t *testing.T) {
	inTime(t, func(t *testing.T) {
		fs := vfstest.Memory()
		q := open(t, small(t, fs))
		accept(t, q, message(1, "example.net"), strings.Repeat("a", 9000))
		fs.Remove(q.dir.LargePath(1))
		shut(t, q)
		report, err := store.Fsck("/q", fs, nil)
		if err != nil || len(report.Damage) != 1 {
			t.Fatalf("%v %+v", err, report.Damage)
		}
		q = open(t, small(t, fs))
		defer shut(t, q)
		if l := next(t, q); l.Why != Damaged {
			t.Fatalf("handed out as %v", l.Why)
		}
		if s := balanced(t, q); s.Unreadable != 0 || s.DamagedRecords != 1 {
			t.Fatalf("%+v", s)
		}
	})
}

// TestUnreadableSegment: nothing in the segment can be served, all else is, and nothing is
// deleted.
func TestUnreadableSegment(t *testing.T) {
	inTime(t, func(t *testing.T) {
		fs := vfstest.Memory()
		fill(t, fs, 60)
		base, messages := firstMessages(t, fs)
		fs.Remove(base + store.IndexSuffix)
		bad := &unreadable{FS: fs, name: base + store.SegmentSuffix}
		book := &logBook{}
		cfg := small(t, bad)
		cfg.Log = book.logger()
		q := open(t, cfg)
		s := balanced(t, q)
		if s.Queued != 60-int64(len(messages)) || s.DamagedFiles != 1 || !strings.Contains(book.String(), "can't be read at all") {
			t.Fatalf("%+v\n%s", s, book)
		}
		for range s.Queued {
			l := next(t, q)
			q.Settle(l.Message.ID, indexes(l), Delivered)
		}
		time.Sleep(5 * time.Second)
		shut(t, q)
		q = open(t, small(t, fs)) // the disk is well again
		if s := balanced(t, q); s.Queued != int64(len(messages)) {
			t.Fatalf("%d recovered, want the %d of the segment", s.Queued, len(messages))
		}
		shut(t, q)
	})
}

// TestUnreadableBlock: a part of a segment without index is not given by the disk. What is in it
// is not served, and not concluded to be settled either; when the disk is well again, it is back.
func TestUnreadableBlock(t *testing.T) {
	inTime(t, func(t *testing.T) {
		fs := vfstest.Memory()
		bodies := fill(t, fs, 60)
		base, _ := firstSegment(t, fs)
		fs.Remove(base + store.IndexSuffix)
		q := open(t, small(t, &badBlock{FS: fs, name: base + store.SegmentSuffix, from: 4000, to: 5000}))
		s := balanced(t, q)
		if s.DamagedRecords == 0 || s.Queued >= 60 || s.Queued < 50 {
			t.Fatalf("%+v", s)
		}
		for range s.Queued {
			l := next(t, q)
			delete(bodies, l.Message.ID)
			q.Settle(l.Message.ID, indexes(l), Delivered)
		}
		for range 40 { // new mail, so that there is something to compact
			m := accept(t, q, message(1, "example.net"), strings.Repeat("x", 1500))
			next(t, q)
			q.Settle(m.ID, []int{0}, Delivered)
		}
		time.Sleep(5 * time.Minute)
		shut(t, q)
		q = open(t, small(t, fs))
		defer shut(t, q)
		if s := balanced(t, q); s.Queued != int64(len(bodies)) || s.DamagedRecords != 0 {
			t.Fatalf("want %d back: %+v", len(bodies), s)
		}
		for id, body := range bodies {
			if got := bodyOf(t, q, id); got != body {
				t.Fatalf("message %s has a content of %d octets, want %d", id, len(got), len(body))
			}
		}
	})
}

type badBlock struct {
	vfs.FS
	name     string
	from, to int64
}

func (b *badBlock) Open(name string) (vfs.File, error) {
	f, err := b.FS.Open(name)
	if err == nil && name == b.name {
		f = badFile{f, b}
	}
	return f, err
}

type badFile struct {
	vfs.File
	b *badBlock
}

func (f badFile) ReadAt(p []byte, off int64) (int, error) {
	if off < f.b.to && off+int64(len(p)) > f.b.from {
		return 0, errDisk
	}
	return f.File.ReadAt(p, off)
}

var errDisk = errors.New("input/output error")

type unreadable struct {
	vfs.FS
	name string
}

func (u *unreadable) Open(name string) (vfs.File, error) {
	if name == u.name {
		return nil, errDisk
	}
	return u.FS.Open(name)
}

func TestFsck(t *testing.T) {
	inTime(t, func(t *testing.T) {
		fs := vfstest.Memory()
		q := open(t, small(t, fs))
		for i := range 30 {
			accept(t, q, message(2, "example.net"), strings.Repeat("x", 100*i))
		}
		for i := range 10 {
			l := next(t, q)
			q.Settle(l.Message.ID, []int{0}, Delivered)
			if i < 5 {
				q.Defer(l.Message.ID, []int{1}, time.Now().Add(time.Hour), Attempt{Reply: greylisted}, site("site"))
			}
		}
		last, _ := q.List(Filter{}, Page{Order: NewestFirst, Limit: 1})
		q.Change(Selector{IDs: []envelope.ID{last.Items[0].ID}}, Hold, false)
		q.w.flush()
		inUse, err := store.Fsck("/q", fs, nil)
		if err != nil || inUse.Messages != 30 {
			t.Fatalf("%v %+v", err, inUse)
		}
		shut(t, q)
		orphan, _ := fs.Create("/q/large/00000000000000ff")
		orphan.Close()
		var seen []store.FsckMessage
		r, err := store.Fsck("/q", fs, func(m store.FsckMessage) { seen = append(seen, m) })
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]int{"due": 43, "deferred": 5, "held": 2}
		for state, n := range want {
			if r.Recipients[state] != n {
				t.Errorf("%d recipients %s, want %d", r.Recipients[state], state, n)
			}
		}
		if r.Messages != 30 || len(seen) != 30 || r.Damaged() || r.Large != 9 || len(r.Orphans) != 1 || seen[0].Message == nil {
			t.Errorf("%d messages, %d visited, damage %v, %d large, orphans %v", r.Messages, len(seen), r.Damage, r.Large, r.Orphans)
		}
		var table bytes.Buffer
		if err := r.WriteTable(&table); err != nil || !strings.Contains(table.String(), "no damage") {
			t.Errorf("%v\n%s", err, &table)
		}
		if b, err := json.Marshal(r); err != nil || !strings.Contains(string(b), `"messages":30`) {
			t.Errorf("%v\n%s", err, b)
		}
		list, _ := fs.List("/q/large")
		if !slices.ContainsFunc(list, func(i vfs.Info) bool { return i.Name == "00000000000000ff" }) {
			t.Error("fsck changed the directory")
		}
	})
}

// TestForgedRecordInContent: a message that carries a record of the journal in its content, behind a
// place that is damaged, must not be taken for one.
func TestForgedRecordInContent(t *testing.T) {
	inTime(t, func(t *testing.T) {
		fs := vfstest.Memory()
		cfg := small(t, fs)
		cfg.LargeBody = 4 << 10
		q := open(t, cfg)
		victim := accept(t, q, message(1, "example.net"), "precious")
		var forged []byte
		for salt := range uint32(64) {
			b, start := store.BeginRecord(nil)
			b = store.AppendSettled(b, store.CodecVersion, uint8(Delivered), []uint16{0})
			forged = append(forged, store.FinishRecord(b, start, store.SegmentID{Number: 1, Salt: salt}, 0, store.KindSettled, uint64(victim.ID))...)
		}
		carrier := accept(t, q, message(1, "example.net"), string(forged))
		accept(t, q, message(1, "example.net"), "third")
		shut(t, q)
		base, messages := firstMessages(t, fs)
		fs.Remove(base + store.IndexSuffix)
		for _, it := range messages {
			if it.ID == uint64(carrier.ID) {
				flip(t, fs, base+store.SegmentSuffix, it.Offset()+8)
			}
		}
		q = open(t, small(t, fs))
		defer shut(t, q)
		if _, err := q.Get(victim.ID); err != nil {
			t.Fatalf("a forged record settled a message: %v", err)
		}
		if s := balanced(t, q); s.Queued != 3 || s.Unreadable != 0 {
			t.Fatalf("%+v", s)
		}
	})
}

// TestShorterThanItsEnd: a segment whose file ends before the place that is written down for it is damaged, and read.
func TestShorterThanItsEnd(t *testing.T) {
	fs := vfstest.Memory()
	f, err := fs.Create("/q/short")
	if err != nil {
		t.Fatal(err)
	}
	f.WriteAt([]byte{0}, 0)
	f.Close()
	ix, _, err := store.ScanIndex(fs, "/q/short", store.SegmentID{Number: 1, Salt: 1}, 4096)
	if err != nil || len(ix.Damaged) != 1 {
		t.Errorf("%v, %+v", err, ix)
	}
}
