package http

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/fair"
	"example.org/mta/submission/intake"
)

// Config is what a Server needs to know. It must not be changed after New.
type Config struct {
	// TLS switches TLS on. Certificates come by its GetCertificate. Nil: requests come in clear, and
	// only from this machine or from TrustedProxies.
	TLS *tls.Config
	// Keys knows who may ask for what.
	Keys Keys
	// Tenants are those whose keys are accepted here. Empty: all.
	Tenants []string
	// TrustedProxies are the networks whose X-Forwarded-For, Forwarded and X-Forwarded-Proto count.
	TrustedProxies []netip.Prefix
	// ProxyFrom are the networks that must start a connection with a PROXY header, whose client address
	// then stands in for theirs everywhere.
	ProxyFrom []netip.Prefix

	MaxRequest     int64 // octets of a request's body, decompressed. 0: 50 MiB
	MaxConnections int   // open at a time. 0: 1,000
	Timeouts       Timeouts

	// Mail is what messages are taken in with.
	Mail Mail

	// Routes are those of packages above this one, and Forms how errors look there; the first that fits
	// counts, and problem+json where none does.
	Routes []Route
	Forms  []Form
	// Messages knows what became of mail that was accepted. Nil: its routes are not there.
	Messages Messages
	// Events gives tenants the events of their mail. Nil: its route is not there.
	Events Events
	// Suppressions is the list of addresses that get no mail. Nil: its routes are not there.
	Suppressions Suppressions
	// Unsubscribes knows the links by which recipients unsubscribe. Nil: they lead nowhere.
	Unsubscribes Unsubscribes

	// Rates are the limits of each key, TenantRates those of all keys of a tenant; Limits counts, for all
	// servers that share it. Nil: no limits.
	Rates       Rates
	TenantRates func(tenant string) Rates
	Limits      *Limits
	// Admission refuses messages while more is offered than can be kept: it is asked before the body of a
	// request with messages is read. Nil admits all. TierOf gives the tier of a tenant's messages; nil: 3.
	Admission intake.Admission
	TierOf    func(tenant string) uint8
	// Tokens are what a refused client proves its first attempt with. Nil: there are none.
	Tokens *Tokens
	// Memory bounds what requests hold that are under way; servers can share it. Nil: no bound.
	Memory *Memory

	// Draining reports that the relay takes no new mail for now: requests with messages are refused, and connections
	// end with their answer. Nil: it always does.
	Draining func() bool

	// Refused is given clients whose key is not accepted. It must not block. Nil: nobody needs them.
	Refused func(netip.Addr, intake.Intrusion)
	// Observer counts requests. May be nil.
	Observer Observer
	// Open counts the open connections of all servers that share it. Nil: nobody needs it.
	Open *atomic.Int64

	Now func() time.Time // for what is written down; deadlines use time.Now. Nil: time.Now
	Log *slog.Logger     // nil: none
	IDs *envelope.IDs    // for ids of requests; shared by the listeners of a node. Nil: its own
}

// Timeouts bound what clients may take. A zero value stands for the default.
type Timeouts struct {
	Header  time.Duration // for a request's header section, and a TLS handshake; 30 s
	Idle    time.Duration // for the next request on a connection; 2 min
	Block   time.Duration // a pause within a body, or in reading the answer; 1 min
	Body    time.Duration // for a whole body; 1 h
	MinRate int64         // octets a second that a body has to come in on average; 512. -1: any
}

func (c Config) withDefaults() Config {
	c.MaxRequest = cmp.Or(c.MaxRequest, 50<<20)
	c.MaxConnections = cmp.Or(c.MaxConnections, 1000)
	t := &c.Timeouts
	for d, fallback := range map[*time.Duration]time.Duration{&t.Header: 30 * time.Second, &t.Idle: 2 * time.Minute,
		&t.Block: time.Minute, &t.Body: time.Hour} {
		*d = cmp.Or(*d, fallback)
	}
	t.MinRate = cmp.Or(t.MinRate, 512)
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Refused == nil {
		c.Refused = func(netip.Addr, intake.Intrusion) {}
	}
	if c.Draining == nil {
		c.Draining = func() bool { return false }
	}
	if c.Observer == nil {
		c.Observer = nobody{}
	}
	if c.Open == nil {
		c.Open = new(atomic.Int64)
	}
	if c.IDs == nil {
		c.IDs = new(envelope.IDs)
	}
	return c
}

const (
	maxHeader  = 32 << 10        // octets of a request line and header section
	maxStreams = 100             // of HTTP/2 at a time on a connection
	window     = 256 << 10       // of HTTP/2 flow control: what a connection may hold of bodies that nobody reads yet
	shortPause = 5 * time.Second // until another try after trouble that passes
	farewell   = time.Second     // in which kept connections learn that the server goes
	cutWait    = 5 * time.Second // for handlers whose connection was cut: a commit has to come to its end
	longWait   = time.Hour       // no deadline of a write is later than this
)

