package mta

import (
	"context"
	"path/filepath"
	"time"

	"example.org/mta/mta/accounting"
	"example.org/mta/mta/config"
	"example.org/mta/mta/events"
	"example.org/mta/mta/wiring"
)

const (
	// streamsEnd is how long requests under way may take when the relay stops.
	streamsEnd = 5 * time.Second
)

// openStreams opens the cursors of streams. They begin to send in Run.
func (r *stores) openStreams(cfg *config.Config, undo *undoer) error {
	r.streamParts = r.partsOf(cfg.NodeID)
	if r.accounting == nil {
		return nil
	}
	s, err := events.Open(events.Config{
		Log: r.accounting, Path: filepath.Join(cfg.DataDir, "streams.db"),
		NodeID: cfg.NodeID, Now: r.now, Out: r.log,
	})
	if err != nil {
		return err
	}
	r.streams = s
	undo.add(func() { r.closeStreams() })
	if err := r.setStreams(cfg); err != nil {
		return err
	}
	r.accounting.Keep(r.neededByStreams) // before, no stream is known, and none would need a file
	return nil
}

// neededByStreams is the position from which on accounting files are kept for streams: nothing is, once the
// queue could need the room.
func (r *stores) neededByStreams() (accounting.Position, bool) {
	minFree := int64(r.policy.Load().Config.Queue.MinFree)
	if r.queue.Stats().FreeBytes < minFree+minFree/2 {
		return accounting.Position{}, false
	}
	return r.streams.Needed()
}

// streamsOf makes the streams of the configuration in force for the events of a relay.
func (r *stores) streamsOf(nodeid string) []events.Settings {
	return wiring.Streams(r.inForce(), r.partsOf(nodeid))
}

func (r *stores) partsOf(nodeid string) *wiring.StreamParts {
	return &wiring.StreamParts{NodeID: nodeid, Agent: "mta/" + r.opts.Version, Now: r.now, Addresses: r.serverAddresses}
}

// setStreams brings the streams of a configuration into force.
func (r *stores) setStreams(cfg *config.Config) error {
	return r.streams.Set(wiring.Streams(cfg, r.streamParts))
}

func (r *stores) closeStreams() error {
	ctx, cancel := context.WithTimeout(context.Background(), streamsEnd)
	defer cancel()
	return r.streams.Close(ctx)
}
