package tally

import (
	"net/netip"
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

// voices are what networks have answered to sources. A network is what a stranger can't have many of, unlike names of
// hosts.
type voices map[voice]*answers

type voice struct {
	network netip.Prefix
	source  string
}

// answers are those of a network to a source: those that block it as a source of spam, and the others.
type answers struct {
	since, at time.Time   // when the numbers were halved last; of the last answer
	mail      int64       // recipients that it took or refused for good
	of        [2]answered // those that take mail or refuse it otherwise; those that block
}

// answered is whose mail got answers.
type answered struct {
	n       int
	tenant  string // the first
	several bool   // mail of other tenants, too
}

const (
	voiceMemory = time.Hour
	maxVoices   = 16_384
	fewestAlone = 2 // answers about one tenant's mail by which a network counts
)

// hear notes the answer of a host about so many recipients. What the relay says by itself is none.
func (x voices) hear(t *Try, tenant string, recipients int64) {
	a := t.Host.Addr.Addr().Unmap()
	if t.Source == "" || t.Reply.Local || !a.IsValid() {
		return
	}
	bits := 48
	if a.Is4() {
		bits = 24
	}
	network, _ := a.Prefix(bits)
	key := voice{network, t.Source}
	v := x[key]
	switch {
	case v == nil && len(x) >= maxVoices:
		return
	case v == nil:
		v = &answers{since: t.At}
		x[key] = v
	case t.At.Sub(v.since) > voiceMemory:
		v.since = t.At
		v.mail /= 2
		v.of[0].n /= 2
		v.of[1].n /= 2
	}
	v.at = t.At
	if t.Kind == accounting.Delivery || t.Kind == accounting.Bounce { // a host can defer the same mail again and again
		v.mail += recipients
	}
	of := &v.of[0]
	if t.Class == bounce.SpamBlock {
		if of = &v.of[1]; of.n == 0 { // what it took before says nothing of now
			v.of[0] = answered{}
		}
	}
	if of.n++; of.n == 1 {
		of.tenant = tenant
	}
	of.several = of.several || of.tenant != tenant
}

// blocks returns the answers by which the network counts, and whether they block.
func (v *answers) blocks() (*answered, bool) {
	if v.of[1].n > v.of[0].n {
		return &v.of[1], true
	}
	return &v.of[0], false
}

// Standing is how receivers see a source, by what they have answered within the hour. A network counts by most of its
// answers. One that blocks all sources is left out, since that may be about the mail, unless the source is the only one
// of its pools.
type Standing struct {
	Mail    int64 // recipients, from all sources, of all networks that have answered the source
	Any     Votes // of networks with answers about mail of several tenants, or some about one tenant's
	Several Votes // of those with answers about mail of several tenants: no tenant speaks for others
}

// Votes are those of networks.
type Votes struct {
	Networks, Block int   // all, and those that block the source
	Mail            int64 // recipients, from all sources, of those that block it
}

func (v *Votes) add(block bool, mail int64) {
	if v.Networks++; block {
		v.Block++
		v.Mail += mail
	}
}

// Standings returns those of all sources, of the last hour, and forgets older answers.
func (t *Tallies) Standings(now time.Time) map[string]Standing {
	others := make(map[string]bool) // sources with others in a pool
	for _, p := range t.config().Pools {
		all := p.Sources()
		for _, name := range all {
			others[name] = others[name] || len(all) > 1
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	takes, mail := make(map[netip.Prefix]bool), make(map[netip.Prefix]int64)
	for key, v := range t.voices {
		if now.Sub(v.at) >= voiceMemory {
			delete(t.voices, key)
			continue
		}
		_, block := v.blocks()
		takes[key.network] = takes[key.network] || !block
		mail[key.network] += v.mail
	}
	all := make(map[string]Standing)
	for key, v := range t.voices {
		s, n := all[key.source], mail[key.network]
		s.Mail += n
		of, block := v.blocks()
		if counts := takes[key.network] || !others[key.source]; counts && of.several {
			s.Several.add(block, n)
			s.Any.add(block, n)
		} else if counts && of.n >= fewestAlone {
			s.Any.add(block, n)
		}
		all[key.source] = s
	}
	return all
}
