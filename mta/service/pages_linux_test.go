package service

import (
	"os"
	"slices"
	"testing"

	"example.org/mta/lab/bench"
)

func TestCleanMappings(t *testing.T) {
	mapping := func(header, anonymous, swap string) string {
		return header + "\nSize: 4 kB\nRss: 4 kB\nAnonymous: " + anonymous + " kB\nSwap: " + swap + " kB\nVmFlags: rd mr\n"
	}
	smaps := mapping("00400000-00500000 r-xp 00000000 fd:00 123 /usr/bin/mta", "0", "0") +
		mapping("00500000-00600000 r--p 00100000 fd:00 123 /usr/bin/mta", "0", "0") +
		mapping("00600000-00700000 r--p 00200000 fd:00 123 /usr/bin/mta", "4", "0") +
		mapping("00700000-00800000 r--p 00300000 fd:00 123 /usr/bin/mta", "0", "4") +
		mapping("00800000-00900000 rw-p 00400000 fd:00 123 /usr/bin/mta", "0", "0") +
		mapping("c000000000-c000400000 rw-p 00000000 00:00 0", "0", "0") +
		mapping("7f0000000000-7f0000100000 r--s 00000000 fd:00 124 /var/lib/mta/destdb", "0", "0") +
		mapping("7ffc00000000-7ffc00002000 r-xp 00000000 00:00 0 [vdso]", "0", "0")
	want := [][2]uintptr{{0x400000, 0x500000}, {0x500000, 0x600000}}
	if got := cleanMappings(smaps, "/usr/bin/mta"); !slices.Equal(got, want) {
		t.Errorf("got %#x, want %#x", got, want)
	}
}

func TestUnmapProgram(t *testing.T) {
	before, err := bench.Memory(os.Getpid(), "RssFile")
	if err != nil {
		t.Fatal(err)
	}
	unmapProgram()
	after, err := bench.Memory(os.Getpid(), "RssFile")
	if err != nil || after >= before {
		t.Errorf("%d octets of files are mapped, %d before (%v)", after, before, err)
	}
}
