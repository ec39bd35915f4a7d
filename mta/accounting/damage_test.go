package accounting

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/linelog"
)

// lineDamages are what can happen to the lines of a file, of which the n-th is meant.
var lineDamages = map[string]func(lines [][]byte, n int) [][]byte{
	"half a line deleted":    func(l [][]byte, n int) [][]byte { l[n] = l[n][:len(l[n])/2]; return l },
	"the last octets gone":   func(l [][]byte, n int) [][]byte { l[n] = l[n][:len(l[n])-3]; return l },
	"the first octets gone":  func(l [][]byte, n int) [][]byte { l[n] = l[n][3:]; return l },
	"a line gone":            func(l [][]byte, n int) [][]byte { return slices.Delete(l, n, n+1) },
	"two lines gone":         func(l [][]byte, n int) [][]byte { return slices.Delete(l, n, min(n+2, len(l)-1)) },
	"LF turned into CRLF":    func(l [][]byte, n int) [][]byte { l[n] = append(l[n], '\r'); return l },
	"an octet after the end": func(l [][]byte, n int) [][]byte { l[n] = append(l[n], 'x'); return l },
	"an octet in the middle": func(l [][]byte, n int) [][]byte { l[n] = slices.Insert(l[n], 500, '7'); return l },
	"an empty line":          func(l [][]byte, n int) [][]byte { return slices.Insert(l, n, []byte{}) },
	"a line twice":           func(l [][]byte, n int) [][]byte { return slices.Insert(l, n, l[n]) },
	"two lines in wrong order": func(l [][]byte, n int) [][]byte {
		other := min(n+1, len(l)-2) - n/(len(l)-2)
		l[n], l[other] = l[other], l[n]
		return l
	},
	"a line end gone": func(l [][]byte, n int) [][]byte {
		if n+1 == len(l)-1 {
			return l[:len(l)-1]
		}
		return slices.Replace(l, n, n+2, slices.Concat(l[n], l[n+1]))
	},
}

// TestDamageOfLines: whatever happens to a line or its end, each reader gives the records that are left, none that was
// not written, and reports that some are missing; the look-up by an index of before, too, in another file after a start,
// and a stream wherever it begins again.
func TestDamageOfLines(t *testing.T) {
	for name, damage := range lineDamages {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{0, 100, 199} { // of 200, in four blocks of a finished file
				dir, written := t.TempDir(), make(map[string]bool)
				f := twoFiles(t, dir, func(line string) { written[line] = true })
				whole, err := os.ReadFile(f.Path)
				if err != nil {
					t.Fatal(err)
				}
				after := bytes.Join(damage(bytes.Split(bytes.Clone(whole), []byte("\n")), n), []byte("\n"))
				if err := os.WriteFile(f.Path, after, 0o600); err != nil {
					t.Fatal(err)
				}
				left := make(map[string]bool) // the records that are left
				second, _ := os.ReadFile(logDir(dir).At(accepted.Add(time.Hour)).Path)
				for _, text := range [][]byte{after, second} {
					for line := range strings.Lines(string(text)) {
						if line, ended := strings.CutSuffix(line, "\n"); ended && written[line] {
							left[line] = true
						}
					}
				}
				readDamaged(t, dir, fmt.Sprintf("line %d", n), written, left)
				if t.Failed() {
					return
				}
			}
		})
	}
}

// twoFiles writes a log of 200 records in a file and one in another, with their indexes, and returns the first.
func twoFiles(t *testing.T, dir string, each func(line string)) linelog.File {
	t.Helper()
	first, second := logDir(dir).At(accepted), logDir(dir).At(accepted.Add(time.Hour))
	text := make(map[linelog.File][]byte)
	for i := range 201 {
		f := first
		if i == 200 {
			f = second
		}
		r := delivery()
		r.ID, r.Time = envelope.FirstID(accepted)+envelope.ID(i%67), accepted.Add(time.Duration(i)*time.Second)
		line := appendRecord(nil, &r, `"n"`)
		linelog.Stamp(Position{File: f.ID(), Offset: int64(len(text[f]))}, line)
		each(strings.TrimSuffix(string(line), "\n"))
		text[f] = append(text[f], line...)
	}
	for _, f := range []linelog.File{first, second} {
		if err := os.WriteFile(f.Path, text[f], 0o600); err != nil {
			t.Fatal(err)
		}
		if err := newIndexer(f).finish(); err != nil {
			t.Fatal(err)
		}
	}
	return first
}

