// Package connections answers about open connections, those of clients and those to remote hosts, and lets operators
// watch the SMTP conversations on them.
package connections

import (
	"cmp"
	"context"
	"crypto/tls"
	"net/netip"
	"slices"
	"strings"

	"example.org/mta/delivery"
	"example.org/mta/internal/route"
	"example.org/mta/operator/api"
	"example.org/mta/submission"
	"example.org/mta/submission/http"
)

// Entrance is a listener or api block, and the server that has its clients' connections: one of the two.
type Entrance struct {
	Listener string
	SMTP     *submission.Server
	HTTP     *http.Server
}

// open lists the connections of an entrance.
func (e *Entrance) open() (list []api.Connection) {
	if e.SMTP != nil {
		for _, x := range e.SMTP.OpenConnections() {
			list = append(list, sessionOf(e.Listener, &x))
		}
		return list
	}
	for _, x := range e.HTTP.OpenConnections() {
		list = append(list, requestsOf(e.Listener, &x))
	}
	return list
}

// close ends the connections of these ids, and returns how many are known, and how many of these end later.
func (e *Entrance) close(ids map[string]bool) (known, later int) {
	if e.SMTP != nil {
		return e.SMTP.CloseConnections(ids)
	}
	return e.HTTP.CloseConnections(ids)
}

// Connections answers about open connections, and closes them; it implements api.OpenConnections.
type Connections struct {
	Delivery  Delivery
	Entrances func() []Entrance // by which clients submit
}

// Delivery has the connections to remote hosts.
type Delivery interface {
	Connections(q delivery.ConnectionQuery, after string, n int) ([]delivery.ConnectionInfo, int)
	CloseConnections(ids []string) (known, busy int)
}

// A cursor is the direction and the id of the last connection before.
const cursorParts = ":"

func (c Connections) Connections(_ context.Context, f api.ConnectionFilter) (l api.ConnectionList, _ error) {
	direction, id, ok := strings.Cut(f.After, cursorParts)
	if f.After != "" && (!ok || !slices.Contains(api.Directions, api.Direction(direction))) {
		return l, api.Invalid("take it from the page before", "%q is not a valid cursor", f.After)
	}
	var in []api.Connection
	if f.Direction != api.Outgoing && f.Site == "" && f.Source == "" {
		in = c.incoming(&f)
	}
	l.Total = len(in)
	switch {
	case direction == string(api.Outgoing):
		in = nil
	case direction != "":
		in = slices.DeleteFunc(in, func(x api.Connection) bool { return x.ID <= id })
		id = ""
	}
	l.Connections = in
	if f.Direction != api.Incoming && f.Listener == "" {
		out, total := c.outgoing(&f, id, max(f.Limit-len(in), 0)+1)
		l.Connections = append(l.Connections, out...)
		l.Total += total
	}
	if len(l.Connections) > f.Limit {
		l.Connections = l.Connections[:f.Limit]
		last := &l.Connections[f.Limit-1]
		l.Next = string(last.Direction) + cursorParts + last.ID
	}
	return l, nil
}

