package envelope

import (
	"testing"
	"time"
)

func TestBy(t *testing.T) {
	now := time.Unix(1_000_000_000, 600_000_000).UTC()
	for value, want := range map[string]By{
		"600;R":         {At: time.Unix(1_000_000_600, 0).UTC(), Return: true},
		"+600;rt":       {At: time.Unix(1_000_000_600, 0).UTC(), Return: true, Trace: true},
		"1;N":           {At: time.Unix(1_000_000_001, 0).UTC()},
		"-5;NT":         {At: time.Unix(999_999_995, 0).UTC(), Trace: true, Late: true},
		"0;N":           {At: time.Unix(1_000_000_000, 0).UTC(), Late: true},
		"999999999;R":   {At: time.Unix(1_999_999_999, 0).UTC(), Return: true},
		"-999999999;NT": {At: time.Unix(1, 0).UTC(), Trace: true, Late: true},
	} {
		got, ok := ParseBy(value, now)
		if !ok || got != want {
			t.Errorf("%s: %+v, %t; want %+v", value, got, ok, want)
		}
		m := Message{Marks: []string{"list-id: x", got.Mark()}}
		if m.By() != want {
			t.Errorf("%s: kept as %q, and read as %+v", value, got.Mark(), m.By())
		}
	}
	for _, bad := range []string{"", ";", ";R", "600", "600;", "600;X", "600;T", "600;RTT", "600;RN", "0;R", "-5;R",
		"1000000000;N", "999999999999;R", "1.5;R", " 1;R", "0x9;N", "99999999999999999999;N"} {
		if got, ok := ParseBy(bad, now); ok {
			t.Errorf("%q: taken as %+v", bad, got)
		}
	}
	b, _ := ParseBy("600;RT", now)
	if got := string(b.Append(nil, b.Left(now.Add(time.Minute)))); got != "539;RT" {
		t.Errorf("relayed as %s", got)
	}
	if m := (Message{Marks: []string{"by=x", "by: 600;R"}}); m.By() != (By{}) {
		t.Errorf("no BY, and read as %+v", m.By())
	}
}
