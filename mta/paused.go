package mta

import (
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/mta/wiring"
	"example.org/mta/queue"
)

// withoutPaused parks the recipients of a message that are paused, and gives the others.
func (d *dispatcher) withoutPaused(m *envelope.Message, pol *wiring.Policy, recipients []queue.Pending) []queue.Pending {
	if d.pauses.Current() == nil {
		return recipients
	}
	var rest []queue.Pending
	paused := make(map[parking.Key][]queue.Pending)
	for _, r := range recipients {
		if key := d.pauses.Of(pol, m.Tenant, m.Recipients[r.Index].Address.Domain()); key != (parking.Key{}) {
			paused[key] = append(paused[key], r)
		} else {
			rest = append(rest, r)
		}
	}
	for key, some := range paused {
		d.parkPaused(m, some, key)
	}
	return rest
}

// parkPaused lets recipients wait for the end of a pause.
func (d *dispatcher) parkPaused(m *envelope.Message, recipients []queue.Pending, key parking.Key) {
	d.queue.Park(m.ID, indexes(recipients), parking.Line{Key: key})
	if !d.pauses.Has(key) { // it has ended meanwhile, and nobody would say so again
		d.pauses.Resumed(key)
	}
}

// unparkPaused takes up some of the mail that waited for the end of a pause. It reports whether there may
// be more.
func (d *dispatcher) unparkPaused(key parking.Key) (more bool) {
	if d.pauses.Has(key) {
		return false
	}
	leases := d.queue.Take(parking.Line{Key: key}, heldBatch)
	for _, l := range leases {
		d.handle(l)
	}
	return len(leases) > 0
}
