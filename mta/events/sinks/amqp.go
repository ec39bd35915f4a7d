package sinks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"example.org/mta/mta/events"
)

// AMQP is an exchange and a routing key. Messages are persistent and mandatory, and the broker confirms each one when
// it is in all its queues.
type AMQP struct {
	Broker
	vhost    string
	exchange string // "": the default one, by which the key is a queue's name
	key      string // the routing key, may have {type} and {tenant}

	opening chan struct{} // has room for one: who connects, or opens a channel
	first   int           // the broker to try first; for who is opening

	mu     sync.Mutex  // is never held while the broker is waited for
	conn   *connection // nil: none yet, or the last one failed
	idle   []*channel
	closed bool
}

// connection knows whether the broker takes messages at present.
type connection struct {
	*amqp091.Connection
	blocked atomic.Pointer[string] // the broker's reason; nil: it takes messages
}

// channel is used by one batch at a time.
type channel struct {
	*amqp091.Channel
	conn     *connection
	returned chan amqp091.Return
	closed   chan *amqp091.Error
}

// NewAMQP makes a sink, of the virtual host "/" unless another is named. It connects when the first batch is sent.
func NewAMQP(b Broker, vhost, exchange, key string) *AMQP {
	if b.User == "" {
		b.User, b.Password = "guest", "guest"
	}
	return &AMQP{Broker: b, vhost: cmp.Or(vhost, "/"), exchange: exchange, key: key, opening: make(chan struct{}, 1)}
}

const (
	heartbeat = 10 * time.Second // a connection without a word for two of them is dead
	inFlight  = 256              // messages that wait for their confirmation in a channel
)

// Send is [events.Sink.Send].
func (s *AMQP) Send(ctx context.Context, b *events.Batch) error {
	ch, err := s.take(ctx)
	if err != nil {
		return s.explain(err)
	}
	for _, wave := range b.Waves() {
		for len(wave) > 0 {
			n := min(len(wave), inFlight)
			if err := s.send(ctx, ch, wave[:n]); err != nil {
				s.lose(ch.conn)
				return s.explain(err)
			}
			wave = wave[n:]
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == ch.conn {
		s.idle = append(s.idle, ch)
	}
	return nil
}

// send publishes events and waits until all are confirmed.
func (s *AMQP) send(ctx context.Context, ch *channel, wave []*events.Event) error {
	confirmations := make([]*amqp091.DeferredConfirmation, len(wave))
	for i, e := range wave {
		m, err := s.message(e)
		if err != nil {
			return err
		}
		confirmations[i], err = ch.PublishWithDeferredConfirm(s.exchange, events.ExpandName(s.key, e), true, false, m)
		if err != nil {
			return ch.why(err)
		}
	}
	for _, c := range confirmations {
		stored, err := c.WaitContext(ctx)
		switch {
		case err != nil:
			return ch.why(fmt.Errorf("no confirmation in time: %w", err))
		case !stored:
			return ch.why(errors.New("the broker could not store the message (a full queue, or a failed node)"))
		}
	}
	// What no queue took was returned before it was confirmed.
	select {
	case r := <-ch.returned:
		return fmt.Errorf("no queue takes messages of the exchange %q with the key %q (%s): bind one", r.Exchange,
			r.RoutingKey, r.ReplyText)
	default:
		return nil
	}
}

func (s *AMQP) message(e *events.Event) (m amqp091.Publishing, err error) {
	m = amqp091.Publishing{
		ContentType: s.Format.ContentTypeOne(), DeliveryMode: amqp091.Persistent,
		MessageId: e.ID, Type: e.Type, Timestamp: e.Time, AppId: "mta",
	}
	if e.Message != "" {
		m.CorrelationId = e.Message
	}
	m.Body, err = s.Format.EncodeOne(nil, e)
	return m, err
}

// why returns the reason for which the broker closed the channel or holds it up, otherwise err.
func (ch *channel) why(err error) error {
	select {
	case reason := <-ch.closed:
		if reason != nil {
			return reason
		}
	default:
	}
	if reason := ch.conn.blocked.Load(); reason != nil {
		return fmt.Errorf("the broker takes no messages at present (%s): %w", *reason, err)
	}
	return err
}

// explain makes of a client's error what an operator can act on.
func (s *AMQP) explain(err error) error {
	if isRejected(err) {
		return err
	}
	var protocol *amqp091.Error
	if !errors.As(err, &protocol) {
		return fmt.Errorf("amqp: %w", err)
	}
	switch protocol.Code {
	case amqp091.ContentTooLarge, amqp091.PreconditionFailed: // the latter is RabbitMQ's beyond max_message_size
		return &events.Rejected{Reason: "amqp: " + err.Error()}
	case amqp091.AccessRefused:
		return fmt.Errorf("amqp: the broker refuses the login or the rights of the user %q (user, password): %w",
			s.User, err)
	case amqp091.NotFound:
		return fmt.Errorf("amqp: there is no exchange %q in the virtual host %q: create it: %w",
			s.exchange, s.vhost, err)
	case amqp091.NotAllowed:
		return fmt.Errorf("amqp: the virtual host %q is not there, or not open to the user %q: %w",
			s.vhost, s.User, err)
	}
	return fmt.Errorf("amqp: %w", err)
}

// take returns a channel, a new one if need be. One batch at a time connects, and the others wait for it.
func (s *AMQP) take(ctx context.Context) (*channel, error) {
	if ch := s.spare(); ch != nil {
		return ch, nil
	}
	select {
	case s.opening <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-s.opening }()
	conn := s.connected()
	if conn == nil {
		var err error
		if conn, err = s.dial(ctx); err != nil {
			return nil, err
		}
	}
	ch, err := conn.Channel()
	if err != nil {
		s.lose(conn)
		return nil, err
	}
	if err := ch.Confirm(false); err != nil {
		return nil, err
	}
	return &channel{
		Channel: ch, conn: conn,
		returned: ch.NotifyReturn(make(chan amqp091.Return, inFlight)),
		closed:   ch.NotifyClose(make(chan *amqp091.Error, 1)),
	}, nil
}

// spare returns a channel that no batch uses; nil if there is none.
func (s *AMQP) spare() *channel {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := len(s.idle); n > 0; n = len(s.idle) {
		ch := s.idle[n-1]
		s.idle = s.idle[:n-1]
		if !ch.IsClosed() {
			return ch
		}
	}
	return nil
}

// connected returns the connection if it works.
func (s *AMQP) connected() *connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil || s.conn.IsClosed() {
		return nil
	}
	return s.conn
}

// dial connects to one of the brokers, the last one that worked first.
func (s *AMQP) dial(ctx context.Context) (_ *connection, err error) {
	for i := range s.Hosts {
		n := (s.first + i) % len(s.Hosts)
		var conn *amqp091.Connection
		if conn, err = s.connect(ctx, s.Hosts[n]); err == nil {
			s.first = n
			return s.keep(&connection{Connection: conn})
		}
	}
	return nil, err
}

// keep makes a connection that of the sink, which may have been closed meanwhile.
func (s *AMQP) keep(c *connection) (*connection, error) {
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.conn, s.idle = c, nil
	}
	s.mu.Unlock()
	if closed {
		c.end()
		return nil, amqp091.ErrClosed
	}
	go c.watch(c.NotifyBlocked(make(chan amqp091.Blocking)))
	return c, nil
}

