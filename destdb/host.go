package destdb

import (
	"net/netip"
	"slices"
	"time"

	"example.org/mta/internal/reply"
)

// Host is one address to which connections can go, whichever source they come from.
type Host struct {
	Addr netip.AddrPort
	Name string // the exchanger's name by which it was last known

	// Broken says that the host could not be reached: no source should try before RetryAt.
	Broken Broken
	Facts  Facts
	// Suspensions are in force or were of late: nothing is sent here, by an operator's word.
	Suspensions []Action

	live  int     // connections, from all sources
	paths []*Path // that lead here and are in the picture, in any order
	used  time.Time
}

// Live counts the connections to the host, from all sources.
func (h *Host) Live() int { return h.live }

// Facts is what a host's answers have taught. Zero fields are not known.
type Facts struct {
	// the best mode it bears: lock-step, pipelining, chunking
	Mode           string    `json:"mode,omitempty"`
	OutOfStep      time.Time `json:"out_of_step,omitzero"`      // when it last answered out of step
	WindowMessages int       `json:"window_messages,omitempty"` // messages under way that it bears
	WindowBytes    int64     `json:"window_bytes,omitempty"`    // octets under way
	// TLS failed: opportunistic mail goes in clear text until then
	PlainUntil time.Time `json:"plain_until,omitzero"`
	// as which TLS failed: an address can have several names; "" is all
	PlainName  string   `json:"plain_name,omitempty"`
	TLS        TLS      `json:"tls,omitzero"`         // of the last connection; zero for clear text
	Extensions []string `json:"extensions,omitempty"` // of EHLO
	RcptMax    int      `json:"rcpt_max,omitempty"`   // recipients in a transaction (RFC 9422)
	MailMax    int      `json:"mail_max,omitempty"`   // transactions in a connection: said, or found out
}

// TLS is how a connection was protected, for people.
type TLS struct {
	Version     string `json:"version"`
	Cipher      string `json:"cipher"`
	Verified    string `json:"verified,omitempty"`   // what vouches for the certificate
	Unverified  string `json:"unverified,omitempty"` // why nothing does
	Certificate string `json:"certificate,omitempty"`
}

// Broken is the retry record of what has failed. The zero value is sound.
type Broken struct {
	Failures int         `json:"failures,omitempty"` // in a row
	Since    time.Time   `json:"since,omitzero"`     // the first of them
	RetryAt  time.Time   `json:"retry_at,omitzero"`  // not to be tried before
	Why      reply.Reply `json:"why,omitzero"`       // of the last failure
	Unfit    bool        `json:"-"`                  // the host lacks what the path's policy demands: see DB.Unfit
	Heard    bool        `json:"-"`                  // another relay has failed, this one has not: see DB.Heard
}

// Waiting reports whether the time to try again has not come yet.
func (b *Broken) Waiting(now time.Time) bool { return b.Failures > 0 && now.Before(b.RetryAt) }

// Backoff is how the time between tries grows: First, doubled with each failure in a row, at most
// Max.
type Backoff struct{ First, Max time.Duration }

// After is the wait after n failures in a row.
func (b Backoff) After(n int) time.Duration {
	d := b.First
	for ; n > 1 && d < b.Max; n-- {
		d *= 2
	}
	return min(d, max(b.Max, b.First))
}

// fail notes one more failure. Connections that were tried side by side fail together: those that
// come while the wait has begun are the same failure.
func (b *Broken) fail(now time.Time, why reply.Reply, backoff Backoff) {
	b.Why, b.Unfit, b.Heard = why, false, false
	if b.Waiting(now) {
		return
	}
	if b.Failures == 0 {
		b.Since = now
	}
	b.Failures++
	b.RetryAt = now.Add(backoff.After(b.Failures))
}

// hasten brings the time of the next try forward to what backoff makes it, and reports whether it was later.
func (b *Broken) hasten(now time.Time, backoff Backoff) bool {
	latest := now.Add(backoff.After(b.Failures))
	if b.Failures == 0 || !b.RetryAt.After(latest) {
		return false
	}
	b.RetryAt = latest
	return true
}

