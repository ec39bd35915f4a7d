package accounting

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/linelog"
	"example.org/mta/queue/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// numbered is a record that tells its place in a series.
func numbered(i int) *Record {
	r := delivery()
	r.ID = envelope.FirstID(accepted) + envelope.ID(i)
	r.Time = time.Now()
	return &r
}

func open(t *testing.T, cfg Config) *Writer {
	t.Helper()
	w, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func closed(t *testing.T, w *Writer) {
	t.Helper()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func flush(t *testing.T, w *Writer) {
	t.Helper()
	if err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// written gives what all files hold, by record, in order, and fails on anything malformed.
func written(t *testing.T, dir string) []*Record {
	t.Helper()
	var all []*Record
	for _, name := range fileNames(t, dir) {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(content) {
			r, err := Parse(line)
			if err != nil || line[len(line)-1] != '\n' {
				t.Fatalf("%s has a line that is no record: %q: %v", name, line, err)
			}
			all = append(all, r)
		}
	}
	return all
}

func fileNames(t *testing.T, dir string) []string {
	t.Helper()
	files, err := logDir(dir).Files()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, filepath.Base(f.Path))
	}
	return names
}

func wantSeries(t *testing.T, got []*Record, n int) {
	t.Helper()
	if len(got) != n {
		t.Fatalf("%d records, want %d", len(got), n)
	}
	for i, r := range got {
		if want := envelope.FirstID(accepted) + envelope.ID(i); r.ID != want {
			t.Fatalf("record %d is of message %s, want %s", i, r.ID, want)
		}
	}
}

func TestRecordsOfManyGoroutinesAreAllWritten(t *testing.T) {
	dir := t.TempDir()
	w := open(t, Config{Dir: dir, NodeID: "n", Limits: Limits{RotateSize: 100_000}})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 250 {
				r := delivery()
				r.Attempts = g*1000 + i
				w.Add(&r)
			}
		})
	}
	wg.Wait()
	closed(t, w)
	next := make(map[int]int) // by goroutine: its order is kept
	for _, r := range written(t, dir) {
		if g, i := r.Attempts/1000, r.Attempts%1000; i != next[g] {
			t.Fatalf("record %d of goroutine %d came when %d was due", i, g, next[g])
		} else {
			next[g]++
		}
	}
	for g := range 8 {
		if next[g] != 250 {
			t.Errorf("goroutine %d: %d of 250 records", g, next[g])
		}
	}
	if s := w.Stats(); s.Written != 2000 || s.Lost != 0 {
		t.Errorf("stats are %+v", s)
	}
}

func TestRecordsAreInTheFileWithinTheWriteDelay(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		w := open(t, Config{Dir: dir})
		defer closed(t, w)
		w.Add(numbered(0))
		time.Sleep(writeDelay) // virtual
		synctest.Wait()
		wantSeries(t, written(t, dir), 1)
	})
}

func TestRotationBySize(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		one := len(appendRecord(nil, numbered(0), `""`))
		limit := int64(3*one + one/2)
		w := open(t, Config{Dir: dir, Limits: Limits{RotateSize: limit}})
		for i := range 10 { // in one write, and in several
			w.Add(numbered(i))
			if i >= 7 {
				flush(t, w)
			}
		}
		closed(t, w)
		wantSeries(t, written(t, dir), 10)
		// The clock stood still: names go ahead of it.
		want := "[mta-20000101T000000.jsonl mta-20000101T000001.jsonl mta-20000101T000002.jsonl mta-20000101T000003.jsonl]"
		if got := fmt.Sprint(fileNames(t, dir)); got != want {
			t.Errorf("files are %s, want %s", got, want)
		}
		for _, name := range fileNames(t, dir) {
			if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() > limit {
				t.Errorf("%s has %d octets, want at most %d (%v)", name, info.Size(), limit, err)
			}
		}
		if to, err := os.Readlink(filepath.Join(dir, "current.jsonl")); err != nil || to != "mta-20000101T000003.jsonl" {
			t.Errorf("current.jsonl leads to %q (%v)", to, err)
		}
	})
}

func TestARecordLargerThanAFileGetsOneOfItsOwn(t *testing.T) {
	dir := t.TempDir()
	w := open(t, Config{Dir: dir, Limits: Limits{RotateSize: 10}})
	for i := range 3 {
		w.Add(numbered(i))
	}
	closed(t, w)
	wantSeries(t, written(t, dir), 3)
	if n := len(fileNames(t, dir)); n != 3 {
		t.Errorf("%d files, want 3", n)
	}
}

