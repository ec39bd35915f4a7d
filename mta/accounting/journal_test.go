package accounting

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	"example.org/mta/queue"
	"example.org/mta/queue/vfs"
	"example.org/mta/queue/vfs/vfstest"
)

// journaled is a log behind the journal of a queue.
type journaled struct {
	t    *testing.T
	fs   vfs.FS // of the queue
	dir  string // of the log
	disk *syncedDisk
	*Writer
	q *queue.Queue
	n int // records
}

func newJournaled(t *testing.T) *journaled {
	return &journaled{t: t, fs: vfstest.Memory(), dir: t.TempDir(), disk: &syncedDisk{disk: disk{free: 1 << 30}}}
}

// start opens log and queue.
func (j *journaled) start(change func(*Config)) {
	j.t.Helper()
	cfg := Config{Dir: j.dir, NodeID: "n", Journaled: true, Open: j.disk.open}
	if change != nil {
		change(&cfg)
	}
	j.Writer = open(j.t, cfg)
	var err error
	j.q, err = queue.Open(queue.Config{Dir: "/q", FS: j.fs, MinFree: 1 << 20, SegmentSize: 64 << 10, Records: j.Writer})
	if err != nil {
		j.t.Fatal(err)
	}
}

// stop closes both, whatever the log's disk does.
func (j *journaled) stop() {
	if err := j.q.Close(); err != nil {
		j.t.Error(err)
	}
	j.Writer.Close()
}

// add has records written, some at a time.
func (j *journaled) add(n int) {
	for i := range n {
		j.Add(numbered(j.n))
		j.n++
		if i%10 == 9 {
			time.Sleep(2 * writeDelay)
		}
	}
	time.Sleep(2 * writeDelay)
	synctest.Wait()
}

// wantAll fails unless the log has all records, each at the place that it says.
func (j *journaled) wantAll() {
	j.t.Helper()
	j.wantSeries(j.n)
}

func (j *journaled) wantSeries(n int) (got []*Record) {
	j.t.Helper()
	_, err := ReadFrom(j.t.Context(), j.dir, Position{}, Position{}, func(at, _ Position, line []byte) error {
		r, err := Parse(line)
		if err != nil || r.EventID != EventID("n", at) {
			j.t.Errorf("at %v is %q: %v", at, line, err)
		}
		got = append(got, r)
		return err
	})
	if err != nil {
		j.t.Fatal(err)
	}
	wantSeries(j.t, got[:min(n, len(got))], n)
	return got
}

// TestJournaledRecordsAreReadSoon: without a sync, within the time for a group and a write.
func TestJournaledRecordsAreReadSoon(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		j := newJournaled(t)
		j.start(nil)
		j.Add(numbered(0))
		j.n++
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		j.wantAll()
		j.disk.Lock()
		if end := j.Synced(); j.disk.durable != 0 || end.Offset != int64(j.disk.written) {
			t.Errorf("%d of %d octets are synced, and readers may read to %v", j.disk.durable, j.disk.written, end)
		}
		j.disk.Unlock()
		time.Sleep(syncDelay)
		synctest.Wait()
		j.disk.Lock()
		if j.disk.durable != j.disk.written || j.Done() != j.Synced() {
			t.Errorf("after %v, %d of %d octets are synced, %v", syncDelay, j.disk.durable, j.disk.written, j.Done())
		}
		j.disk.Unlock()
		j.stop()
	})
}

