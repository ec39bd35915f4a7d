package sinks

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.org/mta/mta/events"
)

// NATS is a subject. A message has the event's id as Nats-Msg-Id, by which JetStream drops the second of two within
// its window.
type NATS struct {
	Broker
	subject string // may have {type} and {tenant}

	mu      sync.Mutex
	session *session // nil: none yet, or the last one failed
}

// session is a connection.
type session struct {
	nats *nats.Conn
	js   jetstream.JetStream
	down chan struct{} // closed with the connection
}

// NewNATS makes a sink. It connects when the first batch is sent.
func NewNATS(b Broker, subject string) *NATS { return &NATS{Broker: b, subject: subject} }

// pings is how often a connection is asked: one without an answer to two of them is dead.
const pings = 10 * time.Second

// connected returns the connection, a new one if need be.
func (s *NATS) connected(ctx context.Context) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session != nil {
		return s.session, nil
	}
	down := make(chan struct{})
	dialing, cancel := context.WithTimeout(ctx, timeLeft(ctx))
	defer cancel()
	options := []nats.Option{
		nats.Name("mta"), nats.Timeout(timeLeft(ctx)), nats.PingInterval(pings),
		nats.SkipHostLookup(), nats.SetCustomDialer(dialer{dialing, s.Dial}), // which finds the host's addresses
		// The stream tries again, in its own time: a connection that is lost is over, and what waits for answers
		// hears of it at once.
		nats.NoReconnect(),
		nats.ClosedHandler(func(*nats.Conn) { close(down) }),
	}
	switch {
	case s.User != "":
		options = append(options, nats.UserInfo(s.User, s.Password))
	case s.Password != "":
		options = append(options, nats.Token(s.Password))
	}
	if s.TLS != nil {
		options = append(options, nats.Secure(s.TLS))
	}
	nc, err := nats.Connect("nats://"+strings.Join(s.Hosts, ",nats://"), options...)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(maxPending))
	if err != nil {
		nc.Close()
		return nil, err
	}
	s.session = &session{nc, js, down}
	return s.session, nil
}

// dialer connects while ctx lasts.
type dialer struct {
	ctx  context.Context
	dial events.Dial
}

// Dial is [nats.CustomDialer.Dial].
func (d dialer) Dial(network, address string) (net.Conn, error) {
	return d.dial.Context(d.ctx, network, address)
}

// timeLeft is how long connecting may take.
func timeLeft(ctx context.Context) time.Duration {
	if until, ok := ctx.Deadline(); ok {
		return min(dialTimeout, max(time.Until(until), time.Millisecond))
	}
	return dialTimeout
}

// maxPending is how many messages wait for their acknowledgement at a time: a wave of the largest batch.
const maxPending = 10000

// drop ends a connection that failed, so that the next batch gets a new one.
func (s *NATS) drop(failed *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session == failed {
		s.session = nil
		failed.nats.Close()
	}
}

// Send is [events.Sink.Send].
func (s *NATS) Send(ctx context.Context, b *events.Batch) error {
	session, err := s.connected(ctx)
	if err != nil {
		return s.explain(err)
	}
	for _, wave := range b.Waves() {
		if err := s.send(ctx, session, wave); err != nil {
			err = s.explain(err)
			if !isRejected(err) {
				s.drop(session)
			}
			return err
		}
	}
	return nil
}

// send publishes the events of a wave and waits until all are stored.
func (s *NATS) send(ctx context.Context, to *session, wave []*events.Event) error {
	acks := make([]jetstream.PubAckFuture, 0, len(wave))
	var failed error
	for _, e := range wave {
		m, err := s.message(e)
		if err == nil {
			var ack jetstream.PubAckFuture
			if ack, err = to.js.PublishMsgAsync(m, jetstream.WithMsgID(e.ID),
				jetstream.WithRetryAttempts(0)); err == nil {
				acks = append(acks, ack)
				continue
			}
		}
		failed = err
		break
	}
	for _, ack := range acks {
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			failed = errors.Join(failed, err)
		case <-to.down:
			return errors.Join(errDown, to.nats.LastError())
		case <-ctx.Done():
			return fmt.Errorf("no answer in time: %w", ctx.Err())
		}
	}
	return failed
}

var errDown = errors.New("the connection was lost")

func (s *NATS) message(e *events.Event) (*nats.Msg, error) {
	m := nats.NewMsg(events.ExpandName(s.subject, e))
	m.Header.Set("Content-Type", s.Format.ContentTypeOne())
	var err error
	m.Data, err = s.Format.EncodeOne(nil, e)
	return m, err
}

// tooLarge is JetStream's code for a message that exceeds the stream's max_msg_size.
const tooLarge = 10054

// explain makes of a client's error what an operator can act on.
func (s *NATS) explain(err error) error {
	var api *jetstream.APIError
	switch {
	case isRejected(err):
		return err
	case errors.Is(err, nats.ErrMaxPayload):
		return &events.Rejected{Reason: "nats: the event exceeds the server's max_payload"}
	case errors.As(err, &api) && api.ErrorCode == tooLarge:
		return &events.Rejected{Reason: "nats: " + err.Error()}
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired):
		return fmt.Errorf("nats: the server refuses the login (user, password): %w", err)
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("nats: no JetStream stream takes the subject %q: create one: %w", s.subject, err)
	case errors.Is(err, nats.ErrPermissionViolation):
		return fmt.Errorf("nats: the user may not publish to %q: %w", s.subject, err)
	}
	return fmt.Errorf("nats: %w", err)
}

// Close ends the connection.
func (s *NATS) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session != nil {
		s.session.nats.Close()
		s.session = nil
	}
	return nil
}
