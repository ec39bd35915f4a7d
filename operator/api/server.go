package api

import (
	"context"
	_ "embed" // openapi.json
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"
)

// Queue is what the server asks of the queue. Errors are of type *Error where the operator can
// do something about them.
type Queue interface {
	List(context.Context, ListQuery) (List, error)
	// Get gives a message with all its recipients that are in the queue; NotFound when it is
	// there no more.
	Get(ctx context.Context, id string) (Item, error)
	// Content gives what the message says, headers and body, with CRLF line ends.
	Content(ctx context.Context, id string) (io.ReadCloser, error)
	// Change acts on what fits. An error beside Changed.Recipients means that it was done in
	// part: a message that was named is not there.
	Change(context.Context, Change) (Changed, error)
	// Summary counts what fits.
	Summary(context.Context, SummaryQuery) (Summary, error)
}

// Log is what the server asks of the accounting log.
type Log interface {
	// Read calls each with the records that fit, oldest first, one line of JSON at a time and
	// without its line end. It returns the error of each when there is one, and a *LogDamaged after
	// all sound records when there are others. With q.Follow it goes on until ctx ends, and flush is
	// called when it has to wait for more.
	Read(ctx context.Context, q LogQuery, each func(record []byte) error, flush func()) error
	// Newest gives a page of at most limit records that fit, newest first, in bounded work. after is LogPage.Next of
	// the page before, "" the newest.
	Newest(ctx context.Context, q LogQuery, after string, limit int) (LogPage, error)
	// Following gives a page of at most limit records that fit and are behind after, oldest first. after is
	// LogPage.Next of the page before; "" is now, behind which there are none yet.
	Following(ctx context.Context, q LogQuery, after string, limit int) (LogPage, error)
	// Count counts the records that fit, one request at a time, until ctx ends.
	Count(context.Context, LogCountQuery) (LogCounts, error)
}

// Relay is what the server asks of the relay as a whole.
type Relay interface {
	Status() Status
	// Reload reads the configuration file again and brings it into force, all of it or nothing.
	Reload(context.Context) (Reload, error)
	// PreviewReload returns what a reload would change, or the error with which it would be refused. It tries all that
	// a reload does, and undoes it.
	PreviewReload(context.Context) (Reload, error)
	// ConfigChanges returns the differences between the file and the configuration in force. It only reads.
	ConfigChanges(context.Context) (Reload, error)
	// Drain has no new mail taken until Undrain, or the end of the process.
	Drain(context.Context, Intent) (Drained, error)
	Undrain(context.Context, Intent) (Drained, error)
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
	Rules           Rules
	Streams         Streams
	APIKeys         APIKeys
	Users           Users
	Histories       Histories
	Upgrades        Upgrades
	Backups         Backups
	Moves           Moves
	OpenConnections OpenConnections
	Clusters        Clusters
	Adopters        Adopters
	Members         Members // nil: requests for other nodes are refused
	// Audit is where actions of operators are written down. nil: nowhere, for tests.
	Audit Audit
	// Events is where what an operator changes is written down. nil: slog.Default.
	Events *slog.Logger
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
// and a caller that mounts it elsewhere must.
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
	writeError(w, &Error{Status: refusal.status, Message: "no route for " + r.Method + " " + r.URL.Path,
		Hint: "the routes are at /openapi.json"})
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

// maxSocketPath is what fits into sockaddr_un on Linux, with its closing zero.
const maxSocketPath = 107

// Listen makes the unix socket at path, with the given permissions. A socket that a relay left
// behind when it was killed is replaced; one that somebody listens on is not.
func Listen(path string, mode fs.FileMode) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("control socket %s: the path has %d octets, and %d is the most: set a shorter one", path,
			len(path), maxSocketPath)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	// Until here the umask has decided, and the usual ones let nobody else write, which is what
	// connecting takes.
	if err := os.Chmod(path, mode.Perm()); err != nil {
		l.Close()
		return nil, fmt.Errorf("control socket: %w", err)
	}
	return l, nil
}

func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("control socket: %s exists and is not a socket: move it away", path)
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		conn.Close()
		return fmt.Errorf("control socket: somebody listens on %s: is another relay running?", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("control socket: trying whether somebody listens: %w", err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("control socket: removing the one left behind: %w", err)
	}
	return nil
}

// Error is a fault as the operator reads it, and its remedy. Errors of another kind that the interfaces of this package
// return are answered as internal ones.
type Error struct {
	Status  int    `json:"-"`               // of HTTP
	Message string `json:"error"`           // what is wrong
	Hint    string `json:"hint,omitempty"`  // what to do
	Count   *int   `json:"count,omitempty"` // of 409: what would be changed now

	cause error // why the relay could not be asked
}

func (e *Error) Error() string { return e.Message }

// Unwrap gives why the relay could not be asked, as fs.ErrPermission, or nil.
func (e *Error) Unwrap() error { return e.cause }

// Invalid returns the error that the request itself is wrong.
func Invalid(hint, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// NotFound returns the error that there is no such thing.
func NotFound(hint, format string, args ...any) *Error {
	return &Error{Status: http.StatusNotFound, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// Unavailable returns the error that it can't be done now.
func Unavailable(hint, format string, args ...any) *Error {
	return &Error{Status: http.StatusServiceUnavailable, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// Hint gives what an error says must be done about it, "" when it says nothing.
func Hint(err error) string {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e.Hint
	}
	return ""
}

// IsNotFound reports whether err says that there is no such thing.
func IsNotFound(err error) bool {
	e := (*Error)(nil)
	return errors.As(err, &e) && e.Status == http.StatusNotFound
}

// asError makes an answer of any error.
func asError(err error) *Error {
	if e := (*Error)(nil); errors.As(err, &e) {
		return &Error{Status: e.Status, Message: err.Error(), Hint: e.Hint, Count: e.Count}
	}
	return &Error{Status: http.StatusInternalServerError, Message: err.Error()}
}
