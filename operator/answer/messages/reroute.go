package messages

import (
	"fmt"
	"strings"

	"example.org/mta/operator/answer/blocks"

	"example.org/mta/internal/envelope"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
)

// reroute has what is selected take another way.
func (m *Messages) reroute(sel *queue.Selector, c api.Change) (int, error) {
	to := envelope.Detour{Pool: c.Pool}
	cfg := m.Policy().Config
	if err := blocks.Check(cfg, "pool", c.Pool); c.Pool != "" && err != nil {
		return 0, err
	}
	if c.Route != "" {
		var err error
		if to.Route, err = envelope.ToASCII(strings.ToLower(c.Route)); err != nil || !cfg.HasRoute(to.Route) {
			return 0, api.NotFound(
				"a route is that of a domain block: domain \"smarthost.example\" { route = [\"smtp://192.0.2.25\"] }",
				"the configuration has no route for %s", c.Route)
		}
	}
	if err := m.expect(sel, c.Intent, func() (*queue.Counted, error) {
		return m.Queue.CountReroute(*sel, to)
	}); err != nil {
		return 0, err
	}
	return m.Queue.Reroute(*sel, to, c.DryRun)
}

// rerouted puts a detour into words; nil for none.
func (m *Messages) rerouted(d envelope.Detour) *api.Rerouted {
	if d.IsZero() {
		return nil
	}
	out := &api.Rerouted{Reroutes: api.Reroutes{Pool: d.Pool, Route: d.Route}}
	cfg := m.Policy().Config
	var notes []string
	if d.Pool != "" && cfg.Pool(d.Pool) == nil {
		notes = append(notes, fmt.Sprintf("the configuration has no pool %s any more: it leaves from its own", d.Pool))
	}
	if d.Route != "" && !cfg.HasRoute(d.Route) {
		notes = append(notes, fmt.Sprintf("the configuration has no route for %s any more: it takes its own", d.Route))
	}
	out.Note = strings.Join(notes, "; ")
	return out
}
