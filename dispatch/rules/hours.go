package rules

import (
	"strings"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/mta/config"
)

// Shut returns what a message waits for while its window is closed; zero if it may leave now.
func (r *Rules) Shut(m *envelope.Message) parking.Key {
	if r == nil {
		return parking.Key{}
	}
	block := r.policy().Window(m)
	if block == nil {
		return parking.Key{}
	}
	zone := r.zones.Clock(&block.Window, m.Asked(envelope.TimezoneField))
	if block.Window.Open(r.now(), zone) {
		return parking.Key{}
	}
	key := parking.Key{Kind: parking.Hours, Name: windowPrefix(block) + zone.String()}
	r.shutMu.Lock()
	defer r.shutMu.Unlock()
	r.shut[key] = struct{}{}
	return key
}

// windowPrefix begins the keys of mail that waits for a block's window; a zone follows. A reload that changes the
// window changes them, and so lets all of the mail be looked at anew.
func windowPrefix(m *config.Mail) string { return m.Name + ": " + m.Window.Hours + " " }

// closed returns the block whose window is closed for mail under a key, and its clock; nil if none is.
func (r *Rules) closed(key parking.Key) (*config.Mail, *time.Location) {
	if key.Kind != parking.Hours {
		return nil, nil
	}
	for _, m := range r.policy().Config.Mails {
		name, ok := strings.CutPrefix(key.Name, windowPrefix(m))
		if !ok || !m.Window.Recipient && name != m.Window.Zone.String() {
			continue
		}
		if zone, err := r.zones.Zone(name); err == nil && !m.Window.Open(r.now(), zone) {
			return m, zone
		}
	}
	return nil, nil
}

// opens is Why for a window.
func (r *Rules) opens(key parking.Key) (why string, until time.Time, ok bool) {
	m, zone := r.closed(key)
	if m == nil {
		return "its window has opened: it is taken up now", until, true
	}
	return "outside of the window " + strings.TrimPrefix(key.Name, m.Name+": ") + " of " + m.Origin("window"),
		m.Window.Opens(r.now(), zone), true
}

// open takes up the mail of windows that have opened.
func (r *Rules) open() {
	r.shutMu.Lock()
	defer r.shutMu.Unlock()
	for key := range r.shut {
		if m, _ := r.closed(key); m == nil {
			delete(r.shut, key)
			r.Resumed(key)
		}
	}
}
