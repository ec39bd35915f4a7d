package tally

import (
	"slices"
	"time"

	"example.org/mta/bounce"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
	"example.org/mta/mta/accounting"
)

// Try is what became of one recipient at one try, for operators.
type Try struct {
	At        time.Time
	Kind      accounting.Type
	Message   envelope.ID
	Source    string
	Host      route.Host // zero when none was chosen
	Session   string
	Attempted bool
	Class     bounce.Class
	Reply     reply.Reply
}

// Outcome is what became of the recipient: delivered, deferred, bounced or expired.
func (t *Try) Outcome() string { return resultNames[t.Kind] }

// ClassName is the class of the reply, "" without one.
func (t *Try) ClassName() string {
	if t.Class == bounce.None {
		return ""
	}
	return t.Class.String()
}

// How much is kept of the latest tries. A Try takes about 250 octets with its texts: 4 MB in all.
const (
	siteTries  = 50     // of a site
	siteErrors = 10     // of a site, of those that failed
	maxTries   = 16_384 // of all sites
)

// recent is the latest tries of a site, whatever became of them, and of those that failed: an error is not pushed out
// by the successes that follow it.
type recent struct {
	tries, errors ring
	touched       time.Time
	heard         []heard
}

// heard is the last reply of a site to a source.
type heard struct {
	source  string
	at      time.Time
	blocked bool // as a source of spam
}

// hear notes the reply of a site. What the relay says by itself is none.
func (r *recent) hear(t *Try) {
	if t.Source == "" || t.Reply.Local {
		return
	}
	h := heard{t.Source, t.At, t.Class == bounce.SpamBlock}
	if i := slices.IndexFunc(r.heard, func(h heard) bool { return h.source == t.Source }); i >= 0 {
		r.heard[i] = h
	} else {
		r.heard = append(r.heard, h)
	}
}

func (r *recent) len() int { return len(r.tries.all) + len(r.errors.all) }

// ring keeps the last so many tries.
type ring struct {
	all  []Try
	next int // the place of the next one, and of the oldest, once all is full
}

// add returns how many more tries there are now: 0 or 1. A ring that may not grow forgets its oldest try, unless that
// would be its only one.
func (r *ring) add(t Try, most int, grow bool) int {
	switch n := len(r.all); {
	case n == 0 || n < most && grow:
		if r.next > 0 { // it could not grow for a while
			r.all, r.next = slices.Concat(r.all[r.next:], r.all[:r.next]), 0
		}
		r.all = append(r.all, t)
		return 1
	default:
		r.all[r.next] = t
		r.next = (r.next + 1) % n
		return 0
	}
}

// newestFirst returns a copy.
func (r *ring) newestFirst() []Try {
	list := slices.Concat(r.all[r.next:], r.all[:r.next])
	slices.Reverse(list)
	return list
}

// recents are those of all sites. Where there are too many tries, no site gets more than it has, and a site that was
// idle for long loses its own to a new one.
type recents struct {
	by map[string]*recent
	n  int // tries
}

func (x *recents) add(site string, t Try) {
	room := x.n < maxTries
	r := x.by[site]
	if r == nil {
		if !room {
			name := idlest(x.by, func(r *recent) time.Time { return r.touched })
			x.n -= x.by[name].len()
			delete(x.by, name)
		}
		r = new(recent)
		x.by[site] = r
	}
	r.touched = t.At
	r.hear(&t)
	x.n += r.tries.add(t, siteTries, room)
	if t.Kind != accounting.Delivery {
		x.n += r.errors.add(t, siteErrors, room)
	}
}

// Recent returns the latest tries of a site, and the latest that failed, the newest first.
func (t *Tallies) Recent(site string) (tries, errors []Try) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.recent.by[site]; r != nil {
		return r.tries.newestFirst(), r.errors.newestFirst()
	}
	return nil, nil
}

// Standing is how receivers see a source: how many sites have answered it, and how many of those block it. A site that
// blocks all sources is left out, since that may be about the mail.
type Standing struct{ Sites, Block int }

// Standings returns those of all sources that a site has answered after since.
func (t *Tallies) Standings(since time.Time) map[string]Standing {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make(map[string]Standing)
	for _, r := range t.recent.by {
		n, blocked := 0, 0
		for _, h := range r.heard {
			if h.at.After(since) {
				if n++; h.blocked {
					blocked++
				}
			}
		}
		for _, h := range r.heard {
			if !h.at.After(since) || blocked == n {
				continue
			}
			s := all[h.source]
			if s.Sites++; h.blocked {
				s.Block++
			}
			all[h.source] = s
		}
	}
	return all
}