// incoming gives those of clients that fit, by their ids.
func (c Connections) incoming(f *api.ConnectionFilter) (list []api.Connection) {
	for _, e := range c.Entrances() {
		if f.Listener != "" && f.Listener != e.Listener {
			continue
		}
		for _, x := range e.open() {
			peer, _ := netip.ParseAddrPort(x.Peer)
			if (f.Tenant == "" || f.Tenant == x.Tenant) && (!f.Peer.IsValid() || f.Peer.Contains(peer.Addr())) &&
				(f.State == "" || f.State == x.State) {
				list = append(list, x)
			}
		}
	}
	slices.SortFunc(list, func(a, b api.Connection) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

var clientStates = [...]api.ConnectionState{
	submission.Greeting: api.ConnectionOpening, submission.Busy: api.ConnectionBusy,
	submission.Idle: api.ConnectionIdle, submission.Closing: api.ConnectionClosing,
}

// requestsOf puts a connection by HTTP into words.
func requestsOf(listener string, x *http.ConnectionInfo) api.Connection {
	c := api.Connection{
		ID: x.ID.String(), Direction: api.Incoming, State: api.ConnectionBusy, Protocol: "HTTP", Peer: x.Peer.String(),
		Listener: listener,
		Since:    x.Since, IdleSince: x.Idle, Messages: x.Requests,
	}
	switch {
	case x.Closing:
		c.State = api.ConnectionClosing
	case !x.Idle.IsZero():
		c.State = api.ConnectionIdle
	}
	return c
}

// sessionOf puts a connection by SMTP into words.
func sessionOf(listener string, x *submission.ConnectionInfo) api.Connection {
	c := api.Connection{
		ID: x.Session, Direction: api.Incoming, State: clientStates[x.State], Protocol: "SMTP", Peer: x.Peer.String(),
		PeerName: x.Helo, Tenant: x.Tenant, User: x.User,
		Listener: listener, Since: x.Since, IdleSince: x.Idle, Messages: x.Messages, LastReply: api.ReplyOf(x.Last),
	}
	if x.TLS != nil {
		c.TLS = &api.HostTLS{Version: strings.Replace(tls.VersionName(x.TLS.Version), "TLS ", "TLSv", 1),
			Cipher: tls.CipherSuiteName(x.TLS.CipherSuite)}
	}
	return c
}

var poolStates = [...]api.ConnectionState{
	delivery.Opening: api.ConnectionOpening, delivery.Busy: api.ConnectionBusy, delivery.Idle: api.ConnectionIdle,
	delivery.Closing: api.ConnectionClosing,
}

// outgoing gives the first n of those to remote hosts that fit, behind an id, and counts all.
func (c Connections) outgoing(f *api.ConnectionFilter, after string, n int) (list []api.Connection, total int) {
	q := delivery.ConnectionQuery{Site: strings.ToLower(f.Site), Source: f.Source, Tenant: f.Tenant}
	if i := slices.Index(poolStates[:], f.State); i >= 0 {
		state := delivery.ConnectionState(i)
		q.State = &state
	}
	if f.Peer.IsValid() {
		q.Host = func(h route.Host) bool { return f.Peer.Contains(h.Addr.Addr()) }
	}
	found, total := c.Delivery.Connections(q, after, n)
	for i := range found {
		list = append(list, outgoingOf(&found[i]))
	}
	return list, total
}

func outgoingOf(x *delivery.ConnectionInfo) api.Connection {
	c := api.Connection{
		ID: x.Session, Direction: api.Outgoing, State: poolStates[x.State], Protocol: "SMTP",
		Peer: api.AddressOf(x.Host.Addr), PeerName: x.Host.Name, Tenant: x.Tenant,
		Site: x.Site, Provider: x.Provider, Source: x.Source, Backlog: x.Backlog, Mode: x.Mode, Window: x.Window,
		Since: x.Since, IdleSince: x.Idle,
		Messages: x.Given, LastReply: api.ReplyOf(x.Last),
	}
	if t := x.Link.TLS; t.Version != "" {
		c.TLS = &api.HostTLS{Version: t.Version, Cipher: t.Cipher, VerifiedBy: string(t.Verified),
			Unverified: t.Unverified, Certificate: t.Certificate}
	}
	return c
}

func (c Connections) CloseConnections(_ context.Context, q api.CloseConnections) (done api.ClosedConnections, _ error) {
	if q.DryRun {
		done = c.closable(q.IDs)
	} else {
		done = c.close(q.IDs)
	}
	if done.Count = done.Connections; done.Count == 0 {
		return done, api.NotFound("those that are open: mta connections", "no open connection has the id %s",
			strings.Join(q.IDs, ", "))
	}
	return done, nil
}

func (c Connections) close(ids []string) (done api.ClosedConnections) {
	done.Connections, done.Busy = c.Delivery.CloseConnections(ids)
	named := make(map[string]bool, len(ids))
	for _, id := range ids {
		named[id] = true
	}
	for _, e := range c.Entrances() {
		known, later := e.close(named)
		done.Connections += known
		done.Busy += later
	}
	return done
}

// closable counts what close would close.
func (c Connections) closable(ids []string) (done api.ClosedConnections) {
	all := c.incoming(&api.ConnectionFilter{})
	out, _ := c.outgoing(&api.ConnectionFilter{}, "", maxConnections)
	for _, x := range append(all, out...) {
		if slices.Contains(ids, x.ID) {
			done.Connections++
			if x.State == api.ConnectionBusy || x.State == api.ConnectionClosing {
				done.Busy++
			}
		}
	}
	return done
}

// maxConnections is more than there can be.
const maxConnections = 1 << 20
