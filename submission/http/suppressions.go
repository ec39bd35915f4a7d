package http

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/submission/auth"
	"example.org/mta/submission/request"
)

// Suppressions is the list of addresses that get no mail, as far as one tenant may see and change it.
type Suppressions interface {
	// List gives the tenant's own entries in the order of their addresses, at most limit of those behind an
	// address that fit; more says that there can be others behind the last one looked at.
	List(ctx context.Context, tenant, domain, after string, limit int) (page []Suppression, last string,
		more bool, err error)
	// Match gives the entry that keeps the tenant's mail from an address: its own, or one for everybody's mail.
	Match(tenant string, a envelope.Address) (Suppression, bool)
	// Add and Remove change the tenant's own entries, and return when that is durable. Add returns TooManySuppressions
	// in place of adding to more.
	Add(ctx context.Context, tenant string, entries []request.Suppression) (SuppressionsAdded, error)
	Remove(ctx context.Context, tenant string, addresses []envelope.Address) (removed int, err error)
}

// TooManySuppressions is an error of a tenant that would have more entries than this of those that it added itself.
type TooManySuppressions int

// Error implements error.
func (most TooManySuppressions) Error() string {
	return fmt.Sprintf("of the addresses that the tenant adds itself, the list keeps %d at most", int(most))
}

// Suppression is an address that gets no mail.
type Suppression struct {
	Address string    `json:"address"`
	Reason  string    `json:"reason,omitempty"`
	Source  string    `json:"source,omitempty"` // bounce, report, complaint, operator, import, tenant or unsubscribe
	AddedAt time.Time `json:"added_at,omitzero"`
	// absent: never
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	// the entry is for the mail of all tenants: a tenant sees nothing else of it, and can't remove it
	Shared bool `json:"shared,omitempty"`
}

// SuppressionsAdded is what an addition did.
type SuppressionsAdded struct {
	Added     int `json:"added"`
	Changed   int `json:"changed"`   // were there, and were other
	Unchanged int `json:"unchanged"` // were there as they are, or are the recipient's wish, which stays
}

// suppressionPage is a part of the list.
type suppressionPage struct {
	Suppressions []Suppression `json:"suppressions"`
	Next         string        `json:"next,omitempty"` // the parameter after of the next page
}

// suppressionsRemoved is what a removal did.
type suppressionsRemoved struct {
	Removed int `json:"removed"`
	// those of the addresses that an entry for all tenants keeps
	StillSuppressed []string `json:"still_suppressed,omitempty"`
}

const (
	suppressionsShown = 100
	suppressionsMost  = 1000 // on a page
)

// suppressionRoutes have addresses in bodies only: URLs get into the logs of proxies.
func (s *Server) suppressionRoutes() []Route {
	if s.config.Suppressions == nil {
		return nil
	}
	return []Route{
		{Method: http.MethodGet, Pattern: "/v1/suppressions", Scope: auth.MaySuppress, Handle: s.listSuppressions},
		{Method: http.MethodPost, Pattern: "/v1/suppressions/add", Scope: auth.MaySuppress, Handle: s.addSuppressions},
		{Method: http.MethodPost, Pattern: "/v1/suppressions/remove", Scope: auth.MaySuppress,
			Handle: s.removeSuppressions},
		{Method: http.MethodPost, Pattern: "/v1/suppressions/check", Scope: auth.MaySuppress,
			Handle: s.checkSuppressions},
	}
}

