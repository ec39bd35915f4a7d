package service

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// garbageFloor is how much garbage may pile up however small the heap is. A relay without a
	// backlog has some ten MB that live: by Go's default, which is as much garbage as there is that
	// lives, the collector would run every few hundred messages, and take 8 % of the processor.
	garbageFloor = 32 << 20
	// heapMinimum is what Go's collector takes for alive at least (runtime/mgcpacer.go).
	heapMinimum = 4 << 20
	// collectorLook is how often the heap is looked at. The collector itself adapts meanwhile.
	collectorLook = time.Second
)

// PaceCollector keeps the garbage that may pile up in step with what the collector has to look
// through, until ctx ends. The schedule of a large queue is hundreds of MB in which there is nothing
// to look for, and Go's default would allow as much garbage again.
func PaceCollector(ctx context.Context, schedule func() int64) {
	look := time.NewTicker(collectorLook)
	defer look.Stop()
	for set := 100; ; {
		if want := gcPercent(liveHeap(), schedule()); want > set*11/10 || want < set*9/10 {
			debug.SetGCPercent(want) // stops the world for a moment, so not for every little change
			set = want
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// gcPercent is the garbage to be allowed, as a share of live octets on the heap, of which some are the
// schedule's.
func gcPercent(live, schedule int64) int {
	live = max(live, heapMinimum)
	garbage := max(live-schedule, garbageFloor)
	return int(garbage * 100 / live)
}

// liveHeap is what was alive when the collector ran last.
func liveHeap() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}