// stale reports whether the record's time has come so long ago that it means nothing any more.
func (b *Broken) stale(now time.Time, keep time.Duration) bool {
	return b.Failures > 0 && now.Sub(b.RetryAt) >= keep
}

// Host gives the host at an address, making it unknown to known. Name may be "".
func (db *DB) Host(addr netip.AddrPort, name string) *Host {
	h := db.Known(addr)
	switch {
	case h == nil:
		h = &Host{Addr: addr, Name: name}
		db.hosts[addr.Addr()] = append(db.hosts[addr.Addr()], h)
		db.hostsInOrder.insert(h)
	case name != "" && name != h.Name:
		db.hostsInOrder.remove(h.place())
		h.Name = name
		db.hostsInOrder.insert(h)
	}
	return h
}

// Known gives the host at an address; nil when there is none in the picture.
func (db *DB) Known(addr netip.AddrPort) *Host {
	for _, h := range db.hosts[addr.Addr()] {
		if h.Addr == addr {
			return h
		}
	}
	return nil
}

func (db *DB) dropHost(h *Host) {
	ip := h.Addr.Addr()
	if db.hosts[ip] = slices.DeleteFunc(db.hosts[ip], func(o *Host) bool { return o == h }); len(db.hosts[ip]) == 0 {
		delete(db.hosts, ip)
	}
	db.hostsInOrder.remove(h.place())
	db.touch(h.key())
}

// Suspend notes that nothing may be sent to h until a.End, from a.Source or from all.
func (db *DB) Suspend(h *Host, a Action, now time.Time) {
	h.Suspensions = a.AddTo(h.Suspensions)
	db.Taught(h, now)
}

// Resume ends all suspensions of h. It returns how many were in force.
func (db *DB) Resume(h *Host, now time.Time) (n int) {
	for i := range h.Suspensions {
		if a := &h.Suspensions[i]; now.Before(a.End) {
			a.End = now
			n++
		}
	}
	if n > 0 {
		db.Taught(h, now)
	}
	return n
}

// Taught notes that h.Facts were changed.
func (db *DB) Taught(h *Host, now time.Time) {
	h.used = now
	db.touch(h.key())
}

// Unreachable notes that a connection to h failed for a reason that has nothing to do with the
// source.
func (db *DB) Unreachable(h *Host, now time.Time, why reply.Reply, backoff Backoff) {
	h.Broken.fail(now, why, backoff)
	h.used = now
	db.touch(h.key())
}

// Heard notes that another relay could not reach a host: this one leaves it alone until a time, too. It reports false
// if this one knows better, by an open connection or a failure of its own. What is only heard of is forgotten with the
// record.
func (db *DB) Heard(addr netip.AddrPort, name string, why reply.Reply, now, until time.Time) bool {
	h := db.Known(addr)
	if h == nil {
		h = db.Host(addr, name)
	}
	if h.Broken.Failures > 0 || h.Open() {
		return false
	}
	h.Broken = Broken{Failures: 1, Since: now, RetryAt: until, Why: why, Heard: true}
	db.touch(h.key())
	return true
}

// Recovered forgets that a host could not be reached, or only that another relay has said so. It reports whether there
// was something to forget.
func (db *DB) Recovered(addr netip.AddrPort, heardOnly bool) bool {
	h := db.Known(addr)
	if h == nil || h.Broken.Failures == 0 || heardOnly && !h.Broken.Heard {
		return false
	}
	h.Broken = Broken{}
	db.touch(h.key())
	return true
}

// Open reports whether a connection to the host stands, from any source.
func (h *Host) Open() bool {
	for _, p := range h.paths {
		for _, c := range p.conns {
			if c.Phase == Open {
				return true
			}
		}
	}
	return false
}

func (h *Host) key() Key { return Key{Addr: h.Addr} }
