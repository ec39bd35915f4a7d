package queue

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/format"
	"example.org/mta/queue/store"
	"example.org/mta/queue/vfs"
	"example.org/mta/queue/vfs/vfstest"
)

// newest returns the newest version of all records in a queue's directory.
func newest(t *testing.T, cfg Config) (form uint8) {
	t.Helper()
	files, err := cfg.FS.List(cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if id, suffix, ok := store.ParseSegmentName(f.Name); ok && suffix == store.SegmentSuffix {
			ix, _, err := store.ScanIndex(cfg.FS, cfg.Dir+"/"+f.Name, id, -1)
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range ix.Items { // envelopes and states have versions, too
				if part.Kind != store.ItemAccepted && part.Kind != store.ItemMoved {
					continue
				}
				d := store.NewDir(cfg.Dir, cfg.FS, nil)
				if _, c, err := d.ReadMessage(store.Place{ID: id, Off: part.Offset(), Size: 4 << 10}); err == nil {
					ix.Form = max(ix.Form, c.Env[0])
					if len(c.States) > 0 {
						ix.Form = max(ix.Form, c.States[0])
					}
				}
				d.Files.Close()
			}
			form = max(form, ix.Form)
		}
	}
	return form
}

// TestTheFormatBefore: a queue that is asked for the format before writes no record of the newest, whatever happens in
// it, until it is asked for that; then all that was written before is read on.
func TestTheFormatBefore(t *testing.T) {
	inTime(t, func(t *testing.T) {
		before := store.Format.Reads
		asked := before
		cfg := small(t, vfstest.Memory())
		cfg.Format = func() int { return asked }
		q := open(t, cfg)
		var ids []envelope.ID
		for _, s := range []State{StateHeld, StateDeferred} { // the first stays, the second is asked for below
			ids = append(ids, inState(t, q, s))
		}
		for range 60 { // enough for several segments, and for compaction
			m := accept(t, q, message(1, "churn.example"), strings.Repeat("x", 1500))
			l := next(t, q)
			q.Settle(l.Message.ID, []int{0}, Delivered)
			_ = m
		}
		time.Sleep(time.Minute)
		if n, err := q.Reroute(Selector{IDs: ids}, backup, false); n != 0 || err == nil || !strings.Contains(err.Error(), "mta upgrade finish") {
			t.Errorf("a reroute in format %d: %d, %v", before, n, err)
		}
		shut(t, q)
		if got := newest(t, cfg); int(got) != before {
			t.Fatalf("a record of version %d was written in format %d", got, before)
		}

		q = open(t, cfg) // the program before
		if s := balanced(t, q); s.Queued != 2 || s.DamagedRecords != 0 {
			t.Fatalf("%+v", s)
		}
		asked = store.CodecVersion // the upgrade is finished
		if n, err := q.Reroute(Selector{IDs: ids}, backup, false); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		shut(t, q)
		if got := newest(t, cfg); got != store.CodecVersion {
			t.Fatalf("the newest record has version %d", got)
		}
		q = open(t, cfg)
		defer shut(t, q)
		for _, id := range ids {
			if detourOf(t, q, id) != backup || bodyOf(t, q, id) != "x" {
				t.Errorf("message %s is not what it was", id)
			}
		}
	})
}

// TestEnvelopeFieldsOfANewerProgram: fields that are not known are no damage either.
func TestEnvelopeFieldsOfANewerProgram(t *testing.T) {
	m := message(1, "example.net")
	m.Tags = []string{"a"}
	env := store.AppendEnvelope(nil, store.CodecVersion, m)
	env[2] |= store.MoreKnown + 1
	if err := store.CheckEnvelope(env); !errors.Is(err, format.ErrRefused) || !strings.Contains(err.Error(), "a newer one") {
		t.Errorf("got %v", err)
	}
	env[2] &= store.MoreKnown
	if err := store.CheckEnvelope(env); err != nil {
		t.Error(err)
	}
}

// TestFieldsThatTheFormatBeforeLacks: they are left out of it, and nothing announces them.
func TestFieldsThatTheFormatBeforeLacks(t *testing.T) {
	m := message(1, "example.net")
	m.APIKey, m.Headers, m.TraceID = "key", "X-New: 1", "4bf92f3577b34da6a3ce929d0e0e4736"
	for form := store.Format.Reads; form <= store.Format.Writes; form++ {
		env := store.AppendEnvelope(nil, uint8(form), m)
		got, err := store.DecodeEnvelope(env)
		if err != nil {
			t.Fatal(err)
		}
		if has := got.Headers == m.Headers && got.TraceID == m.TraceID; got.APIKey != m.APIKey || has != (form >= 8) {
			t.Errorf("form %d: %+v", form, got)
		}
		if form < 8 && env[2] != store.MoreAPIKey { // all that version 7 knew of, in the second octet of flags
			t.Errorf("form %d announces %b", form, env[2])
		}
	}
}

