package legible

import (
	"testing"
	"time"
)

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Hour: "0s", 0: "0s", 900 * time.Millisecond: "0s", 4*time.Second + 999*time.Millisecond: "4s", 59 * time.Second: "59s",
		7*time.Minute + 59*time.Second: "7m", time.Hour: "1h", time.Hour + 59*time.Second: "1h", 2*time.Hour + 5*time.Minute: "2h5m",
		24 * time.Hour: "1d0h", 76*time.Hour + 59*time.Minute: "3d4h",
	} {
		if got := Age(d); got != want {
			t.Errorf("%v is written %s, want %s", d, got, want)
		}
	}
	for d, want := range map[time.Duration]string{-time.Second: "0s", 0: "0s", time.Millisecond: "1s", 4 * time.Second: "4s", 54 * time.Second: "54s",
		59 * time.Second: "1m", 64 * time.Second: "1m", 10*time.Minute - 2*time.Second: "10m", time.Hour - time.Second: "1h",
		2*time.Hour - 2*time.Second: "2h", 2*time.Hour - 6*time.Second: "1h59m", 48*time.Hour - time.Second: "2d0h"} {
		if got := Left(d); got != want {
			t.Errorf("%v are left as %s, want %s", d, got, want)
		}
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 1023: "1023", 1024: "1.0K", 2355: "2.3K", 48_128: "47K", 1_153_434: "1.1M", 1 << 40: "1T", 1 << 30: "1.0G", 1_048_000: "1023K"} {
		if got := Size(n); got != want {
			t.Errorf("%d octets are written %s, want %s", n, got, want)
		}
	}
}

func TestRate(t *testing.T) {
	for r, want := range map[float64]string{0: "0", 0.0002: "<0.001", 0.05: "0.05", 12.345: "12.3", 99.94: "99.9", 1234.6: "1235"} {
		if got := Rate(r); got != want {
			t.Errorf("%v is written %s, want %s", r, got, want)
		}
	}
}

func TestCount(t *testing.T) {
	for noun, want := range map[string]string{"host": "2 hosts", "address": "2 addresses", "entry": "2 entries", "key": "2 keys", "day": "2 days"} {
		if got := Count(2, noun); got != want || Count(1, noun) != "1 "+noun {
			t.Errorf("%s, %s", Count(1, noun), got)
		}
	}
}
