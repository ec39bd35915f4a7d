package faultlog

import (
	"bytes"
	"log/slog"
	"regexp"
	"testing"
	"time"
)

func TestTwoLinesForAnyNumberOfFailures(t *testing.T) {
	var book bytes.Buffer
	now := time.Unix(1_000_000, 0)
	k := New(slog.New(slog.NewTextHandler(&book, nil)), func() time.Time { return now }, slog.LevelError, "mail is refused", "mail is taken again")
	want := func(what, lines string) {
		t.Helper()
		if got := regexp.MustCompile(`(?m)^time=\S+ `).ReplaceAllString(book.String(), ""); got != lines {
			t.Errorf("%s: logged\n%swant\n%s", what, got, lines)
		}
		book.Reset()
	}
	k.Well()
	k.Check()
	want("all is well", "")
	for i := range 1000 {
		k.Failed("disk full", "nth", i)
		now = now.Add(time.Millisecond)
		if i%2 == 0 {
			k.Well() // by turns
		}
	}
	want("a thousand", "level=ERROR msg=\"mail is refused\" nth=0\n")
	if !k.Lately(time.Second) {
		t.Error("it failed just now")
	}
	k.Failed("broken", "error", "EIO")
	want("another class", "level=ERROR msg=\"mail is refused\" error=EIO\n")
	now = now.Add(time.Hour)
	k.Check()
	want("nobody knows whether it would go well", "")
	k.Failed("broken")
	k.Well()
	if k.Lately(time.Second) {
		t.Error("it has gone well since")
	}
	now = now.Add(Quiet - 1)
	k.Well()
	want("not quiet for long enough", "")
	now = now.Add(1)
	k.Check()
	k.Check()
	want("over", "level=INFO msg=\"mail is taken again\" failures=1002 lasted=1h0m1s\n")
	k.Failed("disk full")
	want("again", "level=ERROR msg=\"mail is refused\"\n")
}
