package api_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"example.org/mta/operator/api"
	"example.org/mta/submission/auth"
)

// draining is a node of a cluster.
type draining struct {
	api.Clusters
	drains bool
}

func (d *draining) DrainNode(_ context.Context, in api.Intent) (done api.DrainedNode, err error) {
	if !d.drains {
		done.Count, d.drains = 1, !in.DryRun
	}
	done.Moving = api.Moving{On: d.drains, Left: 5}
	return done, nil
}

func (d *draining) UndrainNode(context.Context, api.Intent) (done api.DrainedNode, err error) {
	return done, &api.Error{Status: http.StatusConflict, Message: "not now", Hint: "later"}
}

func (d *draining) Moving(context.Context) (api.Moving, error) { return api.Moving{On: d.drains}, nil }

// members are nodes of a cluster, seen from one of them.
type members struct {
	self int
	at   map[int]*api.Server
}

func (m members) Self() int { return m.self }

func (m members) Ask(_ context.Context, node int, r *http.Request) (*http.Response, error) {
	if m.at[node] == nil {
		return nil, errors.New("no answer within 5s")
	}
	w := httptest.NewRecorder()
	m.at[node].FromNode(m.self).ServeHTTP(w, r)
	return w.Result(), nil
}

// garbled is a node that answers with a status, or with 0 breaks off once it has the request, or with -1 before.
type garbled int

func (g garbled) Self() int { return 1 }

func (g garbled) Ask(_ context.Context, _ int, r *http.Request) (*http.Response, error) {
	if g < 0 {
		return nil, errors.New("connection refused")
	}
	if err := r.Write(io.Discard); err != nil || g == 0 {
		return nil, errors.Join(err, errors.New("cut off"))
	}
	return &http.Response{StatusCode: int(g), Body: http.NoBody}, nil
}

// TestGarbledAnswers: a status that no handler has is an error, and only what was sent may have begun.
func TestGarbledAnswers(t *testing.T) {
	for status, want := range map[int]string{7: "the status 7", 100: "the status 100", 600: "the status 600", 0: "cut off", -1: "refused"} {
		one := api.NewServer(api.Config{Clusters: new(draining), Members: garbled(status)})
		_, err := api.OpDrainNode.Call(api.AtNode(t.Context(), 2), api.NewLocalClient(one.Handler()), api.Intent{})
		var e *api.Error
		if !errors.As(err, &e) || e.Status != http.StatusBadGateway || !strings.Contains(e.Message, want) || strings.Contains(e.Hint, "begun") == (status < 0) {
			t.Errorf("%d: %v, %+v", status, err, e)
		}
	}
}

