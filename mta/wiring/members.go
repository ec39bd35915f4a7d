package wiring

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	"example.org/mta/cluster/asking"
	"example.org/mta/cluster/link"
	"example.org/mta/cluster/membership"
)

// Nodes are the nodes of a cluster. It implements api.Members, submitted.Nodes and accept.Nodes.
type Nodes struct {
	part *membership.Membership
	ask  *asking.Asker
}

// Operators has the nodes of a cluster answer each other's operators: handler answers those of another node.
func Operators(m *membership.Membership, handler func(from int) http.Handler, log *slog.Logger) *Nodes {
	return nodes(m, log, &asking.Asker{Most: 16 << 20,
		Purpose: link.Purpose{Name: "answers for operators at other nodes", Since: 3}}, handler)
}

// Clients has the nodes of a cluster answer each other's clients by a handler.
func Clients(m *membership.Membership, handler http.Handler, log *slog.Logger) *Nodes {
	return nodes(m, log, &asking.Asker{Most: 16 << 20, AtOnce: 4, Long: true,
		Purpose: link.Purpose{Name: "answers for clients of other nodes", Since: 3}},
		func(int) http.Handler { return handler })
}

// Reports has the nodes of a cluster take reports about their mail that came to another one, by a handler.
func Reports(m *membership.Membership, handler http.Handler, log *slog.Logger) *Nodes {
	return nodes(m, log, &asking.Asker{Most: 64 << 10, AtOnce: 4,
		Purpose: link.Purpose{Name: "reports from other nodes", Since: 4}},
		func(int) http.Handler { return handler })
}

func nodes(m *membership.Membership, log *slog.Logger, ask *asking.Asker,
	handler func(from int) http.Handler) *Nodes {
	n := &Nodes{m, ask}
	n.ask.Open = m.Talk
	m.OnTalk(ask.Purpose, func(ctx context.Context, from uint16, talk net.Conn) {
		asking.Serve(ctx, talk, logged(handler(int(from)), from, log))
	})
	return n
}

// logged has the panics of a handler logged, which end the answer only.
func logged(h http.Handler, from uint16, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p != nil {
				if p != http.ErrAbortHandler {
					log.Error("a panic while another node was answered", "node", from, "panic", p,
						"stack", string(debug.Stack()))
				}
				panic(http.ErrAbortHandler)
			}
		}()
		h.ServeHTTP(w, r)
	})
}

// Self is the number of this node.
func (n *Nodes) Self() int { return int(n.part.Status().Number) }

// Others are the numbers of the other members; false until the database was read.
func (n *Nodes) Others() (all []int, known bool) {
	members := n.part.Status().Members
	for _, m := range members {
		if !m.Forgotten && !n.part.Own(m.Number) {
			all = append(all, int(m.Number))
		}
	}
	return all, len(members) > 0
}

// Away is for how long another member had not written its row when the database was read last; 0 for one without a row.
func (n *Nodes) Away(node int) time.Duration {
	s := n.part.Status()
	for _, m := range s.Members {
		if int(m.Number) == node {
			return time.Duration(m.Ago*float64(time.Second)) - s.Silent
		}
	}
	return 0
}

// Ask has another node answer a request.
func (n *Nodes) Ask(ctx context.Context, node int, r *http.Request) (*http.Response, error) {
	return n.ask.Ask(ctx, uint16(node), r)
}
