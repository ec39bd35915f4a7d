package cluster

import (
	"testing"
	"time"

	"example.org/mta/cluster/member"
	"example.org/mta/cluster/share"
	"example.org/mta/cluster/usage"
)

// Messages are in the queue of a node, on its disk, until they have left, whatever its process does: those of one half
// of the quotas for a minute on average, as many as are wanted then, and of the other half for ten.
const stay = 60. // seconds

// parts are a process's of all limits.
type parts struct{ *node }

func (p parts) at(name string) *share.Holder { return p.member.Shares(member.Shard(name)) }

func (p parts) Want(l share.Limit, units int64) {
	if err := p.at(l.Name).Want(l, units, p.local); err != nil {
		p.judge.fault("node %d: %v", p.id, err)
	}
}

func (p parts) Allowed(name string) int64         { return p.at(name).Allowed(p.local(), name) }
func (p parts) Left(name string) (int64, float64) { return p.at(name).Left(p.local(), name) }
func (p parts) Spend(name string, n int64) int64  { return p.at(name).Spend(p.local(), name, n) }
func (p parts) Return(name string, n int64)       { p.at(name).Return(p.local(), name, n) }
func (p parts) Occupy(name string, n int64, f bool) bool {
	return p.at(name).Occupy(p.local(), name, n, f)
}
func (p parts) Next(name string) (time.Duration, float64) {
	return p.at(name).Next(p.local(), name)
}

// use begins the uses of a process, which knows first what is in its queue.
func (n *node) use() {
	if n.cfg.Quotas == 0 {
		return
	}
	n.uses = usage.New(func() usage.Node { return parts{n} }, func() time.Time { return time.Unix(0, 0).Add(n.local()) })
	count := func() {
		for l := range n.limits {
			if n.limits[l].Lasting {
				n.uses.Occupy(n.limits[l], n.kept[l], true)
			}
		}
	}
	count()
	n.every(time.Second, func() {
		if count(); !n.ending {
			n.uses.Tick()
		}
	})
}

// keep has messages leave the queue and others come.
func (n *node) keep(l int, dt float64) {
	n.ripe[l] += float64(n.kept[l]) * dt / stay / float64(1+l%2*9)
	if left := min(int64(n.ripe[l]), n.kept[l]); left > 0 {
		n.ripe[l] -= float64(left)
		n.kept[l] -= left
		n.uses.Occupy(n.limits[l], n.kept[l], true)
	}
	pace := n.demand[l] / stay
	n.queued[l] = min(n.queued[l]+pace*dt, 5*pace+1)
	for ; n.queued[l] >= 1 && n.uses.Occupy(n.limits[l], n.kept[l]+1, false).OK; n.queued[l]-- {
		n.kept[l]++
		n.judge.took(l, n.id)
	}
}

// touch is how long a node and the owner of a limit have been in touch, or not.
type touch struct {
	last, since time.Duration
	is          bool
	epoch       uint64 // of the shard, when they were in touch long enough to have it know what the queue has
	old         int64  // messages of the queue that do not count
	late        int64  // the same for those who may not have heard of the queue
}

// quota is what the judge has of one.
type quota struct {
	share.Limit
	nodes []touch
	beat  uint64        // of the shard's owner
	at    time.Duration // when it was seen first
	taken int
	use   use
}

// Promises about quotas: a queue does not count when its node takes no part for a term, or while another node begins to
// decide; within so long after it is back it does.
const (
	heard   = 30 * time.Second // that an owner and all who ask it know of a queue
	unheard = 30 * time.Second // before a node was out of touch: its last ask
)

// took notes that a node has taken a message: not if all queues that count have as many as they may. A node that is not
// in touch goes on by its part.
func (j *judge) took(l int, node uint16) {
	q := j.quotas[l]
	q.taken++
	total, most, taker := int64(0), q.Connections, &q.nodes[node-1]
	for i, t := range q.nodes {
		if total += j.kept(l, i); taker.is && j.w.now-taker.since >= heard {
			most += t.old
		} else {
			most += t.late
		}
	}
	if total > most {
		j.fault("quota %s: node %d makes it %d messages of %d, and %d that need not count", q.Name, node, total,
			q.Connections, most-q.Connections)
	}
}

// look has the judge see which nodes reach those that decide about quotas.
func (r *run) look() {
	for l, q := range r.judge.quotas {
		head := r.engine.rows[r.shard[l]].Head
		if head.Beat != q.beat {
			q.beat, q.at = head.Beat, r.w.now
		}
		decides := r.engine.away == 0 && !r.engine.lagging && r.w.now-q.at < 5*time.Second
		total, wanted := int64(0), 0.
		for i, n := range r.nodes {
			if n.up && !n.paused {
				total, wanted = total+n.kept[l], wanted+n.demand[l]
			}
			q.nodes[i].see(r, decides, n.reaches(head.Decides()), head.Epoch, n.kept[l])
		}
		most := float64(q.Connections)
		q.use.add(use{min(wanted, most), min(float64(total), wanted, most)})
	}
}

func (t *touch) see(r *run, decides, reaches bool, epoch uint64, kept int64) {
	now, is := r.w.now, decides && reaches
	if is && !t.is {
		t.since = now
	}
	switch t.is = is; {
	case is && now-t.since >= heard:
		t.epoch, t.old, t.last = epoch, 0, now
	case is:
		t.last = now
	case decides && (now-t.last >= r.cfg.Term.Length-unheard || epoch != t.epoch):
		t.old, t.late = kept, kept
	}
	if is && now-t.since >= r.cfg.Term.Waits()+heard {
		t.late = 0
	}
	t.old, t.late = min(t.old, kept), min(t.late, kept)
}

// reaches reports whether a node and another one run and reach each other.
func (n *node) reaches(other uint16) bool {
	if other == 0 {
		return false
	}
	o := n.nodes[other-1]
	runs := func(n *node) bool { return n.up && !n.paused && !n.ending && n.island == 0 }
	return runs(n) && runs(o) && n.cuts[[2]uint16{n.id, o.id}] <= 0 && n.cuts[[2]uint16{o.id, n.id}] <= 0
}

// quotas is a configuration with quotas.
func quotas(seed uint64, nodes int, faults Faults) Config {
	cfg := config(seed, nodes, faults)
	cfg.Limits, cfg.Quotas, cfg.Keys = 4, 12, 0
	return cfg
}

// What a node takes is admitted: all queues that count have no more messages than a quota has at the time.
func TestQuotasHoldWhateverFails(t *testing.T) {
	seeds := uint64(3)
	if full {
		seeds = 20
		try(t, quotas(9, 100, everything))
	}
	for seed := range seeds {
		for _, nodes := range []int{3, 10} {
			try(t, quotas(seed, nodes, everything))
		}
	}
}

func TestQuotasAreUsed(t *testing.T) {
	for _, nodes := range []int{3, 10} {
		if r := try(t, quotas(1, nodes, Faults{})); r.Quotas < 97 {
			t.Errorf("%.1f %% of the quotas are used", r.Quotas)
		}
	}
}
