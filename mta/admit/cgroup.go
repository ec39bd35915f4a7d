package admit

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// cgroupLimit returns the memory that the process may have by its control group and those above it,
// in octets; 0 when that is not bounded, or nobody knows.
func cgroupLimit() int64 {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return 0
	}
	return limitOf("/sys/fs/cgroup", string(own))
}

// limitOf reads the limits of version 2 (memory.max) and 1 (memory.limit_in_bytes) under root, of
// the groups that a file like /proc/self/cgroup names.
func limitOf(root, groups string) (least int64) {
	for line := range strings.Lines(groups) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 {
			continue
		}
		dir, name := root, "memory.max"
		switch {
		case parts[1] == "memory":
			dir, name = filepath.Join(root, "memory"), "memory.limit_in_bytes"
		case parts[1] != "":
			continue
		}
		for path := filepath.Clean("/" + parts[2]); ; path = filepath.Dir(path) {
			if n := readLimit(filepath.Join(dir, path, name)); n > 0 && (least == 0 || n < least) {
				least = n
			}
			if path == "/" {
				break
			}
		}
	}
	return least
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
