package queue

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/mta/internal/envelope"
	"example.org/mta/queue/store"
	"example.org/mta/queue/vfs"
	"example.org/mta/queue/vfs/vfstest"
)

// cpuTime is what the process has used, user and system.
func cpuTime() time.Duration {
	var u unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// report adds the figures that matter to a benchmark in which n messages were accepted.
func report(b *testing.B, q *Queue, n int, began time.Time, cpu time.Duration) {
	s := q.Stats()
	b.ReportMetric(float64(n)/time.Since(began).Seconds(), "msg/s")
	b.ReportMetric(float64((cpuTime()-cpu).Microseconds())/float64(n), "cpu-µs/msg")
	b.ReportMetric(float64(s.Syncs)/float64(n), "syncs/msg")
}

func benchQueue(b *testing.B, fs vfs.FS) *Queue {
	cfg := Config{Dir: b.TempDir(), FS: fs, MinFree: 1}
	q, err := Open(cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { q.Close() })
	return q
}

// each runs f(i) for i below n in so many goroutines.
func each(n, goroutines int, f func(i int)) {
	var wg sync.WaitGroup
	next := make(chan int, 1024)
	for range goroutines {
		wg.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

var body2K = bytes.Repeat([]byte("Subject: benchmark\r\n"), 103)[:2048]

func mustCommit(b *testing.B, q *Queue, i int) {
	m := &envelope.Message{Sender: "sender@example.com", Recipients: []envelope.Recipient{{Address: "someone@example.net"}}, Tenant: "acme"}
	d := q.Begin()
	d.Write(body2K)
	if err := d.Commit(m); err != nil {
		b.Error(err)
	}
}

// deliver settles what Next gives until ctx ends.
func deliver(ctx context.Context, q *Queue, goroutines int) *sync.WaitGroup {
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for {
				l, err := q.Next(ctx)
				if err != nil {
					return
				}
				q.Settle(l.Message.ID, []int{l.Recipients[0].Index}, Delivered)
			}
		})
	}
	return &wg
}

// BenchmarkCommit is a message of 2 KB from the draft to the reply after its sync: alone, and in
// groups. In memory, what is left is the cost of our own code.
func BenchmarkCommit(b *testing.B) {
	for _, disk := range []struct {
		name string
		fs   func() vfs.FS
	}{{"disk", vfs.OS}, {"memory", vfstest.Memory}} {
		for _, writers := range []int{1, 64, 512} {
			b.Run(fmt.Sprintf("%s/writers=%d", disk.name, writers), func(b *testing.B) {
				q := benchQueue(b, disk.fs())
				b.ReportAllocs()
				b.ResetTimer()
				began, cpu := time.Now(), cpuTime()
				each(b.N, writers, func(i int) { mustCommit(b, q, i) })
				report(b, q, b.N, began, cpu)
			})
		}
	}
}

// BenchmarkCommitBatch is messages of 2 KB, so many in a request, from 20 clients; with one in each it is to be
// compared with as many single commits.
func BenchmarkCommitBatch(b *testing.B) {
	for _, disk := range []struct {
		name string
		fs   func() vfs.FS
	}{{"disk", vfs.OS}, {"memory", vfstest.Memory}} {
		for _, size := range []int{0, 1, 10, 100, 1000} {
			name := fmt.Sprintf("%s/batch=%d", disk.name, size)
			if size == 0 {
				name = disk.name + "/single"
			}
			b.Run(name, func(b *testing.B) {
				q := benchQueue(b, disk.fs())
				b.ReportAllocs()
				b.ResetTimer()
				began, cpu := time.Now(), cpuTime()
				if size == 0 {
					each(b.N, 20, func(i int) { mustCommit(b, q, i) })
				} else {
					each((b.N+size-1)/size, 20, func(i int) { mustCommitBatch(b, q, min(size, b.N-i*size), nil) })
				}
				report(b, q, b.N, began, cpu)
			})
		}
	}
}

// BenchmarkIdempotencyKey is a request of one message with and without a key, to be compared with each other. The
// memory has 200,000 keys before, and lookups are made as a server makes them: is the key known?
func BenchmarkIdempotencyKey(b *testing.B) {
	for _, disk := range []struct {
		name string
		fs   func() vfs.FS
	}{{"disk", vfs.OS}, {"memory", vfstest.Memory}} {
		for _, keyed := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/keyed=%v", disk.name, keyed), func(b *testing.B) {
				q := benchQueue(b, disk.fs())
				until := time.Now().Add(24 * time.Hour)
				q.mu.Lock()
				q.segs.Add(&store.Segment{})
				for i := range 200_000 {
					q.setKey(q.segs.ByHandle[1], store.KeyItem{KeyHead: store.KeyHead{Key: testKey(-1 - i), Until: uint32(until.Unix())}})
				}
				q.mu.Unlock()
				answer := make([]byte, 24)
				b.ReportAllocs()
				b.ResetTimer()
				began, cpu := time.Now(), cpuTime()
				each(b.N, 20, func(i int) {
					mustCommitBatch(b, q, 1, func(batch *Batch) {
						if !keyed {
							return
						}
						key := testKey(i)
						if _, ok, _ := q.Keyed(key); ok {
							b.Error("known")
						}
						batch.Key, batch.Request, batch.Last, batch.Answer, batch.Until = key, Key{1}, true, answer, until
					})
				})
				report(b, q, b.N, began, cpu)
			})
		}
	}
}

