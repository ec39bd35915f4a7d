package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/mta/lab/bench"
	"example.org/mta/lab/sink"
	"example.org/mta/operator/api"
)

// The files scale_*_test.go put the relay's binary before what is large: a queue, connections in
// both directions, destinations. With MTA_SCALE_FULL=1 ('make scale') they run at full size, print a
// row of Markdown for each figure, the aim beside it, and fail where an aim is missed by what
// isn't the machine's doing. Without, they run small: that all works, and the figures are printed
// for nobody. MTA_SCALE_QUEUE, _INBOUND, _OUTBOUND, _SITES and _REASONS set the
// sizes one by one.

// scaled gives the size of what is called name: as the environment says, else full or small.
func scaled(t *testing.T, name string, full, small int) int {
	t.Helper()
	if s := os.Getenv("MTA_SCALE_" + name); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			t.Fatalf("MTA_SCALE_%s=%s: want a number", name, s)
		}
		return n
	}
	if fullScale() {
		return full
	}
	return small
}

// figures is the rows of a Markdown table: what was measured, and what was aimed at.
type figures struct{ rows strings.Builder }

// add notes a figure. The aim is "" where there is none.
func (f *figures) add(what, aim, format string, args ...any) {
	fmt.Fprintf(&f.rows, "| %s | %s | %s |\n", what, aim, fmt.Sprintf(format, args...))
}

// print shows the table at the test's end.
func (f *figures) print(t *testing.T, title string) {
	t.Helper()
	t.Logf("%s (%s)\n\n| | aim | measured |\n| --- | --- | --- |\n%s", title, bench.ThisMachine(), f.rows.String())
}

// needFiles skips the test when a process may not have so many files open.
func needFiles(t *testing.T, n int) {
	t.Helper()
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		t.Fatal(err)
	}
	if l.Cur < uint64(n) {
		cannot(t, fmt.Sprintf("takes %d open files, ulimit -n says %d", n, l.Cur))
	}
}

// startTimed starts the relay and tells after how long it greets a client.
func (r *relay) startTimed(t *testing.T, limit time.Duration) time.Duration {
	t.Helper()
	began := time.Now()
	r.process = start(t, "relay", binary, "serve", "--config", r.config)
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for range look.C {
		conn, err := net.Dial("tcp", r.addr)
		switch {
		case r.ended():
			t.Fatalf("the relay has ended:\n%s", tail(r.log))
		case time.Since(began) > limit:
			t.Fatalf("the relay greets nobody after %v", limit)
		case errors.Is(err, syscall.ECONNREFUSED):
			continue
		case err != nil:
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(began.Add(limit))
		_, err = conn.Read(make([]byte, 512))
		conn.Close()
		if err != nil {
			t.Fatalf("the relay greets nobody: %v", err)
		}
		break
	}
	return time.Since(began)
}

func (r *relay) control(t *testing.T) *api.Client {
	t.Helper()
	c := api.NewClient(r.dir + "/data/control.sock")
	t.Cleanup(c.Close)
	return c
}

// medianOf is of the times that f takes.
func medianOf(t *testing.T, times int, f func() error) time.Duration {
	t.Helper()
	var took []float64
	for range times {
		began := time.Now()
		if err := f(); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(began).Seconds())
	}
	return time.Duration(median(took) * float64(time.Second))
}

func milliseconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds()*1000, 'g', 3, 64) + " ms"
}

// fullScale reports that figures are wanted.
func fullScale() bool { return os.Getenv("MTA_SCALE_FULL") != "" }

// far is the far side of a test, and the account of what it has taken.
type far struct {
	*bench.Ground
	ordered int64 // deliveries so far
}

// farSites opens n domains with a host each, that behave as cfg says.
func farSites(t *testing.T, n int, cfg sink.Config) *far {
	t.Helper()
	var domains []*bench.Domain
	for i := range n {
		domains = append(domains, &bench.Domain{Name: fmt.Sprintf("far%d.example", i), Hosts: []*bench.Host{{Sink: cfg}}})
	}
	g, err := bench.OpenGround(bench.GroundOptions{}, domains...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return &far{Ground: g}
}

// load makes messages of 2 KB over 20 connections, each for another recipient, spread over the sites.
func (f *far) load(messages int) *bench.Load {
	first := f.ordered
	f.ordered += int64(messages)
	return &bench.Load{Messages: messages, Connections: 20, Size: 2048, To: func(n int) []string {
		return []string{fmt.Sprintf("user%d@%s", first+int64(n), f.Domains[n%len(f.Domains)].Name)}
	}}
}

// send submits messages to the relay at addr, and waits until all that was ever ordered has come, once.
// It gives how many were accepted a second.
func (f *far) send(t *testing.T, addr string, messages int) float64 {
	t.Helper()
	l := f.load(messages)
	if err := l.Run(t.Context(), addr); err != nil {
		t.Fatalf("submitting: %v", err)
	}
	f.await(t)
	return float64(messages) / l.Took.Seconds()
}

// await waits until all that was ordered has come, once.
func (f *far) await(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := f.Taken.Wait(ctx, f.ordered); err != nil {
		t.Fatalf("waiting for %d deliveries: %+v", f.ordered, f.Taken.Tally())
	}
	if got := f.Taken.Tally(); got.Duplicates() != 0 || got.Unique != f.ordered {
		t.Errorf("%+v: want %d deliveries, each once", got, f.ordered)
	}
}

// inTurns has two relays take the same load three times, one after the other, and gives the medians of
// what each accepted a second.
func (f *far) inTurns(t *testing.T, one, other string) (float64, float64) {
	t.Helper()
	messages := 500
	if fullScale() {
		messages = 20_000
	}
	var rates [2][]float64
	for range 3 {
		for i, addr := range []string{one, other} {
			rates[i] = append(rates[i], f.send(t, addr, messages))
		}
	}
	return median(rates[0]), median(rates[1])
}

// memory is a line of /proc/PID/status in MB: VmRSS is now, VmHWM the most so far.
func (r *relay) memory(t *testing.T, which string) float64 {
	t.Helper()
	n, err := bench.Memory(r.cmd.Process.Pid, which)
	if err != nil {
		t.Fatal(err)
	}
	return float64(n) / (1 << 20)
}

// cpu is the processor time that the relay has had.
func (r *relay) cpu(t *testing.T) time.Duration {
	t.Helper()
	d, err := bench.ProcessorTime(r.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// count writes a large number so that it can be read.
func count(n int) string {
	switch {
	case n >= 1_000_000 && n%100_000 == 0:
		return strconv.FormatFloat(float64(n)/1e6, 'f', -1, 64) + " million"
	case n >= 10_000:
		return fmt.Sprintf("%d,%03d", n/1000, n%1000)
	}
	return strconv.Itoa(n)
}

// diskUse is what lies in a folder, and what is free beside it.
func diskUse(t *testing.T, dir string) (used, free int64) {
	t.Helper()
	used, err := blocksIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		t.Fatal(err)
	}
	return used, int64(s.Bavail) * s.Bsize
}

// blocksIn is the octets of the blocks that the files of a folder really have.
func blocksIn(dir string) (octets int64, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err != nil || d.IsDir() {
			return err
		}
		if info, err := d.Info(); err == nil {
			octets += info.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return nil
	})
	return octets, err
}
