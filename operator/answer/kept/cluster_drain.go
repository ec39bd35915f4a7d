package kept

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"example.org/mta/cluster/link"
	"example.org/mta/operator/api"
)

// Orders is the name of the talks in which operators at one node have another one drain. Nothing else can be ordered.
const Orders = "orders to other nodes"

// orderPatience bounds an order and its answer.
const orderPatience = 10 * time.Second

// order is what a node asks of another one, for its operator.
type order struct {
	Op       string // the name of the operation
	Operator string
	Reason   string
	DryRun   bool
}

type obeyed struct {
	Done   api.DrainedNode
	Error  *api.Error
	Status int // of HTTP, with an error
}

// DrainNode implements api.Clusters.
func (c Cluster) DrainNode(ctx context.Context, q api.DrainNode) (done api.DrainedNode, err error) {
	if elsewhere, err := c.elsewhere(q.Node); err != nil || elsewhere {
		return c.order(ctx, q.Node, order{Op: "drain", DryRun: q.DryRun}, err)
	}
	if c.Part.Node() == nil {
		return done, &api.Error{Status: http.StatusConflict, Message: "this node takes no part in its cluster now",
			Hint: "'mta cluster status' has the reason; 'mta drain' has it take no new mail, and deliver what it has"}
	}
	relay, err := c.Relay.Drain(ctx, q.Intent)
	if err == nil && !q.DryRun {
		c.Mover.Drain()
	}
	done.Effect, done.Moving = relay.Effect, c.moving()
	return done, err
}

// UndrainNode implements api.Clusters.
func (c Cluster) UndrainNode(ctx context.Context, q api.DrainNode) (done api.DrainedNode, err error) {
	if elsewhere, err := c.elsewhere(q.Node); err != nil || elsewhere {
		return c.order(ctx, q.Node, order{Op: "undrain", DryRun: q.DryRun}, err)
	}
	relay, err := c.Relay.Undrain(ctx, q.Intent)
	if err == nil && !q.DryRun {
		c.Mover.Stop()
	}
	done.Effect, done.Moving = relay.Effect, c.moving()
	return done, err
}

// Moving implements api.Clusters.
func (c Cluster) Moving(ctx context.Context, q api.MovingQuery) (api.Moving, error) {
	if elsewhere, err := c.elsewhere(q.Node); err != nil || elsewhere {
		done, err := c.order(ctx, q.Node, order{Op: "moving"}, err)
		return done.Moving, err
	}
	return c.moving(), nil
}

// elsewhere reports whether a request is for another node.
func (c Cluster) elsewhere(node int) (bool, error) {
	if c.Mover == nil {
		return false, &api.Error{Status: http.StatusConflict,
			Message: "this relay is in no cluster: its configuration has no cluster block",
			Hint:    "'mta drain' has it take no new mail, and deliver what it has"}
	}
	return node != 0 && node != int(c.Part.Status().Number), nil
}

func (c Cluster) moving() api.Moving {
	s := c.Mover.Status()
	out := api.Moving{Node: int(c.Part.Status().Number), On: s.On, Since: s.Since, Messages: s.Messages,
		Recipients: s.Recipients, Left: c.Queued(), Busy: s.Busy, Waiting: s.Waiting, Declined: s.Declined,
		Rests: s.Rests, To: make([]api.MovingNode, len(s.Nodes))}
	for i, n := range s.Nodes {
		out.To[i] = api.MovingNode{Node: int(n.Node), Messages: n.Messages, Recipients: n.Recipients, LeftOut: n.Why}
	}
	return out
}

// order has another node carry out an order, unless there is an error already.
func (c Cluster) order(ctx context.Context, node int, o order, err error) (done api.DrainedNode, _ error) {
	if err != nil {
		return done, err
	}
	o.Operator, o.Reason = api.ActorOf(ctx).Name(), api.ReasonOf(ctx)
	ctx, cancel := context.WithTimeout(ctx, orderPatience)
	defer cancel()
	var a obeyed
	talk, err := c.Part.Talk(ctx, uint16(node), Orders)
	if err == nil {
		defer talk.Close()
		talk.SetDeadline(time.Now().Add(orderPatience))
		if err = link.Write(talk, o); err == nil {
			err = link.Read(talk, &a)
		}
	}
	if err != nil {
		return done, api.Unavailable("run the command at that node", "node %d does not answer: %v", node, err)
	}
	if a.Error != nil {
		a.Error.Status = a.Status
		return done, a.Error
	}
	return a.Done, nil
}

// Obey carries out an order of another node's operator, as a request to this node's API, with its record in the audit
// log.
func (c Cluster) Obey(ctx context.Context, from uint16, talk net.Conn, handler http.Handler) {
	talk.SetDeadline(time.Now().Add(orderPatience))
	var o order
	if err := link.Read(talk, &o); err != nil {
		return
	}
	ctx = api.WithActor(api.WithReason(ctx, o.Reason),
		api.Actor{Kind: api.ByAPI, User: fmt.Sprintf("%.200s at node %d", o.Operator, from)})
	client := api.NewLocalClient(handler)
	var a obeyed
	var err error
	q := api.DrainNode{Intent: api.Intent{DryRun: o.DryRun}}
	switch o.Op {
	case "drain":
		a.Done, err = api.OpDrainNode.Call(ctx, client, q)
	case "undrain":
		a.Done, err = api.OpUndrainNode.Call(ctx, client, q)
	case "moving":
		a.Done.Moving, err = api.OpMoving.Call(ctx, client, api.MovingQuery{})
	default:
		err = api.Invalid("upgrade that node", "it has no order %.40q", o.Op)
	}
	if err != nil && !errors.As(err, &a.Error) {
		a.Error = api.Unavailable("look at its log", "%v", err)
	}
	if a.Error != nil {
		a.Status = a.Error.Status
	}
	_ = link.Write(talk, a)
}