func TestRotationByTimeEndsFilesAtWholeMultiples(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		time.Sleep(90 * time.Minute) // 01:30
		w := open(t, Config{Dir: dir, Limits: Limits{RotateEvery: time.Hour}})
		defer closed(t, w)
		w.Add(numbered(0))
		flush(t, w)
		time.Sleep(29 * time.Minute)
		w.Add(numbered(1))
		flush(t, w)
		if n := len(fileNames(t, dir)); n != 1 {
			t.Fatalf("%d files before the hour", n)
		}
		time.Sleep(time.Minute) // 02:00: the file is closed, and the next not begun for nothing
		synctest.Wait()
		if w.Add(numbered(2)); len(fileNames(t, dir)) != 1 {
			t.Fatal("a file was begun without a record")
		}
		time.Sleep(30 * time.Minute)
		flush(t, w)
		want := "[mta-20000101T013000.jsonl mta-20000101T020000.jsonl]"
		if got := fmt.Sprint(fileNames(t, dir)); got != want {
			t.Errorf("files are %s, want %s", got, want)
		}
		wantSeries(t, written(t, dir), 3)
	})
}

func TestRetentionByAge(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		w := open(t, Config{Dir: dir, Limits: Limits{RotateEvery: 24 * time.Hour, Keep: 72 * time.Hour}})
		defer closed(t, w)
		for i := range 8 {
			w.Add(numbered(i))
			flush(t, w)
			time.Sleep(24 * time.Hour)
			synctest.Wait()
		}
		// 9 January, 00:00. A record of 5 January can be three days old to the day at most.
		want := "[mta-20000105T000000.jsonl mta-20000106T000000.jsonl mta-20000107T000000.jsonl mta-20000108T000000.jsonl]"
		if got := fmt.Sprint(fileNames(t, dir)); got != want {
			t.Errorf("files are %s, want %s", got, want)
		}
		time.Sleep(365 * 24 * time.Hour)
		synctest.Wait()
		if got := fmt.Sprint(fileNames(t, dir)); got != "[mta-20000108T000000.jsonl]" {
			t.Errorf("after a year the files are %s; the newest stays", got)
		}
	})
}

func TestRetentionBySize(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		one := int64(len(appendRecord(nil, numbered(0), `""`)))
		w := open(t, Config{Dir: dir, Limits: Limits{RotateSize: one}})
		defer closed(t, w)
		if err := os.WriteFile(filepath.Join(dir, "mta-notes.txt"), make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			w.Add(numbered(i))
		}
		flush(t, w)
		w.SetLimits(Limits{RotateSize: one, KeepSize: 4*one + one/2})
		time.Sleep(houseEvery) // at once, or when it was busy then, at the next look
		synctest.Wait()
		got := written(t, dir)
		if len(got) != 4 || got[0].ID != numbered(6).ID {
			t.Errorf("%d records are kept, from %s on", len(got), got[0].ID)
		}
		if _, err := os.Stat(filepath.Join(dir, "mta-notes.txt")); err != nil {
			t.Error("a file of somebody else was deleted")
		}
	})
}

func TestGoingOnAfterACrash(t *testing.T) {
	dir := t.TempDir()
	w := open(t, Config{Dir: dir})
	w.Add(numbered(0))
	closed(t, w)
	name := filepath.Join(dir, fileNames(t, dir)[0])
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	// Every place where the process or the machine can have stopped: nobody has written down how far the log went.
	for cut := range whole {
		all, _ := filepath.Glob(filepath.Join(dir, "mta-*"))
		for _, name := range all {
			os.Remove(name)
		}
		if err := os.WriteFile(name, whole[:cut], 0o640); err != nil {
			t.Fatal(err)
		}
		w := open(t, Config{Dir: dir, Open: (&syncedDisk{disk: disk{free: 1 << 30}}).open}) // without its slow syncs
		w.Add(numbered(1))
		closed(t, w)
		var got []*Record
		err := Read(t.Context(), dir, Query{}, func(line []byte) error {
			r, err := Parse(line)
			got = append(got, r)
			return err
		}, nil)
		want := 1
		if cut == len(whole)-1 {
			want = 2 // only the line end was missing
		}
		if err != nil || len(got) != want || got[want-1].ID != numbered(1).ID {
			t.Fatalf("cut at %d: %d records, %v", cut, len(got), err)
		}
		want = 1
		if 0 < cut && cut < len(whole)-1 {
			want = 2 // a line that is cut off is the last of its file
		}
		if n := len(fileNames(t, dir)); n != want {
			t.Fatalf("%d files", n)
		}
	}
}

