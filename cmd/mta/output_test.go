package main

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestColumns(t *testing.T) {
	for _, test := range []struct {
		text string
		want int
	}{
		{"", 0}, {"abc", 3}, {"grüße", 5}, {"日本語", 6}, {"ｆｕｌｌ", 8}, {"e\u0301", 1}, {"a\u200bb", 2},
	} {
		if got := columns(test.text); got != test.want {
			t.Errorf("%q takes %d columns, want %d", test.text, got, test.want)
		}
	}
}

func TestCut(t *testing.T) {
	for _, test := range []struct {
		text string
		n    int
		want string
	}{
		{"abcdef", 6, "abcdef"}, {"abcdef", 5, "abcd…"}, {"abcdef", 1, "…"}, {"abcdef", 0, "abcdef"},
		{"日本語", 5, "日本…"}, {"日本語", 4, "日…"}, {"日本語", 6, "日本語"},
	} {
		got := cut(test.text, test.n)
		if got != test.want || test.n > 0 && columns(got) > test.n {
			t.Errorf("%q cut to %d: %q, want %q", test.text, test.n, got, test.want)
		}
	}
}

// TestClean: what a stranger wrote can't drive the terminal.
func TestClean(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"550 no\tsuch user", "550 no such user"},
		{"\x1b[2J\x1b]0;owned\x07", "?[2J?]0;owned?"},
		{"a\u009b31mb", "a?31mb"},             // CSI of C1
		{"user\u202egpj.exe", "user?gpj.exe"}, // turns the direction
		{"non\u00a0breaking\u2028line", "non breaking line"},
		{"日本語 e\u0301 🎉", "日本語 e\u0301 🎉"},
		{"broken \xff", "broken \ufffd"},
		{"two\nlines", "two\nlines"},
		{"\r\n\x00\x7f", " \n??"},
	} {
		if got := clean(test.text); got != test.want {
			t.Errorf("%q: got %q, want %q", test.text, got, test.want)
		}
	}
}

func FuzzTableLine(f *testing.F) {
	f.Add("日本語@例え.example", "\x1b[1m", 20)
	f.Add("", "a\nb", 0)
	f.Fuzz(func(t *testing.T, cell, note string, width int) {
		if width < 0 || width > 500 {
			return
		}
		tab := &table{columns: []column{{title: "A", shrink: true}, {title: "B", right: true}}, noteTitle: "N"}
		tab.add(oneLine(note), oneLine(cell), "1")
		var b strings.Builder
		if err := tab.write(&b, screen{tty: true, width: width}); err != nil {
			t.Fatal(err)
		}
		if !utf8.ValidString(b.String()) || strings.ContainsAny(b.String(), "\x1b\x00\r\x7f") {
			t.Errorf("the terminal would get %q", b.String())
		}
		for line := range strings.Lines(b.String()) {
			if n := columns(strings.TrimSuffix(line, "\n")); width > 0 && n > width {
				t.Errorf("line %q has %d columns of %d", line, n, width)
			}
		}
	})
}

func TestShortAge(t *testing.T) {
	for _, test := range []struct {
		d    time.Duration
		want string
	}{
		{-time.Second, "0s"}, {0, "0s"}, {59*time.Second + 999*time.Millisecond, "59s"}, {time.Minute, "1m"}, {61 * time.Second, "1m"},
		{125 * time.Minute, "2h5m"}, {2 * time.Hour, "2h"}, {24 * time.Hour, "1d0h"}, {76 * time.Hour, "3d4h"}, {1000 * time.Hour, "41d16h"},
	} {
		if got := shortAge(test.d); got != test.want {
			t.Errorf("%v: got %s, want %s", test.d, got, test.want)
		}
	}
}

func TestShortLeft(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Minute: "0s", 1: "1s", 30*time.Minute - time.Millisecond: "30m", 30*time.Minute - time.Second: "29m",
		24*time.Hour - 1: "1d0h",
	} {
		if got := shortLeft(d); got != want {
			t.Errorf("%v: got %s, want %s", d, got, want)
		}
	}
}

func TestShortSize(t *testing.T) {
	for _, test := range []struct {
		n    int64
		want string
	}{
		{0, "0"}, {1023, "1023"}, {1024, "1.0K"}, {2355, "2.3K"}, {10188, "9.9K"}, {10189, "10K"}, {1024*1024 - 1, "1.0M"}, {25 << 20, "25M"}, {3 << 30, "3.0G"}, {5 << 40, "5T"},
	} {
		if got := shortSize(test.n); got != test.want {
			t.Errorf("%d: got %s, want %s", test.n, got, test.want)
		}
	}
}
