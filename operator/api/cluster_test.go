package api_test

import (
	"context"
	"net/http"
	"testing"

	"example.org/mta/operator/api"
)

// nodes is a cluster of which node 2 has 5 recipients.
type nodes struct {
	api.Clusters
	drains bool
}

func (n *nodes) DrainNode(_ context.Context, q api.DrainNode) (done api.DrainedNode, err error) {
	if q.Node != 2 {
		return done, &api.Error{Status: http.StatusConflict, Message: "node 3 does not answer"}
	}
	if !n.drains {
		done.Count, n.drains = 1, !q.DryRun
	}
	done.Moving = api.Moving{Node: q.Node, On: n.drains, Left: 5}
	return done, nil
}

func (n *nodes) UndrainNode(_ context.Context, q api.DrainNode) (done api.DrainedNode, err error) {
	n.drains, done.Count = false, 1
	return done, nil
}

func (n *nodes) Moving(_ context.Context, q api.MovingQuery) (api.Moving, error) {
	return api.Moving{Node: q.Node, On: n.drains}, nil
}

// TestDrainOfANode: it is on record with the node, a dry run changes nothing, and progress is asked for without a record.
func TestDrainOfANode(t *testing.T) {
	l, n := newAudit(t), new(nodes)
	c := serve(t, api.Config{Audit: l, Clusters: n})
	ctx := api.WithReason(t.Context(), "new disks")
	if done, err := api.OpDrainNode.Call(ctx, c, api.DrainNode{Node: 2, Intent: api.Intent{DryRun: true}}); err != nil || done.Count != 1 || !done.DryRun || n.drains {
		t.Errorf("%+v, %v", done, err)
	}
	if done, err := api.OpDrainNode.Call(ctx, c, api.DrainNode{Node: 2}); err != nil || done.Moving.Left != 5 || !n.drains {
		t.Errorf("%+v, %v", done, err)
	}
	if m, err := api.OpMoving.Call(ctx, c, api.MovingQuery{Node: 2}); err != nil || !m.On || m.Node != 2 {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := api.OpDrainNode.Call(ctx, c, api.DrainNode{Node: 3}); err == nil {
		t.Error("node 3 drains")
	}
	if _, err := api.OpUndrainNode.Call(ctx, c, api.DrainNode{Node: 2}); err != nil || n.drains {
		t.Error(err)
	}
	got := read(t, l)
	if len(got) != 3 || got[2].Action != "cluster drain" || got[2].Subject != "node=2" || got[2].Reason != "new disks" || got[1].Outcome != "failed" && got[1].Outcome != "refused" || got[0].Action != "cluster undrain" {
		t.Errorf("%+v", got)
	}
}