// disk is where files are written that fails as it is told.
type disk struct {
	sync.Mutex
	free int           // octets that can still be written
	hold chan struct{} // writes wait until it is closed; nil: they don't
	bad  bool          // truncating fails too
}

type diskFile struct {
	linelog.OSFile
	disk *disk
}

func (d *disk) open(path string, create bool) (linelog.OutFile, error) {
	f, err := linelog.OpenOS(path, create)
	if err != nil {
		return nil, err
	}
	return diskFile{f.(linelog.OSFile), d}, nil
}

var errFull = errors.New("no space left on device")

func (f diskFile) Write(b []byte) (int, error) {
	f.disk.Lock()
	hold := f.disk.hold
	f.disk.Unlock()
	if hold != nil {
		<-hold
	}
	f.disk.Lock()
	defer f.disk.Unlock()
	fits := min(f.disk.free, len(b))
	f.disk.free -= fits
	if n, err := f.File.Write(b[:fits]); err != nil || fits == len(b) {
		return n, err
	}
	return fits, errFull
}

func (f diskFile) Truncate(size int64) error {
	f.disk.Lock()
	defer f.disk.Unlock()
	if f.disk.bad {
		return io.ErrUnexpectedEOF
	}
	return f.File.Truncate(size)
}

func (d *disk) set(free int) { d.Lock(); d.free = free; d.Unlock() }

func TestAFullDiskLosesNothingThatTheBufferHolds(t *testing.T) {
	one := len(appendRecord(nil, numbered(0), `""`))
	for _, bad := range []bool{false, true} {
		for free := 0; free <= 3*one; free += 97 {
			bubble.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				d := &disk{free: free, bad: bad}
				var log bytes.Buffer
				w := open(t, Config{Dir: dir, Open: d.open, Log: slog.New(slog.NewTextHandler(&log, nil))})
				for i := range 5 {
					w.Add(numbered(i))
				}
				if err := w.Flush(t.Context()); !errors.Is(err, errFull) {
					t.Fatalf("flush on a full disk: %v", err)
				}
				if !w.Stats().Failing {
					t.Error("the trouble is not to be seen in Stats")
				}
				w.Add(numbered(5))
				time.Sleep(10 * time.Second)
				synctest.Wait()
				d.set(1 << 30)
				time.Sleep(retryDelay)
				synctest.Wait()
				if got := readAll(t, dir); len(got) != 6 {
					t.Errorf("%d records with %d octets free at first, want 6", len(got), free)
				} else {
					wantSeries(t, got, 6)
				}
				if s := w.Stats(); s.Lost != 0 || s.Written != 6 || s.Failing {
					t.Errorf("stats are %+v", s)
				}
				closed(t, w)
				for _, want := range []string{"can't be written", "no space left", "written again"} {
					if strings.Count(log.String(), want) != 1 {
						t.Errorf("the log says %q %d times in:\n%s", want, strings.Count(log.String(), want), log.String())
					}
				}
			})
		}
	}
}

