package queue

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/format"
	"example.org/mta/queue/vfs"
)

// newest returns the newest version of all records in a queue's directory.
func newest(t *testing.T, cfg Config) (form uint8) {
	t.Helper()
	files, err := cfg.FS.List(cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if id, suffix, ok := parseSegmentName(f.Name); ok && suffix == segmentSuffix {
			ix, _, err := scanIndex(cfg.FS, cfg.Dir+"/"+f.Name, id, -1)
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range ix.items { // envelopes and states have versions, too
				if part.kind != itemAccepted && part.kind != itemMoved {
					continue
				}
				q := &Queue{cfg: cfg, fs: cfg.FS, files: newFileCache(cfg.FS)}
				if _, c, err := q.readMessage(place{id: id, off: part.offset(), size: 4 << 10}); err == nil {
					ix.form = max(ix.form, c.env[0])
					if len(c.states) > 0 {
						ix.form = max(ix.form, c.states[0])
					}
				}
				q.files.close()
			}
			form = max(form, ix.form)
		}
	}
	return form
}

// TestTheFormatBefore: a queue that is asked for the format before writes no record of the newest, whatever happens in
// it, until it is asked for that; then all that was written before is read on.
func TestTheFormatBefore(t *testing.T) {
	inTime(t, func(t *testing.T) {
		before := codecVersion - 1
		asked := before
		cfg := small(t, vfs.Memory())
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
		asked = codecVersion // the upgrade is finished
		if n, err := q.Reroute(Selector{IDs: ids}, backup, false); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		shut(t, q)
		if got := newest(t, cfg); got != codecVersion {
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
	env := appendEnvelope(nil, codecVersion, m)
	env[2] |= moreKnown + 1
	if err := checkEnvelope(env); !errors.Is(err, format.ErrRefused) || !strings.Contains(err.Error(), "a newer one") {
		t.Errorf("got %v", err)
	}
	env[2] &= moreKnown
	if err := checkEnvelope(env); err != nil {
		t.Error(err)
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
