package connections

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/delivery/smtpclient"
	"example.org/mta/internal/envelope"
	"example.org/mta/operator/api"
	"example.org/mta/submission"
)

// Tracer lets operators watch SMTP conversations. While nobody does, connections have no trace at
// all: what that costs is one load of an empty list for each new connection, and of a nil pointer
// for each flight and each reply.
//
// It has no goroutine: lines are handed over by those that carry mail, and taken by the caller of
// Trace. In between is a buffer of bounded size, and what doesn't fit is counted and left out: mail
// never waits for who watches it.
type Tracer struct {
	now      func() time.Time
	retrace  func()
	watchers atomic.Pointer[[]*watcher]
	change   sync.Mutex   // one change of watchers at a time
	clients  atomic.Int64 // of watchers, those of clients' sessions
}

// How much a watcher may be behind.
const (
	maxTraceLines  = 4096
	maxTraceOctets = 4 << 20
)

// watcher is somebody who watches.
type watcher struct {
	api.TraceQuery
	lines  chan api.TraceLine
	octets atomic.Int64 // of text in lines
	lost   atomic.Int64 // since the last line that went into lines
}

// NewTracer returns a tracer that nobody uses yet. retrace has open connections to hosts ask again who
// watches them.
func NewTracer(now func() time.Time, retrace func()) *Tracer {
	return &Tracer{now: now, retrace: retrace}
}

