// Package kept answers about lists that one part of the relay keeps each: the accounting log, suppressed addresses, API
// keys, streams, inbound mail, unknown replies, TLS reports, refusals for load.
package kept

import (
	"context"
	"errors"

	"example.org/mta/mta/events"
	"example.org/mta/operator/api"
)

// Streams answers about streams of events, and changes their places; it implements api.Streams.
type Streams struct{ Open *events.Streams } // without streams if there is no accounting log

func (a Streams) Streams(context.Context) (api.StreamList, error) {
	var l api.StreamList
	for _, s := range a.Open.List() {
		l.Streams = append(l.Streams, streamWords(&s))
	}
	return l, nil
}

// streamWords puts the state of a stream into the words of the API.
func streamWords(s *events.Status) api.Stream {
	return api.Stream{
		Name: s.Name, To: s.To, State: s.State, At: s.At.String(),
		LagEvents: s.LagEvents, LagBytes: s.LagBytes, LagSeconds: s.Lag.Seconds(), Rate: s.Rate,
		Delivered: s.Delivered, Requests: s.Batches, Failures: s.Failures, Refused: s.Refused, Gaps: s.Gaps,
		Uncounted: s.Uncounted, Lost: s.Lost,
		LastError: s.LastError, ErrorAt: s.ErrorAt, NextTry: s.NextTry,
	}
}

func (a Streams) Stream(_ context.Context, name string) (api.Stream, error) {
	s, refused, err := a.Open.Status(name)
	if err != nil {
		return api.Stream{}, noStream(err)
	}
	one := streamWords(&s)
	for _, e := range refused {
		one.SetAside = append(one.SetAside,
			api.SetAside{EventID: e.Event, Type: e.Type, ID: e.Message, Reason: e.Reason, At: e.At})
	}
	return one, nil
}

// noStream returns the error of a stream that is not there.
func noStream(err error) error {
	if errors.Is(err, events.ErrUnknown) {
		return api.NotFound("those that there are: mta streams", "%v", err)
	}
	return err
}

func (a Streams) PauseStream(ctx context.Context, name string, paused bool) (api.Stream, error) {
	change := a.Open.Resume
	if paused {
		change = a.Open.Pause
	}
	if err := change(name); err != nil {
		return api.Stream{}, noStream(err)
	}
	return a.Stream(ctx, name)
}

func (a Streams) SkipStream(ctx context.Context, name string, in api.Intent) (api.MovedStream, error) {
	if _, err := a.Stream(ctx, name); err != nil {
		return api.MovedStream{}, err
	}
	from, to, err := a.Open.Skip(name, in.DryRun)
	return api.MovedStream{From: from.String(), To: to.String()}, noStream(err)
}

func (a Streams) ReplayStream(ctx context.Context, name string, m api.MoveStream) (api.MovedStream, error) {
	if _, err := a.Stream(ctx, name); err != nil {
		return api.MovedStream{}, err
	}
	var from, to events.Position
	var err error
	if m.Event != "" {
		from, to, err = a.Open.ReplayEvent(ctx, name, m.Event, m.DryRun)
		if err != nil && !errors.Is(err, events.ErrUnknown) {
			return api.MovedStream{}, api.Invalid("an event_id is that of a record: mta log --json", "%v", err)
		}
	} else {
		from, to, err = a.Open.Replay(ctx, name, m.Since, m.DryRun)
	}
	return api.MovedStream{From: from.String(), To: to.String()}, noStream(err)
}

func (a Streams) TestStream(ctx context.Context, name string) (api.TestedStream, error) {
	id, err := a.Open.Test(ctx, name)
	switch {
	case errors.Is(err, events.ErrUnknown):
		return api.TestedStream{}, noStream(err)
	case err != nil:
		return api.TestedStream{EventID: id, Error: err.Error()}, nil
	}
	return api.TestedStream{EventID: id}, nil
}
