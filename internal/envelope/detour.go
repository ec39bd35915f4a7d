package envelope

import "strings"

// Detour is the way that an operator has chosen for queued mail, in place of its own. The zero Detour is its own.
type Detour struct {
	Pool  string // the pool of sources that it leaves from; "" is that of its tenant
	Route string // the domain whose route it takes; "" is that of each recipient
}

// IsZero reports whether mail goes its own way.
func (d Detour) IsZero() bool { return d == Detour{} }

// String gives it in words: "pool backup, route of smarthost.example".
func (d Detour) String() string {
	var parts []string
	if d.Pool != "" {
		parts = append(parts, "pool "+d.Pool)
	}
	if d.Route != "" {
		parts = append(parts, "route of "+d.Route)
	}
	return strings.Join(parts, ", ")
}
