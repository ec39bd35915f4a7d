package accounting

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/linelog"
)

// fill writes a log of several files: each message has a Reception, an attempt somewhere and an outcome, one has a
// thousand recipients, and some lines have no message.
func fill(t testing.TB, w *Writer, messages int) {
	t.Helper()
	rng := rand.New(rand.NewSource(1))
	r := delivery()
	r.Meta = `{"a":{"type":"x","id":"1kjmma2g00007"}}`
	add := func(kind Type, i int) {
		r.Type, r.ID = kind, envelope.FirstID(accepted)+envelope.ID(i)
		r.Response.Text = "ok " + string(bytes.Repeat([]byte{'x'}, rng.Intn(200)))
		w.Add(&r)
	}
	for i := range messages {
		add(Reception, i)
		if i%3 == 0 {
			add(TransientFailure, rng.Intn(i+1))
		}
		if i == messages/2 {
			for range 1000 {
				add(Delivery, i)
			}
		}
		add(Delivery, i)
		if i%10 == 0 {
			w.Add(&Record{Type: Rejection, Time: accepted})
		}
		if i%500 == 0 {
			if err := w.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// byMessage reads the whole log, without any index.
func byMessage(t testing.TB, dir string) map[envelope.ID][]string {
	t.Helper()
	all := make(map[envelope.ID][]string)
	_, err := ReadFrom(t.Context(), dir, Position{}, Position{}, func(_, _ Position, line []byte) error {
		if id, ok := idOf(line); ok {
			all[id] = append(all[id], string(line))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// wantFound looks up messages of a log, and one that it does not have.
func wantFound(t *testing.T, what string, all map[envelope.ID][]string, read func(Query, func([]byte) error) error) {
	t.Helper()
	n := 0
	for id, want := range all {
		var got []string
		if err := read(Query{ID: id.String()}, func(line []byte) error { got = append(got, string(line)); return nil }); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s: message %s has %d records, want %d", what, id, len(got), len(want))
		}
		if n++; n == 40 && len(want) < 1000 {
			break
		}
	}
	if err := read(Query{ID: (envelope.FirstID(accepted) - 1).String()}, func(line []byte) error { return fmt.Errorf("found %s", line) }); err != nil {
		t.Error(err)
	}
}

func TestMessagesAreFoundByTheIndex(t *testing.T) {
	for _, compress := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			w := open(t, Config{Dir: dir, NodeID: "n", Limits: Limits{RotateSize: 400_000, Compress: compress}})
			fill(t, w, 1500)
			all := byMessage(t, dir)
			fromOutside := func(q Query, each func([]byte) error) error { return Read(t.Context(), dir, q, each, nil) }
			fromInside := func(q Query, each func([]byte) error) error { return w.Read(t.Context(), q, each, nil) }
			wantFound(t, "at once", all, fromInside)
			time.Sleep(2 * houseEvery)
			synctest.Wait()
			files, _ := logDir(dir).Files()
			for _, f := range files[:len(files)-1] {
				if _, good, err := indexed(f); !good || err != nil || f.Compressed != compress {
					t.Errorf("%s: indexed %v, %v", f.Path, good, err)
				}
			}
			wantFound(t, "later", all, fromInside)
			wantFound(t, "by another process", all, fromOutside)
			if found, err := find(t.Context(), w, envelope.FirstID(accepted)); err != nil || len(found) < 3 || found[0].Type != Reception || found[0].EventID == "" {
				t.Errorf("%+v, %v", found, err)
			}
			if again := byMessage(t, dir); len(again) != len(all) {
				t.Errorf("%d messages, then %d", len(all), len(again))
			}
			closed(t, w)
			wantFound(t, "after the end", all, fromOutside)
		})
	}
}

// Damage in an index never hides a record, and is mended.
func TestADamagedIndexHidesNothing(t *testing.T) {
	dir := t.TempDir()
	cfg := Config{Dir: dir, NodeID: "n", Limits: Limits{RotateSize: 700_000}}
	w := open(t, cfg)
	fill(t, w, 800)
	closed(t, w)
	all := byMessage(t, dir)
	files, _ := logDir(dir).Files()
	f := files[0]
	if err := newIndexer(f).finish(); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(indexOf(f))
	if err != nil {
		t.Fatal(err)
	}
	read := func(q Query, each func([]byte) error) error { return Read(t.Context(), dir, q, each, nil) }
	wantFound(t, "whole", all, read)
	for at := 0; at < len(good); at += 2503 {
		bad := bytes.Clone(good)
		bad[at] ^= 0x10
		for _, content := range [][]byte{bad, good[:at], append(bytes.Clone(good), bad[:at]...)} {
			if err := os.WriteFile(indexOf(f), content, 0o600); err != nil {
				t.Fatal(err)
			}
			few := make(map[envelope.ID][]string)
			for i := range 3 {
				id := envelope.FirstID(accepted) + envelope.ID(i*97)
				few[id] = all[id]
			}
			wantFound(t, fmt.Sprint("damaged at ", at), few, read)
		}
	}
	if _, ok, err := indexed(f); ok || err != nil {
		t.Fatalf("the damage is not noticed: %v", err)
	}
	bubble.Test(t, func(t *testing.T) {
		w := open(t, cfg)
		time.Sleep(houseEvery)
		synctest.Wait()
		if _, ok, err := indexed(f); !ok || err != nil {
			t.Errorf("the index is not mended: %v", err)
		}
		// The writer knows the sections of that index, and notices when its pages are no longer good.
		inside := func(q Query, each func([]byte) error) error { return w.Read(t.Context(), q, each, nil) }
		wantFound(t, "mended", all, inside)
		os.WriteFile(indexOf(f), make([]byte, len(good)), 0o600)
		wantFound(t, "damaged under the writer", all, inside)
		time.Sleep(2 * houseEvery)
		synctest.Wait()
		if _, ok, err := indexed(f); !ok || err != nil {
			t.Errorf("the index is not mended again: %v", err)
		}
		os.Remove(indexOf(f))
		wantFound(t, "deleted under the writer", all, inside)
		os.WriteFile(filepath.Join(dir, "mta-20010101T000000.idx"), nil, 0o600) // of a file that is gone
		time.Sleep(2 * houseEvery)
		synctest.Wait()
		if _, err := os.Stat(filepath.Join(dir, "mta-20010101T000000.idx")); err == nil {
			t.Error("the index of a file that is gone stays")
		}
		closed(t, w)
	})
}

// A file is read from any offset alike, plain, compressed by the relay or by another program.
func TestCompressedFilesAreReadFromAnyOffset(t *testing.T) {
	dir := t.TempDir()
	w := open(t, Config{Dir: dir, NodeID: "n"})
	fill(t, w, 300)
	closed(t, w)
	all, _ := streamFrom(t, dir, Position{}, Position{})
	files, _ := logDir(dir).Files()
	f := files[0]
	plain, err := os.ReadFile(f.Path)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string) {
		t.Helper()
		if size, err := f.Size(); err != nil || size != int64(len(plain)) {
			t.Errorf("%s: %d octets, want %d (%v)", what, size, len(plain), err)
		}
		for i := 0; i < len(all); i += 37 {
			if rest, end := streamFrom(t, dir, all[i].at, Position{}); !slices.Equal(rest, all[i:]) || end.Offset != int64(len(plain)) {
				t.Errorf("%s: from %v on there are %d records, want %d", what, all[i].at, len(rest), len(all)-i)
			}
		}
		if rest, _ := streamFrom(t, dir, Position{File: f.ID(), Offset: int64(len(plain))}, Position{}); len(rest) != 0 {
			t.Errorf("%s: %d records at the end", what, len(rest))
		}
	}
	check("plain")
	if err := linelog.Compress(f, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(f.Path); err == nil {
		t.Error("the plain file is still there")
	}
	check("compressed")
	if zstd, err := exec.LookPath("zstd"); err == nil {
		out, err := exec.Command(zstd, "-dc", f.Path+".zst").Output()
		if err != nil || !bytes.Equal(out, plain) {
			t.Errorf("zstd reads %d octets, want %d (%v)", len(out), len(plain), err)
		}
		os.Remove(f.Path + ".zst")
		os.WriteFile(f.Path, plain, 0o600)
		if out, err := exec.Command(zstd, "-q", "--rm", f.Path).CombinedOutput(); err != nil {
			t.Fatalf("%s %v", out, err)
		}
		check("compressed by zstd")
	}
	// The plain file of a crash counts.
	os.WriteFile(f.Path, plain, 0o600)
	if files, _ := logDir(dir).Files(); len(files) != 1 || files[0].Compressed {
		t.Errorf("files are %+v", files)
	}
	check("both")
}

func TestNeededFilesAreKept(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		one := int64(len(appendRecord(nil, numbered(0), `""`)))
		limits := Limits{RotateSize: one, KeepSize: 2 * one}
		w := open(t, Config{Dir: dir, Limits: Limits{RotateSize: one}})
		defer closed(t, w)
		for i := range 10 {
			w.Add(numbered(i))
		}
		flush(t, w)
		var needless atomic.Bool
		files, _ := logDir(dir).Files()
		w.Keep(func() (Position, bool) { return Position{File: files[4].ID(), Offset: 17}, !needless.Load() })
		w.SetLimits(limits)
		time.Sleep(2 * houseEvery)
		synctest.Wait()
		if left, _ := logDir(dir).Files(); len(left) != 6 || left[0].Path != files[4].Path {
			t.Errorf("%d files are left, want those from the fifth on", len(left))
		}
		needless.Store(true)
		time.Sleep(2 * houseEvery)
		synctest.Wait()
		if left, _ := logDir(dir).Files(); len(left) != 2 {
			t.Errorf("%d files are left, want 2", len(left))
		}
		if extra, _ := fs.Glob(os.DirFS(dir), "*.idx"); len(extra) > 2 {
			t.Errorf("indexes of deleted files are left: %v", extra)
		}
	})
}

// TestAStartDeletesNothingThatIsNeeded: the log is open before anybody can say what is needed.
func TestAStartDeletesNothingThatIsNeeded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		one := int64(len(appendRecord(nil, numbered(0), `""`)))
		w := open(t, Config{Dir: dir, Limits: Limits{RotateSize: one}})
		for i := range 10 {
			w.Add(numbered(i))
		}
		flush(t, w)
		closed(t, w)
		files, _ := logDir(dir).Files()
		w = open(t, Config{Dir: dir, Limits: Limits{RotateSize: one, KeepSize: one}, AwaitKeep: true})
		defer closed(t, w)
		time.Sleep(2 * houseEvery)
		synctest.Wait()
		if left, _ := logDir(dir).Files(); len(left) != len(files) {
			t.Errorf("%d files are left, want all %d", len(left), len(files))
		}
		w.Keep(func() (Position, bool) { return Position{}, false })
		synctest.Wait()
		if left, _ := logDir(dir).Files(); len(left) != 1 {
			t.Errorf("%d files are left, want 1", len(left))
		}
	})
}

// find gives the records of a message.
func find(ctx context.Context, w *Writer, id envelope.ID) (found []*Record, err error) {
	err = w.Read(ctx, Query{ID: id.String()}, func(line []byte) error {
		r, err := Parse(line)
		found = append(found, r)
		return err
	}, nil)
	return found, err
}
