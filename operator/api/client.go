package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Client asks a running relay. It is safe for use by many goroutines.
type Client struct {
	socket string
	http   http.Client
}

// NewClient makes a client for the relay that listens on the unix socket. It connects when it is
// used.
func NewClient(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "unix", socket)
	}
	return &Client{socket, http.Client{Transport: &http.Transport{DialContext: dial}}}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// WholeSummary counts what fits, however many requests that takes, with at most limit rows; 0 for all.
func (c *Client) WholeSummary(ctx context.Context, by SummaryBy, f Filter, limit int) (Summary, error) {
	q := SummaryQuery{Filter: f, By: by}
	if f.Empty() {
		q.Limit = limit
		return OpSummary.Call(ctx, c, q)
	}
	whole, err := OpSummary.Call(ctx, c, q)
	for err == nil && whole.Next != "" {
		var part Summary
		q.After = whole.Next
		part, err = OpSummary.Call(ctx, c, q)
		whole = AddSummaries(whole, part)
	}
	whole.Cut(limit)
	return whole, err
}

// maxRecord bounds a line of the accounting log.
const maxRecord = 4 << 20

// Log calls each with the records that fit, without line ends. With q.Follow it returns nil when
// the relay stops, and the error of ctx when that ends. The error is a *LogDamaged if each was called with all
// records that can be read, and there were others.
func (c *Client) Log(ctx context.Context, q LogQuery, each func(record []byte) error) error {
	answer, err := OpLog.open(ctx, c, logQuery{LogQuery: q})
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, maxRecord)
	for lines.Scan() {
		if err := each(lines.Bytes()); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading the log: %w", err)
	}
	if damage := answer.Trailer.Get(damageTrailer); damage != "" {
		return &LogDamaged{damage}
	}
	return nil
}

// NewestRecords gives a page of the records that fit, newest first. after is LogPage.Next of the page before, limit is
// from 1 to MaxLimit, 0 is DefaultLimit.
func (c *Client) NewestRecords(ctx context.Context, q LogQuery, after string, limit int) (LogPage, error) {
	return OpLog.Call(ctx, c, logQuery{q, NewestFirst, after, limit})
}

// FollowingRecords gives a page of the records that fit and are behind after, oldest first. after is LogPage.Next of
// the page before; "" is now, behind which there are none yet. limit is as of NewestRecords.
func (c *Client) FollowingRecords(ctx context.Context, q LogQuery, after string, limit int) (LogPage, error) {
	return OpLog.Call(ctx, c, logQuery{q, Following, after, limit})
}

// EffectiveConfig gives the configuration in force as text, without secrets.
func (c *Client) EffectiveConfig(ctx context.Context) (string, error) {
	var text strings.Builder
	err := OpConfig.Copy(ctx, c, &text, configQuery{})
	return text.String(), err
}

// ConfigObject gives the same for programs.
func (c *Client) ConfigObject(ctx context.Context) (map[string]any, error) {
	return OpConfig.Call(ctx, c, configQuery{ConfigJSON})
}

