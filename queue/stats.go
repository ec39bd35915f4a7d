package queue

import (
	"time"

	"example.org/mta/queue/schedule"
	"example.org/mta/queue/store"
)

// counters are the numbers of Stats that are kept as they change. Queue.mu guards them.
type counters struct {
	Totals
	JournalStats

	buried                 uint64
	faults                 uint64
	largeOctets, largeLive int64 // in files of their own; what of that is needed
	damagedRecords         int64
	damagedFiles           int
	waiters                int // goroutines that wait in Next
}

func (c *counters) group(messages int) {
	c.Groups++
	c.Grouped += uint64(messages)
	c.LargestGroup = max(c.LargestGroup, messages)
}

// Stats is what a queue is like at one instant. Counts are of recipients unless they say
// otherwise. Recovered + Accepted = Delivered + Bounced + Expired + Removed + Transferred +
// Queued, always.
type Stats struct {
	Totals
	Queued int64

	// Queued by state.
	Due, Deferred, Parked, Held, Leased, Ending, Unreadable int64

	Keys      int           // names that mail waits, or last waited, under
	OldestDue time.Duration // how long the first of what is due has been due, 0 when nothing is

	DiskStats
	JournalStats
	KeyStats

	Healthy        bool   // the journal can be written
	Fault          string // what failed last, "" when nothing has
	Faults         uint64 // failed writes and syncs of the journal
	DamagedRecords int64  // stretches of the journal that could not be read since Open
	DamagedFiles   int    // segments that were set aside
	Clock          string // why an operator should look after the machine's clock, "" when it is right
}

// Totals are recipients by how they came, and by how it ended for them.
type Totals struct {
	Recovered int64 // were in the queue when it was opened
	Accepted  int64 // since
	Delivered int64
	Bounced   int64
	Expired   int64
	Removed   int64
	// Transferred are at another relay; on disk they are removed.
	Transferred int64
}

// DiskStats is what a queue takes.
type DiskStats struct {
	Segments    int   // files of the journal, the active one included
	Bytes       int64 // octets on disk: journal and large contents
	LiveBytes   int64 // octets of Bytes that are still needed
	LargeBodies int   // files of large contents
	FreeBytes   int64 // octets free on the disk
	MemoryBytes int64 // octets of the schedule's entries
	CacheBytes  int64 // octets of envelopes and contents in memory
}

// JournalStats is what was written.
type JournalStats struct {
	Syncs        uint64 // syncs of the journal
	Records      uint64 // records written with them
	Groups       uint64 // syncs that accepted messages
	Grouped      uint64 // messages accepted with them
	LargestGroup int    // most messages accepted with one sync
	Unwritten    int64  // octets of outcomes that are not durable yet
	Moved        uint64 // messages that compaction carried to another segment
	Compacted    uint64 // segments that compaction emptied
}

// KeyStats is the keys of requests.
type KeyStats struct {
	IdempotencyKeys        int    // that are remembered
	IdempotencyKeysEvicted uint64 // forgotten before their time, since there were too many
	ImportKeys             int    // likewise, those of imports
	ImportKeysEvicted      uint64
}

// Stats gives the numbers of this instant.
func (q *Queue) Stats() Stats {
	free, unwritten := q.freeOctets(), q.w.pending()
	q.mu.Lock()
	defer q.mu.Unlock()
	c := &q.count
	s := Stats{
		Totals: c.Totals, Queued: int64(q.s.Len()), JournalStats: c.JournalStats,
		Due: q.inState(schedule.Due), Deferred: q.inState(schedule.Deferred), Parked: q.inState(schedule.Parked),
		Held: q.inState(schedule.Held), Leased: q.inState(schedule.Leased), Ending: q.inState(schedule.Ending),
		Unreadable: q.inState(schedule.Unreadable),
		Keys:       q.s.Keys.Count(), OldestDue: q.oldestDue(),
		DiskStats: DiskStats{LargeBodies: len(q.few.large), FreeBytes: free, MemoryBytes: q.s.Bytes(),
			CacheBytes: q.cache.octets},
		KeyStats: KeyStats{
			IdempotencyKeys: q.keyTables[0].Count, IdempotencyKeysEvicted: q.keyTables[0].Evicted,
			ImportKeys:        q.keyTables[1].Count + q.keyTables[2].Count,
			ImportKeysEvicted: q.keyTables[1].Evicted + q.keyTables[2].Evicted,
		},
		Healthy: q.health.stalled == nil, Faults: c.faults, DamagedRecords: c.damagedRecords,
		DamagedFiles: c.damagedFiles,
		Clock:        q.clock.report(time.Now()),
	}
	if q.health.fault != nil {
		s.Fault = q.health.fault.Error()
	}
	s.Unwritten = unwritten
	s.Bytes, s.LiveBytes = q.count.largeOctets, q.count.largeLive
	for seg := range q.segs.All {
		s.Segments++
		s.Bytes += seg.Size
		s.LiveBytes += seg.Live
	}
	return s
}

func (q *Queue) inState(s schedule.State) int64 { return int64(q.s.Count(s)) }

func (q *Queue) oldestDue() time.Duration {
	oldest := time.Duration(0)
	for _, l := range append(q.ready.fresh[:], q.ready.backlog[:]...) {
		if s := q.s.Front(l); s != schedule.None {
			oldest = max(oldest, q.now().Sub(time.Unix(int64(q.s.At(s).Due), 0)))
		}
	}
	return oldest
}

// setFault remembers what failed last.
func (q *Queue) setFault(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.health.fault = err
	q.count.faults++
}

// stall ends the handing out of mail: its outcome could not be written down, and a crash would
// repeat all of it.
func (q *Queue) stall(err error) {
	q.mu.Lock()
	if q.health.fault = err; q.health.stalled == nil {
		q.health.stalled = make(chan struct{})
	}
	q.mu.Unlock()
	q.failures.Stalled.Failed(store.FailureClass(err), "dir", q.cfg.Dir, "error", err)
}

func (q *Queue) unstall() {
	q.mu.Lock()
	if q.health.stalled != nil {
		close(q.health.stalled)
		q.health.stalled = nil
		q.files.done, q.files.void = append(q.files.done, q.files.void...), nil
		q.nudge(q.kick.janitor)
	}
	q.due.Broadcast()
	q.mu.Unlock()
	q.failures.Stalled.Well()
}

func (q *Queue) lastFault() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.health.fault
}
