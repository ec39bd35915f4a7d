package queue

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/queue/store"
	"example.org/mta/queue/vfs/vfstest"
)

// TestSnapshotWhileMailComesAndGoes: what was accepted before is in the copy, whatever the queue does while it is taken;
// fsck finds nothing wrong.
func TestSnapshotWhileMailComesAndGoes(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), Log: testLog(t), SegmentSize: 16 << 10, LargeBody: 2 << 10, MinFree: 1}
	q := open(t, cfg)
	defer shut(t, q)
	kept := map[envelope.ID]string{}
	for i := range 30 { // held, so that nothing settles them
		body := strings.Repeat(fmt.Sprint(i%10), 100+i*200) // some have files of their own
		m := accept(t, q, message(2, "kept.example"), body)
		q.Change(Selector{IDs: []envelope.ID{m.ID}}, Hold, false)
		kept[m.ID] = body
	}
	stop := make(chan struct{})
	var churning, begun sync.WaitGroup
	churn := func() {
		for i := 0; ; i++ {
			if i == 3 {
				begun.Done()
			}
			select {
			case <-stop:
				return
			default:
			}
			accept(t, q, message(1, "churn.example"), strings.Repeat("x", 3000))
			l := next(t, q)
			q.Settle(l.Message.ID, indexes(l), Delivered)
		}
	}
	begun.Add(4)
	for range 4 {
		churning.Go(churn)
	}
	defer func() { close(stop); churning.Wait() }()
	begun.Wait()
	for range 3 {
		s, err := q.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		for _, f := range s.Files {
			copyFile(t, s, f, dir)
		}
		s.Close()
		holds(t, dir, kept)
	}
}

// TestSnapshotOnAFullDisk: a copy that takes for ever keeps its files until the disk is nearly full, and mail has the room
// then.
func TestSnapshotOnAFullDisk(t *testing.T) {
	inTime(t, func(t *testing.T) {
		disk := &littleFree{FS: vfstest.Memory()}
		disk.free.Store(1 << 30)
		cfg := small(t, disk)
		cfg.MinFree = 1 << 20
		q := open(t, cfg)
		defer shut(t, q)
		accept(t, q, message(1, "churn.example"), "x")
		s, err := q.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var from io.ReadCloser
		for range 60 {
			accept(t, q, message(1, "churn.example"), strings.Repeat("x", 1500))
			l := next(t, q)
			q.Settle(l.Message.ID, indexes(l), Delivered)
		}
		segments := func() (n int) {
			files, _ := disk.List(cfg.Dir)
			for _, f := range files {
				if strings.HasSuffix(f.Name, store.SegmentSuffix) {
					n++
				}
			}
			return n
		}
		time.Sleep(time.Minute)
		kept := segments()
		if from, err = s.Open(s.Files[0]); err != nil {
			t.Fatal(err)
		}
		defer from.Close()
		disk.free.Store(2<<20 + cfg.SegmentSize/2) // mail is accepted
		time.Sleep(time.Minute)
		if n := segments(); n >= kept || kept < 3 {
			t.Errorf("%d segments are left of %d", n, kept)
		}
		if _, err := io.ReadAll(from); !errors.Is(err, ErrSnapshotLost) {
			t.Errorf("reading: %v", err)
		}
		if _, err := s.Open(s.Files[0]); !errors.Is(err, ErrSnapshotLost) {
			t.Errorf("opening: %v", err)
		}
		if _, err := q.Snapshot(); !errors.Is(err, ErrSnapshotLost) {
			t.Errorf("another one: %v", err)
		}
		accept(t, q, message(1, "example.net"), "x")
		disk.free.Store(1 << 30)
		time.Sleep(time.Second)
		another, err := q.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		another.Close()
	})
}

func copyFile(t *testing.T, s *Snapshot, f SnapshotFile, dir string) {
	t.Helper()
	from, err := s.Open(f)
	if errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(f.Name, store.LargeDir) {
		return // nothing needs it, or the check of the copy fails
	}
	if err != nil {
		t.Fatalf("%s: %v", f.Name, err)
	}
	defer from.Close()
	path := filepath.Join(dir, f.Name)
	os.MkdirAll(filepath.Dir(path), 0o700)
	to, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	if n, err := io.Copy(to, from); err != nil || n != f.Size && !strings.HasPrefix(f.Name, store.LargeDir) {
		t.Fatalf("%s: %d octets of %d, %v", f.Name, n, f.Size, err)
	}
}

// holds checks a copy of a queue.
func holds(t *testing.T, dir string, kept map[envelope.ID]string) {
	t.Helper()
	report, err := store.Fsck(dir, nil, nil)
	if err != nil || report.Damaged() {
		t.Fatalf("fsck of the copy: %v, %+v", err, report.Damage)
	}
	q := open(t, Config{Dir: dir, Log: testLog(t), SegmentSize: 16 << 10, LargeBody: 2 << 10, MinFree: 1})
	defer shut(t, q)
	for id, body := range kept {
		it, err := q.Get(id)
		if err != nil || it.Recipients[0].State != StateHeld || len(it.Recipients) != 2 {
			t.Errorf("message %s in the copy: %+v, %v", id, it, err)
			continue
		}
		if bodyOf(t, q, id) != body {
			t.Errorf("the content of message %s is not what it was", id)
		}
	}
}
