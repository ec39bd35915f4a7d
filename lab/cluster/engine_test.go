package cluster

import (
	"context"
	"testing"
	"time"

	"example.org/mta/cluster/enginetest"
	"example.org/mta/cluster/once"
	"example.org/mta/cluster/owner"
)

// direct waits for the engine's answers, in virtual time.
type direct struct {
	*engine
	*enginetest.Shared
}

func answer[R any](e *engine, call func(reply func(R))) (r R, err error) {
	call(func(got R) { r = got })
	e.w.run(e.w.now + time.Second)
	return r, nil
}

func (d direct) Shards(_ context.Context, c owner.Call) (owner.Result, error) {
	return answer(d.engine, func(reply func(owner.Result)) { d.shards(c, reply) })
}

func (d direct) Keys(_ context.Context, c once.Call) (once.Result, error) {
	return answer(d.engine, func(reply func(once.Result)) { d.once(c, reply) })
}

func (d direct) Unsettled(_ context.Context, node uint16) ([]once.Row, error) {
	return answer(d.engine, func(reply func([]once.Row)) { d.left(node, reply) })
}

func TestTheSimulatedEngineKeepsTheRules(t *testing.T) {
	enginetest.Run(t, func(*testing.T) (enginetest.Engine, func(uint16, uint64) error) {
		e := newEngine(newWorld(1))
		shared := enginetest.NewShared("era", func() map[uint16]uint64 { return e.incarnation })
		return direct{e, shared}, func(node uint16, incarnation uint64) error {
			e.forget(node, incarnation)
			return nil
		}
	})
}
