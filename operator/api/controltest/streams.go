package controltest

import (
	"context"
	"time"

	"example.org/mta/operator/api"
)

// sampleStreams are one that is well, and one whose receiver fails.
func (r *Relay) sampleStreams() []api.Stream {
	return []api.Stream{
		{Name: "app", To: "https://app.example.com/mail-events", State: "following", At: "20261121T000000-000104857600", Rate: 412.5, Delivered: 1_204_311, Requests: 9120},
		{
			Name: "crm", To: "https://crm.example.net/hook", State: "failing", At: "20261121T000000-000094857600",
			LagEvents: 15_210, LagBytes: 10_000_000, LagSeconds: 7320, Delivered: 811_000, Requests: 3100, Failures: 31, Refused: 1, Gaps: 1, Lost: 40,
			LastError: "the receiver answered 503 Service Unavailable", ErrorAt: r.Now.Add(-2 * time.Minute), NextTry: r.Now.Add(3 * time.Minute),
		},
	}
}

// Streams lists two streams.
func (r *Relay) Streams(context.Context) (api.StreamList, error) {
	return api.StreamList{Streams: r.sampleStreams()}, nil
}

// Stream gives one of them; an event of crm was set aside.
func (r *Relay) Stream(_ context.Context, name string) (api.Stream, error) {
	for _, s := range r.sampleStreams() {
		if s.Name != name {
			continue
		}
		if s.Refused > 0 {
			s.SetAside = []api.SetAside{{
				EventID: "mta1-20261121T000000-000000004711", Type: "Bounce", ID: "1kjmma2g00007", At: r.Now.Add(-time.Hour),
				Reason: "the receiver answered 422 Unprocessable Entity: no such customer",
			}}
		}
		return s, nil
	}
	return api.Stream{}, api.NotFound("those that there are: mta streams", "there is no such stream: %q", name)
}

// PauseStream gives the stream as it would be.
func (r *Relay) PauseStream(ctx context.Context, name string, paused bool) (api.Stream, error) {
	s, err := r.Stream(ctx, name)
	if s.State = "behind"; paused {
		s.State = "paused"
	}
	return s, err
}

// SkipStream moves a stream to the end.
func (r *Relay) SkipStream(ctx context.Context, name string, _ api.Intent) (api.MovedStream, error) {
	s, err := r.Stream(ctx, name)
	return api.MovedStream{From: s.At, To: "20261121T000000-000104857600"}, err
}

// ReplayStream moves a stream to the beginning of the day.
func (r *Relay) ReplayStream(ctx context.Context, name string, _ api.MoveStream) (api.MovedStream, error) {
	s, err := r.Stream(ctx, name)
	return api.MovedStream{From: s.At, To: "20261121T000000-000000000000"}, err
}

// TestStream succeeds for app alone.
func (r *Relay) TestStream(ctx context.Context, name string) (api.TestedStream, error) {
	s, err := r.Stream(ctx, name)
	return api.TestedStream{EventID: "mta1-test-1795176000000000000", Error: s.LastError}, err
}
