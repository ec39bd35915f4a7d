package accounting

import (
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/linelog"
)

// BenchmarkFind finds messages in a log of MTA_LOG_MIB mebibytes (64 without it), in files of 128 MiB.
func BenchmarkFind(b *testing.B) {
	mib := logSize()
	for _, compressed := range []bool{false, true} {
		b.Run(map[bool]string{false: "plain", true: "compressed"}[compressed], func(b *testing.B) { benchmarkFind(b, mib, compressed) })
	}
}

func logSize() (mib int) {
	if mib, _ = strconv.Atoi(os.Getenv("MTA_LOG_MIB")); mib == 0 {
		mib = 64
	}
	return mib
}

// bigLog writes a log of some mebibytes in files of 128 MiB: add adds the n-th records. It returns the directory and how
// often add was called.
func bigLog(b *testing.B, mib int, compressed bool, add func(w *Writer, n int)) (dir string, n int) {
	dir = b.TempDir()
	w, err := Open(Config{Dir: dir, NodeID: "node1", Limits: Limits{RotateSize: 128 << 20}})
	if err != nil {
		b.Fatal(err)
	}
	for written := 0; written < mib<<20; {
		add(w, n)
		if n++; n%4096 == 0 {
			if err := w.Flush(b.Context()); err != nil {
				b.Fatal(err)
			}
			p := w.Synced()
			files, _ := logDir(dir).Files()
			written = (len(files)-1)<<27 + int(p.Offset)
		}
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	files, _ := logDir(dir).Files()
	for _, f := range files[:len(files)-1] {
		if err := newIndexer(f).finish(); err != nil {
			b.Fatal(err)
		}
		if compressed {
			if err := linelog.Compress(f, nil); err != nil {
				b.Fatal(err)
			}
		}
	}
	return dir, n
}

func benchmarkFind(b *testing.B, mib int, compressed bool) {
	r := delivery()
	dir, n := bigLog(b, mib, compressed, func(w *Writer, n int) {
		r.ID, r.Type = envelope.FirstID(accepted)+envelope.ID(n), Reception
		w.Add(&r)
		// The delivery of another, and a retry of an old one now and then.
		r.ID, r.Type = envelope.FirstID(accepted)+envelope.ID(max(0, n-100)), Delivery
		w.Add(&r)
		if n%10 == 0 {
			r.ID, r.Type = envelope.FirstID(accepted)+envelope.ID(n/2), TransientFailure
			w.Add(&r)
		}
	})
	files, _ := logDir(dir).Files()
	w, err := Open(Config{Dir: dir, NodeID: "node1", Limits: Limits{RotateSize: 128 << 20}})
	if err != nil {
		b.Fatal(err)
	}
	w.keeper.follow()
	for known := 0; known < len(files)-1; time.Sleep(100 * time.Millisecond) {
		w.keeper.mu.Lock()
		known = len(w.keeper.indexed)
		w.keeper.mu.Unlock()
	}
	b.ReportMetric(float64(len(files)), "files")
	var took []time.Duration
	i := 0
	for b.Loop() {
		i = (i*7919 + 104729) % n
		began := time.Now()
		found, err := find(b.Context(), w, envelope.FirstID(accepted)+envelope.ID(i))
		if err != nil || len(found) < 1 {
			b.Fatalf("message %d of %d: %d records, %v", i, n, len(found), err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
}
