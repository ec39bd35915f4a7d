package mta

import (
	"context"
	"net"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/httpclient"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/queue"
	"example.org/mta/submission/milter"
)

// openMilters makes what asks milters. A milter that is not there is no reason not to start.
func (r *mailIn) openMilters(cfg *config.Config, _ *undoer) error {
	tcp := httpclient.Config{Addresses: r.serverAddresses}.Dialer()
	r.milters = milter.New(func(ctx context.Context, network, address string) (net.Conn, error) {
		if network == "unix" {
			return new(net.Dialer).DialContext(ctx, network, address)
		}
		return tcp(ctx, network, address)
	}, r.now, r.log)
	r.milters.Set(wiring.Milters(cfg))
	return nil
}

// discard removes a message that a milter has discarded. If that fails it stays held, with the reason.
func (r *mailIn) discard(id envelope.ID) {
	sel := queue.Selector{}
	sel.IDs = []envelope.ID{id}
	if _, err := r.queue.Change(sel, queue.Remove, false); err != nil {
		r.log.Error("a message that a milter discarded stays held", "id", id.String(), "error", err)
	}
}