// BenchmarkReplay is the answer to a request that was answered before.
func BenchmarkReplay(b *testing.B) {
	q := benchQueue(b, vfs.OS())
	const keys = 10_000
	for i := range keys {
		mustCommitBatch(b, q, 1, func(batch *Batch) {
			batch.Key, batch.Last, batch.Answer, batch.Until = testKey(i), true, make([]byte, 24), time.Now().Add(time.Hour)
		})
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		if k, ok, err := q.Keyed(testKey(i % keys)); !ok || err != nil || len(k.IDs) != 1 {
			b.Fatal(ok, err)
		}
	}
}

// mustCommitBatch commits n messages of 2 KB; adorn may add to the batch.
func mustCommitBatch(b *testing.B, q *Queue, n int, adorn func(*Batch)) {
	batch := &Batch{Drafts: make([]*Draft, n), Messages: make([]*envelope.Message, n)}
	for i := range n {
		batch.Messages[i] = &envelope.Message{Sender: "sender@example.com", Recipients: []envelope.Recipient{{Address: "someone@example.net"}}, Tenant: "acme"}
		batch.Drafts[i] = q.Begin()
		batch.Drafts[i].Write(body2K)
	}
	if adorn != nil {
		adorn(batch)
	}
	if committed, err := q.CommitBatch(batch); committed != n || err != nil {
		b.Error(committed, err)
	}
}

// BenchmarkCommitAndSettle takes messages in and out at the same time, as a relay does.
func BenchmarkCommitAndSettle(b *testing.B) {
	for _, writers := range []int{1, 64, 512} {
		b.Run(fmt.Sprintf("disk/writers=%d", writers), func(b *testing.B) {
			q := benchQueue(b, vfs.OS())
			b.ReportAllocs()
			b.ResetTimer()
			began, cpu := time.Now(), cpuTime()
			ctx, cancel := context.WithCancel(context.Background())
			out := deliver(ctx, q, 2)
			each(b.N, writers, func(i int) { mustCommit(b, q, i) })
			for q.Stats().Queued > 0 {
				time.Sleep(time.Millisecond)
			}
			report(b, q, b.N, began, cpu)
			cancel()
			out.Wait()
		})
	}
}

// BenchmarkKeysLeftBehind takes requests of one message in and their messages out, with and without keys: what is left
// of each segment is its keys, which compaction carries on. Run it with 200,000 messages or more.
func BenchmarkKeysLeftBehind(b *testing.B) {
	for _, keyed := range []bool{false, true} {
		b.Run(fmt.Sprintf("keyed=%v", keyed), func(b *testing.B) {
			q := benchQueue(b, vfs.OS())
			b.ResetTimer()
			began, cpu := time.Now(), cpuTime()
			ctx, cancel := context.WithCancel(context.Background())
			out := deliver(ctx, q, 2)
			each(b.N, 64, func(i int) {
				mustCommitBatch(b, q, 1, func(batch *Batch) {
					if keyed {
						batch.Key, batch.Last, batch.Answer, batch.Until = testKey(i), true, make([]byte, 24), began.Add(24*time.Hour)
					}
				})
			})
			for q.Stats().Queued > 0 || q.victim() != nil {
				time.Sleep(time.Millisecond)
			}
			report(b, q, b.N, began, cpu)
			s := q.Stats()
			b.ReportMetric(float64(s.Bytes)/float64(b.N), "disk-octets/msg")
			b.ReportMetric(float64(s.Compacted), "compacted")
			cancel()
			out.Wait()
		})
	}
}

// BenchmarkSettle is the final outcome of a message: the schedule, and the record in the journal
// that is written behind.
func BenchmarkSettle(b *testing.B) {
	q := benchQueue(b, vfstest.Memory())
	each(b.N, 64, func(i int) { mustCommit(b, q, i) })
	leases := make([]*Lease, b.N)
	for i := range leases {
		leases[i], _ = q.Next(context.Background())
	}
	b.ReportAllocs()
	b.ResetTimer()
	for _, l := range leases {
		q.Settle(l.Message.ID, []int{0}, Delivered)
	}
}

func BenchmarkDefer(b *testing.B) {
	q := benchQueue(b, vfstest.Memory())
	each(b.N, 64, func(i int) { mustCommit(b, q, i) })
	leases := make([]*Lease, b.N)
	for i := range leases {
		leases[i], _ = q.Next(context.Background())
	}
	b.ReportAllocs()
	b.ResetTimer()
	now := time.Now()
	for i, l := range leases {
		q.Defer(l.Message.ID, []int{0}, now.Add(time.Duration(i%36000)*time.Second), Attempt{Reply: greylisted}, site("site"))
	}
}

// BenchmarkParkTake parks a message and takes the first that waits, with so many in between: the
// cost must not depend on how many.
func BenchmarkParkTake(b *testing.B) {
	for _, backlog := range []int{1000, 100_000} {
		b.Run(fmt.Sprint("backlog=", backlog), func(b *testing.B) {
			q := benchQueue(b, vfstest.Memory())
			each(backlog, 64, func(i int) { mustCommit(b, q, i) })
			for range backlog {
				l, _ := q.Next(context.Background())
				q.Park(l.Message.ID, []int{0}, siteLine("site"), time.Time{})
			}
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				l := q.Take(siteLine("site"), 1)[0]
				q.Park(l.Message.ID, []int{0}, siteLine("site"), time.Time{})
			}
		})
	}
}
