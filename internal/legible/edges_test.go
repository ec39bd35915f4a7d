package legible

import (
	"testing"
	"time"
)

func TestEdgesOfAge(t *testing.T) {
	for _, test := range []struct {
		d    time.Duration
		want string
	}{
		{-time.Second, "0s"}, {0, "0s"}, {59*time.Second + 999*time.Millisecond, "59s"}, {time.Minute, "1m"}, {61 * time.Second, "1m"},
		{125 * time.Minute, "2h5m"}, {2 * time.Hour, "2h"}, {24 * time.Hour, "1d0h"}, {76 * time.Hour, "3d4h"}, {1000 * time.Hour, "41d16h"},
	} {
		if got := Age(test.d); got != test.want {
			t.Errorf("%v: got %s, want %s", test.d, got, test.want)
		}
	}
}

func TestEdgesOfLeft(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Minute: "0s", 1: "1s", 30*time.Minute - time.Millisecond: "30m", 30*time.Minute - 6*time.Second: "29m",
		24*time.Hour - 1: "1d0h",
	} {
		if got := Left(d); got != want {
			t.Errorf("%v: got %s, want %s", d, got, want)
		}
	}
}

func TestEdgesOfSize(t *testing.T) {
	for _, test := range []struct {
		n    int64
		want string
	}{
		{0, "0"}, {1023, "1023"}, {1024, "1.0K"}, {2355, "2.3K"}, {10188, "9.9K"}, {10189, "10K"}, {1024*1024 - 1, "1.0M"}, {25 << 20, "25M"}, {3 << 30, "3.0G"}, {5 << 40, "5T"},
	} {
		if got := Size(test.n); got != test.want {
			t.Errorf("%d: got %s, want %s", test.n, got, test.want)
		}
	}
}
