package controltest

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"example.org/mta/operator/api"
)

var _ api.OpenConnections = (*Relay)(nil)

// Connections gives a page of those of KnownConnections that fit.
func (r *Relay) Connections(_ context.Context, f api.ConnectionFilter, after string, limit int) (l api.ConnectionList, _ error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []api.Connection
	for _, c := range r.KnownConnections {
		peer, _ := netip.ParseAddrPort(c.Peer)
		if (f.Direction == "" || f.Direction == c.Direction) && (f.State == "" || f.State == c.State) && (f.Site == "" || f.Site == c.Site) &&
			(f.Source == "" || f.Source == c.Source) && (f.Listener == "" || f.Listener == c.Listener) && (f.Tenant == "" || f.Tenant == c.Tenant) &&
			(!f.Peer.IsValid() || f.Peer.Contains(peer.Addr())) {
			list = append(list, c)
		}
	}
	l.Total = len(list)
	l.Connections, l.Next = pageOf(list, func(c *api.Connection) string { return c.ID }, after, limit)
	return l, nil
}

// CloseConnections takes connections out of KnownConnections.
func (r *Relay) CloseConnections(_ context.Context, c api.CloseConnections) (done api.ClosedConnections, _ error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	named := func(x api.Connection) bool { return slices.Contains(c.IDs, x.ID) }
	for _, x := range r.KnownConnections {
		if named(x) {
			done.Connections++
			if x.State == api.ConnectionBusy {
				done.Busy++
			}
		}
	}
	if done.Connections == 0 {
		return done, api.NotFound("those that are open: mta connections", "no open connection has the id %s", c.IDs[0])
	}
	if !c.DryRun {
		r.KnownConnections = slices.DeleteFunc(slices.Clone(r.KnownConnections), named)
	}
	return done, nil
}

// Recent gives the outcomes of KnownOutcomes, whatever the site.
func (r *Relay) Recent(_ context.Context, site string) (api.Recent, error) {
	if !slices.ContainsFunc(r.KnownSites, func(s api.Site) bool { return s.Name == site }) {
		return api.Recent{}, api.NotFound("those that are known: mta sites", "no site is known by the name %s, and no domain of that name has a route", site)
	}
	out := api.Recent{Site: site}
	for _, o := range r.KnownOutcomes {
		out.Outcomes = append(out.Outcomes, o)
		if o.Outcome != api.OutcomeDelivered {
			out.Errors = append(out.Errors, o)
		}
	}
	return out, nil
}

func (r *Relay) addConnections() {
	taken := &api.Reply{Code: 250, Enhanced: "2.0.0", Text: "queued", Command: "content"}
	r.KnownConnections = []api.Connection{
		{ID: "01kamz8dpg0a1", Direction: api.Incoming, State: api.ConnectionBusy, Protocol: "SMTP", Peer: "127.0.0.1:40112", PeerName: "app1.acme.example", Tenant: "acme", User: "news@acme.example",
			Listener: "submission", TLS: &api.HostTLS{Version: "TLSv1.3", Cipher: "TLS_AES_128_GCM_SHA256"}, Since: r.Now.Add(-7 * time.Minute), Messages: 812, LastReply: taken},
		{ID: "01kamz8dpg0a2", Direction: api.Incoming, State: api.ConnectionIdle, Protocol: "HTTP", Peer: "192.0.2.99:51200", Listener: "main",
			Since: r.Now.Add(-20 * time.Second), IdleSince: r.Now.Add(-5 * time.Second), Messages: 3},
		{ID: "6920000a0001", Direction: api.Outgoing, State: api.ConnectionBusy, Protocol: "SMTP", Peer: "192.0.2.7:25", PeerName: "mx1.big.example", Tenant: "acme",
			Site: "big.example", Source: "shared1", Backlog: 31, Mode: "pipelining", Window: 2, TLS: &api.HostTLS{Version: "TLSv1.3", Cipher: "TLS_AES_128_GCM_SHA256", VerifiedBy: "DANE"},
			Since: r.Now.Add(-2 * time.Minute), Messages: 4_120, LastReply: taken},
		{ID: "6920000a0002", Direction: api.Outgoing, State: api.ConnectionOpening, Protocol: "SMTP", Peer: "192.0.2.8:25", PeerName: "mx2.big.example",
			Site: "big.example", Source: "shared1", Since: r.Now.Add(-3 * time.Second)},
	}
	r.KnownOutcomes = []api.RecentOutcome{
		{Time: r.Now.Add(-time.Second), Outcome: api.OutcomeDelivered, Message: r.Messages[3].ID, Source: "shared1", Host: "mx1.big.example", Address: "192.0.2.7:25", Session: "6920000a0001", Attempted: true, Reply: *taken},
		{Time: r.Now.Add(-5 * time.Minute), Outcome: api.OutcomeDeferred, Message: r.Messages[1].ID, Source: "shared1", Host: "mx1.big.example", Address: "192.0.2.7:25", Session: "6920000a0001",
			Class: "greylisted", Attempted: true, Reply: api.Reply{Code: 450, Enhanced: "4.7.1", Text: "greylisted, come back in five minutes", Command: "RCPT"}},
	}
}
