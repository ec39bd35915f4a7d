package web

import (
	"fmt"
	"slices"

	"example.org/mta/internal/users"
)

// Role is what somebody may do. Each includes those before it.
type Role int

// The roles, in the order of users.Roles.
const (
	Anyone   Role = iota // not logged in
	Viewer               // sees all but what messages say
	Operator             // acts on the queue, destinations, warm-up and suppression
	Admin                // reads contents and the audit, reloads
)

// ParseRole reads the name of a role.
func ParseRole(name string) (Role, error) {
	i := slices.Index(users.Roles, name)
	if i < 0 {
		return Anyone, fmt.Errorf("there is no role %q", name)
	}
	return Viewer + Role(i), nil
}

// String gives the role's name.
func (r Role) String() string {
	if r < Viewer || r > Admin {
		return "nobody"
	}
	return users.Roles[r-Viewer]
}
