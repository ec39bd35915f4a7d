package report

import (
	"syscall"
	"testing"
	"time"
)

// BenchmarkRead reads the samples, of which there are bounces by RFC 3464 and as text.
func BenchmarkRead(b *testing.B) {
	samples, _ := flufl(b)
	var all [][]byte
	var octets int64
	for _, content := range samples {
		all = append(all, content)
		octets += int64(len(content))
	}
	b.SetBytes(octets / int64(len(all)))
	b.ReportAllocs()
	i, before := 0, cpuTime(b)
	for b.Loop() {
		Read(all[i%len(all)], Options{})
		i++
	}
	b.ReportMetric(float64(b.N)/(cpuTime(b)-before).Seconds(), "reports/cpu-s")
}

// cpuTime is what this process has used, which tells more than the time of a busy machine.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
