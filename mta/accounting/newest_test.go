package accounting

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/linelog"
)

// pages reads all pages of a query.
func pages(t testing.TB, dir string, q Query, limit int) (got []string, looked int64) {
	t.Helper()
	for after := ""; ; {
		p, err := Newest(t.Context(), dir, q, after, limit)
		if err != nil || p.Damage != nil {
			t.Fatal(err, p.Damage)
		}
		if len(p.Records) > limit || p.Complete != (p.Next == "") || len(p.Next) > 200 {
			t.Fatalf("%d records, complete %v, next %q", len(p.Records), p.Complete, p.Next)
		}
		looked += p.Looked
		for _, r := range p.Records {
			got = append(got, string(r))
		}
		if after = p.Next; after == "" {
			return got, looked
		}
	}
}

// TestNewest: pages of any size, of any query, in any form of the files, have what a read of all has.
func TestNewest(t *testing.T) {
	dir := t.TempDir()
	w := open(t, Config{Dir: dir, NodeID: "n", Limits: Limits{RotateSize: 300_000}})
	fill(t, w, 1200)
	closed(t, w)
	files, _ := logDir(dir).Files()
	check := func(what string) {
		t.Helper()
		for _, q := range []Query{
			{}, {Types: []Type{TransientFailure}}, {Types: []Type{Rejection, Reception}}, {Types: []Type{Bounce}}, {Recipient: "@nowhere.example"},
			{ID: (envelope.FirstID(accepted) + 600).String()}, {ID: (envelope.FirstID(accepted) + 7).String()}, {ID: "0000000000000"},
			{Since: accepted}, {Since: accepted.Add(48 * time.Hour)}, {Until: accepted}, {Until: accepted.Add(48 * time.Hour)},
		} {
			var want []string
			if err := Read(t.Context(), dir, q, func(line []byte) error { want = append(want, string(line)); return nil }, nil); err != nil {
				t.Fatal(err)
			}
			for _, limit := range []int{7, 1000} {
				if got := forward(t, dir, q, limit); q.Until.IsZero() && !slices.Equal(got, want) { // files are younger than their records
					t.Errorf("%s: %+v forward in pages of %d: %d records, want %d", what, q, limit, len(got), len(want))
				}
			}
			slices.Reverse(want)
			for _, limit := range []int{7, 1000} {
				if limit == 7 && len(want) > 2000 {
					continue
				}
				if got, _ := pages(t, dir, q, limit); !slices.Equal(got, want) {
					t.Errorf("%s: %+v in pages of %d: %d records, want %d", what, q, limit, len(got), len(want))
				}
			}
			for _, last := range []int{1, 50} {
				q.Last = last
				var got []string
				if err := Read(t.Context(), dir, q, func(line []byte) error { got = append(got, string(line)); return nil }, nil); err != nil {
					t.Fatal(err)
				}
				if slices.Reverse(got); !slices.Equal(got, want[:min(last, len(want))]) {
					t.Errorf("%s: the last %d of %+v: %d records", what, last, q, len(got))
				}
			}
		}
	}
	if len(files) < 4 {
		t.Fatalf("%d files", len(files))
	}
	check("plain")
	for _, f := range files[:2] {
		if err := newIndexer(f).finish(); err != nil {
			t.Fatal(err)
		}
		if err := linelog.Compress(f, nil); err != nil {
			t.Fatal(err)
		}
	}
	check("compressed")
	if zstd, err := exec.LookPath("zstd"); err == nil {
		if out, err := exec.Command(zstd, "-q", "--rm", files[2].Path).CombinedOutput(); err != nil {
			t.Fatalf("%s %v", out, err)
		}
		check("compressed by zstd")
	}
	if _, err := Newest(t.Context(), dir, Query{}, "20260301T120000-4711", 5); !errors.Is(err, ErrCursor) {
		t.Errorf("a forged cursor: %v", err)
	}
	if p, err := Newest(t.Context(), dir, Query{}, Position{File: 1, Offset: 5}.String(), 5); err != nil || !p.Complete || len(p.Records) != 0 {
		t.Errorf("a cursor before all: %+v, %v", p, err)
	}
	if p, err := Newest(t.Context(), dir+"/none", Query{}, "", 5); err != nil || !p.Complete {
		t.Errorf("no log: %+v, %v", p, err)
	}
}

