package api

import (
	"context"
	_ "embed" // openapi.json
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Queue is what the server asks of the queue. Errors are of type *Error where the operator can
// do something about them.
type Queue interface {
	List(context.Context, Filter, Page) (List, error)
	// Get gives a message with all its recipients that are in the queue; NotFound when it is
	// there no more.
	Get(ctx context.Context, id string) (Item, error)
	// Content gives what the message says, headers and body, with CRLF line ends.
	Content(ctx context.Context, id string) (io.ReadCloser, error)
	// Change acts on what fits. An error beside Changed.Recipients means that it was done in
	// part: a message that was named is not there.
	Change(context.Context, Change) (Changed, error)
	// Summary counts what fits.
	Summary(ctx context.Context, by SummaryBy, f Filter, p SummaryPage) (Summary, error)
}

// Log is what the server asks of the accounting log.
type Log interface {
	// Read calls each with the records that fit, oldest first, one line of JSON at a time and
	// without its line end. It returns the error of each when there is one, and a *LogDamaged after
	// all sound records when there are others. With q.Follow it goes on until ctx ends, and flush is
	// called when it has to wait for more.
	Read(ctx context.Context, q LogQuery, each func(record []byte) error, flush func()) error
	// Newest gives a page of at most limit records that fit, newest first, in bounded work. after is LogPage.Next of the
	// page before, "" the newest.
	Newest(ctx context.Context, q LogQuery, after string, limit int) (LogPage, error)
}

// Relay is what the server asks of the relay as a whole.
type Relay interface {
	Status() Status
	// Reload reads the configuration file again and brings it into force, all of it or nothing.
	Reload(context.Context) (Reload, error)
	// PreviewReload returns what a reload would change, or the error with which it would be refused. It tries all that a
	// reload does, and undoes it.
	PreviewReload(context.Context) (Reload, error)
	// ConfigChanges returns the differences between the file and the configuration in force. It only reads.
	ConfigChanges() (Reload, error)
	// Config prints the configuration in force, without secrets; ConfigObject gives it for JSON.
	Config() string
	ConfigObject() map[string]any
}

// Config is what a server works with. Queue, Log, Relay, Destinations, Blocks, Warmups, Suppressions
// and Tracer are needed.
type Config struct {
	Queue           Queue
	Log             Log
	Relay           Relay
	Destinations    Destinations
	Blocks          Blocks
	Warmups         Warmups
	Suppressions    Suppressions
	Bounces         Bounces
	TLSReports      TLSReports
	Inbound         Inbound
	Admissions      Admissions
	Tracer          Tracer
	Pauses          Pauses
	Streams         Streams
	APIKeys         APIKeys
	TLSPolicies     TLSPolicies
	Histories       Histories
	Upgrades        Upgrades
	Backups         Backups
	Moves           Moves
	OpenConnections OpenConnections
	// Audit is where actions of operators are written down. nil: nowhere, for tests.
	Audit Audit
	// Events is where what an operator changes is written down. nil: slog.Default.
	Events *slog.Logger
	// Now is the clock. nil: time.Now.
	Now func() time.Time
}

// Server answers the operator.
type Server struct {
	config  Config
	http    http.Server
	files   fileChanges
	streams context.Context // ends when the server is about to stop, for those who follow the log or watch
}

// maxRequest bounds the body of a request: 60,000 ids.
const maxRequest = 1 << 20

//go:embed openapi.json
var openAPI []byte

// NewServer makes a server that serves nothing yet.
func NewServer(c Config) *Server {
	if c.Events == nil {
		c.Events = slog.Default()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	s := &Server{config: c}
	var stop context.CancelFunc
	s.streams, stop = context.WithCancel(context.Background())
	s.http = http.Server{
		ConnContext:       withPeer,
		Handler:           s.Handler(),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
		IdleTimeout:       5 * time.Minute,
		MaxHeaderBytes:    maxRequest, // ids of a listing stand in the URL
	}
	s.http.RegisterOnShutdown(stop)
	return s
}

// Serve answers on l, see Listen, until Shutdown. It then returns nil.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Shutdown ends those who follow the log or watch conversations, waits for the other requests under way, and when ctx
// ends cuts them off.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		s.http.Close()
	}
	return err
}

// Handler has all routes. It asks nobody who they are: on the unix socket the file's mode does,
// and whoever mounts it elsewhere must.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, o := range operations {
		mux.Handle(o.method+" "+o.path, o.handler(s))
	}
	return &fallback{mux}
}

// fallback answers in JSON what no route does.
type fallback struct{ mux *http.ServeMux }

func (f *fallback) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h, pattern := f.mux.Handler(r)
	if pattern != "" {
		f.mux.ServeHTTP(w, r)
		return
	}
	refusal := &statusOnly{header: http.Header{}}
	h.ServeHTTP(refusal, r)
	for name, values := range refusal.header {
		if name == "Allow" || name == "Location" {
			w.Header()[name] = values
		}
	}
	writeError(w, &Error{Status: refusal.status, Message: "no route for " + r.Method + " " + r.URL.Path, Hint: "the routes are at /openapi.json"})
}

// statusOnly learns what the mux would answer.
type statusOnly struct {
	header http.Header
	status int
}

func (s *statusOnly) Header() http.Header            { return s.header }
func (s *statusOnly) WriteHeader(status int)         { s.status = status }
func (s *statusOnly) Write(text []byte) (int, error) { return len(text), nil }

func writeError(w http.ResponseWriter, err error) {
	e := asError(err)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Status)
	json.NewEncoder(w).Encode(e)
}