// send returns the answer when it is 200; all else is an error. form is the media type of the request.
func (c *Client) send(ctx context.Context, method, path string, v url.Values, request io.Reader,
	form string) (*http.Response, error) {
	unescaped, err := url.PathUnescape(path)
	if err != nil {
		return nil, err
	}
	u := url.URL{Scheme: "http", Host: "relay", Path: unescaped, RawPath: path, RawQuery: v.Encode()}
	r, err := http.NewRequestWithContext(ctx, method, u.String(), request)
	if err != nil {
		return nil, err
	}
	if form != "" {
		r.Header.Set("Content-Type", form)
	}
	if sendNode(ctx, r.Header); method != http.MethodGet {
		sendReason(ctx, r.Header)
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	if answer.StatusCode == http.StatusOK {
		return answer, nil
	}
	defer answer.Body.Close()
	refusal := &Error{Status: answer.StatusCode}
	if err := json.NewDecoder(answer.Body).Decode(refusal); err != nil || refusal.Message == "" {
		return nil, fmt.Errorf("the relay answered %s", answer.Status)
	}
	return nil, refusal
}

// explain returns what a failed connection means.
func (c *Client) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	op := (*net.OpError)(nil)
	if !errors.As(err, &op) || op.Op != "dial" {
		return fmt.Errorf("asking the relay: %w", err)
	}
	message := fmt.Sprintf("connecting to the relay at %s: %v", c.socket, op.Err)
	if sys := (*net.OpError)(nil); errors.As(err, &sys) {
		if e := syscall.Errno(0); errors.As(err, &e) {
			message = fmt.Sprintf("connecting to the relay at %s: %v", c.socket, e)
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return &Error{Message: message, Hint: "is the relay running? start it with: mta serve"}
	case errors.Is(err, fs.ErrPermission):
		return &Error{Message: message,
			Hint: "only the user and the group of the socket may talk to the relay: get into the group (ls -l shows " +
				"it), or run this as root", cause: fs.ErrPermission}
	}
	return errors.New(message)
}

// Down reports whether err says that no relay could be asked: none is running, or the socket is not
// for us, and then it is fs.ErrPermission.
func Down(err error) bool {
	e := (*Error)(nil)
	return errors.As(err, &e) && e.Status == 0
}

// NewLocalClient makes a client for a server in the same process, which h belongs to (see Server.Handler). Requests
// carry the context of their callers to it, with the actor of WithActor.
func NewLocalClient(h http.Handler) *Client {
	return &Client{http: http.Client{Transport: localTransport{h}}}
}

// localTransport answers requests by a handler, as a server would.
type localTransport struct{ handler http.Handler }

// RoundTrip returns as soon as the handler has begun to answer; the rest is read as it comes.
func (t localTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	in := r.Clone(ctx)
	in.RequestURI, in.RemoteAddr = r.URL.RequestURI(), "local"
	if in.Body == nil {
		in.Body = http.NoBody
	}
	from, to := io.Pipe()
	w := &localAnswer{ctx: r.Context(), header: http.Header{}, trailer: http.Header{}, begun: make(chan struct{}),
		pipe: to}
	w.out = bufio.NewWriterSize(to, 16<<10)
	go func() {
		defer in.Body.Close()
		defer cancel()
		defer w.end()
		t.handler.ServeHTTP(w, in)
	}()
	select {
	case <-w.begun:
	case <-r.Context().Done(): // ctx ends with the handler, too
		from.Close()
		cancel()
		return nil, r.Context().Err()
	}
	if w.status == 0 {
		cancel()
		return nil, w.failed
	}
	stop := context.AfterFunc(r.Context(), func() { to.CloseWithError(r.Context().Err()) })
	return &http.Response{
		StatusCode: w.status, Status: http.StatusText(w.status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.sent, Trailer: w.trailer, Body: &localBody{from, func() { stop(); cancel() }}, ContentLength: -1,
		Request: r,
	}, nil
}

// errBroken is what a client gets of an answer that the server broke off.
var errBroken = errors.New("the server has broken off its answer")

// localAnswer is what a handler writes to. Only its goroutine uses it.
type localAnswer struct {
	ctx          context.Context // of the caller
	header, sent http.Header
	trailer      http.Header // what header has after the body of the fields that "Trailer" names
	status       int
	failed       error         // set when the handler has panicked
	begun        chan struct{} // closed when status and sent, or failed, are set
	once         sync.Once
	out          *bufio.Writer
	pipe         *io.PipeWriter
}

func (w *localAnswer) Header() http.Header { return w.header }

func (w *localAnswer) WriteHeader(status int) {
	w.once.Do(func() {
		w.status, w.sent = status, w.header.Clone()
		close(w.begun)
	})
}

func (w *localAnswer) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.out.Write(p)
}

// FlushError passes on what was written. http.ResponseController calls it.
func (w *localAnswer) FlushError() error {
	w.WriteHeader(http.StatusOK)
	return w.out.Flush()
}

// end ends the answer when the handler returns. A handler that panics breaks it off and ends nothing else, as with
// http.Server.
func (w *localAnswer) end() {
	failed := recover()
	if failed == nil {
		w.WriteHeader(http.StatusOK)
		w.out.Flush() // an error: nobody reads on
		for _, name := range w.sent.Values("Trailer") {
			w.trailer.Set(name, w.header.Get(name))
		}
		w.pipe.CloseWithError(w.ctx.Err()) // nil: the answer is whole
		return
	}
	w.failed = errBroken
	if failed != http.ErrAbortHandler {
		w.failed = fmt.Errorf("%w: %v", errBroken, failed)
	}
	w.pipe.CloseWithError(w.failed)
	w.once.Do(func() { close(w.begun) })
}

// localBody ends the request when it is closed.
type localBody struct {
	*io.PipeReader
	end func()
}

func (b *localBody) Close() error {
	b.end()
	return b.PipeReader.Close()
}
