package request

import (
	"strings"
	"time"

	"example.org/mta/internal/envelope"
)

// Suppression is an address that a tenant wants no mail sent to.
type Suppression struct {
	Address   envelope.Address
	Reason    string
	ExpiresAt time.Time // zero: never
}

// MaxSuppressions is how many addresses a request may add, remove or check.
const MaxSuppressions = 1000

// maxReason is the longest reason, in octets.
const maxReason = 256

// few bounds the tree of a request about suppressions.
var few = TreeLimits{Depth: 8, Values: 10 * MaxSuppressions}

// DecodeSuppressions reads {"suppressions": [{"address", "reason", "expires_at"}]}.
func DecodeSuppressions(body []byte, now time.Time) ([]Suppression, Faults) {
	return decodeList(body, "suppressions", func(r *reader, n *Node) (s Suppression) {
		object(r, n, &s, []field[Suppression]{
			{"address", func(r *reader, n *Node, s *Suppression) { s.Address = r.suppressible(n) }},
			{"reason", func(r *reader, n *Node, s *Suppression) {
				if s.Reason = r.text(n); len(s.Reason) > maxReason || strings.ContainsFunc(s.Reason, isControl) {
					r.wrong(n, "send one line of 256 octets at most", "%s is not allowed here", shown(s.Reason))
				}
			}},
			{"expires_at", func(r *reader, n *Node, s *Suppression) {
				if s.ExpiresAt = r.time(n); !s.ExpiresAt.IsZero() && !s.ExpiresAt.After(now) {
					r.wrong(n, "send a time in the future, or leave it out", "%s has passed",
						s.ExpiresAt.Format(time.RFC3339))
				}
			}},
		})
		if n.Kind == Object && !given(n, "address") {
			r.wrong(n, "add the field", "the field address is missing")
		}
		return s
	})
}

// DecodeAddresses reads {"addresses": ["a@b.example"]}.
func DecodeAddresses(body []byte) ([]envelope.Address, Faults) {
	return decodeList(body, "addresses", func(r *reader, n *Node) envelope.Address { return r.address(n) })
}

// decodeList reads an object whose one member is an array.
func decodeList[T any](body []byte, name string, one func(*reader, *Node) T) (all []T, _ Faults) {
	root, faults := ParseTree(body, few)
	if root == nil {
		return nil, faults
	}
	r := reader{faults: faults}
	if root.Kind != Object {
		r.wrong(root, "send an object", "want %v, got %v", Object, root.Kind)
		return nil, r.faults
	}
	object(&r, root, &all, []field[[]T]{{name, func(r *reader, n *Node, all *[]T) {
		r.array(n, MaxSuppressions, name, func(n *Node) { *all = append(*all, one(r, n)) })
	}}})
	if len(all) == 0 && len(r.faults) == 0 {
		r.wrong(root, "name at least one address", "the field %s is missing or empty", name)
	}
	return all, r.faults
}

// address reads a mail address without a name.
func (r *reader) address(n *Node) envelope.Address {
	if !r.is(n, String) {
		return ""
	}
	a, err := envelope.ParseAddress(n.Text())
	switch {
	case err != nil:
		r.wrong(n, "send an address, such as someone@example.com", "%s: %v", shown(n.Text()), err)
	case a.Null():
		r.wrong(n, "send an address, such as someone@example.com", "the address is empty")
	}
	return a
}

// suppressible is address for those that can be suppressed: every domain must take mail for its postmaster
// (RFC 5321, 4.5.1).
func (r *reader) suppressible(n *Node) envelope.Address {
	a := r.address(n)
	if strings.EqualFold(a.Local(), "postmaster") {
		r.wrong(n, "leave it out", "mail to a postmaster is never suppressed")
	}
	return a
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }
