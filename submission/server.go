package submission

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/emersion/go-smtp"

	"example.org/mta/internal/fair"
	"example.org/mta/internal/network"
	"example.org/mta/submission/intake"
)

// ErrServerClosed is what Serve gives when Shutdown was called before.
var ErrServerClosed = errors.New("submission: server is closed")

// Server is one SMTP listener's settings and all its connections.
type Server struct {
	cfg    Config
	clear  *smtp.Server
	secure *smtp.Server // serves connections that have TLS on
	small  sync.Pool    // *[smallBuffer]byte
	large  sync.Pool    // *[largeBuffer]byte

	ctx     context.Context // ends when Shutdown has cut all connections
	cancel  context.CancelFunc
	patient context.Context // ends when Shutdown begins: nobody is kept waiting then
	noMore  context.CancelFunc
	serve   sync.WaitGroup // the goroutine that accepts on afterTLS
	once    sync.Once      // starts it

	afterTLS *network.Handover // connections after STARTTLS

	closing atomic.Bool // Shutdown was called; set with mu held
	crowded atomic.Bool // slots are scarce; set with mu held

	desk  *intake.Desk
	slots *fair.Pool[holder]

	mu struct {
		sync.Mutex
		listeners map[net.Listener]struct{}
		conns     map[*conn]struct{}
		perClient map[netip.Prefix]int // open connections
		empty     chan struct{}        // closed when closing and no connection is left
	}
}

// New makes a server. Config.Store must be set.
func New(cfg Config) *Server {
	cfg = cfg.withDefaults()
	s := &Server{cfg: cfg, desk: intake.New(cfg.Intake), afterTLS: network.NewHandover(),
		slots: fair.NewPool[holder](int64(cfg.Limits.Connections))}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.patient, s.noMore = context.WithCancel(s.ctx)
	s.small.New = func() any { return new([smallBuffer]byte) }
	s.large.New = func() any { return new([largeBuffer]byte) }
	s.mu.listeners = make(map[net.Listener]struct{})
	s.mu.conns = make(map[*conn]struct{})
	s.mu.perClient = make(map[netip.Prefix]int)
	s.mu.empty = make(chan struct{})
	s.clear, s.secure = s.library(), s.library()
	return s
}

// uncertified reports whether TLS still lacks its certificate.
func (s *Server) uncertified() bool { return s.cfg.Certified != nil && !s.cfg.Certified() }

// library configures go-smtp. What it has no setting for, or does not do well, conn does.
func (s *Server) library() *smtp.Server {
	lib := smtp.NewServer(smtp.BackendFunc(newSession))
	lib.Domain = s.cfg.Intake.Hostname
	lib.MaxRecipients = s.cfg.Intake.Limits.Recipients
	lib.MaxMessageBytes = s.cfg.Intake.Limits.Size
	lib.ReadTimeout = math.MaxInt64 / 4 // any: makes it tell conn when it wants a command
	lib.MaxLineLength = math.MaxInt32   // conn bounds command lines, and content lines need no memory
	lib.EnableSMTPUTF8 = true
	lib.EnableREQUIRETLS = true // which the wrapper refuses without TLS
	lib.EnableDSN = true
	lib.EnableMTPRIORITY, lib.MtPriorityProfile = true, smtp.PrioritySTANAG4406 // conn takes the parameter
	lib.EnableDELIVERBY, lib.MinimumDeliverByTime = true, time.Second           // conn takes this one, too
	lib.ErrorLog = libraryLog{s.cfg.Intake.Log}
	return lib
}

// Serve accepts connections on l until Shutdown, and closes it. It can be called for several
// listeners.
func (s *Server) Serve(l net.Listener) error {
	if !s.addListener(l) {
		l.Close()
		return ErrServerClosed
	}
	defer s.removeListener(l)
	lib := s.clear
	if s.cfg.TLS != nil {
		if s.cfg.ImplicitTLS {
			lib = s.secure
		}
	}
	err := lib.Serve(&listener{Listener: l, srv: s})
	if s.isClosing() && errors.Is(err, net.ErrClosed) {
		return nil
	}
	return fmt.Errorf("accepting connections on %s: %w", l.Addr(), err)
}