// TestJournalBeforeTheFirstRelease: the records of version 1, which nothing reads any more, are no damage.
func TestJournalBeforeTheFirstRelease(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/journal1")); err != nil {
		t.Fatal(err)
	}
	_, err := Open(Config{Dir: dir, MinFree: 1})
	if !errors.Is(err, format.ErrRefused) || !strings.Contains(err.Error(), "before 0.1.0") {
		t.Errorf("got %v", err)
	}
}

// TestIndexOfAnotherVersion: it is made again, and is no damage.
func TestIndexOfAnotherVersion(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), MinFree: 1}
	q := open(t, cfg)
	accept(t, q, message(1, "example.net"), "x")
	shut(t, q)
	open(t, cfg).Close() // the segment is sealed, and has an index
	indexes, err := filepath.Glob(filepath.Join(cfg.Dir, "*"+store.IndexSuffix))
	if err != nil || len(indexes) == 0 {
		t.Fatal(indexes, err)
	}
	for version, damaged := range map[string]bool{"mtaidx1\n": false, store.IndexMagic: false, "mtaidx?x": true} {
		text, err := os.ReadFile(indexes[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(indexes[0], append([]byte(version), text[8:]...), 0o600); err != nil {
			t.Fatal(err)
		}
		if report, err := store.Fsck(cfg.Dir, nil, nil); err != nil || report.Damaged() != damaged {
			t.Errorf("version %q: %+v, %v", version, report.Damage, err)
		}
	}
}

// TestReleasedQueues opens the queue of each released format: every message is in its state, and what is done to it in that
// format is read by the release.
func TestReleasedQueues(t *testing.T) {
	releases, err := filepath.Glob("../mta/testdata/formats/*/queue")
	if err != nil || len(releases) == 0 {
		t.Fatal(releases, err)
	}
	for _, release := range releases {
		t.Run(filepath.Base(filepath.Dir(release)), func(t *testing.T) { opensReleasedQueue(t, release) })
	}
}

func opensReleasedQueue(t *testing.T, release string) {
	cfg := Config{Dir: t.TempDir(), FS: vfs.OS(), MinFree: 1, SegmentSize: 16 << 10, LargeBody: 2 << 10}
	if err := os.CopyFS(cfg.Dir, os.DirFS(release)); err != nil {
		t.Fatal(err)
	}
	set, err := format.Inspect("test", format.Place{Store: store.Format, Path: cfg.Dir, Folder: true})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Format = set.Of(store.Format.Name).Number
	was := newest(t, cfg)
	if report, err := store.Fsck(cfg.Dir, nil, nil); err != nil || report.Damaged() {
		t.Fatalf("fsck: %+v, %v", report, err)
	}
	q := open(t, cfg)
	list, err := q.List(Filter{}, Page{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	got := map[envelope.Address]string{}
	for _, it := range list.Items {
		for _, r := range it.Recipients {
			got[r.Address] = fmt.Sprint(it.Sender, it.Tenant, it.Campaign, r.State == StateHeld, r.Attempts, strings.Contains(r.Last.Text, "connection refused"), it.Release.IsZero(), it.Total)
			if !strings.Contains(bodyOf(t, q, it.ID), "hello") {
				t.Errorf("the content for %s is not what it was", r.Address)
			}
		}
	}
	const from = "news@acme.exampleacmespring"
	want := map[envelope.Address]string{
		"deferred@later.example": fmt.Sprint(from, false, 1, true, true, 2),
		"held@later.example":     fmt.Sprint(from, true, 1, true, true, 1),
		"due@due.example":        fmt.Sprint(from, false, 0, false, true, 1),
		"scheduled@box.example":  fmt.Sprint(from, false, 0, false, false, 1),
	}
	if !maps.Equal(got, want) {
		t.Errorf("the queue has\n%v\nwant\n%v", got, want)
	}
	if _, err := q.Change(Selector{All: true}, Hold, false); err != nil {
		t.Fatal(err)
	}
	for range 40 { // so that all is compacted
		m := message(1, "churn.example")
		m.Headers, m.TraceID = "X-New: 1", "4bf92f3577b34da6a3ce929d0e0e4736"
		accept(t, q, m, strings.Repeat("x", 1500))
		l := next(t, q)
		q.Settle(l.Message.ID, indexes(l), Delivered)
	}
	shut(t, q)
	if is := newest(t, cfg); is != was {
		t.Errorf("there are records of version %d, and the release writes %d", is, was)
	}
	q = open(t, cfg)
	defer shut(t, q)
	if s := q.Stats(); s.Held != 4 || s.DamagedRecords != 0 {
		t.Errorf("%+v", s)
	}
}
