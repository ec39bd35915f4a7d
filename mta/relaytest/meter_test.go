package relaytest

import (
	"net"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"time"

	"example.org/mta/internal/linelog"
	"example.org/mta/queue/vfs"
)

// What is counted. Clients, hosts and relay are one process, so objects, their octets and switches are those of all
// three; the others are the relay's alone.
const (
	syncs     = iota // of the journal, the accounting log and their folders
	writes           // to these
	written          // octets
	calls            // of files and connections, which are system calls where those are real
	objects          // allocated
	allocated        // octets
	switches         // times that a goroutine got the processor, of which the runtime counts one in eight
	kinds
)

var kindNames = [kinds]string{"syncs", "writes", "octets written", "calls", "allocations", "octets allocated", "switches"}

type counts [kinds]float64

// meter counts.
type meter struct {
	n       [objects]atomic.Int64
	memory  runtime.MemStats
	latency []metrics.Sample
}

const (
	sampled  = 8 // gTrackingPeriod of package runtime
	syncTime = time.Millisecond
)

func (m *meter) counts() (c counts) {
	runtime.ReadMemStats(&m.memory)
	if m.latency == nil {
		m.latency = []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	}
	metrics.Read(m.latency)
	for k := range m.n {
		c[k] = float64(m.n[k].Load())
	}
	c[objects], c[allocated] = float64(m.memory.Mallocs), float64(m.memory.TotalAlloc)
	for _, n := range m.latency[0].Value.Float64Histogram().Counts {
		c[switches] += sampled * float64(n)
	}
	return c
}

func (m *meter) call() { m.n[calls].Add(1) }

func (m *meter) write(octets int) {
	m.call()
	m.n[writes].Add(1)
	m.n[written].Add(int64(octets))
}

func (m *meter) sync() {
	m.call()
	m.n[syncs].Add(1)
}

// countedFS is the queue's file system.
type countedFS struct {
	vfs.FS
	m *meter
}

func (f countedFS) Create(name string) (vfs.File, error)    { return f.opened(f.FS.Create(name)) }
func (f countedFS) Open(name string) (vfs.File, error)      { return f.opened(f.FS.Open(name)) }
func (f countedFS) OpenWrite(name string) (vfs.File, error) { return f.opened(f.FS.OpenWrite(name)) }

func (f countedFS) opened(file vfs.File, err error) (vfs.File, error) {
	f.m.call()
	if err != nil {
		return nil, err
	}
	return &countedFile{File: file, m: f.m}, nil
}

func (f countedFS) Remove(name string) error {
	f.m.call()
	return f.FS.Remove(name)
}

func (f countedFS) Rename(from, to string) error {
	f.m.call()
	return f.FS.Rename(from, to)
}

func (f countedFS) SyncDir(string) error {
	f.m.sync()
	return nil
}

type countedFile struct {
	vfs.File
	m     *meter
	dirty atomic.Bool
}

func (f *countedFile) ReadAt(p []byte, off int64) (int, error) {
	f.m.call()
	return f.File.ReadAt(p, off)
}

func (f *countedFile) WriteAt(p []byte, off int64) (int, error) {
	f.m.write(len(p))
	f.dirty.Store(true)
	return f.File.WriteAt(p, off)
}

// Sync takes a time, during which others go on. Only a new segment is synced under a lock: it has no writes.
func (f *countedFile) Sync() error {
	f.m.sync()
	if f.dirty.Swap(false) {
		time.Sleep(syncTime)
	}
	return nil
}

// log opens a file of the accounting log.
func (m *meter) log(path string, create bool) (linelog.OutFile, error) {
	m.call()
	f, err := linelog.OpenOS(path, create)
	if err != nil {
		return nil, err
	}
	return countedLog{f, m}, nil
}

type countedLog struct {
	linelog.OutFile
	m *meter
}

func (f countedLog) Write(p []byte) (int, error) {
	f.m.write(len(p))
	return f.OutFile.Write(p)
}

func (f countedLog) Sync() error {
	f.m.sync()
	time.Sleep(syncTime)
	return nil
}

// conn counts what the relay does with a connection. Deadlines cost a pipe an allocation each, and a socket none: those
// in the future are left out.
func (m *meter) conn(c net.Conn) net.Conn { return &countedConn{Conn: c, m: m} }

type countedConn struct {
	net.Conn
	m   *meter
	cut atomic.Bool // by a deadline in the past
}

func (c *countedConn) Read(p []byte) (int, error) {
	c.m.call()
	return c.Conn.Read(p)
}

func (c *countedConn) Write(p []byte) (int, error) {
	c.m.call()
	return c.Conn.Write(p)
}

func (c *countedConn) SetDeadline(t time.Time) error      { return c.until(t, c.Conn.SetDeadline) }
func (c *countedConn) SetReadDeadline(t time.Time) error  { return c.until(t, c.Conn.SetReadDeadline) }
func (c *countedConn) SetWriteDeadline(t time.Time) error { return c.until(t, c.Conn.SetWriteDeadline) }

func (c *countedConn) until(t time.Time, set func(time.Time) error) error {
	past := !t.IsZero() && time.Until(t) <= 0
	if !past && !c.cut.Load() {
		return nil
	}
	c.cut.Store(past)
	return set(t)
}