// ErrServerClosed is what Serve gives when Shutdown was called before.
var ErrServerClosed = http.ErrServerClosed

// Server is the settings of one listener, and all its connections.
type Server struct {
	config Config
	http   http.Server
	table  *table
	conns  *connections
	shares *fair.Pool[string] // the connections, by whose requests are under way
	desk   *intake.Desk       // nil: no route brings messages

	renders renders

	ctx    context.Context // ends when Shutdown has cut all connections
	cancel context.CancelFunc

	stage   atomic.Int32  // of its life
	leaving chan struct{} // closed when it is no longer serving
	leave   sync.Once
	calls   underWay
}

// The stages of a server's life.
const (
	serving  = iota
	retired  // another one has its place: requests are served, and their connections end with them
	draining // the relay stops: what is under way may end, other requests are refused
)

// New makes a server. Config.Keys must be set.
func New(config Config) *Server {
	s := &Server{config: config.withDefaults(), leaving: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.calls.none = sync.NewCond(&s.calls.mu)
	s.shares = fair.NewPool[string](int64(max(s.config.MaxConnections, 1)))
	s.conns = newConnections(s.config.MaxConnections, s.config.Open)
	if m := &s.config.Mail; m.Intake.Store != nil {
		m.Intake = m.Intake.WithDefaults()
		s.desk = intake.New(m.Intake)
	}
	s.table = newTable(s.routes(), s.answer)
	t := s.config.Timeouts
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(s.config.TLS != nil)
	protocols.SetUnencryptedHTTP2(s.config.TLS == nil) // by prior knowledge (RFC 9113, 3.3), for proxies
	s.http = http.Server{
		Handler: s, TLSConfig: s.config.TLS, Protocols: &protocols,
		ReadHeaderTimeout: t.Header, IdleTimeout: t.Idle, MaxHeaderBytes: maxHeader,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerConnection: window,
			MaxReceiveBufferPerStream: window},
		ConnState: s.conns.changed, ConnContext: s.conns.connected,
		ErrorLog:    slog.NewLogLogger(s.config.Log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return s.ctx },
	}
	return s
}

// Serve accepts connections on l until Shutdown or Retire, and closes it. It can be called for
// several listeners.
func (s *Server) Serve(l net.Listener) error {
	l = &listener{Listener: l, server: s}
	if s.config.TLS != nil {
		return s.http.ServeTLS(l, "", "")
	}
	return s.http.Serve(l)
}

// Shutdown lets requests under way end, and refuses others with 503. Those still under way when ctx
// ends are cut. It returns ctx's error if it had to cut any.
func (s *Server) Shutdown(ctx context.Context) error { return s.end(ctx, draining) }

// Retire is Shutdown for a server that another one replaces: it still answers requests on connections
// that it has, and closes them.
func (s *Server) Retire(ctx context.Context) error { return s.end(ctx, retired) }

func (s *Server) end(ctx context.Context, stage int32) error {
	s.stage.Store(stage)
	s.leave.Do(func() { close(s.leaving) })
	defer s.cancel()
	if s.desk != nil {
		defer s.desk.Close()
	}
	// A client that is just sending a request on a kept connection would lose it: the connection stays
	// open until then, for a moment.
	wait, done := context.WithTimeout(ctx, farewell)
	s.conns.waitForNone(wait)
	done()
	if stage == draining {
		s.conns.closeFresh()
		late := time.AfterFunc(slack, s.conns.closeFresh) // those accepted a moment ago
		defer late.Stop()
	}
	err := s.http.Shutdown(ctx)
	if err == nil {
		return nil
	}
	s.cancel()
	n := s.calls.open()
	s.config.Log.Warn("cut connections with requests under way", "requests", n)
	s.http.Close()
	wait, done = context.WithTimeout(context.Background(), cutWait)
	defer done()
	if left := s.calls.wait(wait); left > 0 {
		return fmt.Errorf("cut %d requests, %d still wait for the store: %w", n, left, err)
	}
	return fmt.Errorf("cut %d requests: %w", n, err)
}

// Routes lists what the server answers.
func (s *Server) Routes() []Route { return s.routes() }

// Connections is how many connections are open.
func (s *Server) Connections() int { return s.conns.open() }

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	s.calls.begin()
	defer s.calls.end()
	began := time.Now()
	s.config.Observer.Began()
	c := s.newCall(w, req)
	defer s.finish(c, began)
	defer c.rescue()
	if err := s.receive(c); err != nil {
		c.fail(err)
	}
}

