package bench

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine is what a measurement was made on, without which its figures say little.
type Machine struct {
	Processors int    `json:"processors"`
	Model      string `json:"model"`
	Memory     int64  `json:"memory"` // octets
	System     string `json:"system"`
	Go         string `json:"go"`   // of this program
	Load       string `json:"load"` // average of 1, 5 and 15 minutes, this measurement included
}

// ThisMachine describes the machine that this runs on; "unknown" is what can't be found out.
func ThisMachine() Machine {
	m := Machine{Processors: runtime.NumCPU(), Model: "unknown processor", System: runtime.GOOS, Go: runtime.Version(),
		Load: "unknown"}
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if name, model, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				m.Model = strings.TrimSpace(model)
				break
			}
		}
	}
	if n, err := kilobytes("/proc/meminfo", "MemTotal"); err == nil {
		m.Memory = n
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.System = unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
	}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load = strings.Join(strings.Fields(string(b))[:3], " ")
	}
	return m
}

// String is the machine in a line.
func (m Machine) String() string {
	return fmt.Sprintf("%d x %s, %d GB, %s, %s, load average %s", m.Processors, m.Model, m.Memory>>30,
		m.System, m.Go, m.Load)
}