// TestNewestLooksAtLittle: the newest records, and those before a time, cost the same whatever the size of the log; a
// query that fits nothing ends.
// forward gives all records that q means, by pages of those that follow.
func forward(t *testing.T, dir string, q Query, limit int) (all []string) {
	t.Helper()
	for after, more := (Position{}).String(), true; more; {
		p, err := newReader(t.Context(), dir, q, blocksOf).following(after, limit)
		if err != nil || len(p.Records) > limit || p.Next <= after && len(p.Records) > 0 {
			t.Fatalf("%+v, %v", p, err)
		}
		for _, record := range p.Records {
			all = append(all, string(record))
		}
		after, more = p.Next, !p.Complete
	}
	return all
}

// TestPagesThatFollow: from the end of the log on it gives what comes, each record once, also in further files.
func TestPagesThatFollow(t *testing.T) {
	dir := t.TempDir()
	w := open(t, Config{Dir: dir, NodeID: "n", Limits: Limits{RotateSize: 30_000}})
	next := func(after string, most int) Page {
		t.Helper()
		if err := w.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		p, err := w.Following(t.Context(), Query{}, after, most)
		if err != nil || p.Next == "" || p.Damage != nil {
			t.Fatalf("%+v, %v", p, err)
		}
		return p
	}
	empty := next("", 10)
	fill(t, w, 30)
	before := 0
	for after, more := empty.Next, true; more; {
		p := next(after, 7)
		after, more = p.Next, !p.Complete
		before += len(p.Records)
	}
	end := next("", 10)
	if len(end.Records) != 0 || !end.Complete || before == 0 {
		t.Errorf("%d records, then %+v", before, end)
	}
	if p := next(end.Next, 10); len(p.Records) != 0 || p.Next != end.Next {
		t.Errorf("nothing has come, and it gives %+v", p)
	}
	fill(t, w, 300)
	var got []string
	for after, more := end.Next, true; more; {
		p := next(after, 50)
		for _, record := range p.Records {
			got = append(got, string(record))
		}
		after, more = p.Next, !p.Complete
	}
	closed(t, w)
	all := forward(t, dir, Query{}, 1000)
	if files, _ := logDir(dir).Files(); len(files) < 3 || !slices.Equal(got, all[before:]) {
		t.Errorf("%d records in %d files, want %d", len(got), len(files), len(all)-before)
	}
	for _, after := range []string{"x", "20260301T120000-1"} {
		if _, err := w.Following(t.Context(), Query{}, after, 1); !errors.Is(err, ErrCursor) {
			t.Errorf("%s: %v", after, err)
		}
	}
}