// Shutdown stops accepting, sends idle connections a 421 and lets open transactions end. Those
// still open when ctx ends are cut: no part of their message is accepted. It returns ctx's error
// if it had to cut any.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	if !s.closing.Swap(true) {
		if len(s.mu.conns) == 0 {
			close(s.mu.empty)
		}
	}
	for l := range s.mu.listeners {
		l.Close()
	}
	for c := range s.mu.conns {
		c.wake()
	}
	s.mu.Unlock()
	s.noMore()
	s.afterTLS.Close()
	defer s.desk.Close()
	defer s.serve.Wait()
	defer s.cancel()

	select {
	case <-s.mu.empty:
		return nil
	case <-ctx.Done():
	}
	return s.cutAll(ctx.Err())
}

// Drain has clients look up after Config.Draining has become true: idle ones that bring new mail get a 421 at once, and
// those with a transaction when it has ended.
func (s *Server) Drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.mu.conns {
		c.wakeToDrain()
	}
}

// Retire is Shutdown: to a client it is the same whether the relay ends or has another server.
func (s *Server) Retire(ctx context.Context) error { return s.Shutdown(ctx) }

// cutWait is how long a connection that has been cut may take to end: it can be within a Commit,
// which has to come to its end.
const cutWait = 5 * time.Second

func (s *Server) cutAll(cause error) error {
	s.cancel()
	s.mu.Lock()
	n := len(s.mu.conns)
	for c := range s.mu.conns {
		c.cut()
	}
	s.mu.Unlock()
	s.cfg.Intake.Log.Warn("cut connections with open transactions", "connections", n)

	timer := time.NewTimer(cutWait)
	defer timer.Stop()
	select {
	case <-s.mu.empty:
		return fmt.Errorf("cut %d connections with open transactions: %w", n, cause)
	case <-timer.C:
		return fmt.Errorf("cut %d connections, %d still wait for the store: %w", n, s.Connections(), cause)
	}
}

// Connections is how many connections are open.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.conns)
}

func (s *Server) isClosing() bool { return s.closing.Load() }

func (s *Server) addListener(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosing() {
		return false
	}
	s.mu.listeners[l] = struct{}{}
	if s.cfg.TLS != nil { // here, since Shutdown must not begin to wait meanwhile
		s.once.Do(func() { s.serve.Go(func() { s.secure.Serve(s.afterTLS) }) })
	}
	return true
}

func (s *Server) removeListener(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.listeners, l)
}

// add takes c into the set of open connections, unless the server is closing or full. Who has a slot is decided by
// seat.
func (s *Server) add(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosing() || len(s.mu.conns) >= s.cfg.Limits.Connections+inTransit {
		return false
	}
	s.cfg.Open.Add(1)
	s.mu.conns[c] = struct{}{}
	s.watchCrowd()
	return true
}

// remove takes c out, and next, when there is one, in.
func (s *Server) remove(c, next *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if next != nil {
		s.mu.conns[next] = struct{}{}
		s.cfg.Open.Add(1)
	}
	delete(s.mu.conns, c)
	s.cfg.Open.Add(-1)
	s.watchCrowd()
	if s.isClosing() && len(s.mu.conns) == 0 {
		close(s.mu.empty)
	}
}

// holdClient counts one more connection from a network, unless it has enough.
func (s *Server) holdClient(p netip.Prefix) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.perClient[p] >= s.cfg.Limits.ConnectionsPerClient {
		return false
	}
	s.mu.perClient[p]++
	return true
}

func (s *Server) releaseClient(p netip.Prefix) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.perClient[p]--; s.mu.perClient[p] <= 0 {
		delete(s.mu.perClient, p)
	}
}

// libraryLog takes what go-smtp logs: panics, and failing accepts. A client that resets its connection, as health
// checks of load balancers do, is no error of the relay's.
type libraryLog struct{ log *slog.Logger }

func (l libraryLog) Printf(format string, v ...any) {
	level := slog.LevelError
	for _, arg := range v {
		if err, ok := arg.(error); ok && (errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)) {
			level = slog.LevelDebug
		}
	}
	l.log.Log(context.Background(), level, fmt.Sprintf(format, v...))
}

func (l libraryLog) Println(v ...any) { l.log.Error(fmt.Sprint(v...)) }