// receive does what comes before the route is known, and finds the route.
func (s *Server) receive(c *Call) error {
	switch s.stage.Load() {
	case draining:
		return leave("the relay is shutting down: try again")
	case retired:
		c.Writer.Header().Set("Connection", "close")
	}
	if s.config.Draining() { // for a balancer to open the next one elsewhere
		c.Writer.Header().Set("Connection", "close")
	}
	if c.Request.ProtoMajor == 1 && len(c.Request.TransferEncoding) > 0 {
		// net/http drops a Content-Length beside it, which a proxy in front may have gone by: what it takes for
		// the rest of a body must not become a request (RFC 9112, 6.3 and 11.2).
		c.Writer.Header().Set("Connection", "close")
	}
	if err := s.whence(c); err != nil {
		return err
	}
	if p := keyInURL(c.Request); p != nil {
		return p
	}
	if c.Request.URL.Path != cleaned(c.Request.URL.Path) {
		return s.table.missing(c)
	}
	s.table.mux.ServeHTTP(c.Writer, c.Request)
	return nil
}

// answer has a route's request answered, once all checks are passed.
func (s *Server) answer(c *Call) error {
	if !c.Route.Open {
		if err := s.authenticate(c); err != nil {
			return err
		}
		s.conns.hasKey(c.Request)
		leave, err := s.enter(c)
		if err != nil {
			return err
		}
		defer leave()
	}
	if err := s.room(c); err != nil {
		return err
	}
	length := c.Request.ContentLength
	if err := c.charge([measures]int{requests: 1, octets: int(max(length, 0))}); err != nil {
		return err
	}
	if length < 0 {
		defer func() { c.owe(octets, c.body.came) }()
	}
	if c.Route.Mail {
		if err := c.takesMail(); err != nil {
			return err
		}
		if err := c.admit(); err != nil {
			return err
		}
	}
	return c.Route.Handle(c)
}

// leave refuses a client that has to go elsewhere.
func leave(why string) *Problem {
	return &Problem{Status: http.StatusServiceUnavailable, Detail: why, RetryAfter: shortPause, Close: true,
		Reason: "draining"}
}

// takesMail refuses messages while the relay takes none. A request that was sent before gets its answer also then: at
// another relay it would be a new one.
func (c *Call) takesMail() error {
	s := c.server
	if !s.config.Draining() {
		return nil
	}
	if key, err := idempotencyKey(c.Request); err == nil && key != "" && s.config.Mail.Repeats != nil {
		known, err := s.config.Mail.Repeats.Known(c.Identity.Tenant, key)
		if err != nil {
			return keysUnreadable(err)
		}
		if known {
			return nil
		}
	}
	return leave("this relay takes no new mail now: send it to another one, or try again")
}

// finish ends a request.
func (s *Server) finish(c *Call, began time.Time) {
	s.config.Observer.Answered(Answered{c.routeName(), c.answer.status, c.answer.reason, time.Since(began)})
	c.release()
	if c.admitted != nil {
		c.admitted.Drop()
	}
	if s.stage.Load() == serving {
		c.body.linger()
	}
	if s.config.Log.Enabled(c.Context(), slog.LevelDebug) {
		c.Log().Debug("request", "route", c.routeName(), "status", c.answer.status, "reason", c.answer.reason, "tenant",
			c.Identity.Tenant, "client", c.Client)
	}
}

// Observer counts requests. Its methods are called by many goroutines and must not block.
type Observer interface {
	Began()
	Answered(Answered)
}

// Answered is a request at its end.
type Answered struct {
	Route  string // method and pattern, "none" where no route was found
	Status int    // 0: the connection ended before an answer
	Reason string // a word for why the server refused it, "" where it didn't or the status says it all
	Took   time.Duration
}

type nobody struct{}

func (nobody) Began()            {}
func (nobody) Answered(Answered) {}

// underWay counts requests.
type underWay struct {
	mu   sync.Mutex
	n    int
	none *sync.Cond
}

func (u *underWay) begin() { u.mu.Lock(); u.n++; u.mu.Unlock() }

func (u *underWay) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.n--; u.n == 0 {
		u.none.Broadcast()
	}
}

func (u *underWay) open() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.n
}

// wait returns how many are left when none is, or ctx ends.
func (u *underWay) wait(ctx context.Context) int {
	defer context.AfterFunc(ctx, func() { u.mu.Lock(); defer u.mu.Unlock(); u.none.Broadcast() })()
	u.mu.Lock()
	defer u.mu.Unlock()
	for u.n > 0 && ctx.Err() == nil {
		u.none.Wait()
	}
	return u.n
}

// answer is the answer to a request, which has to be read within a time.
type answer struct {
	http.ResponseWriter
	call    *Call
	control *http.ResponseController
	block   time.Duration
	status  int // 0: none was given yet
	reason  string
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader begins the answer.
func (a *answer) WriteHeader(status int) {
	if status >= 200 && a.status == 0 {
		a.status = status
		a.control.SetWriteDeadline(time.Now().Add(a.block))
		a.call.body.leave()
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write adds to the answer's body.
func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	a.control.SetWriteDeadline(time.Now().Add(a.block))
	return a.ResponseWriter.Write(p)
}
