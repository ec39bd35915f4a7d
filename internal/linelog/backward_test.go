package linelog

import (
	"bytes"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
)

// forward is what Lines must return, by other means.
func forward(text string, longest int) (lines []string, ats []int64) {
	at := 0
	for line := range strings.Lines(text) {
		whole, ended := strings.CutSuffix(line, "\n")
		if ended {
			if len(whole) > longest {
				whole = "too long"
			}
			lines, ats = append(lines, whole), append(ats, int64(at))
		}
		at += len(line)
	}
	return lines, ats
}

func check(t *testing.T, text string, longest int) {
	t.Helper()
	want, ats := forward(text, longest)
	l := newLastLines(strings.NewReader(text), int64(len(text)), longest)
	for i := len(want) - 1; i >= 0; i-- {
		line, at, err := l.next()
		if line == nil && err == nil {
			line = []byte("too long")
		}
		if err != nil || string(line) != want[i] || at != ats[i] {
			t.Fatalf("line %d of %d: %d octets at %d, %v, want %d at %d", i, len(want), len(line), at, err, len(want[i]), ats[i])
		}
	}
	if line, _, err := l.next(); err != io.EOF {
		t.Fatalf("after the first line: %q, %v", line, err)
	}
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", BlockSize)
	for _, text := range []string{
		"", "\n", "torn", "one\n", "one\ntwo\n", "one\n\n\ntwo\ntorn", "\n\n", long, long + "\n", long + long + "\n" + long, "a\n" + long + "\nb\n",
		"a\n" + long[:BlockSize-3] + "\nb\n", "a\n" + long[:BlockSize-2] + "\n", strings.Repeat(long+"\n", 5), strings.Repeat("line\n", 50_000),
	} {
		for _, longest := range []int{1, 100, BlockSize, 1 << 20} {
			check(t, text, longest)
		}
	}
}

func TestLinesOfAnyLength(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 1))
		var b bytes.Buffer
		for b.Len() < 4*BlockSize {
			b.WriteString(strings.Repeat("y", r.IntN(1<<r.IntN(18))))
			if r.IntN(8) > 0 {
				b.WriteByte('\n')
			}
		}
		check(t, b.String(), 1<<r.IntN(18))
	}
}

// TestShortFile: a file that has been cut meanwhile is an error, not the end of the log.
func TestShortFile(t *testing.T) {
	if _, _, err := newLastLines(strings.NewReader("one\n"), 100, 100).next(); err != io.ErrUnexpectedEOF {
		t.Errorf("got %v", err)
	}
}

// TestMemoryIsBounded: a line of any length needs no more memory than the longest that is wanted.
func TestMemoryIsBounded(t *testing.T) {
	l := newLastLines(strings.NewReader("first\n"+strings.Repeat("x", 8<<20)+"\n"), 6+8<<20+1, 1000)
	for range 2 {
		if _, _, err := l.next(); err != nil {
			t.Fatal(err)
		}
	}
	if len(l.buf) > 4*BlockSize {
		t.Errorf("the buffer has %d octets", len(l.buf))
	}
}
