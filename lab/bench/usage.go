package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// userHZ is the unit of times in /proc: 100 a second on every Linux (proc(5)).
const userHZ = 100

// member is what /proc says of a process of a group.
type member struct {
	pid   string
	ticks int // of processor time, its ended and awaited children's included
}

// group lists the processes of pid's group.
func group(pid int) ([]member, error) {
	id, err := syscall.Getpgid(pid)
	if err != nil {
		return nil, fmt.Errorf("looking at process %d: %w", pid, err)
	}
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("there is no /proc to read processor time from: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var all []member
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		b, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // it has ended
		}
		// The second field is the name, which may hold anything.
		f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		if len(f) < 15 || f[2] != strconv.Itoa(id) { // f[0] is the third field, state
			continue
		}
		m := member{pid: name}
		for _, v := range f[11:15] { // utime, stime, cutime, cstime
			n, _ := strconv.Atoi(v)
			m.ticks += n
		}
		all = append(all, m)
	}
	return all, nil
}

// ProcessorTime is what the group of the process has had, its members that have ended included.
func ProcessorTime(pid int) (time.Duration, error) {
	members, err := group(pid)
	ticks := 0
	for _, m := range members {
		ticks += m.ticks
	}
	return time.Duration(ticks) * time.Second / userHZ, err
}

// ownTime is the processor time that this process has had, without its children.
func ownTime() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("reading this process's processor time: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// Memory gives a line of /proc/PID/status in octets: VmRSS is now, VmHWM the most so far.
func Memory(pid int, which string) (int64, error) {
	return kilobytes(fmt.Sprintf("/proc/%d/status", pid), which)
}

// kilobytes reads the line "which: N kB" of a file, and gives octets.
func kilobytes(path, which string) (int64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, which+":"); ok {
			n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("%s has no %s", path, which)
}

// memoryLook is how often the memory of several processes is looked at: the kernel walks all their
// pages each time, which takes processor time from what is measured.
const memoryLook = 5 * time.Second

// memoryWatch finds the most memory that a group has at a time. Of one process the kernel knows; what
// several have together is looked at now and then, pages that they share counted once (Pss).
type memoryWatch struct {
	pid   int
	end   chan struct{}
	once  sync.Once
	wait  sync.WaitGroup
	peak  int64 // to be read after wait
	alone bool  // the group has never been more than one process
}

func watchMemory(pid int) *memoryWatch {
	w := &memoryWatch{pid: pid, end: make(chan struct{}), alone: true}
	if pid != 0 {
		w.wait.Go(w.run)
	}
	return w
}

func (w *memoryWatch) run() {
	tick := time.NewTicker(memoryLook)
	defer tick.Stop()
	for {
		w.look()
		select {
		case <-tick.C:
		case <-w.end:
			w.look()
			return
		}
	}
}

func (w *memoryWatch) look() {
	members, err := group(w.pid)
	if err != nil {
		return // the server has ended, which others notice
	}
	if len(members) == 1 && w.alone {
		if most, err := Memory(w.pid, "VmHWM"); err == nil {
			w.peak = most
		}
		return
	}
	w.alone = false
	var sum int64
	for _, m := range members {
		if n, err := kilobytes("/proc/"+m.pid+"/smaps_rollup", "Pss"); err == nil {
			sum += n
		}
	}
	w.peak = max(w.peak, sum)
}

// stop ends the watch, and gives the most memory in octets.
func (w *memoryWatch) stop() int64 {
	w.once.Do(func() { close(w.end) })
	w.wait.Wait()
	return w.peak
}
