package mta

import "runtime/metrics"

// processMemory is what the Go runtime has of the system, less what it has given back, in octets.
func processMemory() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64() - s[1].Value.Uint64())
}

// ScheduleBytes is the memory of the queue's schedule: it grows with what is queued, and holds no
// pointers.
func (r *Relay) ScheduleBytes() int64 { return r.queue.Stats().MemoryBytes }
