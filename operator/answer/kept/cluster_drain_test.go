package kept

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"

	"example.org/mta/cluster/link"
	"example.org/mta/operator/api"
	"example.org/mta/operator/audit"
)

// obedient is a node that drains.
type obedient struct {
	api.Clusters
	drains bool
}

func (o *obedient) DrainNode(_ context.Context, q api.DrainNode) (done api.DrainedNode, err error) {
	o.drains, done.Count = !q.DryRun, 1
	done.Moving.Left = 7
	return done, nil
}

func (o *obedient) UndrainNode(context.Context, api.DrainNode) (done api.DrainedNode, err error) {
	o.drains = false
	return done, &api.Error{Status: 409, Message: "not now", Hint: "later"}
}

func (o *obedient) Moving(context.Context, api.MovingQuery) (api.Moving, error) {
	return api.Moving{On: o.drains}, nil
}

// TestOrders: an order of another node is carried out, and is in the audit log with its operator and node; its error
// comes back. There are no other orders.
func TestOrders(t *testing.T) {
	log, err := audit.Open(audit.Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	node := new(obedient)
	handler := api.NewServer(api.Config{Audit: log, Clusters: node}).Handler()
	gives := func(v any) (a obeyed) {
		t.Helper()
		here, there := net.Pipe()
		done := make(chan bool)
		go func() { Cluster{}.Obey(t.Context(), 3, there, handler); there.Close(); close(done) }()
		if err := link.Write(here, v); err != nil {
			t.Fatal(err)
		}
		if err := link.Read(here, &a); err != nil {
			a.Error = &api.Error{Message: err.Error()}
		}
		<-done
		return a
	}
	if a := gives(order{Op: "drain", Operator: "ann", DryRun: true}); a.Error != nil || a.Done.Count != 1 || node.drains {
		t.Errorf("a dry run: %+v", a)
	}
	if a := gives(order{Op: "drain", Operator: "ann", Reason: "new disks"}); a.Error != nil || a.Done.Moving.Left != 7 || !node.drains {
		t.Errorf("%+v", a)
	}
	if a := gives(order{Op: "moving"}); a.Error != nil || !a.Done.Moving.On {
		t.Errorf("%+v", a)
	}
	if a := gives(order{Op: "undrain"}); a.Error == nil || a.Status != 409 || a.Error.Message != "not now" || a.Error.Hint != "later" {
		t.Errorf("%+v", a)
	}
	if a := gives(order{Op: "remove"}); a.Error == nil || !strings.Contains(a.Error.Message, "it has no order") {
		t.Errorf("%+v", a)
	}
	if a := gives("garbled"); a.Error == nil || a.Status != 0 {
		t.Errorf("%+v", a)
	}
	p, err := log.Read(t.Context(), audit.Query{Limit: 10})
	if err != nil || len(p.Actions) != 2 || p.Actions[1].Action != "cluster drain" || p.Actions[1].Reason != "new disks" || p.Actions[1].User != "ann at node 3" {
		t.Errorf("%+v, %v", p.Actions, err)
	}
}

// TestNoCluster: the relay says so, whatever node is named.
func TestNoCluster(t *testing.T) {
	for _, n := range []int{0, 2} {
		if _, err := (Cluster{}).DrainNode(t.Context(), api.DrainNode{Node: n}); err == nil || !strings.Contains(err.Error(), "in no cluster") {
			t.Error(err)
		}
		if _, err := (Cluster{}).Moving(t.Context(), api.MovingQuery{Node: n}); err == nil {
			t.Error("it moves mail")
		}
	}
}
