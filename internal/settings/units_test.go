package settings

import (
	"encoding"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestUnits(t *testing.T) {
	for _, c := range []struct {
		to       encoding.TextUnmarshaler
		in, want string // want "" is an error
	}{
		{new(Size), "50MiB", "50MiB"}, {new(Size), "1024", "1KiB"}, {new(Size), "0", "0"}, {new(Size), "0KiB", "0"},
		{new(Size), "1025B", "1025B"}, {new(Size), "2048MiB", "2GiB"}, {new(Size), "8388607TiB", "8388607TiB"},
		{new(Size), "8388608TiB", ""}, {new(Size), "", ""}, {new(Size), "MiB", ""}, {new(Size), "1.5GiB", ""}, {new(Size), "-1", ""},
		{new(Size), "5MB", ""}, {new(Size), "5mib", ""}, {new(Size), "5 MiB", ""}, {new(Size), "٥MiB", ""},
		{new(ByteRate), "1KiB/s", "1KiB/s"}, {new(ByteRate), "none", ""}, {new(ByteRate), "1KiB", ""}, {new(ByteRate), "1KiB/min", ""}, {new(ByteRate), "/s", ""},
		{new(Rate), "100/s", "100/s"}, {new(Rate), "50/min", "50/min"}, {new(Rate), "50/m", "50/min"}, {new(Rate), "10000/d", "10000/d"},
		{new(Rate), "7/hour", "7/h"}, {new(Rate), "none", "none"}, {new(Rate), "0/s", ""}, {new(Rate), "-1/s", ""}, {new(Rate), "+1/s", ""},
		{new(Rate), "1/s/s", ""}, {new(Rate), "/s", ""}, {new(Rate), "2147483648/s", ""}, {new(Rate), "", ""}, {new(Rate), "5", ""},
		{new(Mode), "0660", "0660"}, {new(Mode), "660", "0660"}, {new(Mode), "1777", ""}, {new(Mode), "8", ""}, {new(Mode), "", ""},
	} {
		err := c.to.UnmarshalText([]byte(c.in))
		if (err != nil) != (c.want == "") {
			t.Errorf("%T %q: error %v", c.to, c.in, err)
			continue
		}
		if err == nil {
			if got := fmt.Sprint(c.to); got != c.want {
				t.Errorf("%T %q: got %s, want %s", c.to, c.in, got, c.want)
			}
		}
	}
}

func TestDurations(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"0": 0, "none": 0, "5s": 5 * time.Second, "1h30m": 90 * time.Minute, "250ms": 250 * time.Millisecond, "2w": 14 * 24 * time.Hour, "5d": 5 * 24 * time.Hour, "1d1h1m1s1ms": 25*time.Hour + time.Minute + time.Second + time.Millisecond,
	} {
		if got, err := ParseDuration(in); err != nil || got != want {
			t.Errorf("%s: got %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "5", "m", "5x", "-5m", "1.5h", "5 m", "106752d", "106751d24h", "9999999999999999999s", "5m5"} {
		if got, err := ParseDuration(in); err == nil {
			t.Errorf("%q was read as %v", in, got)
		} else if !strings.Contains(err.Error(), "is not a duration") {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func TestDurationsArePrintedAsTheyAreRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, math.MaxInt64/int64(time.Millisecond)).Draw(t, "ms")) * time.Millisecond
		got, err := ParseDuration(FormatDuration(d))
		if err != nil || got != d {
			t.Fatalf("%v was printed as %s and read as %v, %v", d, FormatDuration(d), got, err)
		}
		s := Size(rapid.Int64Min(0).Draw(t, "octets"))
		var back Size
		if err := back.UnmarshalText([]byte(s.String())); err != nil || back != s {
			t.Fatalf("%d was printed as %s and read as %d, %v", int64(s), s, int64(back), err)
		}
	})
}