// readDamaged reads a damaged log in each way.
func readDamaged(t *testing.T, dir, what string, written, left map[string]bool) {
	t.Helper()
	seen := make(map[string]bool)
	see := func(line []byte) error {
		if !written[string(line)] {
			t.Errorf("%s: read %s", what, line)
		}
		seen[string(line)] = true
		return nil
	}
	complete := func(how string, err error) {
		t.Helper()
		if len(seen) != len(left) {
			t.Errorf("%s: %s: %d records of %d that are left", what, how, len(seen), len(left))
		}
		if !errors.As(err, new(*DamagedError)) {
			t.Errorf("%s: %s: %v", what, how, err)
		}
		clear(seen)
	}
	complete("read", Read(t.Context(), dir, Query{}, see, nil))
	var damage error
	for i := range 67 {
		id := (envelope.FirstID(accepted) + envelope.ID(i)).String()
		if err := Read(t.Context(), dir, Query{ID: id}, see, nil); err != nil {
			damage = err
		}
	}
	complete("look-ups", damage)
	p, err := Newest(t.Context(), dir, Query{}, "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range p.Records {
		see(line)
	}
	complete("newest", p.Damage)
	complete("last", Read(t.Context(), dir, Query{Last: 1000}, see, nil))
	if c, err := Count(t.Context(), dir, Query{}, "type", 5); err != nil || c.Damage == nil || c.Records < int64(len(left)) {
		t.Errorf("%s: count: %+v, %v", what, c, err)
	}
	from, gaps := Position{File: accepted.Unix() - 1}, 0 // behind all of a file that is gone
	first := true
	for range 100 {
		_, err := ReadFrom(t.Context(), dir, from, Position{}, func(_, _ Position, line []byte) error { return see(line) })
		missing := (*MissingError)(nil)
		if !errors.As(err, &missing) {
			break
		}
		if missing.To.Compare(missing.From) <= 0 {
			t.Errorf("%s: a gap from %v to %v", what, missing.From, missing.To)
		}
		again := (*MissingError)(nil)
		_, err = ReadFrom(t.Context(), dir, missing.From, Position{}, func(_, _ Position, line []byte) error {
			return fmt.Errorf("%s: from %v on: read %s, not the gap again", what, missing.From, line)
		})
		if !errors.As(err, &again) || again.To != missing.To {
			t.Error(err)
		}
		if from = missing.To; !first {
			gaps++
		}
		first = false
	}
	if len(seen) != len(left) || gaps == 0 {
		t.Errorf("%s: stream: %d records of %d that are left, %d gaps", what, len(seen), len(left), gaps)
	}
}

// TestCutOffByEarlierPrograms: those ended a line that a crash had cut off and went on behind it. That is no damage.
func TestCutOffByEarlierPrograms(t *testing.T) {
	r := delivery()
	for _, cut := range []int{1, 2, 300, 900, len(logged(nil, &r)) - 40} {
		dir := t.TempDir()
		var text []byte
		for range 5 {
			text = logged(text, &r)
		}
		text = append(logged(text, &r)[:len(text)+cut], '\n')
		for range 5 {
			text = logged(text, &r)
		}
		if err := os.WriteFile(logDir(dir).At(accepted).Path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, q := range []Query{{}, {Last: 100}, {ID: delivery().ID.String()}} {
			n := 0
			if err := Read(t.Context(), dir, q, func([]byte) error { n++; return nil }, nil); err != nil || n != 10 {
				t.Errorf("cut at %d, %+v: %d records, %v", cut, q, n, err)
			}
		}
		n := 0
		_, err := ReadFrom(t.Context(), dir, Position{}, Position{}, func(_, _ Position, _ []byte) error { n++; return nil })
		if err != nil || n != 10 {
			t.Errorf("cut at %d: %d records in a stream, %v", cut, n, err)
		}
	}
}

// TestALostEnd: a log that ended cleanly and is shorter at the next start is reported, by readers too, and no event_id is
// given twice.
func TestALostEnd(t *testing.T) {
	dir := t.TempDir()
	w := open(t, Config{Dir: dir, NodeID: "n"})
	for i := range 3 {
		w.Add(numbered(i))
	}
	flush(t, w)
	closed(t, w)
	files, _ := logDir(dir).Files()
	text, _ := os.ReadFile(files[0].Path)
	third := bytes.LastIndexByte(text[:len(text)-1], '\n') + 1
	os.Truncate(files[0].Path, int64(third))
	var log bytes.Buffer
	w = open(t, Config{Dir: dir, NodeID: "n", Log: slog.New(slog.NewTextHandler(&log, nil))})
	w.Add(numbered(3))
	flush(t, w)
	place := fmt.Sprintf("octet %d of %s", third, files[0].Path)
	if s := w.Stats(); s.Damaged != 1 || s.LastDamage != place || !strings.Contains(log.String(), place) {
		t.Errorf("%+v\n%s", s, &log)
	}
	if w.Synced().File == files[0].ID() {
		t.Error("the same file goes on")
	}
	closed(t, w)
	n := 0
	err := Read(t.Context(), dir, Query{}, func([]byte) error { n++; return nil }, nil)
	if !errors.As(err, new(*DamagedError)) || !strings.Contains(err.Error(), place) || n != 3 {
		t.Errorf("%d records, %v", n, err)
	}
}

// TestJudgingLinesAllocatesNothing: the log is read as quickly as its disk gives it.
func TestJudgingLinesAllocatesNothing(t *testing.T) {
	r := delivery()
	line := bytes.TrimSuffix(logged(nil, &r), []byte("\n"))
	var chain linelog.Chain
	if n := testing.AllocsPerRun(100, func() {
		if ok, _, damaged := chain.Line(line, Position{File: accepted.Unix()}); !ok || damaged {
			t.Fatal(ok, damaged)
		}
		if linelog.Moved(line, Position{File: accepted.Unix()}) {
			t.Fatal("moved")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
