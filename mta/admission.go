package mta

import (
	"time"

	"example.org/mta/mta/admit"
	"example.org/mta/mta/config"
	"example.org/mta/operator/api"
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

// useOf puts what a tenant uses in the API's words.
func (r *mailIn) useOf(t *config.Tenant) *api.TenantUse {
	s, known := r.quotas.State(t.Name)
	if !known { // a reload has just taken it away
		return nil
	}
	u := &api.TenantUse{
		Connections: s.Connections, MaxConnections: s.Limits.Connections,
		QueuedMessages: s.Queued.Messages + s.Coming.Messages, MaxQueuedMessages: s.Limits.Messages,
		QueuedBytes: s.Queued.Octets + s.Coming.Octets, MaxQueuedBytes: s.Limits.Octets,
		OverQuota: t.OverQuota, Over: s.Now.Reason.String(), Refused: byReason(&s.Refused),
		Lowered: byReason(&s.Lowered),
	}
	if !s.Limits.Rate.Unlimited() {
		u.MaxSubmissionRate = s.Limits.Rate.String()
	}
	return u
}

// byReason leaves out what has not happened.
func byReason(counts *[intake.QuotaReasons]int64) map[string]int64 {
	m := make(map[string]int64)
	for why, n := range counts {
		if n > 0 {
			m[intake.QuotaReason(why).String()] = n
		}
	}
	return m
}
