package http

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/mta/submission/auth"
	"example.org/mta/submission/intake"
)

// Call is one request, and what is known of it by the time that its handler gets it.
type Call struct {
	// Request has a body that is bounded, decompressed, and paced. Errors of reading it are Problems.
	Request  *http.Request
	Writer   http.ResponseWriter
	Route    *Route
	ID       string         // of the request: in X-Request-Id, in the log, and the session in records
	Identity auth.Identity  // zero for open routes
	Client   netip.AddrPort // the client's address, whatever proxies are between
	Secure   bool           // the client has used TLS, to this relay or to a trusted proxy

	server  *Server
	answer  answer
	body    *body
	streams bool  // the body is taken in bounded memory
	held    int64 // octets of the budget

	admitted intake.Admitted // nil: nobody was asked, or a handler has taken it
}

// newCall takes a request over from net/http.
func (s *Server) newCall(w http.ResponseWriter, req *http.Request) *Call {
	c := &Call{Request: req, ID: s.config.IDs.Next(s.config.Now()).String(), server: s}
	c.answer = answer{ResponseWriter: w, call: c, control: http.NewResponseController(w),
		block: s.config.Timeouts.Block}
	c.Writer = &c.answer
	c.answer.control.SetWriteDeadline(time.Now().Add(longWait))
	c.body = newBody(s, c)
	// A copy: net/http goes by the type of its own request's Body, when it decides what to do with the rest.
	c.Request = req.WithContext(req.Context())
	c.Request.Body = c.body
	header := w.Header()
	header.Set("X-Request-Id", c.ID)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	return c
}

// Log has the request's id. It is made when it is needed, which is seldom.
func (c *Call) Log() *slog.Logger { return c.server.config.Log.With("request", c.ID) }

// Context ends when the client is gone or the relay must stop.
func (c *Call) Context() context.Context { return c.Request.Context() }

// Now is the time of the server's clock.
func (c *Call) Now() time.Time { return c.server.config.Now() }

// parameters returns those of the URL's query, each of them once. One that is none of known, or is there twice, is
// a Problem: a list would be longer or another than what was asked for.
func (c *Call) parameters(known ...string) (map[string]string, error) {
	values := make(map[string]string)
	for name, all := range c.Request.URL.Query() {
		if !slices.Contains(known, name) {
			return nil, Problemf(http.StatusBadRequest, "there is no parameter %q: use %s", shortened(name),
				strings.Join(known, ", "))
		}
		if len(all) > 1 {
			return nil, Problemf(http.StatusBadRequest, "%s: send it once", name)
		}
		values[name] = all[0]
	}
	return values, nil
}

// JSON answers with a value.
func (c *Call) JSON(status int, v any) error {
	body, err := plainJSON(v)
	if err != nil {
		return err
	}
	c.Writer.Header().Set("Content-Type", "application/json")
	c.Writer.Header().Set("Content-Length", strconv.Itoa(len(body)))
	c.Writer.WriteHeader(status)
	_, err = c.Writer.Write(body)
	c.gone(err)
	return nil
}

// gone logs that an answer didn't reach the client. It is too late for another one.
func (c *Call) gone(err error) {
	if err != nil {
		c.Log().Debug("the answer did not reach the client", "error", err)
	}
}

// fail answers with an error.
func (c *Call) fail(err error) {
	p := asProblem(err)
	if c.answer.status != 0 { // an answer has begun, and can only be cut
		c.Log().Error("a request failed after its answer had begun", "route", c.routeName(), "error", err)
		panic(http.ErrAbortHandler)
	}
	if p.Status >= 500 && !errors.Is(err, context.Canceled) {
		c.logTrouble(p)
	}
	if p.hold != nil {
		c.server.conns.isAnswered(c.Request) // others may have its place
		p.hold(c.Context())
	}
	c.refuse(p)
}

// refuse writes a problem, in the form that the path has.
func (c *Call) refuse(p *Problem) {
	c.answer.reason = p.Reason
	p.fields(c.Writer.Header())
	for _, f := range c.server.config.Forms {
		if f.has(c.Request.URL.Path) {
			f.Write(c, p)
			return
		}
	}
	p.write(c.Writer)
}

func (c *Call) logTrouble(p *Problem) {
	level := slog.LevelDebug // overload, and draining: others report those
	if p.Status == http.StatusInternalServerError || p.Cause != nil {
		level = slog.LevelError
	}
	c.Log().Log(c.Context(), level, "a request failed", "route", c.routeName(), "tenant", c.Identity.Tenant,
		"error", p.Error())
}

func (c *Call) routeName() string {
	if c.Route == nil {
		return "none"
	}
	return c.Route.name()
}

// rescue turns a panic into a 500. Nothing of the request is logged but where it went.
func (c *Call) rescue() {
	what := recover()
	switch {
	case what == nil:
		return
	case what == http.ErrAbortHandler: //nolint:errorlint // it is what net/http looks for
		panic(what)
	}
	c.Log().Error("a request panicked", "route", c.routeName(), "panic", what, "stack", string(debug.Stack()))
	if c.answer.status != 0 {
		panic(http.ErrAbortHandler)
	}
	c.refuse(&Problem{Status: http.StatusInternalServerError,
		Detail: "the log of the relay has the cause under this request's id", Reason: "panic"})
}
