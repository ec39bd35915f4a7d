package queue

import (
	"context"
	"fmt"
	"math/rand"
	"testing"

	"example.org/mta/queue/store"
	"example.org/mta/queue/vfs"
	"example.org/mta/queue/vfs/shipping"
	"example.org/mta/queue/vfs/shipping/shippingtest"
	"example.org/mta/queue/vfs/vfstest"
)

// TestPowerCutWithALog cuts off the disk at each of its writes, the log of it at each entry, or both, and goes on with
// what is left of the two, or with a new disk and the log. The promises are those of TestPowerCutAtEveryWrite.
func TestPowerCutWithALog(t *testing.T) {
	for seed := *cutFirst; seed < *cutFirst+int64(*cutSeeds); seed++ {
		ops, entries := 1, 1
		for cut := 0; cut <= ops+entries; cut += *step {
			ok := t.Run(fmt.Sprintf("seed=%d/cut=%d", seed, cut), func(t *testing.T) {
				inTime(t, func(t *testing.T) {
					atOp, atEntry := cut, 0
					if cut > ops {
						atOp, atEntry = 0, cut-ops
					}
					n, m := cutRunWithALog(t, seed, atOp, atEntry)
					if cut == 0 {
						ops, entries = n, m
					}
				})
			})
			if !ok {
				return
			}
		}
		t.Logf("seed %d: power was cut at every %d. of %d operations and %d entries", seed, *step, ops, entries)
	}
}

func cutRunWithALog(t *testing.T, seed int64, atOp, atEntry int) (ops, entries int) {
	rng := rand.New(rand.NewSource(seed<<20 + int64(atOp)<<10 + int64(atEntry)))
	disk, log := vfstest.NewDisk(rng), shippingtest.New()
	w := &workload{t: t, rng: rand.New(rand.NewSource(seed)), known: map[string]*sent{}, log: log}
	defer w.closeLog()
	for generation := range 4 {
		disk.CutAt(atOp)
		log.CutAt(atEntry, rng.Intn(2) == 0)
		w.run(disk)
		w.closeLog()
		if atOp == 0 && atEntry == 0 && generation == 0 {
			return disk.Ops(), w.entries
		}
		if disk = disk.Reboot(); rng.Intn(2) == 0 {
			disk = vfstest.NewDisk(rng)
		}
		atOp, atEntry = 0, 0
		switch rng.Intn(3) {
		case 0:
			atOp = 1 + w.rng.Intn(250)
		case 1:
			atEntry = 1 + w.rng.Intn(50)
		}
	}
	disk.CutAt(0)
	log.CutAt(0, false)
	w.last(disk)
	return 0, 0
}

// under is the file system of the queue: the disk, with its log. Nil: a cut came first.
func (w *workload) under(disk *vfstest.Disk) vfs.FS {
	w.closeLog()
	image, err := w.log.Read()
	if err != nil {
		w.t.Fatal(err)
	}
	fs, err := shipping.Open(context.Background(), shipping.Config{FS: disk, Dir: "/q", Names: store.Shipped(), Log: w.log,
		Slog: testLog(w.t)}, image)
	if err != nil {
		if !disk.IsCut() && !w.log.IsCut() {
			w.t.Fatal(err)
		}
		return nil
	}
	w.shipping = fs
	return fs
}

func (w *workload) closeLog() {
	if w.shipping != nil {
		w.shipping.Close()
		w.entries += int(w.shipping.Status().Entry)
		w.shipping = nil
	}
}