func TestNewestLooksAtLittle(t *testing.T) {
	dir := t.TempDir()
	var text []byte
	r := delivery()
	for i := range 60_000 {
		r.Time, r.ID = accepted.Add(time.Duration(i)*time.Minute), envelope.FirstID(accepted)+envelope.ID(i)
		text = logged(text, &r)
	}
	f := logDir(dir).At(accepted)
	if err := os.WriteFile(f.Path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	middle := accepted.Add(30_000 * time.Minute)
	for _, form := range []string{"plain", "compressed"} {
		p, err := Newest(t.Context(), dir, Query{}, "", 50)
		if err != nil || len(p.Records) != 50 || p.Looked > 100_000 {
			t.Errorf("%s: the newest: %d records, %d octets looked at, %v", form, len(p.Records), p.Looked, err)
		}
		p, err = Newest(t.Context(), dir, Query{Until: middle}, "", 50)
		if err != nil || len(p.Records) != 50 || p.Looked > 300_000 {
			t.Errorf("%s: before a time: %d records, %d octets of %d looked at, %v", form, len(p.Records), p.Looked, len(text), err)
		}
		got, looked := pages(t, dir, Query{Since: middle, Until: middle.Add(time.Hour)}, 50)
		if len(got) != 60 || looked > 500_000 {
			t.Errorf("%s: an hour: %d records, %d octets looked at", form, len(got), looked)
		}
		p, err = Newest(t.Context(), dir, Query{Recipient: "nobody@nowhere.example"}, "", 50)
		if err != nil || p.Complete || p.Looked < pageOctets || p.Looked > pageOctets+2000 {
			t.Errorf("%s: nothing: %+v, %v", form, p, err)
		}
		if err := linelog.Compress(f, nil); form == "plain" && err != nil {
			t.Fatal(err)
		}
	}
}

// TestADamagedTimeHidesNothing: a record whose time is damaged ends no search by time.
func TestADamagedTimeHidesNothing(t *testing.T) {
	dir := t.TempDir()
	var content []byte
	var borders []int // the offsets of records at the borders of blocks
	for i := range 500 {
		r := delivery()
		r.Time, r.Attempts = accepted.Add(time.Duration(i)*time.Hour), i
		at := len(content)
		content = logged(content, &r)
		if at/linelog.BlockSize != (len(content)+1200)/linelog.BlockSize || max(0, at-1200)/linelog.BlockSize != at/linelog.BlockSize {
			borders = append(borders, at)
		}
	}
	if len(borders) < 10 {
		t.Fatal(borders)
	}
	path := logDir(dir).At(accepted).Path
	for _, at := range borders {
		for _, test := range []struct {
			year string
			q    Query
		}{
			{"2006", Query{Since: accepted.Add(-2 * clockSlack)}}, {"2096", Query{Until: accepted.Add(499*time.Hour + time.Minute)}},
			{"2096", Query{Until: accepted.Add(250 * time.Hour)}}, {"2006", Query{Since: accepted.Add(250 * time.Hour)}},
		} {
			rotten := bytes.Clone(content)
			copy(rotten[at+bytes.Index(rotten[at:], []byte(`"event_time":"`))+len(`"event_time":"`):], test.year)
			os.WriteFile(path, rotten, 0o600)
			page, err := Newest(t.Context(), dir, test.q, "", 1000)
			if err != nil {
				t.Fatal(err)
			}
			want := 500
			if test.q.Until.Equal(accepted.Add(250*time.Hour)) || test.q.Since.Equal(accepted.Add(250*time.Hour)) {
				want = 250
			}
			if n := len(page.Records); n < want-1 || page.Damage == nil && n != want {
				t.Fatalf("%s in the record at %d: %d records are found, want %d at least", test.year, at, n, want-1)
			}
		}
	}
}

// TestNewestPassesOverDamage: a damaged block hides its own records, and the page reports it.
func TestNewestPassesOverDamage(t *testing.T) {
	dir := t.TempDir()
	w := open(t, Config{Dir: dir, NodeID: "n"})
	fill(t, w, 600)
	closed(t, w)
	all, _ := pages(t, dir, Query{}, 10_000)
	files, _ := logDir(dir).Files()
	if err := linelog.Compress(files[0], nil); err != nil {
		t.Fatal(err)
	}
	path := files[0].Path + ".zst"
	z := frameEnds(t, path)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := z[0].compressed + 20; i < z[1].compressed; i++ { // the second of the blocks
		text[i] ^= 0xff
	}
	os.WriteFile(path, text, 0o600)
	p, err := Newest(t.Context(), dir, Query{}, "", 10_000)
	if err != nil || p.Damage == nil || !p.Complete {
		t.Fatalf("complete %v, damage %v, %v", p.Complete, p.Damage, err)
	}
	var octets int
	got := make(map[string]bool)
	for _, r := range p.Records {
		got[string(r)] = true
	}
	for _, r := range all {
		if !got[r] {
			octets += len(r) + 1
		}
	}
	if len(got) == len(all) || octets > 2*linelog.BlockSize {
		t.Errorf("%d octets of %d records are missing", octets, len(all)-len(got))
	}
}

// frameEnd is where a frame of a compressed file ends, in both forms.
type frameEnd struct{ compressed, plain int64 }

// frameEnds reads the table at the end of a compressed file.
func frameEnds(t *testing.T, path string) (ends []frameEnd) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const footer, entry = 9, 8
	count := int(binary.LittleEndian.Uint32(text[len(text)-footer:]))
	var end frameEnd
	for e := text[len(text)-footer-count*entry : len(text)-footer]; len(e) > 0; e = e[entry:] {
		end.compressed += int64(binary.LittleEndian.Uint32(e))
		end.plain += int64(binary.LittleEndian.Uint32(e[4:]))
		ends = append(ends, end)
	}
	if len(ends) < 3 {
		t.Fatalf("%d blocks", len(ends))
	}
	return ends
}

