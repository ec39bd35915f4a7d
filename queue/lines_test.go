package queue

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/queue/vfs"
	"example.org/mta/queue/vfs/vfstest"
)

// slowDisk writes and syncs as a disk does, in virtual time.
type slowDisk struct {
	vfs.FS
	sync   time.Duration
	octets int64 // a second
}

func (d slowDisk) Create(name string) (vfs.File, error) {
	f, err := d.FS.Create(name)
	return slowFile{f, d}, err
}

func (d slowDisk) OpenWrite(name string) (vfs.File, error) {
	f, err := d.FS.OpenWrite(name)
	return slowFile{f, d}, err
}

type slowFile struct {
	vfs.File
	disk slowDisk
}

func (f slowFile) WriteAt(p []byte, off int64) (int, error) {
	time.Sleep(time.Duration(int64(len(p)) * int64(time.Second) / f.disk.octets))
	return f.File.WriteAt(p, off)
}

func (f slowFile) Sync() error {
	time.Sleep(f.disk.sync)
	return f.File.Sync()
}

// waitBeside returns the 99th percentile of the time until a tenant's message is durable while another tenant
// submits messages of 16 KiB by so many connections, each as fast as it can.
func waitBeside(t *testing.T, connections int) (p99 time.Duration, theirs int) {
	inTime(t, func(t *testing.T) {
		cfg := Config{Dir: "/q", FS: slowDisk{vfstest.Memory(), 2 * time.Millisecond, 500 << 20}, MinFree: 1, SegmentSize: 64 << 20}
		q := open(t, cfg)
		defer shut(t, q)
		var all sync.WaitGroup
		stop := make(chan struct{})
		large, small := strings.Repeat("x", 16<<10), strings.Repeat("y", 4<<10)
		counts := make([]int, connections)
		for i := range connections {
			all.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					if commit(q, message(1, "box.example"), large) == nil { // of acme
						counts[i]++
					}
					time.Sleep(time.Millisecond) // the next message comes in
				}
			})
		}
		time.Sleep(100 * time.Millisecond)
		var waits []time.Duration
		for range 200 {
			m := message(1, "box.example")
			m.Tenant = "other"
			began := time.Now()
			if err := commit(q, m, small); err != nil {
				t.Error(err)
			}
			waits = append(waits, time.Since(began))
			time.Sleep(7 * time.Millisecond)
		}
		close(stop)
		all.Wait()
		slices.Sort(waits)
		p99 = waits[len(waits)*99/100]
		for _, n := range counts {
			theirs += n
		}
	})
	return p99, theirs
}

// A tenant with a thousand connections costs another one's mail at most a fifth more time than with sixteen.
func TestManyConnectionsOfATenantDelayNoOther(t *testing.T) {
	few, ofFew := waitBeside(t, 16)
	many, ofMany := waitBeside(t, 1000)
	t.Logf("99 %% of a tenant's messages are durable within %v beside 16 connections of another (%d messages), and %v beside 1,000 (%d)", few, ofFew, many, ofMany)
	if many > few*6/5 {
		t.Errorf("p99 is %v beside 1,000 connections, and %v beside 16", many, few)
	}
	if ofMany < ofFew {
		t.Errorf("1,000 connections got %d messages through, 16 %d", ofMany, ofFew)
	}
}

// A line that is never empty keeps what waits, and not all that has ever waited in it.
func TestBusyLineStaysSmall(t *testing.T) {
	var l lines
	drafts := make([]Draft, 20)
	for i := range drafts {
		drafts[i].msg = &envelope.Message{Tenant: "t"}
		l.push(&drafts[i])
	}
	for i := range 100_000 {
		d := l.front()
		if d != &drafts[i%len(drafts)] {
			t.Fatalf("message %d is out of turn", i)
		}
		l.pop()
		l.push(d)
	}
	if n := cap(l.byTenant["t"].drafts); n > 100 || l.waiting != len(drafts) {
		t.Errorf("the line has room for %d messages; %d wait", n, l.waiting)
	}
}
