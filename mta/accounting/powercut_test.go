package accounting

import (
	"bytes"
	"context"
	"encoding/json"
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
	"example.org/mta/queue/store"
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
// log. What the queue took and no longer has was delivered and has its record, once; what it has, has its Reception or
// gets it at the start.
func TestPowerCutsLeaveNoOutcomeWithoutItsRecord(t *testing.T) {
	for _, form := range []int{store.Format.Writes, store.Format.Reads} {
		ops := cutRelay(t, form, 0, 1)
		if ops < 30 {
			t.Fatalf("only %d operations: that tests nothing", ops)
		}
		for seed := range *cutSeeds {
			for cut := 1; cut <= ops; cut++ {
				cutRelay(t, form, cut, int64(seed+1))
			}
		}
	}
}

func cutRelay(t *testing.T, form, cut int, seed int64) (ops int) {
	bubble.Test(t, func(t *testing.T) {
		defer func() {
			if t.Failed() {
				t.Logf("format %d, power cut at operation %d, seed %d", form, cut, seed)
			}
		}()
		fs := vfstest.NewDisk(rand.New(rand.NewSource(seed)))
		fs.MkdirAll("/log")
		fs.CutAt(cut)
		known := &cutWorld{form: form, accepted: make(map[envelope.ID]bool), shown: make(map[Position]string)}
		known.relayMail(t, fs)
		ops = fs.Ops()
		known.check(t, fs.Reboot())
	})
	return ops
}

// cutWorld is what a relay was promised, and others saw of its log.
type cutWorld struct {
	form     int
	accepted map[envelope.ID]bool
	shown    map[Position]string
}

func (c *cutWorld) queue(fs *vfstest.Disk, w *Writer) (*queue.Queue, error) {
	return queue.Open(queue.Config{
		Dir: "/q", FS: fs, MinFree: 1, SegmentSize: 8 << 10, Records: w, Format: func() int { return c.form },
	})
}

// relayMail takes and delivers some mail, as the relay does, until the power goes.
func (c *cutWorld) relayMail(t *testing.T, fs *vfstest.Disk) {
	w := open(t, Config{Dir: t.TempDir(), NodeID: "n", Journaled: true, Open: openCut(fs), Limits: Limits{RotateSize: 6000}})
	defer w.Close()
	q, err := c.queue(fs, w)
	if err != nil {
		return
	}
	defer q.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for i := range 12 {
		d := q.Begin()
		d.Write([]byte("content"))
		m := &envelope.Message{Sender: "a@x.example", Received: time.Now(), Recipients: []envelope.Recipient{{Address: "b@y.example"}}}
		if d.Commit(m) != nil {
			continue
		}
		c.accepted[m.ID] = true
		w.Add(&Record{Type: Reception, Message: Message{ID: m.ID}, Recipient: "b@y.example", Time: time.Now()})
		l, err := q.Next(ctx)
		if err != nil {
			continue
		}
		kind := Delivery
		if i%4 == 3 {
			kind = TransientFailure
		}
		w.Add(&Record{Type: kind, Message: Message{ID: l.Message.ID}, Recipient: "b@y.example", Time: time.Now()})
		if kind == Delivery {
			q.Settle(l.Message.ID, []int{0}, queue.Delivered)
		} else {
			q.Defer(l.Message.ID, []int{0}, time.Now().Add(time.Hour), queue.Attempt{}, l.Recipients[0].Key)
		}
		time.Sleep(time.Duration(i*17) * time.Millisecond)
		c.look(t, fs, w.Synced())
	}
	time.Sleep(time.Second)
	c.look(t, fs, w.Synced())
}

// look notes what a reader of the log sees.
func (c *cutWorld) look(t *testing.T, fs *vfstest.Disk, to Position) {
	if fs.IsCut() {
		return
	}
	_, err := ReadFrom(t.Context(), copied(t, fs), Position{}, to, func(at, _ Position, line []byte) error {
		c.shown[at] = string(line)
		return nil
	})
	if err != nil && !fs.IsCut() {
		t.Error(err)
	}
}

// copied copies the log to a folder.
func copied(t *testing.T, fs *vfstest.Disk) (dir string) {
	t.Helper()
	dir = t.TempDir()
	list, _ := fs.List("/log")
	for _, info := range list {
		f, err := fs.Open("/log/" + info.Name)
		if err != nil {
			return dir
		}
		content := make([]byte, info.Size)
		f.ReadAt(content, 0)
		if err := os.WriteFile(filepath.Join(dir, info.Name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// check starts the relay again, and looks whether its log has what the queue did, and what readers saw.
func (c *cutWorld) check(t *testing.T, fs *vfstest.Disk) {
	t.Helper()
	dir := copied(t, fs)
	w := open(t, Config{Dir: dir, NodeID: "n", Journaled: true})
	defer w.Close()
	q, err := c.queue(fs, w)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	flush(t, w)
	records, events := make(map[string]int), make(map[string]bool)
	_, err = ReadFrom(t.Context(), dir, Position{}, Position{}, func(at, _ Position, line []byte) error {
		var fields map[string]any
		if bytes.ContainsRune(line, 0) || json.Unmarshal(line, &fields) != nil {
			if c.form >= store.WithLines {
				t.Errorf("the line at %v is torn", at)
			}
			return nil // the power went while it was written
		}
		event := fmt.Sprint(fields["event_id"])
		if events[event] || event != EventID("n", at) {
			t.Errorf("the record at %v has the event_id %q", at, event)
		}
		events[event] = true
		records[fmt.Sprint(fields["type"], " ", fields["id"])]++
		if was, ok := c.shown[at]; ok && was != string(line) {
			t.Errorf("a reader was shown\n%s\nwhere there is\n%s", was, line)
		}
		delete(c.shown, at)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for at, line := range c.shown {
		t.Errorf("a reader was shown at %v what is not there: %s", at, line)
	}
	for r, n := range records {
		if n > 1 {
			t.Errorf("there are %d records %s", n, r)
		}
	}
	latest, err := LatestReceptions(t.Context(), dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	queued := make(map[envelope.ID]bool)
	q.Envelopes(0, func(envelope.ID) bool { return true }, func(m *envelope.Message) {
		queued[m.ID] = true
		it, err := q.Get(m.ID)
		if err == nil && len(it.Recipients) == 1 && it.Recipients[0].Attempts > 0 && records["TransientFailure "+m.ID.String()] == 0 {
			t.Errorf("message %s was deferred, without a record", m.ID)
		}
		if records["Reception "+m.ID.String()] == 0 && (m.ID < latest.From || latest.Has(m.ID)) {
			t.Errorf("message %s is queued, has no Reception and gets none", m.ID)
		}
	})
	for id := range c.accepted {
		if !queued[id] && (records["Delivery "+id.String()] == 0 || records["Reception "+id.String()] == 0) {
			t.Errorf("message %s has left the queue without its records: %v", id, records)
		}
	}
}