// TestAtAnotherNode: a request is carried to the node that it names, and is in the audit log there, with its operator
// and the operator's node; a dry run changes nothing, and an error comes back.
func TestAtAnotherNode(t *testing.T) {
	here, there, n := newAudit(t), newAudit(t), new(draining)
	all := map[int]*api.Server{2: api.NewServer(api.Config{Audit: there, Clusters: n})}
	one := api.NewServer(api.Config{Audit: here, Clusters: new(draining), Members: members{1, all}})
	c := api.NewLocalClient(one.Handler())
	ctx := api.WithReason(api.WithActor(t.Context(), api.Actor{Kind: api.BySocket, User: "ann"}), "new disks")
	at := api.AtNode(ctx, 2)
	if done, err := api.OpDrainNode.Call(at, c, api.Intent{DryRun: true}); err != nil || done.Count != 1 || !done.DryRun || n.drains {
		t.Errorf("%+v, %v", done, err)
	}
	if done, err := api.OpDrainNode.Call(at, c, api.Intent{}); err != nil || done.Moving.Left != 5 || !n.drains {
		t.Errorf("%+v, %v", done, err)
	}
	if m, err := api.OpMoving.Call(at, c, api.None{}); err != nil || !m.On {
		t.Errorf("%+v, %v", m, err)
	}
	if m, err := api.OpMoving.Call(api.AtNode(ctx, 1), c, api.None{}); err != nil || m.On {
		t.Errorf("at this node: %+v, %v", m, err)
	}
	if _, err := api.OpUndrainNode.Call(at, c, api.Intent{}); err == nil || err.Error() != "not now" || api.Hint(err) != "later" {
		t.Error(err)
	}
	if _, err := api.OpDrainNode.Call(api.AtNode(ctx, 3), c, api.Intent{}); err == nil || err.Error() != "node 3: no answer within 5s" || api.Hint(err) != "" {
		t.Error(err)
	}
	if _, err := api.OpMoving.Call(api.AtNode(ctx, 1024), c, api.None{}); err == nil || !strings.Contains(err.Error(), "from 1 to 1023") {
		t.Error(err)
	}
	if _, err := api.OpMoving.Call(at, api.NewLocalClient(all[2].Handler()), api.None{}); err == nil || !strings.Contains(err.Error(), "in no cluster") {
		t.Error(err)
	}
	got := read(t, there)
	if len(got) != 2 || got[1].Action != "cluster drain" || got[1].Reason != "new disks" || got[1].User != "ann at node 1" || got[1].Outcome != "done" || got[0].Outcome != "refused" {
		t.Errorf("%+v", got)
	}
	if got := read(t, here); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// TestTheRoleTravels: what a role may not do at one node it may not at another, whichever of the two checks it; and what
// goes on, or may be of any size, is carried nowhere.
func TestTheRoleTravels(t *testing.T) {
	n := new(draining)
	two := api.NewServer(api.Config{Clusters: n, Members: members{2, nil}})
	one := api.NewServer(api.Config{Clusters: new(draining), Members: members{1, map[int]*api.Server{2: two}}})
	for _, role := range []auth.Role{auth.Anyone, auth.Viewer, auth.Operator, auth.Admin} {
		for _, node := range []int{1, 2} {
			n.drains = false
			c := api.NewLocalClient(one.Handler())
			ctx := api.AtNode(api.WithRole(t.Context(), role), node)
			if _, err := api.OpMoving.Call(ctx, c, api.None{}); (err == nil) != (role >= auth.Viewer) {
				t.Errorf("%v at node %d: %v", role, node, err)
			}
			if _, err := api.OpDrainNode.Call(ctx, c, api.Intent{}); (err == nil) != (role >= auth.Operator) || n.drains && err != nil {
				t.Errorf("%v at node %d: %v", role, node, err)
			}
		}
	}
	n.drains = false
	for _, test := range []struct {
		method, path, role, node string
		status                   int
	}{
		{"POST", "/v1/cluster/drain", "viewer", "", 403},
		{"POST", "/v1/cluster/drain", "", "", 403},
		{"POST", "/v1/cluster/drain", "root", "", 403},
		{"GET", "/v1/cluster/moving", "nobody", "", 403},
		{"POST", "/v1/cluster/drain", "admin", "3", 400},
		{"GET", "/v1/trace", "admin", "", 400},
		{"GET", "/v1/log?follow=true", "viewer", "", 400},
		{"GET", "/v1/backup", "admin", "", 400},
		{"POST", "/v1/queue/import", "admin", "", 400},
		{"GET", "/v1/later", "admin", "", 404},
		{"GET", "/v1/cluster/moving", "viewer", "", 200},
	} {
		r := httptest.NewRequest(test.method, test.path, nil)
		r.Header.Set("Mta-Role", test.role)
		if test.node != "" {
			r.Header.Set("Mta-Node", test.node)
		}
		w := httptest.NewRecorder()
		two.FromNode(1).ServeHTTP(w, r)
		if w.Code != test.status || n.drains {
			t.Errorf("%+v: %d %s", test, w.Code, w.Body)
		}
	}
	err := api.NewLocalClient(one.Handler()).Log(api.AtNode(t.Context(), 2), api.LogQuery{}, nil)
	if err == nil || api.Hint(err) != "add order=newest, or ask at that node" {
		t.Errorf("%v: %s", err, api.Hint(err))
	}
	if _, err := api.OpTrace.Call(api.AtNode(t.Context(), 2), api.NewLocalClient(one.Handler()), api.TraceQuery{}); err == nil || !strings.Contains(err.Error(), "at the node itself") {
		t.Error(err)
	}
}
