package mta

// ScheduleBytes is the memory of the queue's schedule: it grows with what is queued, and holds no
// pointers.
func (r *Relay) ScheduleBytes() int64 { return r.queue.Stats().MemoryBytes }