// Trace implements api.Tracer.
func (t *Tracer) Trace(ctx context.Context, q api.TraceQuery, each func(api.TraceLine) error, flush func()) error {
	w := &watcher{TraceQuery: q, lines: make(chan api.TraceLine, maxTraceLines)}
	t.add(w)
	defer t.remove(w)
	flush()
	for {
		var l api.TraceLine
		select {
		case l = <-w.lines:
		default:
			if n := w.lost.Swap(0); n > 0 { // nothing came after them to report them
				l = api.TraceLine{Time: t.now(), Lost: int(n)}
				break
			}
			flush()
			select {
			case l = <-w.lines:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		w.octets.Add(-int64(len(l.Text)))
		if err := each(l); err != nil {
			return err
		}
	}
}

func (t *Tracer) add(w *watcher) {
	t.change.Lock()
	defer t.change.Unlock()
	all := append(slices.Clone(t.all()), w)
	t.watchers.Store(&all)
	if w.Clients {
		t.clients.Add(1)
	} else {
		t.retrace()
	}
}

func (t *Tracer) remove(w *watcher) {
	t.change.Lock()
	defer t.change.Unlock()
	all := slices.DeleteFunc(slices.Clone(t.all()), func(o *watcher) bool { return o == w })
	t.watchers.Store(&all)
	if w.Clients {
		t.clients.Add(-1)
	} else {
		t.retrace()
	}
}

func (t *Tracer) all() []*watcher {
	if all := t.watchers.Load(); all != nil {
		return *all
	}
	return nil
}

// Watch gives what watches a connection; nil when nobody does. Delivery calls it.
func (t *Tracer) Watch(c delivery.Watched) *smtpclient.Trace {
	var ws []*watcher
	content := false
	for _, w := range t.all() {
		if !w.Clients && (w.Site == "" || strings.EqualFold(w.Site, c.Site)) &&
			(w.Source == "" || w.Source == c.Source) {
			ws = append(ws, w)
			content = content || w.Content
		}
	}
	if len(ws) == 0 {
		return nil
	}
	v := &conversation{now: t.now, watchers: ws, line: api.TraceLine{
		Session: c.Session, Host: c.Host.String(), Site: c.Site, Source: c.Source,
	}}
	trace := &smtpclient.Trace{Line: v.said}
	if content {
		trace.Content = v.content
	}
	return trace
}

// conversation is a connection that is watched. Its functions are called by the connection's reader
// and writer at the same time.
type conversation struct {
	now      func() time.Time
	watchers []*watcher
	line     api.TraceLine // what all its lines have in common
}

func (v *conversation) said(t *smtpclient.Transaction, d smtpclient.Direction, text []byte) {
	l := v.line
	l.Direction = d.String()
	v.add(t, l, text)
}

func (v *conversation) content(t *smtpclient.Transaction, piece []byte) {
	l := v.line
	l.Direction, l.Content = smtpclient.ToHost.String(), true
	for len(piece) > 0 {
		n := len(piece)
		if n > maxTracePiece {
			// Between lines where there are any, so that no character is taken apart.
			n = bytes.LastIndexByte(piece[:maxTracePiece], '\n') + 1
			n = cmp.Or(n, maxTracePiece)
		}
		v.add(t, l, piece[:n])
		piece = piece[n:]
	}
}

// maxTracePiece is how much content goes into one line of a trace, in octets.
const maxTracePiece = 16 << 10

func (v *conversation) add(t *smtpclient.Transaction, l api.TraceLine, text []byte) {
	for _, w := range v.watchers {
		if l.Content && !w.Content || !w.wants(t) {
			continue
		}
		if l.Time.IsZero() { // the first who wants it: now it costs something
			l.Time, l.Text = v.now(), strings.ToValidUTF8(string(text), "\uFFFD")
			if t != nil {
				l.Message, l.Tenant = t.Message.ID.String(), t.Message.Tenant
			}
		}
		w.take(l)
	}
}

// wants reports whether the transaction that a line belongs to, nil for none, is watched.
func (w *watcher) wants(t *smtpclient.Transaction) bool {
	if w.Tenant == "" && w.Recipient == "" {
		return true
	}
	if t == nil || w.Tenant != "" && w.Tenant != t.Message.Tenant {
		return false
	}
	return w.Recipient == "" || slices.ContainsFunc(t.Recipients, func(i int) bool {
		return sameRecipient(w.Recipient, t.Message.Recipients[i].Address)
	})
}

// sameRecipient compares an address with one that is asked for, or with "@domain".
func sameRecipient(want string, a envelope.Address) bool {
	if domain, ok := strings.CutPrefix(want, "@"); ok {
		return strings.EqualFold(domain, a.Domain())
	}
	return strings.EqualFold(want, string(a))
}

// take puts a line into the buffer, or counts it as lost. It never waits.
func (w *watcher) take(l api.TraceLine) {
	size, lost := int64(len(l.Text)), w.lost.Swap(0)
	l.Lost = int(lost)
	if w.octets.Add(size) <= maxTraceOctets {
		select {
		case w.lines <- l:
			return
		default:
		}
	}
	w.octets.Add(-size)
	w.lost.Add(lost + 1)
}

// listenerTracer lets operators watch the sessions of a listener's clients.
type listenerTracer struct {
	*Tracer
	listener string
}

// Listener gives what watches the sessions of a listener's clients.
func (t *Tracer) Listener(name string) submission.Watcher { return listenerTracer{t, name} }

// Watched reports whether anybody watches clients.
func (t listenerTracer) Watched() bool { return t.clients.Load() > 0 }

// Said hands a line to those who watch this client.
func (t listenerTracer) Said(s submission.Line) {
	var l api.TraceLine
	for _, w := range t.all() {
		if !w.wantsClient(t.listener, s) {
			continue
		}
		if l.Time.IsZero() {
			l = api.TraceLine{
				Time: t.now(), Session: s.Session, Client: s.Peer.String(), Listener: t.listener, Tenant: s.Tenant,
				Direction: smtpclient.ToHost.String(), Text: strings.ToValidUTF8(string(s.Text), "\uFFFD"),
			}
			if s.FromClient {
				l.Direction = smtpclient.FromHost.String()
			}
		}
		w.take(l)
	}
}

// wantsClient reports whether a client's session is watched.
func (w *watcher) wantsClient(listener string, s submission.Line) bool {
	return w.Clients && (w.Listener == "" || w.Listener == listener) && (w.Tenant == "" || w.Tenant == s.Tenant) &&
		(!w.Client.IsValid() || w.Client.Contains(s.Peer.Addr()))
}