// TestTheJournalKeepsWhatADeadDiskDoesNotTake: much more than memory holds, over a restart, too. The disk that is back gets
// all of it, and the journal's segments go.
func TestTheJournalKeepsWhatADeadDiskDoesNotTake(t *testing.T) {
	for _, replaced := range []bool{false, true} { // by an empty one
		bubble.Test(t, func(t *testing.T) {
			j := newJournaled(t)
			little := func(c *Config) { c.Buffer, c.Limits.RotateSize = 12<<10, 20_000 }
			j.start(little)
			j.add(20)
			before := j.n
			j.disk.set(0)
			j.add(400)
			if s := j.Stats(); s.Lost > 0 || !s.Failing {
				t.Errorf("%+v", s)
			}
			if n := j.q.Stats().Segments; n < 5 {
				t.Errorf("%d segments are kept", n)
			}
			j.stop()
			j.start(little)
			j.add(100)
			if replaced {
				if err := os.RemoveAll(j.dir); err != nil {
					t.Fatal(err)
				}
			}
			j.disk.set(1 << 30)
			time.Sleep(5 * time.Second)
			j.add(100)
			flush(t, j.Writer)
			if replaced {
				got := written(t, j.dir)
				if len(got) != j.n-before || got[0].ID != numbered(before).ID || got[len(got)-1].ID != numbered(j.n-1).ID {
					t.Errorf("%d records, want %d", len(got), j.n-before)
				}
			} else {
				j.wantAll()
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if s := j.Stats(); s.Lost > 0 || s.Failing {
				t.Errorf("%+v", s)
			}
			if n := j.q.Stats().Segments; n > 2 {
				t.Errorf("%d segments are left", n)
			}
			j.stop()
		})
	}
}

// TestTheBacklogIsBounded: records are dropped and counted when the journal has kept enough, also for an earlier process.
func TestTheBacklogIsBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		j := newJournaled(t)
		little := func(c *Config) { c.Buffer, c.backlog = 12<<10, 300<<10 }
		j.start(little)
		j.disk.set(0)
		j.add(300)
		j.stop()
		j.start(little)
		time.Sleep(time.Second)
		kept := 0
		for j.Stats().Lost == 0 && j.n < 2000 {
			j.add(10)
			time.Sleep(6 * time.Second) // for the janitor
			kept = int(j.q.Stats().Bytes)
		}
		if s := j.Stats(); s.Lost == 0 || !s.Failing || j.n > 1000 || kept > 500<<10 {
			t.Errorf("%d records are added, and the queue has %d octets: %+v", j.n, kept, s)
		}
		j.disk.set(1 << 30)
		time.Sleep(20 * time.Second)
		lost := j.Stats().Lost
		j.add(1)
		got := j.wantSeries(j.n - 1 - int(lost))
		if last := got[len(got)-1]; last.Type != Lost || last.Count != lost || got[len(got)-2].ID != numbered(j.n-1).ID {
			t.Errorf("the last is %+v, want Lost with %d", last, lost)
		}
		if s := j.Stats(); s.Failing {
			t.Errorf("%+v", s)
		}
		j.stop()
	})
}

// small is a file system with little space left.
type small struct {
	vfs.FS
	free *atomic.Int64
}

func (s small) Free(string) (int64, error) { return s.free.Load(), nil }

// TestAFullQueueDiskEndsTheBacklog: what the journal keeps for a dead disk goes when the queue needs the space.
func TestAFullQueueDiskEndsTheBacklog(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		j := newJournaled(t)
		var free atomic.Int64
		free.Store(1 << 30)
		j.fs = small{j.fs, &free}
		j.start(func(c *Config) { c.Buffer = 12 << 10 })
		j.disk.set(0)
		j.add(400)
		time.Sleep(6 * time.Second)
		before := j.q.Stats().Segments
		free.Store(0)
		time.Sleep(12 * time.Second)
		synctest.Wait()
		if s, n := j.Stats(), j.q.Stats().Segments; s.Lost == 0 || !s.Failing || n > 2 || before < 5 {
			t.Errorf("%d segments of %d are left: %+v", n, before, s)
		}
		free.Store(1 << 30)
		j.disk.set(1 << 30)
		time.Sleep(5 * time.Second)
		lost := j.Stats().Lost
		j.add(1)
		got := written(t, j.dir)
		var told int64
		for _, r := range got {
			if r.Type == Lost {
				told += r.Count
			}
		}
		if told != lost || len(got) != j.n-int(lost)+1 {
			t.Errorf("%d records, and %d told lost of %d", len(got), told, lost)
		}
		j.stop()
	})
}

