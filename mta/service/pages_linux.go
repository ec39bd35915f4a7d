package service

import (
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// unmapProgram has the system unmap the program's file. A start runs code all over it, and the kernel maps the pages
// around each one that is touched: most of the file, of which mail at full speed needs a quarter. A page that is
// needed again comes from the page cache.
func unmapProgram() {
	program, _ := os.Readlink("/proc/self/exe")
	maps, _ := os.ReadFile("/proc/self/smaps")
	for _, m := range cleanMappings(string(maps), program) {
		// In vain at worst: the pages stay.
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, m[0], m[1]-m[0], unix.MADV_DONTNEED)
	}
}

// cleanMappings returns where /proc/PID/smaps (proc_pid_smaps(5)) has the file mapped, with nothing but what the file
// has: a page with a relocation or a breakpoint is the process's own, in memory or in swap, and would be lost.
func cleanMappings(smaps, file string) (found [][2]uintptr) {
	var at [2]uintptr
	of := false // the mapping is the file's, and read-only
	for line := range strings.Lines(smaps) {
		f := strings.Fields(line)
		switch {
		case len(f) > 5 && !strings.HasSuffix(f[0], ":"):
			from, to, _ := strings.Cut(f[0], "-")
			a, err1 := strconv.ParseUint(from, 16, 64)
			b, err2 := strconv.ParseUint(to, 16, 64)
			at = [2]uintptr{uintptr(a), uintptr(b)}
			of = err1 == nil && err2 == nil && f[1][1] == '-' && strings.Join(f[5:], " ") == file
		case !strings.HasSuffix(f[0], ":"):
			of = false // it has no file
		case f[0] == "Anonymous:" || f[0] == "Swap:":
			of = of && f[1] == "0"
		case of && f[0] == "VmFlags:": // the last line of a mapping
			found = append(found, at)
		}
	}
	return found
}