// readAll reads as the command line does: over what is no record.
func readAll(t *testing.T, dir string) []*Record {
	t.Helper()
	var got []*Record
	err := Read(t.Context(), dir, Query{}, func(line []byte) error {
		r, err := Parse(line)
		got = append(got, r)
		return err
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestWhatIsDroppedIsCountedAndTold(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		d := &disk{free: 1 << 30, hold: make(chan struct{})}
		var log bytes.Buffer
		one := len(appendRecord(nil, numbered(0), `""`))
		w := open(t, Config{Dir: dir, Open: d.open, Buffer: 4*one + one/2, Log: slog.New(slog.NewTextHandler(&log, nil))})
		w.Add(numbered(0))
		time.Sleep(writeDelay)
		synctest.Wait() // the write hangs from here on
		began := time.Now()
		for i := range 10 {
			w.Add(numbered(1 + i))
		}
		if time.Since(began) != 0 {
			t.Error("adding waited for the disk")
		}
		if s := w.Stats(); s.Lost != 6 || s.Waiting == 0 {
			t.Errorf("stats are %+v, want 6 lost", s)
		}
		close(d.hold)
		flush(t, w)
		got := written(t, dir)
		wantSeries(t, got[:5], 5)
		if last := got[len(got)-1]; len(got) != 6 || last.Type != Lost || last.Count != 6 {
			t.Errorf("the last of %d records is %+v, want Lost with 6", len(got), last)
		}
		if !strings.Contains(log.String(), "dropped") || !strings.Contains(log.String(), "lost=6") {
			t.Errorf("the log says %q", log.String())
		}
		closed(t, w)
	})
}

func TestClosingOnAFullDiskSaysWhatIsLost(t *testing.T) {
	d := &disk{}
	w := open(t, Config{Dir: t.TempDir(), Open: d.open})
	for i := range 3 {
		w.Add(numbered(i))
	}
	err := w.Close()
	if !errors.Is(err, errFull) || !strings.Contains(err.Error(), "3 records are lost") {
		t.Errorf("closing says %v", err)
	}
	w.Add(numbered(4)) // after the end: counted, not written, no panic
	if s := w.Stats(); s.Lost != 4 {
		t.Errorf("%d lost, want 4", s.Lost)
	}
	if err := w.Flush(context.Background()); !errors.Is(err, errFull) {
		t.Errorf("flush after close says %v", err)
	}
}

func TestAFileTakenAwayIsReplaced(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		w := open(t, Config{Dir: dir})
		defer closed(t, w)
		w.Add(numbered(9))
		flush(t, w)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		time.Sleep(checkEvery)
		w.Add(numbered(0))
		flush(t, w)
		wantSeries(t, written(t, dir), 1)
	})
}

// Positions count from the beginning of a file: one that copytruncate of logrotate has emptied gets no more records.
func TestATruncatedFileIsReplaced(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		w := open(t, Config{Dir: dir})
		defer closed(t, w)
		w.Add(numbered(9))
		flush(t, w)
		if err := os.Truncate(filepath.Join(dir, fileNames(t, dir)[0]), 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(checkEvery)
		w.Add(numbered(0))
		flush(t, w)
		if names := fileNames(t, dir); len(names) != 2 {
			t.Errorf("files are %v", names)
		}
		wantSeries(t, written(t, dir), 1)
	})
}

// A kill on a full disk leaves half a line: that is no reason to accept no mail.
func TestATornLineOnAFullDisk(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		w := open(t, Config{Dir: dir})
		w.Add(numbered(0))
		flush(t, w)
		end := w.Synced()
		closed(t, w)
		appendTo(t, filepath.Join(dir, fileNames(t, dir)[0]), []byte(`{"type":"Deli`))
		d := &disk{}
		w = open(t, Config{Dir: dir, Open: d.open})
		if w.Synced() != end {
			t.Errorf("records end at %v, want %v", w.Synced(), end)
		}
		d.set(1 << 20)
		w.Add(numbered(1))
		flush(t, w)
		closed(t, w)
		if n, missing := missingFrom(t, dir, Position{}, w.Synced()); n != 2 || missing != nil {
			t.Errorf("%d records, missing %v", n, missing)
		}
	})
}

// Two writers would spoil each other's positions.
// TestAFailedSyncAtAStartTakesNothingBack: what earlier runs have written stays, whatever the disk does.
func TestAFailedSyncAtAStartTakesNothingBack(t *testing.T) {
	dir := t.TempDir()
	w := open(t, Config{Dir: dir})
	w.Add(numbered(0))
	closed(t, w)
	d := &syncedDisk{disk: disk{free: 1 << 30}, fail: 1}
	if w, err := Open(Config{Dir: dir, Open: d.open}); !errors.Is(err, errSync) {
		t.Errorf("the log %v is open on a disk that fails: %v", w, err)
	}
	if got := readAll(t, dir); len(got) != 1 {
		t.Errorf("%d records are left of 1", len(got))
	}
}

func TestASecondWriterIsRefused(t *testing.T) {
	dir := t.TempDir()
	w := open(t, Config{Dir: dir})
	if _, err := Open(Config{Dir: dir}); !errors.Is(err, vfs.ErrLocked) || !strings.Contains(err.Error(), dir+" is in use by another relay") {
		t.Errorf("a second writer: %v", err)
	}
	closed(t, w)
	closed(t, open(t, Config{Dir: dir}))
}
