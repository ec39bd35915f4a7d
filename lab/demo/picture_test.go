package demo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func sampleSnapshot() snapshot {
	return snapshot{
		elapsed: 8300 * time.Millisecond, total: 20000, submitted: 13801, recipients: 15200, delivered: 13010, bounced: 243,
		submitRate: 1663.4, settleRate: 1590.7,
		relay: relayStats{accepted: 15400, delivered: 13250, bounced: 243, queued: 1907, due: 12, active: 95, deferred: 1800},
		late:  17, complaints: 9, events: 32_410, hookDown: true,
		rows: []row{
			{domain: "bigmail.example", does: "quick, 1 % unknown", to: 6689, delivered: 6610, bounced: 67, waiting: 12, typical: 41 * time.Millisecond, refusal: "RCPT 550 5.1.1"},
			{domain: "greymail.example", does: "greylists for 3 s", to: 1370, delivered: 900, waiting: 470, typical: 4100 * time.Millisecond, refusal: "RCPT 450 4.7.1"},
			{domain: "nullmx.example", does: "null MX", to: 152, bounced: 150, waiting: 2},
		},
		doing: "32 applications submit mail",
		hint:  "mta queue summary --socket /tmp/mta-demo-1/data/control.sock",
	}
}

// TestPictureIsAsDrawn compares with the pictures in testdata.
func TestPictureIsAsDrawn(t *testing.T) {
	for _, tc := range []struct {
		file  string
		width int
	}{{"picture-79.txt", 79}, {"picture-131.txt", 131}, {"picture-60.txt", 40}} {
		got := strings.Join(draw(sampleSnapshot(), tc.width, plain), "\n") + "\n"
		path := filepath.Join("testdata", tc.file)
		want, err := os.ReadFile(path)
		if err != nil || got != string(want) {
			if os.Getenv("UPDATE") != "" {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				continue
			}
			t.Errorf("%s (%v); UPDATE=1 writes it anew. The picture is:\n%s", path, err, got)
		}
	}
}

func TestColourTakesNoRoom(t *testing.T) {
	for _, width := range []int{60, 79, 100, 131} {
		bare, coloured := draw(sampleSnapshot(), width, plain), draw(sampleSnapshot(), width, colour)
		for i := range bare {
			if utf8.RuneCountInString(bare[i]) > width {
				t.Errorf("line %d has %d columns, want at most %d: %s", i, utf8.RuneCountInString(bare[i]), width, bare[i])
			}
			if got := uncoloured(coloured[i]); got != bare[i] {
				t.Errorf("line %d at width %d is %q with colour, %q without", i, width, got, bare[i])
			}
		}
	}
}

func uncoloured(s string) string {
	for _, e := range []string{colour.bold, colour.dim, colour.green, colour.yellow, colour.red, colour.off} {
		s = strings.ReplaceAll(s, e, "")
	}
	return s
}

func TestBarIsAsLongAsItShouldBe(t *testing.T) {
	for _, tc := range []struct {
		n, of int64
		want  string
	}{
		{0, 8, "····"}, {8, 8, "████"}, {9, 8, "████"}, {4, 8, "██··"}, {1, 8, "▌···"}, {1, 32, "▏···"}, {5, 0, "····"},
	} {
		if got := bar(tc.n, tc.of, 4, "", plain); got != tc.want {
			t.Errorf("bar(%d, %d) is %q, want %q", tc.n, tc.of, got, tc.want)
		}
	}
}

func TestNumbersForPeople(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234"} {
		if got := commas(n); got != want {
			t.Errorf("commas(%d) is %s, want %s", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{0: "-", 41 * time.Millisecond: "41 ms", 4100 * time.Millisecond: "4.1 s"} {
		if got := brief(d); got != want {
			t.Errorf("brief(%v) is %s, want %s", d, got, want)
		}
	}
}

func TestScreenWithoutATerminalIsPlainLines(t *testing.T) {
	var out strings.Builder
	s := newScreen(&out, false)
	s.show(sampleSnapshot())
	s.close()
	want := "  8.3s  submitted 13,801 of 20,000 (1,663/s)  delivered 13,010  bounced 243  in queue 1,907 (1,800 to be tried again)\n"
	if out.String() != want {
		t.Errorf("got %q,\nwant %q", out.String(), want)
	}
}

func TestScreenOnATerminalDrawsOverItself(t *testing.T) {
	var out strings.Builder
	s := newScreen(&out, true)
	s.show(sampleSnapshot())
	first := strings.Count(out.String(), "\n")
	s.show(sampleSnapshot())
	s.close()
	if !strings.Contains(out.String(), "\x1b["+commas(int64(first))+"A") {
		t.Errorf("the second picture doesn't begin %d lines up", first)
	}
	if !strings.HasPrefix(out.String(), hideCursor) || !strings.HasSuffix(out.String(), showCursor) {
		t.Error("the cursor is not hidden, or not given back")
	}
}
