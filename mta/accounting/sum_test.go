package accounting

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/linelog"
)

// TestAnyBitOfARecord: whichever bit of a file changes, no reader gives a record that was not written, and each says that
// one is missing; the look-up of a message, too, whose index was made from the damaged file.
func TestAnyBitOfARecord(t *testing.T) {
	begun := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var whole []byte
	for _, class := range []string{"Greylisted", "J*"} { // a line end is one bit from J and *
		r := delivery()
		r.Class, r.Meta = class, `{"sum":"01234567","event_id":"x"}`
		line := appendRecord(nil, &r, `"node1"`)
		linelog.Stamp(Position{File: begun.Unix(), Offset: int64(len(whole))}, line)
		whole = append(whole, line...)
	}
	written := bytes.Split(bytes.TrimSuffix(whole, []byte("\n")), []byte("\n"))
	known := func(line []byte) bool {
		return slices.ContainsFunc(written, func(w []byte) bool { return bytes.Equal(w, line) })
	}
	dir := t.TempDir()
	path := logDir(dir).At(begun).Path
	id := delivery().ID.String()
	for at := range len(whole) - 1 { // a last line without its end is one that a crash has cut off
		if near := bytes.IndexByte(whole[at:], '\n') < 150 || bytes.Contains(whole[max(0, at-2):at+2], []byte("J*")); !near && at%17 != 0 {
			continue
		}
		for bit := range 8 {
			b := bytes.Clone(whole)
			b[at] ^= 1 << bit
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			os.Remove(filepath.Join(dir, "mta-20260301T120000.idx"))
			for _, q := range []Query{{}, {ID: id}} {
				err := Read(t.Context(), dir, q, func(line []byte) error {
					if !known(line) {
						t.Errorf("bit %d of octet %d: read %s", bit, at, line)
					}
					return nil
				}, nil)
				if damage := (*DamagedError)(nil); !errors.As(err, &damage) {
					t.Errorf("bit %d of octet %d: %+v: %v", bit, at, q, err)
				}
				if err := newIndexer(logDir(dir).At(begun)).finish(); err != nil {
					t.Fatal(err)
				}
			}
			_, err := ReadFrom(t.Context(), dir, Position{File: begun.Unix()}, Position{}, func(_, _ Position, line []byte) error {
				if !known(line) {
					t.Errorf("bit %d of octet %d: streamed %s", bit, at, line)
				}
				return nil
			})
			if missing := (*MissingError)(nil); !errors.As(err, &missing) {
				t.Errorf("bit %d of octet %d: the stream: %v\n%s", bit, at, err, b)
			}
			if t.Failed() {
				return
			}
		}
	}
}

// TestDamageIsCountedOnce: whichever reader of the relay finds it, and however often. The error and the log name the
// file and the octet.
func TestDamageIsCountedOnce(t *testing.T) {
	dir := t.TempDir()
	w := open(t, Config{Dir: dir, NodeID: "n"})
	for i := range 3 {
		w.Add(numbered(i))
	}
	flush(t, w)
	closed(t, w)
	files, _ := logDir(dir).Files()
	text, err := os.ReadFile(files[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	second := bytes.IndexByte(text, '\n') + 1
	text[second+200] ^= 4
	os.WriteFile(files[0].Path, text, 0o600)
	var log bytes.Buffer
	w = open(t, Config{Dir: dir, NodeID: "n", Log: slog.New(slog.NewTextHandler(&log, nil))})
	defer w.Close()
	place := fmt.Sprintf("octet %d of %s", second, files[0].Path)
	none := func([]byte) error { return nil }
	for range 2 {
		if err := w.Read(t.Context(), Query{}, none, nil); err == nil || !strings.Contains(err.Error(), place) {
			t.Error(err)
		}
		if c, err := w.Count(t.Context(), Query{}, "type", 5); err != nil || c.Damage == nil || c.Records != 2 {
			t.Errorf("%+v, %v", c, err)
		}
		if p, err := w.Newest(t.Context(), Query{}, "", 5); err != nil || p.Damage == nil || len(p.Records) != 2 {
			t.Errorf("%+v, %v", p, err)
		}
		_, err := w.ReadFrom(t.Context(), Position{}, Position{}, func(_, _ Position, _ []byte) error { return nil })
		if !errors.As(err, new(*MissingError)) {
			t.Error(err)
		}
	}
	if s := w.Stats(); s.Damaged != 1 || s.LastDamage != place || strings.Count(log.String(), "DAMAGE") != 1 || !strings.Contains(log.String(), place) {
		t.Errorf("%+v\n%s", s, &log)
	}
}

// TestRecordsWithoutASum: those of earlier programs are sound, whatever their senders have put into them.
func TestRecordsWithoutASum(t *testing.T) {
	for _, line := range []string{
		`{"type":"Delivery","id":"","nodeid":"n","event_id":"n-20260301T120000-000000004711"}`,
		`{"type":"Delivery","meta":{"sum":"01234567","event_id":"x"},"nodeid":"n","event_id":"n-20260301T120000-000000004711"}`,
		`{"type":"Delivery","meta":{"sum":"01234567"}}`, `{"type":"Delivery"}`,
	} {
		if !linelog.Sound([]byte(line)) {
			t.Error(line)
		}
	}
}
