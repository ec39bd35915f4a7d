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

func (a Streams) PauseStream(ctx context.Context, name string, in api.Intent) (api.StreamChanged, error) {
	return a.pause(ctx, name, in, true, a.Open.Pause)
}

func (a Streams) ResumeStream(ctx context.Context, name string, in api.Intent) (api.StreamChanged, error) {
	return a.pause(ctx, name, in, false, a.Open.Resume)
}

// pause pauses or resumes a stream; a stream that is so already counts as unchanged.
func (a Streams) pause(
	ctx context.Context, name string, in api.Intent, paused bool, do func(string) error,
) (done api.StreamChanged, err error) {
	if done.Stream, err = a.Stream(ctx, name); err != nil {
		return done, err
	}
	changes := (done.State == "paused") != paused
	if !in.DryRun {
		if err := do(name); err != nil {
			return done, noStream(err)
		}
		if done.Stream, err = a.Stream(ctx, name); err != nil {
			return done, err
		}
	}
	if changes {
		done.Count = 1
	}
	return done, nil
}

func (a Streams) SkipStream(ctx context.Context, name string, in api.Intent) (api.MovedStream, error) {
	was, err := a.Stream(ctx, name)
	if err != nil {
		return api.MovedStream{}, err
	}
	from, to, err := a.Open.Skip(name, in.DryRun)
	return moved(int(was.LagEvents), from, to, err)
}

// moved puts the move of a stream into the words of the API.
func moved(count int, from, to events.Position, err error) (api.MovedStream, error) {
	if err != nil {
		return api.MovedStream{}, noStream(err)
	}
	return api.MovedStream{Effect: api.Effect{Count: count}, From: from.String(), To: to.String()}, nil
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
	return moved(1, from, to, err)
}

func (a Streams) TestStream(ctx context.Context, name string, in api.Intent) (api.TestedStream, error) {
	if _, err := a.Stream(ctx, name); err != nil {
		return api.TestedStream{}, err
	}
	done := api.TestedStream{Effect: api.Effect{Count: 1}}
	if in.DryRun {
		return done, nil
	}
	id, err := a.Open.Test(ctx, name)
	switch {
	case errors.Is(err, events.ErrUnknown):
		return api.TestedStream{}, noStream(err)
	case err != nil:
		done.Error = err.Error()
	}
	done.EventID = id
	return done, nil
}
