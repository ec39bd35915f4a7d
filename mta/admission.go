package mta

import (
	"time"

	"example.org/mta/mta/admit"
	"example.org/mta/mta/config"
	"example.org/mta/operator/history"
	"example.org/mta/submission/intake"
)

// leastIncoming is what a message that is coming in takes of memory at least, in octets.
const leastIncoming = 64 << 10

func (r *mailIn) openAdmission(cfg *config.Config, _ *undoer) error {
	r.admission = admit.New(admissionSettings(cfg), admit.Machine{
		Now:       r.now,
		Room:      func() int64 { return r.queue.Stats().FreeBytes - int64(cfg.Queue.MinFree) },
		Memory:    history.ProcessMemory,
		Throttled: admit.Throttled(),
		Slots:     int(cfg.Queue.IncomingMemory / leastIncoming),
	})
	return nil
}

// syncLatency is what storing a message may take: above it fewer are stored at a time, at ten times as much mail is
// refused.
const syncLatency = 100 * time.Millisecond

// admissionSettings says in admit's words what the admission block says.
func admissionSettings(cfg *config.Config) admit.Settings {
	a := &cfg.Admission
	return admit.Settings{Mode: a.Mode, SyncLatency: syncLatency, MemoryLimit: int64(a.MemoryLimit)}
}

// queuedOf gives what a tenant has in the queue to the book of quotas.
func (r *mailIn) queuedOf(tenant string) intake.QuotaUsage {
	u := r.queue.Usage(tenant)
	return intake.QuotaUsage{Messages: u.Messages, Octets: u.Octets}
}
