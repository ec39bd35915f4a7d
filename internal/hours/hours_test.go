package hours

import (
	"testing"
	"time"
)

func window(t *testing.T, text string) *Window {
	t.Helper()
	w := new(Window)
	if err := w.UnmarshalText([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if w.String() != text {
		t.Errorf("%q is printed as %q", text, w)
	}
	return w
}

func TestBadWindows(t *testing.T) {
	for _, text := range []string{"08:00-20:00", "Europe/Berlin", "8-20 UTC", "8:0-20:00 UTC", "08:00-20:00 Local", "08:00-20:00 Mars",
		"08:00-08:00 UTC", "00:00-00:00 UTC", "24:00-08:00 UTC", "08:00-25:00 UTC", "Mo-Fr 08:00-20:00 UTC", "08:00-20:00 sender UTC",
		"Mon-Fri recipient UTC", "08:00-20:00 recipient", "Mon 08:00-20:00 recipient UTC now", "08:00-20:00 ../../etc/passwd"} {
		if err := new(Window).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is a window", text)
		}
	}
}

func TestNoWindow(t *testing.T) {
	w := window(t, "8:00-20:00 UTC")
	if err := w.UnmarshalText(nil); err != nil || !w.IsZero() {
		t.Errorf("the default leaves %v, %v", w, err)
	}
}

// TestWindowsOverChangesOfTheClock: what the clock shows counts.
func TestWindowsOverChangesOfTheClock(t *testing.T) {
	for _, c := range []struct{ window, at, opens string }{ // opens: at itself where it is open
		{"08:00-20:00 Europe/Berlin", "2026-03-28T19:59:00+01:00", "2026-03-28T19:59:00+01:00"},
		{"08:00-20:00 Europe/Berlin", "2026-03-28T20:00:00+01:00", "2026-03-29T08:00:00+02:00"}, // 11 hours later
		{"08:00-20:00 Europe/Berlin", "2026-10-24T20:00:00+02:00", "2026-10-25T08:00:00+01:00"}, // 13 hours later
		{"02:15-02:45 Europe/Berlin", "2026-03-28T23:00:00+01:00", "2026-03-30T02:15:00+02:00"}, // there is no 02:15 on the 29th
		{"02:15-03:30 Europe/Berlin", "2026-03-28T23:00:00+01:00", "2026-03-29T03:00:00+02:00"},
		{"22:00-06:00 Europe/Berlin", "2026-03-29T05:59:59+02:00", "2026-03-29T05:59:59+02:00"},
		{"22:00-06:00 Europe/Berlin", "2026-03-29T06:00:00+02:00", "2026-03-29T22:00:00+02:00"},
		{"18:00-24:00 UTC", "2026-11-28T23:59:59Z", "2026-11-28T23:59:59Z"},
		{"8:00-20:00 UTC", "2026-11-29T00:00:00Z", "2026-11-29T08:00:00Z"},
		{"Mon-Fri 00:00-24:00 UTC", "2026-11-27T23:59:59Z", "2026-11-27T23:59:59Z"},
		{"Mon,Wed-Thu 00:00-24:00 UTC", "2026-11-27T00:00:00Z", "2026-11-30T00:00:00Z"},
		{"Mon,Wed-Thu 00:00-24:00 UTC", "2026-11-24T00:00:00Z", "2026-11-25T00:00:00Z"},
		{"Mon-Fri 00:00-24:00 UTC", "2026-11-28T00:00:00Z", "2026-11-30T00:00:00Z"},
		{"18:00-24:00 UTC", "2026-11-29T00:00:00Z", "2026-11-29T18:00:00Z"},
		{"Mon-Fri 08:00-20:00 UTC", "2026-11-27T20:00:00Z", "2026-11-30T08:00:00Z"},
		{"Fri 22:00-06:00 UTC", "2026-11-28T05:00:00Z", "2026-11-28T05:00:00Z"}, // Saturday, of Friday's hours
		{"Fri 22:00-06:00 UTC", "2026-11-27T05:00:00Z", "2026-11-27T22:00:00Z"},
		{"Sat-Mon 08:00-20:00 UTC", "2026-11-30T20:30:00Z", "2026-12-05T08:00:00Z"},
		{"08:00-20:00 Asia/Kolkata", "2026-11-28T02:29:30Z", "2026-11-28T02:30:00Z"},
	} {
		w := window(t, c.window)
		at, _ := time.Parse(time.RFC3339, c.at)
		want, _ := time.Parse(time.RFC3339, c.opens)
		if got := w.Opens(at, w.Zone); !got.Equal(want) || w.Open(at, w.Zone) != at.Equal(want) {
			t.Errorf("%s at %s: opens at %s, want %s", c.window, c.at, got.In(w.Zone), c.opens)
		}
	}
}

func TestWhoseClock(t *testing.T) {
	var z Zones
	for _, c := range []struct{ window, zone, want string }{
		{"08:00-20:00 Europe/Berlin", "Asia/Tokyo", "Europe/Berlin"},
		{"08:00-20:00 recipient Europe/Berlin", "Asia/Tokyo", "Asia/Tokyo"},
		{"08:00-20:00 recipient Europe/Berlin", "Asia/Tokyo", "Asia/Tokyo"},
		{"08:00-20:00 recipient Europe/Berlin", "", "Europe/Berlin"},
		{"08:00-20:00 recipient Europe/Berlin", "Local", "Europe/Berlin"},
	} {
		if got := z.Clock(window(t, c.window), c.zone); got.String() != c.want {
			t.Errorf("%s in %q: %s, want %s", c.window, c.zone, got, c.want)
		}
	}
}
