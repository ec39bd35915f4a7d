package destdb

import (
	"net/netip"
	"slices"
	"time"

	"example.org/mta/internal/reply"
)

// PathKey names a way to a host: connections along one path can take each other's mail.
type PathKey struct {
	Source string
	Addr   netip.AddrPort
	// Policy distinguishes connections that differ in what was demanded of them (TLS, account). Its
	// value is the caller's and must be comparable; it is neither shown nor stored. Nil: not known.
	Policy any
}

// Path is the way from one source to one host under one policy. This is Finch's destination:
// what is classified, and what has connections.
type Path struct {
	PathKey
	Host *Host
	// Name is the host's name on this path. An address can have several, and Host.Name is the last of them.
	Name string

	// Broken says that the host turned this source away (greeting, EHLO, TLS, AUTH).
	Broken Broken
	// Made is when the last connection was begun; zero when none is remembered.
	Made time.Time

	conns []*Conn // live, newest first
	at    int     // its place in Host.paths
}

// Path gives the path of that key, making it if need be.
func (db *DB) Path(key PathKey, name string) *Path {
	p := db.paths[key]
	if p == nil {
		p = &Path{PathKey: key, Host: db.Host(key.Addr, name), Name: name}
		p.at = len(p.Host.paths)
		p.Host.paths = append(p.Host.paths, p)
		db.paths[key] = p
		if others := db.ways[p.key()]; len(others) > 0 {
			// Records know no policy: what is known under another one, or was before a restart, counts.
			o := others[0]
			if p.Made = o.Made; !o.Broken.Unfit {
				p.Broken = o.Broken
			}
			if o.Policy == nil && len(o.conns) == 0 {
				db.drop(o.PathKey, o) // it was made by Learn, to stand in
			}
		}
		db.ways[p.key()] = append(db.ways[p.key()], p)
	} else {
		p.Name = name
		db.Host(key.Addr, name) // by which it is known from now on
	}
	return p
}

func (db *DB) drop(key PathKey, p *Path) {
	delete(db.paths, key)
	last := len(p.Host.paths) - 1
	p.Host.paths[p.at] = p.Host.paths[last]
	p.Host.paths[p.at].at = p.at
	p.Host.paths[last] = nil
	p.Host.paths = p.Host.paths[:last]
	k := p.key()
	db.ways[k] = slices.DeleteFunc(db.ways[k], func(o *Path) bool { return o == p })
	if len(db.ways[k]) == 0 {
		delete(db.ways, k)
		db.touch(k)
	}
}

// Conns are the live connections, newest first. The slice must be left alone, and is good until
// the next Open or Closed.
func (p *Path) Conns() []*Conn { return p.conns }

// Retrying reports whether no connection may be tried now, the host or this source's standing with it
// being broken, and until when.
func (p *Path) Retrying(now time.Time) (time.Time, bool) {
	at := p.RetryAt()
	if a := p.Suspension(now); a != nil && a.End.After(at) {
		at = a.End
	}
	return at, now.Before(at)
}

// Suspension is what holds mail along p back by an operator's word; of several the one that ends
// last, and nil when there is none.
func (p *Path) Suspension(now time.Time) (last *Action) {
	for i := range p.Host.Suspensions {
		a := &p.Host.Suspensions[i]
		if now.Before(a.End) && (a.Source == "" || a.Source == p.Source) && (last == nil || a.End.After(last.End)) {
			last = a
		}
	}
	return last
}

// RetryAt is when the path may be tried again; zero when it is sound.
func (p *Path) RetryAt() time.Time {
	var at time.Time
	if p.Broken.Failures > 0 {
		at = p.Broken.RetryAt
	}
	if h := &p.Host.Broken; h.Failures > 0 && h.RetryAt.After(at) {
		at = h.RetryAt
	}
	return at
}

// Suspect reports whether the last attempt failed: the path must be tried by one connection
// before more are opened.
func (p *Path) Suspect() bool { return p.Broken.Failures > 0 || p.Host.Broken.Failures > 0 }

// DownSince is when the path, or its host, was found broken first, or was suspended; zero when it is
// sound. A single failure before watched, when this relay started, counts from then: how the host was
// while no relay ran is not known.
func (p *Path) DownSince(now, watched time.Time) time.Time {
	var at time.Time
	if a := p.Suspension(now); a != nil {
		at = a.Begin
	}
	for _, b := range [...]*Broken{&p.Broken, &p.Host.Broken} {
		if b.Failures == 0 {
			continue
		}
		since := b.Since
		if b.Failures == 1 && since.Before(watched) {
			since = watched
		}
		if at.IsZero() || since.Before(at) {
			at = since
		}
	}
	return at
}