// TestADiskThatHangsIsTrouble though no write fails.
func TestADiskThatHangsIsTrouble(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		j := newJournaled(t)
		j.start(nil)
		j.disk.Lock()
		j.disk.hold = make(chan struct{})
		j.disk.Unlock()
		j.add(10)
		if j.Stats().Failing {
			t.Error("it fails at once")
		}
		time.Sleep(longestHold + time.Second)
		if !j.Stats().Failing {
			t.Error("nothing is to be seen of it")
		}
		j.add(10) // the queue goes on
		close(j.disk.hold)
		time.Sleep(time.Second)
		if j.wantAll(); j.Stats().Failing {
			t.Error("it still fails")
		}
		j.stop()
	})
}

// TestAJournaledLogInTrouble: syncs that fail, a file that is deleted or cut, and files that end meanwhile.
func TestAJournaledLogInTrouble(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		j := newJournaled(t)
		j.start(func(c *Config) { c.Limits.RotateSize = 30_000 })
		for i := range 12 {
			j.add(25)
			switch i % 4 {
			case 1:
				j.disk.Lock()
				j.disk.fail = 1
				j.disk.Unlock()
				time.Sleep(3 * time.Second)
			case 3: // somebody moves the newest file away, and ships it
				time.Sleep(time.Second)
				names := fileNames(t, j.dir)
				newest := filepath.Join(j.dir, names[len(names)-1])
				if err := os.Rename(newest, newest+".moved"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * checkEvery)
			}
		}
		time.Sleep(time.Second)
		j.stop()
		seen := make(map[envelope.ID]int)
		entries, _ := os.ReadDir(j.dir)
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), "mta-") || strings.HasSuffix(e.Name(), indexSuffix) {
				continue
			}
			text, err := os.ReadFile(filepath.Join(j.dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				r, err := Parse([]byte(line))
				if err != nil {
					t.Fatalf("%s has %q", e.Name(), line)
				}
				seen[r.ID]++
			}
		}
		for i := range j.n {
			if n := seen[numbered(i).ID]; n != 1 {
				t.Errorf("record %d is there %d times", i, n)
			}
		}
	})
}

// TestAFailedSyncChangesNoPosition: readers have seen the records already.
func TestAFailedSyncChangesNoPosition(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		j := newJournaled(t)
		j.start(nil)
		seen := make(map[envelope.ID]string)
		look := func() {
			for _, r := range j.wantSeries(j.n) {
				if was := seen[r.ID]; was != "" && was != r.EventID {
					t.Fatalf("a record was at %s, and is at %s", was, r.EventID)
				}
				seen[r.ID] = r.EventID
			}
		}
		for range 10 {
			j.add(15)
			look()
			j.disk.Lock()
			j.disk.fail = 2
			j.disk.Unlock()
			j.add(15)
			time.Sleep(5 * time.Second)
			synctest.Wait()
			look()
		}
		j.stop()
	})
}

// TestALogThatIsGoneAtAStart: what the journal still has is written again, and nothing that the log had durably.
func TestALogThatIsGoneAtAStart(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		j := newJournaled(t)
		j.start(nil)
		j.add(20)
		time.Sleep(5 * time.Second)
		j.stop()
		if err := os.RemoveAll(j.dir); err != nil {
			t.Fatal(err)
		}
		j.start(nil)
		flush(t, j.Writer)
		if got := fileNames(t, j.dir); len(got) != 0 {
			t.Errorf("there is %v", got)
		}
		was := j.Done()
		j.add(5)
		if at := j.Synced(); at.File <= was.File {
			t.Errorf("records are at %v, and were up to %v", at, was)
		}
		if got := fmt.Sprint(len(written(t, j.dir))); got != "5" {
			t.Errorf("%s records", got)
		}
		j.stop()
	})
}
