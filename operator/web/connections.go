package web

import (
	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
)

// connectionsPage is a page of the open connections.
type connectionsPage struct {
	Filter     api.ConnectionFilter
	Peer       string
	Directions []api.Direction
	States     []api.ConnectionState
	Total      int
	Table      *table
	Paging     paging
	Back       string
}

var connectionParams = []string{"direction", "state", "site", "source", "listener", "tenant", "peer", "after"}

func connections(r *request) (any, error) {
	p := connectionsPage{Directions: api.Directions, States: api.ConnectionStates, Peer: r.get("peer"), Back: r.here(), Filter: api.ConnectionFilter{
		Direction: api.Direction(r.get("direction")), State: api.ConnectionState(r.get("state")), Site: r.get("site"), Source: r.get("source"),
		Listener: r.get("listener"), Tenant: r.get("tenant"),
	}}
	var err error
	if p.Peer != "" {
		if p.Filter.Peer, err = api.ParseNetwork(p.Peer); err != nil {
			return nil, api.Invalid("", "peer: %v", err)
		}
	}
	l, err := r.relay.Connections(r.ctx, p.Filter, r.get("after"), api.DefaultLimit)
	p.Table = newTable(r, listing.Connections, l.Connections)
	p.Table.tick("/connections/close", "connections", func(i int) string { return l.Connections[i].ID })
	p.Total, p.Paging = l.Total, r.paging(l.Next)
	return p, err
}

func closeConnections(r *request, try Try) (Outcome, error) {
	ids := r.list("id")
	if len(ids) == 0 {
		return Outcome{}, api.Invalid("tick those that are meant", "no connection is ticked")
	}
	done, err := r.relay.CloseConnections(r.ctx, api.CloseConnections{Intent: try.intent(), IDs: ids})
	o := Outcome{Count: done.Count, Noun: "connection"}
	if done.Busy > 0 {
		o.Lines = []string{count(done.Busy) + " of them end when what they have begun is finished."}
	}
	return o, err
}
