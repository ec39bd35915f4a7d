package listing

import (
	"cmp"
	"fmt"
	"time"

	"example.org/mta/operator/api"
)

type host = api.Host

// Hosts lists the hosts that mail goes to.
var Hosts = Listing[host]{
	Name:  "hosts",
	Noun:  "host",
	Empty: "the hosts that mail was sent to, and what was learned of them, would stand here",
	Columns: []Column[host]{
		{Title: "HOST", Shrink: true, Cell: func(h *host) Cell { return Word(h.Name) }},
		{Title: "ADDRESS", Cell: func(h *host) Cell { return Word(h.Address) }},
		{Title: "STATE", Cell: func(h *host) Cell { return State(h.State) }},
		{Title: "CONNS", Right: true, Cell: func(h *host) Cell { return Count(h.Connections) }},
		{Title: "RUNNING", Right: true, Cell: func(h *host) Cell { return Count(h.Backlog) }},
		{Title: "MODE", Cell: func(h *host) Cell { return mode(h.Mode, h.Window) }},
		{Title: "TLS", In: Console, Cell: func(h *host) Cell { return secured(h.TLS) }},
		waits(5, func(h *host) []api.WaitsFor { return h.WaitsFor }),
		{Title: "RETRY IN", Right: true, At: func(h *host, l Look) Cell { at, _ := l.HostNote(h); return l.until(at) }},
	},
	Note: func(h *host, l Look) string { _, note := l.HostNote(h); return note },
	Key:  func(h *host) string { return h.Address },
	Compare: byMail(func(h *host) (n int) {
		for _, w := range h.WaitsFor {
			n += w.Recipients
		}
		return n
	}, func(h *host) []api.WaitsFor { return h.WaitsFor }, func(h *host) string { return h.Name + " " + h.Address }),
}

// mode is how far commands run ahead, and where there is space how many transactions.
func mode(name string, window int) Cell {
	c := Word(name)
	if window > 0 {
		c.Long = fmt.Sprintf("%s, window %d", name, window)
	}
	return c
}

// secured is the version of TLS, and where there is space what vouches for the certificate.
func secured(t *api.HostTLS) Cell {
	if t == nil {
		return Word("")
	}
	c := Word(t.Version)
	c.Long = t.Version
	if t.VerifiedBy != "" {
		c.Long += ", " + t.VerifiedBy
	}
	if t.Unverified != "" {
		c.Long += ", unverified: " + t.Unverified
	}
	return c
}

// HostNote returns when a host is tried again, and what was wrong: with the host itself, else with how it treats one
// of the sources.
func (l Look) HostNote(h *host) (retry time.Time, note string) {
	for _, a := range h.Actions {
		if a.End.After(l.Now) {
			return a.End, a.What + From(a.Source) + ": " + a.Reason
		}
	}
	b, source := h.Broken, ""
	for i := range h.Paths {
		if p := &h.Paths[i]; b == nil && p.Broken != nil {
			b, source = p.Broken, "from "+p.Source+": "
		}
	}
	switch {
	case b != nil:
		times := "1 failure"
		if b.Failures != 1 {
			times = fmt.Sprintf("%d failures", b.Failures)
		}
		note = fmt.Sprintf("%s%s (%s, for %s)", source, b.Reply.String(), times, cmp.Or(l.ago(b.Since).Text, "0s"))
		return b.RetryAt, note
	case h.PlainUntil.After(l.Now):
		return retry, "TLS failed: clear text" + l.More(h.PlainUntil)
	}
	return retry, ""
}
