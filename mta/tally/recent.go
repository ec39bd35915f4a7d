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
type voices struct {
	all map[voice]*answers
	n   int // of answered in all of them
}

type voice struct {
	network netip.Prefix
	source  string
}

// answers are those of a network to a source.
type answers struct {
	since, at time.Time            // when the numbers were halved last; of the last answer
	all       answered             // the sum of
	of        map[string]*answered // those about the mail of each tenant
}

// answered is what a network has answered.
type answered struct {
	mail          int64 // recipients that it took or refused for good
	takes, blocks int   // answers: it takes the mail or refuses it otherwise; it blocks the source as one of spam
}

const (
	voiceMemory   = time.Hour
	maxAnswered   = 32_768
	fewestAnswers = 2 // by which a network counts
)

// hear notes the answer of a host about so many recipients. What the relay says by itself is none.
func (x *voices) hear(t *Try, tenant string, recipients int64) {
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
	v := x.all[key]
	if v == nil {
		v = &answers{since: t.At, of: make(map[string]*answered)}
	}
	w := v.of[tenant]
	switch {
	case w == nil && x.n >= maxAnswered:
		return
	case w == nil:
		w = new(answered)
		x.all[key], v.of[tenant] = v, w
		x.n++
	}
	if t.At.Sub(v.since) > voiceMemory {
		v.since, v.all = t.At, answered{}
		for _, w := range v.of {
			*w = answered{w.mail / 2, w.takes / 2, w.blocks / 2}
			v.all.add(*w, 1)
		}
	}
	v.at = t.At
	var more answered
	if t.Kind == accounting.Delivery || t.Kind == accounting.Bounce { // a host can defer the same mail again and again
		more.mail = recipients
	}
	if t.Class == bounce.SpamBlock {
		if more.blocks = 1; v.all.blocks == 0 { // what it took before says nothing of now
			v.all.takes = 0
			for _, w := range v.of {
				w.takes = 0
			}
		}
	} else {
		more.takes = 1
	}
	v.all.add(more, 1)
	w.add(more, 1)
}

func (a *answered) add(b answered, sign int) {
	a.mail += int64(sign) * b.mail
	a.takes += sign * b.takes
	a.blocks += sign * b.blocks
}

// block reports whether most answers block the source.
func (a *answered) block() bool { return a.blocks > a.takes }

// several reports whether those answers that decide are about mail of several tenants.
func (v *answers) several() bool {
	n := 0
	for _, w := range v.of {
		if v.all.block() && w.blocks > 0 || !v.all.block() && w.takes > 0 {
			n++
		}
	}
	return n > 1
}

// Standing is how receivers see a source, by what they have answered within the hour. A network counts by most of its
// answers. One that blocks all sources is left out, since that may be about the mail, unless the source is the only one
// of its pools.
type Standing struct {
	First   Votes            // of networks with an answer
	Any     Votes            // of those with some
	Several Votes            // of those with answers about mail of several tenants
	Without map[string]Votes // of the same, without the mail of each tenant: none speaks for others
}

// Votes are those of networks.
type Votes struct {
	Networks, Block int   // all, and those that block the source
	Mail, Blocked   int64 // recipients, from all sources, of all networks that have answered the source, and of those
}

// vote adds, or takes away, the vote of a network that had so much mail, if it has a part in it.
func (v *Votes) vote(a answered, votes bool, mail int64, sign int) {
	v.Mail += int64(sign) * mail
	if votes && a.takes+a.blocks > 0 {
		v.Networks += sign
		if a.block() {
			v.Block += sign
			v.Blocked += int64(sign) * mail
		}
	}
}

// Standings returns those of all sources, of the last hour, and forgets older answers.
func (t *Tallies) Standings(now time.Time) map[string]*Standing {
	others := make(map[string]bool) // sources with others in a pool
	for _, p := range t.config().Pools {
		all := p.Sources()
		for _, name := range all {
			others[name] = others[name] || len(all) > 1
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	type network struct {
		takes bool // from some source
		mail  int64
		of    map[string]int64 // the mail of each tenant
	}
	networks := make(map[netip.Prefix]*network)
	for key, v := range t.voices.all {
		if now.Sub(v.at) >= voiceMemory {
			t.voices.n -= len(v.of)
			delete(t.voices.all, key)
			continue
		}
		n := networks[key.network]
		if n == nil {
			n = &network{of: make(map[string]int64)}
			networks[key.network] = n
		}
		n.takes = n.takes || !v.all.block()
		n.mail += v.all.mail
		for tenant, w := range v.of {
			n.of[tenant] += w.mail
		}
	}
	all := make(map[string]*Standing)
	for key, v := range t.voices.all {
		s, n := all[key.source], networks[key.network]
		if s == nil {
			s = &Standing{Without: make(map[string]Votes)}
			all[key.source] = s
		}
		counts := n.takes || !others[key.source]
		several := counts && v.several()
		s.First.vote(v.all, counts, n.mail, 1)
		s.Any.vote(v.all, counts && max(v.all.takes, v.all.blocks) >= fewestAnswers, n.mail, 1)
		s.Several.vote(v.all, several, n.mail, 1)
		for tenant, mail := range n.of { // how it differs from Several
			w, rest := s.Without[tenant], v.all
			if its := v.of[tenant]; its != nil {
				rest.add(*its, -1)
			}
			w.vote(v.all, several, n.mail, -1)
			w.vote(rest, several, n.mail-mail, 1)
			s.Without[tenant] = w
		}
	}
	for _, s := range all {
		for tenant, w := range s.Without {
			s.Without[tenant] = Votes{s.Several.Networks + w.Networks, s.Several.Block + w.Block,
				s.Several.Mail + w.Mail, s.Several.Blocked + w.Blocked}
		}
	}
	return all
}