// FuzzNewest: whatever is in a file, pages have the records of a read, in the other order.
func FuzzNewest(f *testing.F) {
	good := delivery()
	line := appendRecord(nil, &good, `"n"`)
	f.Add(line, "@gmail.com", "", 1)
	f.Add(append(bytes.Clone(line), line[:100]...), "joe@GMAIL.com", "20260301T120000-000000004711", 3)
	f.Add([]byte("{}\n\n\x00\xff{\"type\":\"Bounce\",\"recipient\":\"\\u006aoe@b\\u00fccher.example\"}\nnull\n"), "", "x", 2)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content []byte, recipient, after string, limit int) {
		if err := os.WriteFile(logDir(dir).At(accepted).Path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		q := Query{Recipient: recipient}
		if _, err := Newest(t.Context(), dir, q, after, 5); err != nil && !errors.Is(err, ErrCursor) {
			t.Fatal(err)
		}
		var got []string
		for after := ""; ; {
			p, err := Newest(t.Context(), dir, q, after, 1+max(0, limit%100))
			if err != nil {
				t.Fatal(err)
			}
			for _, record := range p.Records {
				got = append(got, string(record))
			}
			if after = p.Next; after == "" {
				break
			}
		}
		want := plainly(content, q)
		slices.Reverse(want)
		if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			t.Fatalf("got  %q\nwant %q", got, want)
		}
	})
}

// BenchmarkNewest reads the newest 50 records, those before a time, and a page that fits nothing, of 325 MiB.
func BenchmarkNewest(b *testing.B) {
	dir := b.TempDir()
	var text []byte
	r := delivery()
	for i := 0; len(text) < 325<<20; i++ {
		r.Time, r.ID = accepted.Add(time.Duration(i)*time.Second), envelope.FirstID(accepted)+envelope.ID(i)
		text = logged(text, &r)
	}
	if err := os.WriteFile(logDir(dir).At(accepted).Path, text, 0o600); err != nil {
		b.Fatal(err)
	}
	for name, q := range map[string]Query{
		"newest": {}, "before": {Until: accepted.Add(100_000 * time.Second)}, "nothing": {Recipient: "nobody@nowhere.example"}, "no-type": {Types: []Type{Bounce}},
	} {
		for _, form := range []string{"plain", "compressed"} {
			b.Run(strings.Join([]string{form, name}, "/"), func(b *testing.B) {
				if form == "compressed" {
					if files, _ := logDir(dir).Files(); !files[0].Compressed {
						if err := linelog.Compress(files[0], nil); err != nil {
							b.Fatal(err)
						}
					}
				} else {
					os.WriteFile(logDir(dir).At(accepted).Path, text, 0o600)
				}
				b.ResetTimer()
				for b.Loop() {
					if _, err := Newest(b.Context(), dir, q, "", 50); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
