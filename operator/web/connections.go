package web

import (
	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
)

// connectionsPage is a page of the open connections.
type connectionsPage struct {
	Inputs []input
	Total  int
	Table  *table
	Paging paging
	Back   string
}

var connectionParams = paramsOf(new(api.ConnectionFilter), "after")

func connections(r *request) (any, error) {
	var f api.ConnectionFilter
	err := r.read(&f)
	if err != nil {
		return nil, err
	}
	p := connectionsPage{Inputs: inputs(&f), Back: r.here()}
	l, err := r.relay.Connections(r.ctx, f, r.get("after"), api.DefaultLimit)
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
