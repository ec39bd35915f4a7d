package accounting

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/linelog"
)

// history is a log of three files, a record an hour, ten a file.
func history(t *testing.T, change func(i int, r *Record)) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for i := range 30 {
		r := delivery()
		r.Time = accepted.Add(time.Duration(i) * time.Hour)
		r.ID = envelope.FirstID(r.Time) + envelope.ID(i)
		r.Attempts = i
		if change != nil {
			change(i, &r)
		}
		f := logDir(dir).At(accepted.Add(time.Duration(i/10) * 10 * time.Hour))
		size, _ := f.Size()
		line := appendRecord(nil, &r, `"n"`)
		linelog.Stamp(Position{File: f.ID(), Offset: size}, line)
		appendTo(t, f.Path, line)
	}
	return dir
}

func appendTo(t *testing.T, path string, content []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
}

// places gives the records that q finds by their place in the history.
func places(t *testing.T, dir string, q Query) (got []int) {
	t.Helper()
	err := Read(t.Context(), dir, q, func(line []byte) error {
		r, err := Parse(line)
		if err == nil {
			got = append(got, r.Attempts)
		}
		return err
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestQueries(t *testing.T) {
	dir := history(t, func(i int, r *Record) {
		switch i {
		case 3:
			r.Type, r.Sender, r.Site, r.Tenant = Bounce, "", "mx.Example.NET", "other"
			r.Provider, r.EgressSource, r.Campaign = "yahoo", "out7", "spring"
		case 17:
			r.Type, r.Recipient, r.Response.Text = Expiration, "Jürgen@Bücher.example", "two\nlines"
		case 18:
			r.Recipient = `"odd \"one\""@example.net`
		case 25:
			r.Recipient = "JOE@Example.Net"
		}
	})
	hour := func(i int) time.Time { return accepted.Add(time.Duration(i) * time.Hour) }
	all := make([]int, 30)
	for i := range all {
		all[i] = i
	}
	for _, c := range []struct {
		name string
		q    Query
		want []int
	}{
		{"all", Query{}, all},
		{"type", Query{Types: []Type{Bounce, Expiration}}, []int{3, 17}},
		{"id", Query{ID: (envelope.FirstID(hour(12)) + 12).String()}, []int{12}},
		{"id in capitals", Query{ID: strings.ToUpper((envelope.FirstID(hour(12)) + 12).String())}, []int{12}},
		{"no such id", Query{ID: "xyz"}, nil},
		{"null sender", Query{Sender: "<>"}, []int{3}},
		{"sender's domain", Query{Sender: "@ACME.example", Until: hour(5)}, []int{0, 1, 2, 4}},
		{"recipient", Query{Recipient: "joe@example.net"}, []int{25}},
		{"quoted recipient", Query{Recipient: `"odd \"one\""@EXAMPLE.net`}, []int{18}},
		{"recipient in UTF-8", Query{Recipient: "jürgen@bücher.example"}, []int{17}},
		{"recipient's domain", Query{Recipient: "@example.net"}, []int{18, 25}},
		{"domain", Query{Domain: "Example.net"}, []int{18, 25}},
		{"domain in A-labels", Query{Domain: "xn--bcher-kva.example"}, []int{17}},
		{"domain in U-labels", Query{Domain: "bücher.example"}, []int{17}},
		{"site", Query{Site: "MX.example.net"}, []int{3}},
		{"tenant", Query{Tenant: "other"}, []int{3}},
		{"provider", Query{Provider: "yahoo"}, []int{3}},
		{"source", Query{Source: "out7"}, []int{3}},
		{"campaign", Query{Campaign: "spring"}, []int{3}},
		{"since", Query{Since: hour(27)}, []int{27, 28, 29}},
		{"until", Query{Until: hour(2)}, []int{0, 1}},
		{"a time across files", Query{Since: hour(9), Until: hour(12)}, []int{9, 10, 11}},
		{"last", Query{Last: 3}, []int{27, 28, 29}},
		{"last, across files", Query{Last: 12}, all[18:]},
		{"last, more than there are", Query{Last: 100}, all},
		{"last of a type", Query{Types: []Type{Bounce, Expiration}, Last: 1}, []int{17}},
		{"last until", Query{Last: 2, Until: hour(15)}, []int{13, 14}},
		{"two conditions", Query{Domain: "example.net", Since: hour(20)}, []int{25}},
	} {
		if got := places(t, dir, c.q); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestReadingNothing(t *testing.T) {
	if got := places(t, filepath.Join(t.TempDir(), "none"), Query{Last: 5}); got != nil {
		t.Errorf("got %v from no log", got)
	}
}

func TestWhatIsNoRecordIsPassedOver(t *testing.T) {
	dir := history(t, nil)
	first := logDir(dir).At(accepted).Path
	info, err := os.Stat(first)
	if err != nil {
		t.Fatal(err)
	}
	appendTo(t, first, []byte("\n\nnot JSON\n{\"type\":\n{}\n[1]\nnull\n{\"type\":5}\n{\"type\":\"Delivery\",\"event_time\":\"yesterday\"}\n"))
	appendTo(t, first, append(bytes.Repeat([]byte("x"), 3*longestLine), '\n'))
	r := delivery()
	r.Attempts = 100
	line := appendRecord(nil, &r, `"n"`)
	size, _ := logDir(dir).At(accepted).Size()
	linelog.Stamp(Position{File: accepted.Unix(), Offset: size}, line)
	appendTo(t, first, line)
	appendTo(t, first, line[:len(line)-1]) // a crash, and then another file was begun
	var got []int
	err = Read(t.Context(), dir, Query{}, func(line []byte) error {
		r, err := Parse(line)
		got = append(got, r.Attempts)
		return err
	}, nil)
	if len(got) != 31 || got[10] != 100 || got[11] != 10 {
		t.Errorf("got %v", got)
	}
	if err == nil || !strings.HasSuffix(err.Error(), fmt.Sprintf("damaged lines: 9, the first at octet %d of %s", info.Size(), first)) {
		t.Errorf("the error is %v", err)
	}
}

// TestAnyBitOfALog: a changed bit hides one record, or two where it was the line end between them, and never another. A
// line that can't be read is reported.
func TestAnyBitOfALog(t *testing.T) {
	dir := history(t, nil)
	path := logDir(dir).At(accepted.Add(10 * time.Hour)).Path
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	since := accepted.Add(5 * time.Hour)
	for bit := 0; bit < 8*(len(content)-1); bit += 1499 { // without its last line end: a crash leaves it so, too
		rotten := bytes.Clone(content)
		rotten[bit/8] ^= 1 << (bit % 8)
		os.WriteFile(path, rotten, 0o600)
		of := bytes.Count(content[:bit/8], []byte("\n")) + 10 // the record
		next := of
		if content[bit/8] == '\n' {
			next++
		}
		for i, q := range []Query{{}, {Since: since}, {Until: accepted.Add(40 * time.Hour)}} {
			page, err := Newest(t.Context(), dir, q, "", 100)
			if err != nil {
				t.Fatal(err)
			}
			there := make(map[int]bool)
			for _, line := range page.Records {
				if r, err := Parse(line); err == nil {
					there[r.Attempts] = true
				}
			}
			for n := range 30 {
				if !there[n] && n != of && n != next && (q.Since.IsZero() || n >= 5) {
					t.Fatalf("bit %d of octet %d, in record %d: record %d is not found by %+v", bit%8, bit/8, of, n, q)
				}
			}
			cut := bytes.IndexByte(content[bit/8:], '\n') < 3 // a line without its end is taken for one that a crash cut off
			if i == 0 && len(page.Records) < 30 && page.Damage == nil && !cut {
				t.Fatalf("bit %d of octet %d, in record %d: nothing is reported", bit%8, bit/8, of)
			}
		}
	}
}

func TestReadingEndsWithTheCaller(t *testing.T) {
	dir := history(t, nil)
	enough := errors.New("enough")
	n := 0
	err := Read(t.Context(), dir, Query{}, func([]byte) error {
		if n++; n == 12 {
			return enough
		}
		return nil
	}, nil)
	if !errors.Is(err, enough) || n != 12 {
		t.Errorf("read %d, %v", n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Read(ctx, dir, Query{}, func([]byte) error { return nil }, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("read of a caller who has gone: %v", err)
	}
}

// TestFollowing writes through rotation, a failing disk and retention while a reader follows:
// it gets each record once, in order.
func TestFollowing(t *testing.T) {
	for _, last := range []int{0, 2} {
		bubble.Test(t, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "log") // not there yet
			d := &disk{free: 1 << 30}
			one := int64(len(appendRecord(nil, numbered(0), `""`)))
			limits := Limits{RotateSize: 3*one + one/2}
			w := open(t, Config{Dir: dir, Limits: limits, Open: d.open})
			for i := range 5 {
				w.Add(numbered(i))
			}
			flush(t, w)

			var got []*Record
			flushed := 0 // how many had come when the reader began to wait
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() {
				ended <- Read(ctx, dir, Query{Last: last, Follow: true}, func(line []byte) error {
					r, err := Parse(line)
					got = append(got, r)
					return err
				}, func() { flushed = len(got) })
			}()
			first := 0
			if last > 0 {
				first = 5 - last
			}
			for i := 5; i < 40; i++ {
				switch i {
				case 20: // half a record fits
					d.set(int(one / 2))
				case 25:
					d.set(1 << 30)
				}
				w.Add(numbered(i))
				time.Sleep(time.Duration(i%4) * 150 * time.Millisecond)
				synctest.Wait()
			}
			time.Sleep(2 * retryDelay)
			synctest.Wait()
			if flushed != len(got) {
				t.Errorf("the reader waits with %d of %d records not flushed", len(got)-flushed, len(got))
			}
			for i, r := range got {
				if want := envelope.FirstID(accepted) + envelope.ID(first+i); r.ID != want {
					t.Fatalf("record %d is of message %s, want %s", i, r.ID, want)
				}
			}
			if len(got) != 40-first {
				t.Errorf("got %d records, want %d", len(got), 40-first)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("following ended with %v", err)
			}
			closed(t, w)
		})
	}
}

func TestFollowingALogThatDoesNotExistYet(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "log")
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		ended := make(chan error)
		go func() {
			ended <- Read(ctx, dir, Query{Follow: true, Types: []Type{Bounce}}, func([]byte) error { n++; return nil }, nil)
		}()
		time.Sleep(time.Minute)
		w := open(t, Config{Dir: dir})
		r := delivery()
		w.Add(&r)
		r.Type = Bounce
		w.Add(&r)
		time.Sleep(time.Second)
		synctest.Wait()
		if n != 1 {
			t.Errorf("got %d records, want 1", n)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		closed(t, w)
	})
}

// FuzzRead holds the reader against the plainest way to do the same.
func FuzzRead(f *testing.F) {
	good := delivery()
	line := appendRecord(nil, &good, `"n"`)
	f.Add(line, "@gmail.com", "", 0)
	f.Add(append(bytes.Clone(line), line[:100]...), "joe@GMAIL.com", "", 1)
	f.Add([]byte("{}\n\n\x00\xff{\"type\":\"Bounce\",\"recipient\":\"\\u006aoe@b\\u00fccher.example\"}\nnull\n"), "joe@bücher.example", "", 0)
	f.Add([]byte(`{"type":"a","id":"1kjmma2g00007","recipient":"x@K.example"}`+"\n"), "x@k.example", "1KJMMA2G00007", 3)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content []byte, recipient, id string, last int) {
		if err := os.WriteFile(logDir(dir).At(accepted).Path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		q := Query{Recipient: recipient, ID: id, Last: max(0, last%100)}
		var got [][]byte
		err := Read(t.Context(), dir, q, func(line []byte) error {
			got = append(got, bytes.Clone(line))
			return nil
		}, nil)
		if err != nil && !errors.As(err, new(*DamagedError)) {
			t.Fatal(err)
		}
		want := plainly(content, q)
		if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			t.Fatalf("got  %q\nwant %q", got, want)
		}
		for _, g := range got {
			_, _ = Parse(g) // must not panic
		}
	})
}

func plainly(content []byte, q Query) (want [][]byte) {
	m := q.matcher()
	for line := range bytes.Lines(content) {
		text, whole := bytes.CutSuffix(line, []byte("\n"))
		w, err := Parse(text)
		if !whole || !linelog.Sound(text) || len(text) == 0 || text[0] != '{' || err != nil || w.Type == "" {
			continue
		}
		if fitsAddress(m.Recipient, w.Recipient) && (m.ID == "" || m.ID == w.ID.String()) && (m.Since.IsZero() || !w.Time.Before(m.Since)) {
			want = append(want, text)
		}
	}
	if q.Last > 0 && len(want) > q.Last {
		want = want[len(want)-q.Last:]
	}
	return want
}
