package format

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var now = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// stores lays out a folder and a file in dir, of programs that write a format and the one before.
func stores(dir string, writes int) []Place {
	s := Store{Reads: max(1, writes-1), Writes: writes, Unstated: 1}
	folder, file := s, s
	folder.Name, file.Name = "queue", "list"
	return []Place{{Store: folder, Path: filepath.Join(dir, "queue"), Folder: true}, {Store: file, Path: filepath.Join(dir, "list.db")}}
}

// begin is the start of a program of a version.
func begin(t *testing.T, program string, places []Place) *Set {
	t.Helper()
	set, err := Inspect(program, places...)
	if err == nil {
		err = set.State(now)
	}
	if err != nil {
		t.Fatalf("mta %s: %v", program, err)
	}
	return set
}

func numbers(s *Set) (out [2]int) { return [2]int{s.Of("queue").Number(), s.Of("list").Number()} }

// TestUpgrade goes from one version to the next, back, and on.
func TestUpgrade(t *testing.T) {
	dir := t.TempDir()
	first, second, third := stores(dir, 1), stores(dir, 2), stores(dir, 3)
	if got := numbers(begin(t, "0.1.0", first)); got != [2]int{1, 1} {
		t.Fatalf("a new directory has %v", got)
	}
	set := begin(t, "0.2.0", second)
	if got := numbers(set); got != [2]int{1, 1} || set.Pending() != "queue, list" || set.Status()[0].BackTo != "0.1.0" {
		t.Fatalf("after the upgrade: %v, pending %q, %+v", got, set.Pending(), set.Status())
	}
	begin(t, "0.1.0", first) // back
	_, err := Inspect("0.3.0", third...)
	refused(t, err, "format 1", "formats 2 to 3", "start mta 0.1.0", "mta upgrade finish")

	set = begin(t, "0.2.0", second)
	if done, err := set.Finish(now, true); len(done) != 2 || err != nil || numbers(set) != [2]int{1, 1} {
		t.Fatalf("a dry run: %+v, %v, %v", done, err, numbers(set))
	}
	if done, err := set.Finish(now, false); len(done) != 2 || err != nil || numbers(set) != [2]int{2, 2} || set.Pending() != "" {
		t.Fatalf("finishing: %+v, %v, %v", done, err, numbers(set))
	}
	_, err = Inspect("0.1.0", first...)
	refused(t, err, "format 2", "reads format 1", "start mta 0.2.0")
	if got := numbers(begin(t, "0.3.0", third)); got != [2]int{2, 2} {
		t.Errorf("the next upgrade begins with %v", got)
	}
	if done, err := begin(t, "0.2.0", second).Finish(now, false); len(done) != 0 || err != nil {
		t.Errorf("finishing again: %+v, %v", done, err)
	}
}

// refused holds an error to one sentence for each store.
func refused(t *testing.T, err error, want ...string) {
	t.Helper()
	if !errors.Is(err, ErrRefused) {
		t.Fatalf("not refused: %v", err)
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		for _, w := range want {
			if !strings.Contains(line, w) {
				t.Errorf("%q lacks %q", line, w)
			}
		}
	}
}

