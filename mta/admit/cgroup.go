package admit

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const cgroupRoot = "/sys/fs/cgroup"

// ownGroups returns the groups of the process, as files like /proc/self/cgroup name them; "" where nobody knows.
func ownGroups() string {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	return string(own)
}

// limitOf reads how much memory the process may have by its control group and those above it, in octets: of
// version 2 (memory.max) and 1 (memory.limit_in_bytes) under root. It is 0 when that is not bounded.
func limitOf(root, groups string) (least int64) {
	eachGroup(root, groups, "memory", func(dir string) {
		for _, name := range []string{"memory.max", "memory.limit_in_bytes"} {
			if n := readLimit(filepath.Join(dir, name)); n > 0 && (least == 0 || n < least) {
				least = n
			}
		}
	})
	return least
}

// throttledOf reads how many periods of the quota of CPU there were in the control group of the process and those
// above it, and how many of them ended early because it was used up (cpu.stat of versions 1 and 2).
func throttledOf(root, groups string) (early, all int64) {
	eachGroup(root, groups, "cpu", func(dir string) {
		text, err := os.ReadFile(filepath.Join(dir, "cpu.stat"))
		if err != nil {
			return
		}
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			n, err := strconv.ParseInt(value, 10, 64)
			switch {
			case err != nil:
			case name == "nr_periods":
				all += n
			case name == "nr_throttled":
				early += n
			}
		}
	})
	return early, all
}

// Throttled returns what reads the quota of the process's control group, for Machine.
func Throttled() func() (early, all int64) {
	groups := ownGroups()
	return func() (early, all int64) { return throttledOf(cgroupRoot, groups) }
}

// eachGroup calls do with the folders of the groups that a file like /proc/self/cgroup names, and of those above
// them, as far as they have a controller.
func eachGroup(root, groups, controller string, do func(dir string)) {
	for line := range strings.Lines(groups) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 {
			continue
		}
		dir := root
		switch {
		case slices.Contains(strings.Split(parts[1], ","), controller):
			dir = filepath.Join(root, controller)
		case parts[1] != "":
			continue
		}
		for path := filepath.Clean("/" + parts[2]); ; path = filepath.Dir(path) {
			do(filepath.Join(dir, path))
			if path == "/" {
				break
			}
		}
	}
}

// noLimit is what version 1 has in place of "max", rounded to pages.
const noLimit = 1 << 62

func readLimit(path string) int64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // "max" is no number
	if err != nil || n >= noLimit {
		return 0
	}
	return n
}