// Why is the last failure, of the path or of its host, whichever holds longer.
func (p *Path) Why() reply.Reply {
	if p.Broken.Failures > 0 && !p.Broken.RetryAt.Before(p.Host.Broken.RetryAt) {
		return p.Broken.Why
	}
	return p.Host.Broken.Why
}

// Refused notes that the host turned away a connection along p.
func (db *DB) Refused(p *Path, now time.Time, why reply.Reply, backoff Backoff) {
	p.Broken.fail(now, why, backoff)
	db.touch(p.key())
}

// Unfit notes that the host lacks what p's policy demands of a connection (TLS, a certificate). That says
// nothing about mail under other policies, and nothing about the time after a restart.
func (db *DB) Unfit(p *Path, now time.Time, why reply.Reply, backoff Backoff) {
	p.Broken.fail(now, why, backoff)
	p.Broken.Unfit = true
}

// Works notes that a connection along p has come to stand: whatever was broken is not any more.
func (db *DB) Works(p *Path, now time.Time) {
	if p.Broken.Failures > 0 {
		p.Broken = Broken{}
		db.touch(p.key())
	}
	if p.Host.Broken.Failures > 0 {
		p.Host.Broken = Broken{}
		db.touch(p.Host.key())
	}
	p.Host.used = now
}

// Renewed forgets that the host turned the source of p away, which has another address or name by now.
func (db *DB) Renewed(p *Path) {
	if p.Broken.Failures > 0 {
		p.Broken = Broken{}
		db.touch(p.key())
	}
}

// Hasten has p, and its host, wait for no longer from now on than backoff has them: it may have been longer before.
func (db *DB) Hasten(p *Path, now time.Time, backoff Backoff) {
	if p.Broken.hasten(now, backoff) {
		db.touch(p.key())
	}
	if p.Host.Broken.hasten(now, backoff) {
		db.touch(p.Host.key())
	}
}

func (p *Path) key() Key { return Key{Source: p.Source, Addr: p.Addr} }

// Phase is how far a connection has come.
type Phase uint8

const (
	Opening Phase = iota // dialling, greeting, TLS, AUTH
	Open                 // takes jobs
	Closing              // takes no more; it may still have some
)

// String gives the word for listings.
func (p Phase) String() string { return [...]string{"opening", "open", "closing"}[p] }

// Conn is a live connection. Its owner keeps Phase, Backlog and the times up to date.
type Conn struct {
	Path *Path
	Site *Site // for whose mail it was opened

	Phase     Phase
	Made      time.Time // when it was begun
	Backlog   int       // jobs that it has
	Since     time.Time // when it last went from busy to idle or back, or changed its phase
	Shared    int       // with less backlog than that one more job shares the round trip of what it has
	Threshold int       // with that much backlog it takes no more by itself: another job would wait too long
	Limit     int       // with that much backlog it takes no more at all

	Owner any // whose it is
}

// Shares reports whether one more job would wait for nothing.
func (c *Conn) Shares() bool { return c.Phase == Open && c.Backlog < c.Shared }

// Space reports whether it takes a job without being asked twice (S7).
func (c *Conn) Space() bool { return c.Phase == Open && c.Backlog < c.Threshold }

// Rideable reports whether it may take a job when no other worker can be had (S8).
func (c *Conn) Rideable() bool { return c.Phase == Open && c.Backlog < c.Limit }

// Open notes that a connection along p is begun, for a site's mail. It counts in every limit from
// now on.
func (db *DB) Open(p *Path, s *Site, now time.Time) *Conn {
	c := &Conn{Path: p, Site: s, Made: now, Since: now}
	p.conns = append(p.conns, nil)
	copy(p.conns[1:], p.conns)
	p.conns[0] = c
	p.Made = now
	p.Host.live++
	p.Host.used = now
	s.live++
	s.used = now
	db.touch(p.key())
	return c
}

// Closed notes that a connection is no more. Done twice for one connection it changes nothing.
func (db *DB) Closed(c *Conn) {
	p := c.Path
	for i, o := range p.conns {
		if o != c {
			continue
		}
		copy(p.conns[i:], p.conns[i+1:])
		p.conns[len(p.conns)-1] = nil
		p.conns = p.conns[:len(p.conns)-1]
		p.Host.live--
		c.Site.live--
		return
	}
}