// TestStoresWithoutStatement: what programs wrote that stated no formats has the first one; what is not there yet is made
// so that the version before reads it, as long as that can be put back.
func TestStoresWithoutStatement(t *testing.T) {
	dir := t.TempDir()
	places := stores(dir, 2)
	if err := os.WriteFile(places[1].Path, []byte("entries"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := numbers(begin(t, "0.2.0", places)); got != [2]int{1, 1} {
		t.Errorf("got %v, want what the version before reads", got)
	}
	if got := numbers(begin(t, "0.2.0", stores(t.TempDir(), 2))); got != [2]int{2, 2} {
		t.Errorf("a new directory has %v", got)
	}
	for _, s := range begin(t, "0.2.1", places).Status() { // the queue was not there
		if s.BackTo != "before 0.1.0" {
			t.Errorf("the %s goes back to %q", s.Store, s.BackTo)
		}
	}
	_, err := Inspect("0.3.0", stores(dir, 3)...)
	refused(t, err, "start mta 0.1.0, which reads it, and upgrade")
}

// TestVersionsWithoutANewFormat: the version to go back to is the one that ran last, also when it came without a new format.
func TestVersionsWithoutANewFormat(t *testing.T) {
	dir := t.TempDir()
	begin(t, "0.1.0", stores(dir, 1))
	begin(t, "0.2.0", stores(dir, 1))
	for _, program := range []string{"0.3.0", "0.3.1"} {
		for _, s := range begin(t, program, stores(dir, 2)).Status() {
			if s.BackTo != "0.2.0" {
				t.Errorf("mta %s: the %s goes back to %q", program, s.Store, s.BackTo)
			}
		}
	}
}

// TestStatementThatIsNone: a statement that is not what was written is refused where the store is vital. Of another store
// it is set aside, and the newest format stated, which no program before opens.
func TestStatementThatIsNone(t *testing.T) {
	whole := stores(t.TempDir(), 2)
	begin(t, "0.2.0", whole)
	text, err := os.ReadFile(whole[0].StatementPath())
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{"", "{", `{"store":"queue","format":0}`, `{"store":"other","format":1}`}
	for bit := 0; bit < 8*len(text); bit += 7 {
		b := append([]byte(nil), text...)
		b[bit/8] ^= 1 << (bit % 8)
		texts = append(texts, string(b))
	}
	for _, text := range texts {
		for _, vital := range []bool{true, false} {
			places := stores(t.TempDir(), 2)
			places[0].Vital = vital
			begin(t, "0.2.0", places)
			if err := os.WriteFile(places[0].StatementPath(), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			set, err := Inspect("0.2.0", places...)
			if err == nil && vital && set.Of("queue").is.Since.Equal(now) && numbers(set) == [2]int{2, 2} {
				continue // a bit of the sum's own name: all else is as it was
			}
			if vital {
				refused(t, err, places[0].StatementPath(), "backup")
				continue
			}
			if err == nil {
				err = set.State(now)
			}
			if err != nil || numbers(set) != [2]int{2, 2} || set.Status()[0].BackTo != "" {
				t.Fatalf("%q: %v, %+v", text, err, set.Status())
			}
			if again := begin(t, "0.2.0", places); len(again.Aside()) != 0 {
				t.Errorf("%q: damaged again: %v", text, again.Aside())
			}
		}
	}
}

// TestStatementThatCannotBeReplaced: a start that ends before a damaged statement is replaced, by a full disk, say, does
// not leave a store without one: that is of a program from before 0.1.0, which could be put back.
func TestStatementThatCannotBeReplaced(t *testing.T) {
	places := stores(t.TempDir(), 2)
	begin(t, "0.2.0", places)
	path := places[1].StatementPath()
	if err := errors.Join(os.WriteFile(path, []byte("{"), 0o600), os.MkdirAll(filepath.Join(path+".new", "in the way"), 0o700), os.WriteFile(places[1].Path, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	set, err := Inspect("0.2.0", places...)
	if err != nil || set.State(now) == nil {
		t.Fatalf("%v, or the statement is replaced", err)
	}
	if err := os.RemoveAll(path + ".new"); err != nil {
		t.Fatal(err)
	}
	if again := begin(t, "0.2.0", places); numbers(again) != [2]int{2, 2} || again.Pending() != "" {
		t.Errorf("formats %v, back to %q", numbers(again), again.Pending())
	}
}

// TestLookChangesNothing: a check before an upgrade leaves no trace.
func TestLookChangesNothing(t *testing.T) {
	dir := t.TempDir()
	if _, err := Inspect("0.1.0", stores(dir, 1)...); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("there is %v", left)
	}
}

// TestAFullDiskKeepsStatements: the first start after an upgrade needs no space for statements that name the right
// format but lack a sum or this version. A store without a statement needs one.
func TestAFullDiskKeepsStatements(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("can't mount a file system: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	places := stores(dir, 1)
	begin(t, "0.1.0", places)
	old := `{"store":"queue","format":1,"by":"0.1.0","since":"2026-11-01T00:00:00Z"}`
	if err := os.WriteFile(places[0].StatementPath(), []byte(old), 0o640); err != nil {
		t.Fatal(err)
	}
	full := filepath.Join(dir, "full")
	os.WriteFile(full, make([]byte, 2<<20), 0o600)

	set := begin(t, "0.2.0", stores(dir, 2))
	if got := numbers(set); got != [2]int{1, 1} || len(set.Later()) != 1 || set.Status()[0].BackTo != "0.1.0" {
		t.Errorf("an upgrade: formats %v, later %v, %+v", got, set.Later(), set.Status())
	}
	if _, err := set.Finish(now, false); !errors.Is(err, unix.ENOSPC) || numbers(set) != [2]int{1, 1} {
		t.Errorf("finishing: %v, formats %v", err, numbers(set))
	}
	if set := begin(t, "0.1.1", places); len(set.Later()) != 2 {
		t.Errorf("another version: %v", set.Later())
	}
	if err := os.Remove(places[0].StatementPath()); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(places[0].Path, 0o700); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
	os.WriteFile(full, make([]byte, 2<<20), 0o600) // what the statement has left
	set, err := Inspect("0.2.0", stores(dir, 2)...)
	if err == nil {
		err = set.State(now)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a store without a statement: %v", err)
	}
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	if set := begin(t, "0.2.0", stores(dir, 2)); len(set.Later()) != 0 {
		t.Errorf("the next start: %v", set.Later())
	}
}
