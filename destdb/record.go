package destdb

import (
	"net/netip"
	"slices"
	"time"
)

// Key names a record. A host's has the address alone, a path's the address and the source, a
// site's the site.
type Key struct {
	Addr   netip.AddrPort `json:"addr,omitzero"`
	Source string         `json:"source,omitempty"`
	Site   string         `json:"site,omitempty"`
}

// Record is what is kept of a host, a path or a site.
type Record struct {
	Key
	Gone bool      `json:"-"`             // it must be removed
	Used time.Time `json:"used,omitzero"` // when it last meant something

	Name   string    `json:"name,omitempty"`  // hosts, and of a path's host, which may have no separate record
	Facts  Facts     `json:"facts,omitzero"`  // hosts
	Broken Broken    `json:"broken,omitzero"` // hosts and paths
	Made   time.Time `json:"made,omitzero"`   // paths

	Allowed float64   `json:"allowed,omitempty"` // sites, this and what follows
	Usual   float64   `json:"usual,omitempty"`
	Good    time.Time `json:"good,omitzero"`     // LastGood
	Actions []Action  `json:"actions,omitempty"` // hosts: Suspensions

	DrainBegan time.Time `json:"drain_began,omitzero"` // sites
	DrainRate  float64   `json:"drain_rate,omitempty"`
}

func (db *DB) touch(k Key) { db.changed[k] = struct{}{} }

// Changed gives the records that have changed since the last call, at most n.
func (db *DB) Changed(n int) []Record {
	records := make([]Record, 0, min(n, len(db.changed)))
	for k := range db.changed {
		if len(records) == n {
			break
		}
		delete(db.changed, k)
		records = append(records, db.record(k))
	}
	return records
}

func (db *DB) record(k Key) Record {
	r := Record{Key: k, Gone: true}
	switch {
	case k.Site != "":
		if s := db.sites[k.Site]; s != nil {
			r.Gone, r.Used, r.Allowed, r.Usual = false, s.used, s.Allowed, s.Usual
			r.Good, r.DrainBegan, r.DrainRate = s.LastGood, s.DrainBegan, s.DrainRate
			r.Actions = append(r.Actions, s.Actions...)
		}
	case k.Source == "":
		if h := db.Known(k.Addr); h != nil {
			r.Gone, r.Used, r.Name, r.Facts, r.Broken = false, h.used, h.Name, h.Facts, h.Broken
			if h.Broken.Heard { // for a minute
				r.Broken = Broken{}
			}
			r.Facts.Extensions = append([]string(nil), h.Facts.Extensions...)
			r.Actions = append(r.Actions, h.Suspensions...)
		}
	default:
		// Policies share the record; the one that was used last speaks for all.
		var last *Path
		for _, p := range db.ways[k] {
			if last == nil || p.Made.After(last.Made) {
				last = p
			}
		}
		if last != nil {
			r.Gone, r.Used, r.Made = false, last.Made, last.Made
			if !last.Broken.Unfit {
				r.Broken = last.Broken
			}
			r.Name = last.Host.Name
		}
	}
	return r
}

// Learn takes records into the picture, from the store at start. What is known here of live
// connections stays; of two retry records the later counts.
func (db *DB) Learn(records []Record) {
	for _, r := range records {
		switch {
		case r.Gone:
		case r.Site != "":
			db.Site(r.Site).learn(r)
		case r.Source == "":
			h := db.Host(r.Addr, r.Name)
			h.Broken.learn(r.Broken)
			if h.used.Before(r.Used) {
				h.Facts, h.used = r.Facts, r.Used
				h.Suspensions = append([]Action(nil), r.Actions...)
			}
		default:
			db.learnPath(r)
		}
	}
}

func (db *DB) learnPath(r Record) {
	if len(db.ways[r.Key]) == 0 {
		if h := db.Known(r.Addr); h != nil && h.Name != "" {
			r.Name = "" // the host's own record, or the router, has said it
		}
		db.Path(PathKey{Source: r.Source, Addr: r.Addr}, r.Name)
	}
	for _, p := range db.ways[r.Key] {
		p.learn(r)
	}
}

func (p *Path) learn(r Record) {
	p.Broken.learn(r.Broken)
	if r.Made.After(p.Made) {
		p.Made = r.Made
	}
}

func (b *Broken) learn(o Broken) {
	if o.RetryAt.After(b.RetryAt) {
		*b = o
	}
}

func (s *Site) learn(r Record) {
	if !s.used.Before(r.Used) {
		return
	}
	s.Allowed, s.Usual, s.used = max(r.Allowed, 1), r.Usual, r.Used
	s.DrainBegan, s.DrainRate = r.DrainBegan, r.DrainRate
	if r.Good.After(s.LastGood) {
		s.LastGood = r.Good
	}
	s.Actions = append([]Action(nil), r.Actions...)
}

// Again notes that records could not be saved: they will be among the changed ones once more.
func (db *DB) Again(records []Record) {
	for i := range records {
		db.touch(records[i].Key)
	}
}

// clockSlack is how far a time may lie ahead without the clock having been wrong when it was written.
const clockSlack = time.Minute

// longestWait is the longest that a host is left alone after a failure, whatever the settings.
const longestWait = 24 * time.Hour

// Judge repairs a record that was written while the clock was ahead, so that nothing waits for its times:
// what would hold mail back is dropped, and times of past events become now. Suspensions that began before
// now stay.
func (r *Record) Judge(now time.Time) {
	ahead := now.Add(clockSlack)
	if b := &r.Broken; b.Since.After(ahead) || b.RetryAt.After(now.Add(longestWait)) {
		*b = Broken{}
	}
	r.Actions = slices.DeleteFunc(r.Actions, func(a Action) bool { return a.Begin.After(ahead) })
	if r.Used.After(ahead) { // until then nothing newer would count
		r.Facts.PlainUntil = time.Time{}
		r.DrainBegan, r.DrainRate = time.Time{}, 0
	}
	for _, at := range []*time.Time{&r.Used, &r.Made, &r.Good, &r.Facts.OutOfStep} {
		if at.After(ahead) {
			*at = now
		}
	}
}
