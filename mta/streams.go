package mta

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"example.org/mta/internal/faultlog"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/config"
	"example.org/mta/mta/events"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/api"
)

const (
	// streamBehind is how long events wait before that is an alarm.
	streamBehind = 5 * time.Minute
	// streamShown is how long after a refused event or a gap the alarm is on.
	streamShown = time.Hour
	// streamsEnd is how long requests under way may take when the relay stops.
	streamsEnd = 5 * time.Second
)

// openStreams opens the cursors of streams. They begin to send in Run.
func (r *stores) openStreams(cfg *config.Config, undo *undoer) error {
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
	r.streams, r.streamParts = s, &wiring.StreamParts{
		NodeID: cfg.NodeID, Agent: "mta/" + r.opts.Version, Now: r.now, Addresses: r.serverAddresses,
	}
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

// setStreams brings the streams of a configuration into force.
func (r *stores) setStreams(cfg *config.Config) error {
	if r.streams == nil {
		return nil
	}
	return r.streams.Set(wiring.Streams(cfg, r.streamParts))
}

// checkStreams returns the error with which setStreams would refuse a configuration.
func (r *stores) checkStreams(cfg *config.Config) error {
	if r.streams == nil {
		return nil
	}
	return r.streams.Check(wiring.Streams(cfg, r.streamParts))
}

// startStreams begins to send events.
func (r *stores) startStreams() {
	if r.streams != nil {
		r.streams.Start()
	}
}

func (r *stores) closeStreams() error {
	if r.streams == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), streamsEnd)
	defer cancel()
	return r.streams.Close(ctx)
}

// streamTroubles returns which streams are behind, which had events refused, and which have gaps; "" for none.
func (r *stores) streamTroubles() (behind, refused, gap string) {
	if r.streams == nil {
		return "", "", ""
	}
	now := r.now()
	var slow, set, holes []string
	for _, s := range r.streams.List() {
		if s.Lag >= streamBehind && s.State != events.Paused {
			text := fmt.Sprintf("events of stream %q have waited for %s", s.Name, api.Age(s.Lag.Round(time.Second)))
			if s.Tries > 0 {
				text += ": " + s.LastError
			}
			slow = append(slow, text)
		}
		if s.Refused > 0 && now.Sub(s.RefusedAt) < streamShown {
			set = append(set, fmt.Sprintf("the receiver of stream %q has refused %d events, which were set aside: mta streams show %s", s.Name, s.Refused, s.Name))
		}
		if now.Sub(s.GapAt) < streamShown {
			holes = append(holes, gapReason(&s))
		}
	}
	if broken := r.streams.Broken(); broken != "" {
		slow = append(slow, "the cursors of streams can't be written: "+broken)
	}
	return faultlog.Few(slow), faultlog.Few(set), faultlog.Few(holes)
}

// gapReason returns what a stream has lost, and why.
func gapReason(s *events.Status) string {
	text := fmt.Sprintf("stream %q has lost ", s.Name)
	if s.Lost > 0 {
		number := "1 event"
		if s.Lost > 1 {
			number = fmt.Sprintf("%d events", s.Lost)
		}
		text += fmt.Sprintf("%s that its receiver did not take within hold (%s)", number, api.Age(s.Hold))
		if s.Uncounted > 0 {
			text += ", and "
		}
	}
	if s.Uncounted > 0 {
		text += "an unknown number of events, since accounting files were deleted or damaged before it had read them"
	}
	return text
}
