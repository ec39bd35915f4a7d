package web

import (
	"example.org/mta/mta/control"
)

// connectionsPage is a page of the open connections.
type connectionsPage struct {
	Filter     control.ConnectionFilter
	Peer       string
	Directions []control.Direction
	States     []control.ConnectionState
	List       control.ConnectionList
	Paging     paging
	Back       string
}

var connectionParams = []string{"direction", "state", "site", "source", "listener", "tenant", "peer", "after"}

func connections(r *request) (any, error) {
	p := connectionsPage{Directions: control.Directions, States: control.ConnectionStates, Peer: r.get("peer"), Back: r.here(), Filter: control.ConnectionFilter{
		Direction: control.Direction(r.get("direction")), State: control.ConnectionState(r.get("state")), Site: r.get("site"), Source: r.get("source"),
		Listener: r.get("listener"), Tenant: r.get("tenant"),
	}}
	var err error
	if p.Peer != "" {
		if p.Filter.Peer, err = control.ParseNetwork(p.Peer); err != nil {
			return nil, control.Invalid("", "peer: %v", err)
		}
	}
	p.List, err = r.relay.Connections(r.ctx, p.Filter, r.get("after"), control.DefaultLimit)
	p.Paging = r.paging(p.List.Next)
	return p, err
}

func closeConnections(r *request, try Try) (Outcome, error) {
	ids := r.list("id")
	if len(ids) == 0 {
		return Outcome{}, control.Invalid("tick those that are meant", "no connection is ticked")
	}
	done, err := r.relay.CloseConnections(r.ctx, control.CloseConnections{Intent: try.intent(), IDs: ids})
	o := Outcome{Count: done.Count, Noun: "connection"}
	if done.Busy > 0 {
		o.Lines = []string{count(done.Busy) + " of them end when what they have begun is finished."}
	}
	return o, err
}