// watch notes whether the broker takes messages, until the connection ends.
func (c *connection) watch(changes <-chan amqp091.Blocking) {
	for change := range changes {
		c.blocked.Store(nil)
		if change.Active {
			c.blocked.Store(&change.Reason)
		}
	}
}

// end closes the connection, without waiting for long for a broker that may be gone.
func (c *connection) end() { _ = c.CloseDeadline(time.Now().Add(time.Second)) }

func (s *AMQP) connect(ctx context.Context, broker string) (*amqp091.Connection, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	config := amqp091.Config{
		SASL:  []amqp091.Authentication{&amqp091.PlainAuth{Username: s.User, Password: s.Password}},
		Vhost: s.vhost, Heartbeat: heartbeat, Properties: amqp091.Table{"product": "mta", "connection_name": "mta"},
		Dial: func(network, address string) (net.Conn, error) {
			conn, err := s.Dial.Context(ctx, network, address)
			if until, _ := ctx.Deadline(); err == nil {
				err = conn.SetDeadline(until) // until the broker has let us in; the client lifts it
			}
			return conn, err
		},
	}
	if s.TLS == nil {
		return amqp091.DialConfig("amqp://"+broker, config)
	}
	config.TLSClientConfig = s.TLS.Clone()
	config.TLSClientConfig.ServerName, _, _ = net.SplitHostPort(broker)
	return amqp091.DialConfig("amqps://"+broker, config)
}

// lose closes a connection after a failure of which it may be the cause.
func (s *AMQP) lose(c *connection) {
	s.mu.Lock()
	if s.conn == c {
		s.conn, s.idle = nil, nil
	}
	s.mu.Unlock()
	c.end()
}

// Close ends the connection.
func (s *AMQP) Close() error {
	s.mu.Lock()
	c := s.conn
	s.conn, s.idle, s.closed = nil, nil, true
	s.mu.Unlock()
	if c != nil {
		c.end()
	}
	return nil
}
