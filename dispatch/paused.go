package dispatch

import (
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/route"
	"example.org/mta/mta/wiring"
	"example.org/mta/queue"
)

// withoutPaused parks the recipients of a message that are paused, and gives the others.
func (d *Dispatcher) withoutPaused(
	m *envelope.Message, rt *route.Route, pol *wiring.Policy, recipients []queue.Pending, expires time.Time,
) []queue.Pending {
	if d.Pauses.Current() == nil {
		return recipients
	}
	var rest []queue.Pending
	paused := make(map[parking.Key][]queue.Pending)
	for _, r := range recipients {
		if key := d.Pauses.Of(m.Tenant, pol.PoolOf(m, rt),
			m.Recipients[r.Index].Address.Domain()); key != (parking.Key{}) {
			paused[key] = append(paused[key], r)
		} else {
			rest = append(rest, r)
		}
	}
	for key, some := range paused {
		d.parkPaused(m, some, key, expires)
	}
	return rest
}

// parkPaused lets recipients wait for the end of a pause.
func (d *Dispatcher) parkPaused(m *envelope.Message, recipients []queue.Pending, key parking.Key, expires time.Time) {
	d.Queue.Park(m.ID, indexes(recipients), parking.Line{Key: key}, expires)
	if !d.Pauses.Has(key) { // it has ended meanwhile, and nobody would say so again
		d.Resume(key)
	}
}

// unparkPaused takes up some of the mail that waited for the end of a pause. It reports whether there may
// be more.
func (d *Dispatcher) unparkPaused(key parking.Key) (more bool) {
	if d.Pauses.Has(key) {
		return false
	}
	leases := d.Queue.Take(parking.Line{Key: key}, unparkAtOnce)
	for _, l := range leases {
		d.handle(l)
	}
	return len(leases) > 0
}
