package accounting

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/linelog"
)

type streamed struct {
	at, next Position
	id       string
	event    string
}

func streamFrom(t *testing.T, dir string, from, to Position) (got []streamed, end Position) {
	t.Helper()
	end, err := ReadFrom(t.Context(), dir, from, to, func(at, next Position, line []byte) error {
		var fields struct {
			ID    string `json:"id"`
			Event string `json:"event_id"`
		}
		if err := json.Unmarshal(line, &fields); err != nil {
			return err
		}
		got = append(got, streamed{at, next, fields.ID, fields.Event})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got, end
}

// TestPositionsAreThoseOfTheEventIDs reads a log of several files, with a torn line, from each of its records.
func TestPositionsAreThoseOfTheEventIDs(t *testing.T) {
	dir := t.TempDir()
	one := int64(len(appendRecord(nil, numbered(0), `"node-1"`)))
	cfg := Config{Dir: dir, NodeID: "node-1", Limits: Limits{RotateSize: 3*one + one/2}}
	w := open(t, cfg)
	changed, stop := w.Watch()
	defer stop()
	for i := range 8 {
		w.Add(numbered(i))
	}
	flush(t, w)
	<-changed
	closed(t, w)
	names := fileNames(t, dir)
	f, err := os.OpenFile(filepath.Join(dir, names[len(names)-1]), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString(`{"type":"Deli`)
	f.Close()
	w = open(t, cfg)
	for i := range 3 {
		w.Add(numbered(8 + i))
	}
	flush(t, w)
	synced := w.Synced()
	all, end := streamFrom(t, dir, Position{}, Position{})
	if len(all) != 11 || end != synced {
		t.Fatalf("%d records up to %v, want 11 up to %v", len(all), end, synced)
	}
	for i, s := range all {
		if node, at, err := ParseEventID(s.event); node != "node-1" || at != s.at || err != nil || EventID(node, at) != s.event {
			t.Errorf("record %d at %v has the event_id %q (%v)", i, s.at, s.event, err)
		}
		if i > 0 && (all[i-1].event >= s.event || all[i-1].at.Compare(s.at) >= 0) {
			t.Errorf("%q is followed by %q", all[i-1].event, s.event)
		}
		if rest, _ := streamFrom(t, dir, s.next, Position{}); !slices.Equal(rest, all[i+1:]) {
			t.Errorf("from %v on there are %d records, want %d", s.next, len(rest), len(all)-i-1)
		}
		if before, to := streamFrom(t, dir, Position{}, s.at); !slices.Equal(before, all[:i]) || to.Compare(s.at) > 0 {
			t.Errorf("up to %v there are %d records, want %d", s.at, len(before), i)
		}
	}
	closed(t, w)
	if err := os.Remove(filepath.Join(dir, names[0])); err != nil {
		t.Fatal(err)
	}
	var missing *MissingError
	_, err = ReadFrom(t.Context(), dir, all[1].at, Position{}, nil)
	if !errors.As(err, &missing) || missing.From != all[1].at || missing.To != all[3].at {
		t.Errorf("from a file that was deleted: %v", err)
	}
}

func TestPositionsAreText(t *testing.T) {
	for _, p := range []Position{
		{}, {File: accepted.Unix()}, {File: accepted.Unix(), Offset: 4711}, {File: accepted.Unix() + 1, Offset: linelog.MaxFileSize},
	} {
		back, err := ParsePosition(p.String())
		if err != nil || back != p || len(p.String()) != linelog.PositionLength {
			t.Errorf("%v comes back as %v, %v", p, back, err)
		}
	}
	for _, s := range []string{"", "-", "20260301T120000-1", "20260301T120000--00000000001", "20261301T120000-000000000001", "20260301T120000-0000000000001"} {
		if p, err := ParsePosition(s); err == nil {
			t.Errorf("%q is taken for %v", s, p)
		}
		if _, _, err := ParseEventID("n-" + s); err == nil {
			t.Errorf("n-%q is taken for an event_id", s)
		}
	}
}

func TestPositionAt(t *testing.T) {
	dir := t.TempDir()
	if p, err := PositionAt(dir, accepted); p != (Position{}) || err != nil {
		t.Errorf("in an empty log: %v, %v", p, err)
	}
	for h := range 3 {
		if err := os.WriteFile(logDir(dir).At(accepted.Add(time.Duration(h)*time.Hour)).Path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for after, want := range map[time.Duration]int{-time.Hour: 0, 30 * time.Minute: 0, 90 * time.Minute: 1, time.Hour + time.Second: 0, 48 * time.Hour: 2} {
		p, err := PositionAt(dir, accepted.Add(after))
		if want := accepted.Add(time.Duration(want) * time.Hour).Unix(); err != nil || p != (Position{File: want}) {
			t.Errorf("%v after: %v, %v", after, p, err)
		}
	}
}

// missingFrom reads a log and returns how many records it has, and what is missing.
func missingFrom(t *testing.T, dir string, from, to Position) (records int, missing []MissingError) {
	t.Helper()
	for {
		at, err := ReadFrom(t.Context(), dir, from, to, func(_, _ Position, _ []byte) error {
			records++
			return nil
		})
		var m *MissingError
		if !errors.As(err, &m) {
			if err != nil {
				t.Fatal(err)
			}
			if to != (Position{}) && at.Compare(to) < 0 {
				t.Errorf("reading ended at %v, before %v", at, to)
			}
			return records, missing
		}
		if missing = append(missing, *m); len(missing) > 100 || m.To.Compare(m.From) <= 0 {
			t.Fatal(missing)
		}
		from = m.To
	}
}

// TestMissingRecordsAreReported: the file of the position is there, but not what follows up to the end.
func TestMissingRecordsAreReported(t *testing.T) {
	dir := t.TempDir()
	w := open(t, Config{Dir: dir, NodeID: "n", Limits: Limits{RotateSize: 4 << 10}})
	for i := range 50 {
		w.Add(numbered(i))
	}
	flush(t, w)
	end := w.Synced()
	closed(t, w)
	all, _ := streamFrom(t, dir, Position{}, end)
	files, _ := logDir(dir).Files()
	if len(files) < 3 {
		t.Fatal(files)
	}
	last := files[len(files)-1]
	content, err := os.ReadFile(last.Path)
	if err != nil {
		t.Fatal(err)
	}
	os.Truncate(last.Path, int64(len(content)/2))
	n, missing := missingFrom(t, dir, all[1].at, end)
	if len(missing) != 1 || missing[0].From.File != last.ID() || missing[0].To != end || n < 30 {
		t.Errorf("a truncated file: %d records, missing %v", n, missing)
	}
	os.Remove(last.Path)
	n, missing = missingFrom(t, dir, all[1].at, end)
	if len(missing) != 1 || missing[0].From.File != files[len(files)-2].ID() || missing[0].To != end || n < 30 {
		t.Errorf("no newest file: %d records, missing %v", n, missing)
	}
	for _, f := range files {
		os.Remove(f.Path)
	}
	if n, missing = missingFrom(t, dir, all[1].at, end); n != 0 || len(missing) != 1 || missing[0] != (MissingError{From: all[1].at, To: end}) {
		t.Errorf("no file: %d records, missing %v", n, missing)
	}
}

// TestADamagedFrameHidesOnlyItsRecords damages compressed files in the middle, and their tables.
func TestADamagedFrameHidesOnlyItsRecords(t *testing.T) {
	dir := t.TempDir()
	w := open(t, Config{Dir: dir, NodeID: "n"})
	for i := range 2000 {
		w.Add(numbered(i))
	}
	flush(t, w)
	end := w.Synced()
	closed(t, w)
	files, _ := logDir(dir).Files()
	f := files[0]
	if err := linelog.Compress(f, nil); err != nil {
		t.Fatal(err)
	}
	later := logDir(dir).At(f.Begun.Add(time.Hour))
	os.WriteFile(later.Path, []byte("{}\n"), 0o600)
	path := f.Path + ".zst"
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	ends := frameEnds(t, path)
	damaged := slices.Clone(content)
	for i := ends[0].compressed; i < ends[1].compressed; i++ {
		damaged[i] ^= 0x55
	}
	os.WriteFile(path, damaged, 0o600)
	lines := int(end.Offset / 2000)
	n, missing := missingFrom(t, dir, Position{}, Position{})
	if len(missing) != 1 || missing[0].To != (Position{File: f.ID(), Offset: ends[1].plain}) || n < 2001-linelog.BlockSize/lines-5 || n >= 2001 {
		t.Errorf("a damaged frame: %d records, missing %v", n, missing)
	}
	for _, q := range []Query{{}, {Last: 5000}, {Since: time.Now().Add(-time.Hour)}} {
		read := 0
		err := Read(t.Context(), dir, q, func([]byte) error { read++; return nil }, nil)
		if damaged := (*DamagedError)(nil); !errors.As(err, &damaged) || len(damaged.Parts) != 2 || !strings.Contains(err.Error(), path) {
			t.Errorf("%+v: the error is %v", q, err)
		}
		if read < n-1 || read > n { // "{}" is no record: the second part
			t.Errorf("%+v: %d records were read of a damaged file, want %d", q, read, n)
		}
	}
	os.WriteFile(path, content[:len(content)/2], 0o600)
	n, missing = missingFrom(t, dir, Position{}, Position{})
	if len(missing) != 1 || missing[0].To.File != later.ID() || n < 2 || n >= 2001 {
		t.Errorf("half a file: %d records, missing %v", n, missing)
	}
}

// TestTheRestOfARecord is what is left of one after damage, also where it begins with an object.
func TestTheRestOfARecord(t *testing.T) {
	dir := t.TempDir()
	w := open(t, Config{Dir: dir, NodeID: "n"})
	w.Add(numbered(1))
	flush(t, w)
	closed(t, w)
	if _, err := ReadFrom(t.Context(), dir, Position{}, Position{}, func(at, next Position, line []byte) error {
		if restOf(line, at) {
			t.Error("a whole record is a rest")
		}
		for i := 1; i < 500; i++ {
			if !restOf(line[i:], Position{File: at.File, Offset: at.Offset + int64(i)}) {
				t.Errorf("%.20q is no rest", line[i:])
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
