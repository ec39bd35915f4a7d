package service

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// garbageFloor is how much garbage may pile up however small the heap is: by Go's default, as much as there is
	// that lives, the collector of a relay without a backlog would run every few hundred messages.
	garbageFloor = 24 << 20
	// mostPercent bounds the garbage by what lives, as Go counts it from the next collection on: what begins to live
	// in the second between two looks brings no more than so much garbage along. At 300 the collector takes 1 to 2 %
	// of the processor.
	mostPercent = 300
	// memoryLook is how often the heap is looked at. The collector itself adapts meanwhile.
	memoryLook = time.Second
	// unmapEvery is after how many looks the program's file is unmapped again.
	unmapEvery = 600
)

// SaveMemory keeps the memory of the process small until ctx ends: the garbage that may pile up is in step with what
// the collector has to look through, and pages of the program that are no longer needed are given back. The schedule
// of a large queue is hundreds of MB in which there is nothing to look for, and Go's default would allow as much
// garbage again.
func SaveMemory(ctx context.Context, schedule func() int64) {
	look := time.NewTicker(memoryLook)
	defer look.Stop()
	set := 100
	for n := 0; ; n++ {
		if want := gcPercent(liveHeap(), schedule()); want > set*11/10 || want < set*9/10 {
			debug.SetGCPercent(want) // stops the world for a moment, so not for every little change
			set = want
		}
		if n%unmapEvery < 2 { // twice: parts of the relay still start at the first
			unmapProgram()
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
	garbage := max(live-schedule, garbageFloor)
	return int(min(garbage*100/max(live, 1), mostPercent))
}

// liveHeap is what was alive when the collector ran last.
func liveHeap() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}
