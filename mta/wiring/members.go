package wiring

import (
	"context"
	"net"
	"net/http"

	"example.org/mta/cluster/asking"
	"example.org/mta/cluster/link"
	"example.org/mta/cluster/membership"
)

// operators is the purpose of talks in which one node answers another one's operators.
var operators = link.Purpose{Name: "answers for operators at other nodes", Since: 3}

// maxAnswer bounds an answer to an operator, in octets.
const maxAnswer = 16 << 20

// Members has the nodes of a cluster answer each other's operators: handler answers those of another node.
func Members(m *membership.Membership, handler func(from int) http.Handler) *Nodes {
	m.OnTalk(operators, func(ctx context.Context, from uint16, talk net.Conn) {
		asking.Serve(ctx, talk, handler(int(from)))
	})
	return &Nodes{m, asking.Asker{Open: m.Talk, Purpose: operators, Most: maxAnswer}}
}

// Nodes are the nodes of a cluster; it implements api.Members.
type Nodes struct {
	part *membership.Membership
	ask  asking.Asker
}

// Self is the number of this node.
func (n *Nodes) Self() int { return int(n.part.Status().Number) }

// Ask has another node answer a request.
func (n *Nodes) Ask(ctx context.Context, node int, r *http.Request) (*http.Response, error) {
	return n.ask.Ask(ctx, uint16(node), r)
}
