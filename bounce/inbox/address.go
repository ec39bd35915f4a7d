package inbox

import (
	"errors"
	"strings"
	"time"

	"example.org/mta/bounce/report"
	"example.org/mta/bounce/returnpath"
	"example.org/mta/internal/envelope"
)

// Addresses are those of a listener at which the relay takes mail itself.
type Addresses struct {
	domains     map[string]bool           // in A-label form
	complaints  map[envelope.Address]bool // as key makes them
	unsubscribe bool
	postmaster  envelope.Address
}

// NewAddresses makes the addresses of domains: b-TOKEN, u-TOKEN when unsubscribe is set, complaints, postmaster and
// abuse. There must be a domain.
func NewAddresses(domains []string, complaints []envelope.Address, unsubscribe bool) *Addresses {
	a := &Addresses{domains: make(map[string]bool), complaints: make(map[envelope.Address]bool),
		unsubscribe: unsubscribe}
	for _, d := range domains {
		if ascii, err := envelope.ToASCII(d); err == nil {
			a.domains[ascii] = true
		}
	}
	for _, c := range complaints {
		a.complaints[key(c)] = true
	}
	a.postmaster = envelope.Join("postmaster", domains[0])
	return a
}

// key is an address in the form in which addresses are compared: hosts change the case of local parts.
func key(a envelope.Address) envelope.Address {
	return envelope.Address(strings.ToLower(a.Local()) + "@" + a.Domain())
}

// Postmaster is the address for which <postmaster> stands.
func (a *Addresses) Postmaster() envelope.Address { return a.postmaster }

// Place is what the relay has at an address.
type Place struct {
	Purpose report.Purpose
	Token   *returnpath.Token // nil without one
}

// What is wrong with an address.
var (
	ErrForeign = errors.New("the domain is not an inbound one")
	ErrUnknown = errors.New("there is no such address")
	ErrExpired = errors.New("the return path has expired")
)

// Find returns what is at an address. Postmaster is there at each domain (RFC 5321, 4.5.1), and abuse (RFC 2142, 4),
// where hosts without a feedback loop complain.
func (a *Addresses) Find(addr envelope.Address, keys *returnpath.Keys, now time.Time) (Place, error) {
	if !a.domains[addr.Domain()] {
		return Place{}, ErrForeign
	}
	local := addr.Local()
	switch {
	case a.complaints[key(addr)], strings.EqualFold(local, "abuse"):
		return Place{Purpose: report.Complaints}, nil
	case strings.EqualFold(local, "postmaster"):
		return Place{}, nil
	}
	purpose, text, ok := returnpath.Cut(local)
	if !ok || purpose == returnpath.Unsubscribe && !a.unsubscribe {
		return Place{}, ErrUnknown
	}
	token, err := keys.Read(purpose, text, now)
	place := Place{Token: &token}
	if purpose == returnpath.Unsubscribe {
		place.Purpose = report.Unsubscription
	}
	switch {
	case err == nil:
		return place, nil
	case !errors.Is(err, returnpath.ErrExpired):
		return Place{}, ErrUnknown
	case purpose == returnpath.Unsubscribe: // a wish does not expire
		return place, nil
	}
	return Place{}, ErrExpired
}
