package accounting

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"testing"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/linelog"
	"example.org/mta/queue"
	"example.org/mta/queue/vfs"
	"example.org/mta/queue/vfs/vfstest"
)

var cutSeeds = flag.Int("accounting.cutseeds", 1, "how often the power is cut at each write")

// cutFile is a file of a log on a file system that loses power.
type cutFile struct {
	vfs.File
}

func (f cutFile) Write(b []byte) (int, error) {
	size, err := f.Size()
	if err != nil {
		return 0, err
	}
	return f.WriteAt(b, size)
}

func (f cutFile) Stat() (os.FileInfo, error) { return nil, os.ErrInvalid }

func openCut(fs *vfstest.Disk) linelog.Opener {
	return func(path string, create bool) (linelog.OutFile, error) {
		path = "/log/" + filepath.Base(path)
		if !create {
			f, err := fs.OpenWrite(path)
			return cutFile{f}, err
		}
		f, err := fs.Create(path)
		if err != nil {
			return nil, err
		}
		return cutFile{f}, fs.SyncDir("/log")
	}
}

// TestPowerCutsLeaveNoOutcomeWithoutItsRecord cuts the power at each write, sync and change of a name of queue and
// log. What the queue took and no longer has was delivered and has its record; what it has, has its Reception or
// gets it at the start.
func TestPowerCutsLeaveNoOutcomeWithoutItsRecord(t *testing.T) {
	ops := cutRelay(t, 0, 1)
	if ops < 30 {
		t.Fatalf("only %d operations: that tests nothing", ops)
	}
	for seed := range *cutSeeds {
		for cut := 1; cut <= ops; cut++ {
			cutRelay(t, cut, int64(seed+1))
			if t.Failed() {
				t.Fatalf("power cut at operation %d of %d, seed %d", cut, ops, seed+1)
			}
		}
	}
}

func cutRelay(t *testing.T, cut int, seed int64) (ops int) {
	bubble.Test(t, func(t *testing.T) {
		fs := vfstest.NewDisk(rand.New(rand.NewSource(seed)))
		fs.MkdirAll("/log")
		fs.CutAt(cut)
		accepted := relayMail(t, fs)
		ops = fs.Ops()
		after := fs.Reboot()
		checkCut(t, after, accepted)
	})
	return ops
}

// relayMail takes and delivers some mail, as the relay does, until the power goes. It returns what was acknowledged.
func relayMail(t *testing.T, fs *vfstest.Disk) (accepted map[envelope.ID]bool) {
	accepted = make(map[envelope.ID]bool)
	q, err := queue.Open(queue.Config{Dir: "/q", FS: fs, MinFree: 1, SegmentSize: 8 << 10})
	if err != nil {
		return accepted
	}
	defer q.Close()
	w := open(t, Config{Dir: t.TempDir(), NodeID: "n", Open: openCut(fs), Limits: Limits{RotateSize: 6000}})
	defer w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for i := range 12 {
		d := q.Begin()
		d.Write([]byte("content"))
		m := &envelope.Message{Sender: "a@x.example", Received: time.Now(), Recipients: []envelope.Recipient{{Address: "b@y.example"}}}
		if d.Commit(m) != nil {
			continue
		}
		accepted[m.ID] = true
		w.Add(&Record{Type: Reception, Message: Message{ID: m.ID}, Recipient: "b@y.example", Time: time.Now()})
		l, err := q.Next(ctx)
		if err != nil {
			continue
		}
		kind, settle := Delivery, func() { q.Settle(l.Message.ID, []int{0}, queue.Delivered) }
		if i%4 == 3 {
			kind, settle = TransientFailure, func() {
				q.Defer(l.Message.ID, []int{0}, time.Now().Add(time.Hour), queue.Attempt{}, l.Recipients[0].Key)
			}
		}
		w.Add(&Record{Type: kind, Message: Message{ID: l.Message.ID}, Recipient: "b@y.example", Time: time.Now()})
		w.After(settle)
		time.Sleep(time.Duration(i*7) * time.Millisecond)
	}
	time.Sleep(time.Second)
	return accepted
}

func checkCut(t *testing.T, fs *vfstest.Disk, accepted map[envelope.ID]bool) {
	t.Helper()
	dir := t.TempDir()
	list, _ := fs.List("/log")
	for _, info := range list {
		f, err := fs.Open("/log/" + info.Name)
		if err != nil {
			t.Fatal(err)
		}
		content := make([]byte, info.Size)
		f.ReadAt(content, 0)
		if err := os.WriteFile(filepath.Join(dir, info.Name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	records, events := make(map[string]bool), make(map[string]bool)
	read := func(at, _ Position, line []byte) error {
		var r struct{ Type, ID, Event string }
		var fields map[string]any
		if err := json.Unmarshal(line, &fields); err != nil {
			return err
		}
		r.Type, r.ID, r.Event = fmt.Sprint(fields["type"]), fmt.Sprint(fields["id"]), fmt.Sprint(fields["event_id"])
		if events[r.Event] || r.Event != EventID("n", at) {
			t.Errorf("the record at %v has the event_id %q", at, r.Event)
		}
		events[r.Event], records[r.Type+" "+r.ID] = true, true
		return nil
	}
	_, err := ReadFrom(t.Context(), dir, Position{}, Position{}, read)
	for missing := (*MissingError)(nil); errors.As(err, &missing); { // the power went while it was written
		_, err = ReadFrom(t.Context(), dir, missing.To, Position{}, read)
	}
	if err != nil {
		t.Fatal(err)
	}
	q, err := queue.Open(queue.Config{Dir: "/q", FS: fs, MinFree: 1, SegmentSize: 8 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	latest, err := LatestReceptions(t.Context(), dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	queued := make(map[envelope.ID]bool)
	q.Envelopes(0, func(envelope.ID) bool { return true }, func(m *envelope.Message) {
		queued[m.ID] = true
		it, err := q.Get(m.ID)
		if err == nil && len(it.Recipients) == 1 && it.Recipients[0].Attempts > 0 && !records["TransientFailure "+m.ID.String()] {
			t.Errorf("message %s was deferred, without a record", m.ID)
		}
		if !records["Reception "+m.ID.String()] && (m.ID < latest.From || latest.Has(m.ID)) {
			t.Errorf("message %s is queued, has no Reception and gets none", m.ID)
		}
	})
	for id := range accepted {
		if !queued[id] && (!records["Delivery "+id.String()] || !records["Reception "+id.String()]) {
			t.Errorf("message %s has left the queue without its records: %v", id, records)
		}
	}
}
