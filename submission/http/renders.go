package http

import (
	"context"
	"runtime"
	"sync"
)

// renders bounds the messages of each tenant that are rendered at a time to the number of processors: more of them
// would be no faster, and everything else would wait for a processor behind them.
type renders struct{ slots sync.Map } // chan struct{} by tenant

// enter waits until a message of a tenant may be rendered, or ctx ends. leave must be called after it.
func (r *renders) enter(ctx context.Context, tenant string) (leave func(), err error) {
	held, ok := r.slots.Load(tenant)
	if !ok {
		held, _ = r.slots.LoadOrStore(tenant, make(chan struct{}, runtime.GOMAXPROCS(0)))
	}
	slots := held.(chan struct{})
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
