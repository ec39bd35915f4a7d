package config

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/mta/internal/settings"
)

// Milter is a program that decides on submitted messages.
//
// A program that speaks the [milter protocol](submission.md#milters) decides on each submitted message: it accepts,
// refuses, changes, quarantines or drops it. Several are asked in the order of the file.
type Milter struct {
	block
	Name string `conf:",label"`

	// Required: `"inet:host:port"`, or `"unix:/path"`. Mail goes there in clear.
	Address MilterAddress `conf:"address"`
	// For all that one message takes, and before that for the wait for one of the 100 connections.
	Timeout time.Duration `conf:"timeout" default:"30s" min:"100ms" max:"5m"`
	// When the milter can't be reached, hangs or answers nonsense: `"refuse"` mail with a 451, or `"accept"` it
	// unchecked.
	OnError string `conf:"on_error" default:"refuse" oneof:"refuse accept"`
	// The listeners and `api` blocks whose mail it is asked about. Default: all.
	Listeners []string `conf:"listeners"`
	// The tenants whose mail it is asked about. Default: all mail, of no tenant, too.
	Tenants []string `conf:"tenants"`
}

// MilterAddress is where a milter listens, written as "inet:host:port" or "unix:/path".
type MilterAddress struct{ Network, Address string } // as for net.Dial: "tcp" or "unix"

// UnmarshalText reads an address.
func (a *MilterAddress) UnmarshalText(text []byte) error {
	kind, rest, _ := strings.Cut(string(text), ":")
	host, port, err := net.SplitHostPort(rest)
	n, bad := strconv.ParseUint(port, 10, 16)
	switch {
	case kind == "unix" && strings.HasPrefix(rest, "/"):
		*a = MilterAddress{"unix", rest}
	case kind == "inet" && err == nil && host != "" && bad == nil && n > 0:
		*a = MilterAddress{"tcp", rest}
	default:
		return settings.Wrong(`write "inet:127.0.0.1:8891" or "unix:/run/opendkim/opendkim.sock"`,
			"%s is not the address of a milter", settings.Quoted(string(text)))
	}
	return nil
}

// String gives the form that is read.
func (a MilterAddress) String() string {
	switch a.Network {
	case "":
		return ""
	case "tcp":
		return "inet:" + a.Address
	}
	return a.Network + ":" + a.Address
}

func (k checker) milters() {
	listeners := append(namesOf(k.Listeners, func(l *Listener) string { return l.Name }),
		namesOf(k.APIs, func(a *API) string { return a.Name })...)
	for _, m := range k.Milters {
		if m.Address == (MilterAddress{}) {
			k.problem(&m.block, "address", `write address = "inet:127.0.0.1:8891"`, "milter %q has no address", m.Name)
		}
		k.names(&m.block, "listeners", "listener", m.Listeners, listeners)
		k.names(&m.block, "tenants", "tenant", m.Tenants, k.Names("tenant"))
	}
}

// names looks at names of blocks.
func (k checker) names(b *block, setting, kind string, names, there []string) {
	for _, name := range names {
		if !slices.Contains(there, name) {
			k.reference(b, setting, kind, name, there)
		}
	}
}
