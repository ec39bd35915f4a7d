package config

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"

	"example.org/mta/internal/settings"
)

// Whereabouts is what a configuration file says about where its relay can be found. A field is
// empty when the file has the setting but its value can't be known here: it names an environment
// variable that is not set, say.
type Whereabouts struct {
	Hostname   string `json:"hostname"`
	DataDir    string `json:"data_dir"`
	Socket     string `json:"socket"`     // the control socket
	Accounting string `json:"accounting"` // the directory of the accounting log
	// SMTP is where listeners begin in clear, as sendmail does: those that demand no login first, and
	// otherwise in the order of the file.
	SMTP []string `json:"smtp"`
}

// Find looks for the relay's whereabouts in the file at path. It is lenient: only the settings
// that it needs are evaluated, and an error anywhere else in the file does not matter. The error
// says that the file can't be read at all.
func Find(path string, env func(string) string) (Whereabouts, error) {
	src, err := settings.ReadFile(path)
	if err != nil {
		return Whereabouts{}, err
	}
	return find(src, env), nil
}

// DefaultWhereabouts are those of the built-in defaults.
func DefaultWhereabouts() Whereabouts { return find(nil, nil) }

// Maildrop is the directory in data_dir where sendmail leaves mail while the relay is away.
const Maildrop = "maildrop"

// AuditLog is the directory in data_dir with what operators did, see package audit.
const AuditLog = "audit"

// Reachable is where a listener's address is reached from the machine itself: "" when it can't be.
func Reachable(listener string) string {
	host, port, err := net.SplitHostPort(listener)
	if err != nil {
		return ""
	}
	switch host {
	case "", "0.0.0.0":
		host = "127.0.0.1"
	case "::":
		host = "::1"
	}
	return net.JoinHostPort(host, port)
}

func find(src []byte, env func(string) string) Whereabouts {
	defaults := builtIn()
	defaults.derive(systemHostname())
	w := Whereabouts{Hostname: defaults.Hostname, DataDir: defaults.DataDir, SMTP: defaults.Listeners[0].Address}
	var listeners []listenerPlace
	var socketSet, accountingSet bool
	demands := make(map[int][]string)
	for _, s := range settings.Scan(src, env, new(Config)) {
		switch s.Block + "." + s.Name {
		case ".hostname":
			w.Hostname = s.Text()
		case ".data_dir":
			w.DataDir = s.Text()
		case "control.socket":
			w.Socket, socketSet = s.Text(), true
		case "accounting.path":
			w.Accounting, accountingSet = s.Text(), true
		case "listener.address":
			if addresses := s.Texts(); addresses != nil {
				listeners = append(listeners, listenerPlace{owner: s.Owner, addresses: addresses})
			}
		case "listener.implicit", "listener.required":
			if s.True() {
				demands[s.Owner] = append(demands[s.Owner], s.Name)
			}
		}
	}
	if !socketSet && w.DataDir != "" {
		w.Socket = filepath.Join(w.DataDir, "control.sock")
	}
	if !accountingSet && w.DataDir != "" {
		w.Accounting = filepath.Join(w.DataDir, "log")
	}
	if len(listeners) > 0 {
		for i, l := range listeners {
			listeners[i].implicit = slices.Contains(demands[l.owner], "implicit")
			listeners[i].required = slices.Contains(demands[l.owner], "required")
		}
		w.SMTP = forSendmail(listeners)
	}
	return w
}

// listenerPlace is what sendmail has to know of a listener.
type listenerPlace struct {
	owner              int // see settings.Statement
	addresses          []string
	implicit, required bool // TLS from the first octet; a login
}

// forSendmail lists the addresses for Whereabouts.SMTP.
func forSendmail(listeners []listenerPlace) []string {
	addresses := []string{} // nil would be "not known"
	for _, required := range []bool{false, true} {
		for _, l := range listeners {
			if !l.implicit && l.required == required {
				addresses = append(addresses, l.addresses...)
			}
		}
	}
	return addresses
}

// ForSendmail lists for Whereabouts.SMTP where the listeners are: addressesOf gives that of each.
func ForSendmail(listeners []*Listener, addressesOf func(*Listener) []string) []string {
	var all []listenerPlace
	for _, l := range listeners {
		all = append(all, listenerPlace{addresses: addressesOf(l), implicit: l.TLS.Implicit, required: l.Auth.Required})
	}
	return forSendmail(all)
}

// announcement is the name of the file in which a relay says where it is.
const announcement = "relay.json"

// WellKnown are the directories in which commands look for a running relay when its configuration
// doesn't say where it is, or can't be read: the first that has a relay's announcement counts.
func WellKnown() []string { return []string{"/run/mta", "/var/lib/mta"} }

// Announce writes down in a directory where a relay is, for users who can't read its configuration.
// Everybody may read the file: it has no secrets. Relative paths are made absolute.
func Announce(dir string, w Whereabouts) error {
	for _, path := range []*string{&w.DataDir, &w.Socket, &w.Accounting} {
		abs, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = abs
	}
	text, err := json.MarshalIndent(w, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "."+announcement+"-")
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err == nil {
		err = f.Chmod(0o644)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, announcement))
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// Announced reads what Announce wrote.
func Announced(dir string) (w Whereabouts, err error) {
	text, err := settings.ReadFile(filepath.Join(dir, announcement))
	if err != nil {
		return w, err
	}
	if err := json.Unmarshal(text, &w); err != nil {
		return w, fmt.Errorf("%s in %s: %w", announcement, dir, err)
	}
	return w, nil
}
