package connections

import (
	"strings"

	"example.org/mta/delivery/smtpclient"
	"example.org/mta/operator/api"
	"example.org/mta/submission"
)

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