func (s *Server) listSuppressions(c *Call) error {
	q, err := c.parameters("domain", "after", "limit")
	if err != nil {
		return err
	}
	limit := suppressionsShown
	if text, given := q["limit"]; given {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > suppressionsMost {
			return Problemf(http.StatusBadRequest, "limit: send a whole number, 1 to %d", suppressionsMost)
		}
		limit = n
	}
	after, err := base64.RawURLEncoding.DecodeString(q["after"])
	if err != nil {
		return Problemf(http.StatusBadRequest, "after: send the next of the page before")
	}
	domain := ""
	if text, given := q["domain"]; given {
		if domain, err = envelope.ToASCII(text); err != nil {
			return Problemf(http.StatusBadRequest, "domain: %q is not a valid domain", shortened(text))
		}
	}
	page, last, more, err := s.config.Suppressions.List(c.Context(), c.Identity.Tenant, domain, string(after), limit)
	if err != nil {
		return suppressionTrouble(err)
	}
	out := suppressionPage{Suppressions: append([]Suppression{}, page...)} // never null
	if more {
		out.Next = base64.RawURLEncoding.EncodeToString([]byte(last))
	}
	return c.JSON(http.StatusOK, out)
}

func (s *Server) addSuppressions(c *Call) error {
	body, err := c.ReadBody()
	if err != nil {
		return err
	}
	entries, faults := request.DecodeSuppressions(body, s.config.Now())
	if len(faults) > 0 {
		return faults
	}
	done, err := s.config.Suppressions.Add(c.Context(), c.Identity.Tenant, entries)
	if most := TooManySuppressions(0); errors.As(err, &most) {
		c.Log().Warn("tenant has no suppressions left", "tenant", c.Identity.Tenant, "key", c.Identity.ID,
			"most", int(most))
		return &Problem{
			Status: http.StatusForbidden, Reason: "suppressions",
			Detail: most.Error() +
				", and nothing was added: remove some, or have the relay's operator import them (mta suppress import)",
		}
	}
	if err != nil {
		return suppressionTrouble(err)
	}
	c.Log().Info("tenant suppresses addresses", "tenant", c.Identity.Tenant, "key", c.Identity.ID, "first",
		entries[0].Address, "added", done.Added, "changed", done.Changed, "unchanged", done.Unchanged)
	return c.JSON(http.StatusOK, done)
}

func (s *Server) removeSuppressions(c *Call) error {
	addresses, err := s.readAddresses(c)
	if err != nil {
		return err
	}
	tenant := c.Identity.Tenant
	n, err := s.config.Suppressions.Remove(c.Context(), tenant, addresses)
	if err != nil {
		return suppressionTrouble(err)
	}
	out := suppressionsRemoved{Removed: n}
	for _, a := range addresses {
		if e, still := s.config.Suppressions.Match(tenant, a); still && e.Shared {
			out.StillSuppressed = append(out.StillSuppressed, string(a))
		}
	}
	c.Log().Info("tenant removes suppressions", "tenant", tenant, "key", c.Identity.ID, "first",
		addresses[0], "removed", n)
	return c.JSON(http.StatusOK, out)
}

// checkSuppressions answers which of some addresses get no mail of the tenant.
func (s *Server) checkSuppressions(c *Call) error {
	addresses, err := s.readAddresses(c)
	if err != nil {
		return err
	}
	out := suppressionPage{Suppressions: []Suppression{}}
	for _, a := range addresses {
		e, found := s.config.Suppressions.Match(c.Identity.Tenant, a)
		switch {
		case !found:
			continue
		case e.Shared: // why and since when is of others
			e = Suppression{Shared: true}
		}
		e.Address = string(a) // as the client has it
		out.Suppressions = append(out.Suppressions, e)
	}
	return c.JSON(http.StatusOK, out)
}

func (s *Server) readAddresses(c *Call) ([]envelope.Address, error) {
	body, err := c.ReadBody()
	if err != nil {
		return nil, err
	}
	addresses, faults := request.DecodeAddresses(body)
	if len(faults) > 0 {
		return nil, faults
	}
	return addresses, nil
}

func suppressionTrouble(err error) error {
	return &Problem{Status: http.StatusServiceUnavailable,
		Detail:     "the suppression list can't be read or changed at present: try again",
		RetryAfter: shortPause, Cause: err}
}
