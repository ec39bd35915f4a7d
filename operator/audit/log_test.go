package audit

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/mta/internal/linelog"
)

// The process that TestKilled kills has a directory, and the number of its round.
const (
	childDir   = "MTA_TEST_AUDIT_DIR"
	childRound = "MTA_TEST_AUDIT_ROUND"
)

// TestMain is that process, where TestKilled has started it.
func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		fmt.Fprintln(os.Stderr, act(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// act carries out one action after the other, and prints the number of each when it is answered.
func act(dir string) error {
	l, err := Open(Config{Dir: dir})
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		b, err := l.Begin(Line{Actor: Actor{Kind: "socket", User: "root"}, Action: "queue hold", Subject: os.Getenv(childRound) + "-" + strconv.Itoa(i)})
		if err == nil {
			err = b.End(Done, i, "")
		}
		if err != nil {
			return err
		}
		fmt.Println(i)
	}
}

func all(t *testing.T, dir string) (got []Line) {
	t.Helper()
	q := Query{Limit: 100}
	for {
		p, err := Read(t.Context(), dir, q)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, p.Actions...)
		if q.After = p.Next; p.Complete != (p.Next == "") {
			t.Fatalf("complete is %v, next %q", p.Complete, p.Next)
		}
		if p.Next == "" {
			return got
		}
	}
}

// TestKilled: an action whose answer was given is in the log, whatever kills the relay, and the last one without an answer
// has its line after the next start.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	answered := make(map[string]bool)
	for round := range 5 {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), childDir+"="+dir, childRound+"="+strconv.Itoa(round))
		child.Stderr = os.Stderr
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		lines, last := bufio.NewScanner(out), -1
		for n := 0; n < 20+7*round && lines.Scan(); n++ {
			last, _ = strconv.Atoi(lines.Text())
		}
		child.Process.Signal(syscall.SIGKILL)
		child.Wait()
		l, err := Open(Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		for i := range last + 1 {
			answered[fmt.Sprintf("%d-%d", round, i)] = true
		}
	}
	seen := make(map[string]int)
	for _, a := range all(t, dir) {
		seen[a.Subject]++
		if a.Outcome != Done && a.Outcome != Unknown {
			t.Errorf("%+v", a)
		}
	}
	for subject := range answered {
		if seen[subject] != 1 {
			t.Errorf("action %s is %d times in the log", subject, seen[subject])
		}
	}
}

// TestAKillLeavesNothingOpen: the first of two lines is ended by the next start, in another file too, and a torn line hides
// no other.
func TestAKillLeavesNothingOpen(t *testing.T) {
	dir := t.TempDir()
	now := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	open := func() *Log {
		l, err := Open(Config{Dir: dir, Now: clock})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := open()
	if _, err := l.Begin(Line{Action: "queue bounce", Subject: "killed"}); err != nil {
		t.Fatal(err)
	}
	now = now.Add(31 * 24 * time.Hour) // another file
	if err := l.Add(Line{Action: "login", Outcome: Refused}); err != nil {
		t.Fatal(err)
	}
	kill(l)
	files, _ := logDir(dir).Files()
	if len(files) != 2 {
		t.Fatalf("%d files", len(files))
	}
	f, err := os.OpenFile(files[1].Path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString(`{"time":"2026-11-22T10:00:00Z","act`)
	f.Close()
	for range 2 { // a second start finds nothing open
		l = open()
		got := all(t, dir)
		if len(got) != 2 || got[0].Outcome != Unknown || got[0].Subject != "killed" || got[1].Action != "login" {
			t.Errorf("%+v", got)
		}
		kill(l)
	}
}

// kill ends a log as a kill does.
func kill(l *Log) {
	l.out.File().Close()
	l.lock.Close()
}

func TestReading(t *testing.T) {
	dir := t.TempDir()
	now := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	l, err := Open(Config{Dir: dir, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	root := uint32(0)
	for i := range 250 {
		line := Line{Actor: Actor{Kind: "socket", User: "root", UID: &root}, Action: "queue hold", Outcome: Done, Subject: strconv.Itoa(i)}
		if i%5 == 0 {
			line.Actor, line.Action = Actor{Kind: "console", User: "anna", Address: "192.0.2.7"}, "queuetip"
		}
		if err := l.Add(line); err != nil {
			t.Fatal(err)
		}
		now = now.Add(24 * time.Hour)
	}
	for _, test := range []struct {
		q    Query
		want int
	}{
		{Query{}, 250}, {Query{Who: "root"}, 200}, {Query{Who: "0"}, 200}, {Query{Who: "anna"}, 50}, {Query{Who: "192.0.2.7"}, 50}, {Query{Who: "ann"}, 0},
		{Query{Action: "queue"}, 200}, {Query{Action: "queue hold"}, 200}, {Query{Action: "queuetip"}, 50},
		{Query{Since: now.Add(-10 * 24 * time.Hour)}, 10}, {Query{Until: now.Add(-10 * 24 * time.Hour)}, 240},
	} {
		n, q, looked := 0, test.q, int64(0)
		for q.Limit = 7; ; {
			p, err := l.Read(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			n, looked = n+len(p.Actions), looked+p.Looked
			if q.After = p.Next; p.Next == "" {
				break
			}
		}
		if n != test.want {
			t.Errorf("%+v: %d, want %d", test.q, n, test.want)
		}
		if !test.q.Since.IsZero() && looked > 5000 {
			t.Errorf("%d octets were looked at for the last days", looked)
		}
	}
	if _, err := Read(t.Context(), dir, Query{After: "20261122T100000--5", Limit: 1}); !errors.Is(err, ErrCursor) {
		t.Errorf("a forged cursor: %v", err)
	}
	// A cursor of a file that was deleted goes on with what is older.
	if p, err := Read(t.Context(), dir, Query{After: "20200101T000000-5", Limit: 1}); err != nil || !p.Complete || len(p.Actions) != 0 {
		t.Errorf("a cursor before all: %+v, %v", p, err)
	}
	if p, err := Read(t.Context(), filepath.Join(dir, "none"), Query{Limit: 1}); err != nil || !p.Complete {
		t.Errorf("no log: %+v, %v", p, err)
	}
}

// TestAnyBitOfALog: a changed bit hides one line, or two where it was the line end between them, and never another. Each is
// counted, and so is a line that is missing.
func TestAnyBitOfALog(t *testing.T) {
	dir := t.TempDir()
	now := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	l, err := Open(Config{Dir: dir, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if err := l.Add(Line{Actor: Actor{Kind: "socket", User: "root"}, Action: "queue hold", Outcome: Done, Count: i}); err != nil {
			t.Fatal(err)
		}
		now = now.Add(24 * time.Hour)
	}
	l.Close()
	files, _ := logDir(dir).Files()
	content, err := os.ReadFile(files[0].Path)
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	content = bytes.TrimRight(content, "\x00")
	for bit := 0; bit < 8*(len(content)-1); bit += 29 {
		rotten := bytes.Clone(content)
		rotten[bit/8] ^= 1 << (bit % 8)
		os.WriteFile(files[0].Path, rotten, 0o600)
		of := bytes.Count(content[:bit/8], []byte("\n"))
		next := of
		if content[bit/8] == '\n' {
			next++
		}
		for _, q := range []Query{{Limit: 100}, {Limit: 100, Since: now.AddDate(0, 0, -20)}} {
			p, err := Read(t.Context(), dir, q)
			if err != nil {
				t.Fatal(err)
			}
			there := make(map[int]bool)
			for _, a := range p.Actions {
				there[a.Count] = true
			}
			for n := range 20 {
				if !there[n] && n != of && n != next {
					t.Fatalf("bit %d of octet %d, in line %d: line %d is not found by %+v", bit%8, bit/8, of, n, q)
				}
			}
			if q.Since.IsZero() && p.Damaged == 0 {
				t.Fatalf("bit %d of octet %d, in line %d: nothing is reported", bit%8, bit/8, of)
			}
		}
	}
	lines := bytes.SplitAfter(content, []byte("\n"))
	for n := range 19 {
		os.WriteFile(files[0].Path, slices.Concat(slices.Concat(lines[:n]...), slices.Concat(lines[n+1:]...)), 0o600)
		if p, err := Read(t.Context(), dir, Query{Limit: 100}); err != nil || len(p.Actions) != 19 || p.Damaged != 1 {
			t.Errorf("without line %d: %d lines, %d damaged, %v", n, len(p.Actions), p.Damaged, err)
		}
		var log bytes.Buffer
		l, err := Open(Config{Dir: dir, Now: func() time.Time { return now }, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil || strings.Count(log.String(), "DAMAGE") != 1 {
			t.Errorf("without line %d: a start logs %q, %v", n, &log, err)
		}
		l.Close()
	}
}

// TestLinesOfEarlierPrograms: they have no sums, and the file goes on behind them.
func TestLinesOfEarlierPrograms(t *testing.T) {
	dir := t.TempDir()
	now := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	old := `{"time":"2026-11-22T10:00:00Z","kind":"socket","action":"queue hold","count":3,"outcome":"done","number":1}` + "\n"
	torn := old + old + `{"time":"2026-11-22T10:00:00Z","kind":"sock` // a start takes that off
	if err := os.WriteFile(logDir(dir).At(now).Path, []byte(torn), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	l, err := Open(Config{Dir: dir, Now: func() time.Time { return now }, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Add(Line{Action: "login", Outcome: Done}); err != nil {
		t.Fatal(err)
	}
	l.Close()
	p, err := Read(t.Context(), dir, Query{Limit: 100})
	if err != nil || len(p.Actions) != 3 || p.Actions[0].Action != "login" || p.Damaged != 0 {
		t.Errorf("%+v, %v", p, err)
	}
	if strings.Contains(log.String(), "DAMAGE") || !strings.Contains(log.String(), "incomplete") {
		t.Errorf("the log has %s", &log)
	}
}

// TestWorkIsBounded: a page that finds nothing ends, and says where to go on.
func TestWorkIsBounded(t *testing.T) {
	dir := t.TempDir()
	line := Line{Time: time.Now(), Action: "login", Outcome: Refused, Error: strings.Repeat("x", maxText)}.encode()
	text := strings.Repeat(string(line), 2*maxLook/len(line))
	if err := os.WriteFile(logDir(dir).At(time.Now()).Path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := Read(t.Context(), dir, Query{Who: "nobody", Limit: 10})
	if err != nil || p.Complete || p.Next == "" || p.Looked < maxLook || p.Looked > maxLook+int64(len(line)) {
		t.Errorf("%+v, %v", p, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Read(ctx, dir, Query{Limit: 10}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestFilesEndAndAreDeleted(t *testing.T) {
	dir := t.TempDir()
	now := time.Date(2025, 1, 1, 10, 0, 0, 0, time.UTC)
	l, err := Open(Config{Dir: dir, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 700 {
		if err := l.Add(Line{Action: "login", Outcome: Done}); err != nil {
			t.Fatal(err)
		}
		now = now.Add(24 * time.Hour)
	}
	got := all(t, dir)
	if oldest := now.Sub(got[len(got)-1].Time); oldest < Keep || oldest > Keep+2*rotateEvery {
		t.Errorf("the oldest line is %v old", oldest)
	}
	files, _ := logDir(dir).Files()
	for _, f := range files {
		os.WriteFile(f.Path, make([]byte, 400), 0o600)
	}
	if _, err := logDir(dir).Sweep(now, linelog.Limits{Keep: 100 * Keep, KeepSize: 1000}); err != nil {
		t.Fatal(err)
	}
	if left, _ := logDir(dir).Files(); len(left) != 2 || left[1] != files[len(files)-1] {
		t.Errorf("%d files are left", len(left))
	}
}

func TestOneWriter(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Dir: dir, wait: func() {}}); err == nil || !strings.Contains(err.Error(), "another relay") {
		t.Errorf("got %v", err)
	}
	l.Close()
	if err := l.Add(Line{Action: "login", Outcome: Done}); !errors.Is(err, errClosed) {
		t.Errorf("after the end: %v", err)
	}
}

// disk is a file on a disk with so much room, of which some can be reserved.
type disk struct {
	*os.File
	room, reserved *int64 // octets that are free, and those that the file may write without
	syncs          error
}

func (d *disk) Write(p []byte) (int, error) {
	n := int64(len(p))
	own := min(n, *d.reserved)
	if n-own > *d.room {
		k, _ := d.File.Write(p[:own+*d.room])
		*d.reserved, *d.room = 0, 0
		return k, syscall.ENOSPC
	}
	*d.reserved, *d.room = *d.reserved-own, *d.room-(n-own)
	return d.File.Write(p)
}

func (d *disk) Sync() error { return d.syncs }

func (d *disk) Reserve(_, size int64) error {
	if more := size - *d.reserved; more > *d.room {
		return syscall.ENOSPC
	} else {
		*d.room, *d.reserved = *d.room-more, size
	}
	return nil
}

// openOn opens a log on a small disk; last is the file that it has opened last.
func openOn(t *testing.T, dir string, last **disk, room, reserved *int64) *Log {
	t.Helper()
	l, err := Open(Config{Dir: dir, open: func(path string, create bool) (file, error) {
		f, err := openOS(path, create)
		if err != nil {
			return nil, err
		}
		*last = &disk{File: f.(osFile).File, room: room, reserved: reserved}
		return *last, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// TestTrouble: a log that can't be written, or soon can't, is noticed though no operator acts, and its trouble ends when
// it can be written again, with a line about the gap.
func TestTrouble(t *testing.T) {
	dir := t.TempDir()
	room, reserved := int64(10<<20), int64(0)
	var last *disk
	l := openOn(t, dir, &last, &room, &reserved)
	expect := func(want string) {
		t.Helper()
		if got := l.Trouble(); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("trouble is %q, want %q", got, want)
		}
	}
	add := func() error {
		return l.Add(Line{Action: "queue remove", Outcome: Done, Subject: strings.Repeat("x", 300)})
	}
	expect("")
	room = 0
	if err := add(); err != nil {
		t.Fatal(err)
	}
	expect("no disk can be reserved")
	for n := 0; add() == nil; n++ {
		if n > 10_000 {
			t.Fatal("the disk is never full")
		}
	}
	expect("nothing can be changed")
	expect("nothing can be changed")
	room = 10 << 20
	expect("")
	expect("")
	got := all(t, dir)
	if gap := got[0]; gap.Action != "audit" || gap.Outcome != Failed || gap.Name() != "the relay" || !strings.Contains(gap.Error, "no space left") {
		t.Errorf("the gap is %+v", gap)
	}
	if got[1].Action != "queue remove" {
		t.Errorf("a second line about the gap: %+v", got[1])
	}
	last.syncs = syscall.EIO
	if err := add(); err == nil {
		t.Fatal("a line on a disk that fails")
	}
	if err := add(); err != nil { // in another file
		t.Fatal(err)
	}
	expect("")
}

// TestAnotherWriter: a log waits for a command that holds it for a moment, and not for a relay.
func TestAnotherWriter(t *testing.T) {
	dir := t.TempDir()
	first, err := Open(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	waits := 0
	if _, err := Open(Config{Dir: dir, wait: func() { waits++ }}); err == nil || !strings.Contains(err.Error(), "in use") || waits != int(lockPatience/lockRetry) {
		t.Errorf("two writers: %v after %d waits", err, waits)
	}
	second, err := Open(Config{Dir: dir, wait: func() { first.Close() }})
	if err != nil {
		t.Fatal(err)
	}
	second.Close()
}

// TestAFullDisk: an operator can act on a full disk, on what was reserved; when that is used up, actions are refused and
// the log stays sound, and they go on when there is room again.
func TestAFullDisk(t *testing.T) {
	dir := t.TempDir()
	room, reserved := int64(10<<20), int64(0)
	var last *disk
	l := openOn(t, dir, &last, &room, &reserved)
	add := func() error {
		return l.Add(Line{Action: "queue remove", Outcome: Done, Subject: strings.Repeat("x", 300)})
	}
	if err := add(); err != nil {
		t.Fatal(err)
	}
	b, err := l.Begin(Line{Action: "queue hold"})
	if err != nil {
		t.Fatal(err)
	}
	room = 0
	n := 0
	for ; add() == nil; n++ {
		if n > 10_000 {
			t.Fatal("the disk is never full")
		}
	}
	if n < 500 {
		t.Errorf("%d actions on a full disk", n)
	}
	if _, err := l.Begin(Line{Action: "queue hold"}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v", err)
	}
	if err := b.End(Done, 12, ""); err == nil {
		t.Error("the outcome was written on a full disk")
	}
	room = 10 << 20
	if err := add(); err != nil {
		t.Fatal(err)
	}
	got := all(t, dir)
	if len(got) != n+3 || got[1].Action != "queue hold" || got[1].Count != 12 {
		t.Errorf("%d lines of %d; the outcome that was late is %+v", len(got), n+3, got[1])
	}
	// A disk that does not sync has lost what it was given: nobody knows how much of it.
	last.syncs = syscall.EIO
	if err := add(); !errors.Is(err, syscall.EIO) {
		t.Errorf("got %v", err)
	}
	if err := add(); err != nil { // in another file
		t.Error(err)
	}
	if files, _ := logDir(dir).Files(); len(files) != 2 {
		t.Errorf("%d files", len(files))
	}
}

// TestLinesAreShown: nothing that a stranger wrote comes out of a line as more than text, and none is too long.
func TestLinesAreShown(t *testing.T) {
	bad := "a\x1b[31m\u202eb\n{\"action\":\"forged\"}" + strings.Repeat("é", 5000)
	text := string(Line{Time: time.Now(), Actor: Actor{User: bad, Address: bad}, Action: bad, Subject: bad, Reason: bad, Outcome: Done, Error: bad}.encode())
	if strings.Count(text, "\n") != 1 || strings.ContainsAny(text, "\x1b\u202e") || len(text) > maxLine {
		t.Errorf("%d octets: %.200q", len(text), text)
	}
	if _, ok := parse([]byte(strings.TrimSuffix(text, "\n"))); !ok {
		t.Error("it can't be read")
	}
}

// unsynced is a file without the cost of a sync.
type unsynced struct{ *os.File }

func (unsynced) Sync() error                { return nil }
func (unsynced) Reserve(int64, int64) error { return nil }

func openUnsynced(path string, create bool) (file, error) {
	f, err := openOS(path, create)
	if err != nil {
		return nil, err
	}
	return unsynced{f.(osFile).File}, nil
}

func FuzzLines(f *testing.F) {
	f.Add([]byte(`{"time":"2026-11-22T10:00:00Z","kind":"socket","action":"queue hold","count":3,"outcome":"done","number":1}`+"\n"), "")
	f.Add([]byte("\n\n{}\n{\"outcome\":\"begun\"}\ntorn"), "20261122T100000-12")
	f.Fuzz(func(t *testing.T, text []byte, after string) {
		dir := t.TempDir()
		begun := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
		if err := os.WriteFile(logDir(dir).At(begun).Path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if c, err := parseCursor(after); err == nil && after != "" && c.String() != after {
			t.Fatalf("%q is read as %v", after, c)
		}
		if _, err := Read(t.Context(), dir, Query{After: after, Limit: 3}); err != nil && !errors.Is(err, ErrCursor) {
			t.Fatal(err)
		}
		before := all(t, dir)
		l, err := Open(Config{Dir: dir, open: openUnsynced})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Add(Line{Action: "login", Outcome: Done}); err != nil {
			t.Fatal(err)
		}
		l.Close()
		got := all(t, dir)
		if len(got) <= len(before) || got[0].Action != "login" {
			t.Fatalf("%d lines before, %d after a start and one more", len(before), len(got))
		}
		for _, line := range got {
			again, ok := parse([]byte(strings.TrimSuffix(string(line.encode()), "\n")))
			if !ok {
				t.Fatalf("%+v can't be written", again)
			}
		}
	})
}
