package node

import (
	"hash/fnv"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Boot returns this machine's clock, which goes on while a process or the machine is stopped, and a number made of its
// boot_id.
func Boot() (clock func() time.Duration, boot uint64, err error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, 0, err
	}
	h := fnv.New64a()
	h.Write(id)
	clock = func() time.Duration {
		var t unix.Timespec
		unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // fails only for clocks that don't exist
		return time.Duration(t.Nano())
	}
	return clock, h.Sum64(), nil
}
