package api

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"
)

// PauseWhat is what can be paused.
type PauseWhat string

// What can be paused, the most far-reaching first.
const (
	PauseEverything PauseWhat = "everything"
	PauseTenant     PauseWhat = "tenant"
	PausePool       PauseWhat = "pool"
	PauseSource     PauseWhat = "source"
	PauseDomain     PauseWhat = "domain" // of recipients
)

// PauseWhats are all of them.
var PauseWhats = []PauseWhat{PauseEverything, PauseTenant, PausePool, PauseSource, PauseDomain}

// Pause is something of which nothing is sent, until an operator resumes it or its time is over.
type Pause struct {
	What   PauseWhat `json:"what"`             // what it is of
	Name   string    `json:"name,omitempty"`   // of the tenant, pool, source or domain; absent of everything
	Reason string    `json:"reason,omitempty"` // for those who ask why
	By     string    `json:"by"`               // who has asked for it
	Since  time.Time `json:"since"`            // when it began
	Until  time.Time `json:"until,omitzero"`   // when it ends; absent: when it is resumed
}

// PauseList is all that is paused.
type PauseList struct {
	Pauses []Pause `json:"pauses"` // the most far-reaching first
}

// BeginPause asks for a pause.
type BeginPause struct {
	Intent
	What   PauseWhat `json:"what" q:"what"`           // the kind of the object to pause
	Name   string    `json:"name,omitempty" q:"name"` // of the tenant, pool, source or domain
	For    Age       `json:"for,omitempty" q:"for"`   // 0: until it is resumed
	Reason string    `json:"reason,omitempty"`        // for those who ask why
	By     string    `json:"by,omitempty"`            // who asks for it
}

// EndPause asks for the end of one.
type EndPause struct {
	Intent
	What PauseWhat `json:"what" q:"what"`           // what it is of
	Name string    `json:"name,omitempty" q:"name"` // of the tenant, pool, source or domain
}

// PauseChanged is a pause that has begun or ended.
type PauseChanged struct {
	Effect
	Pause
}

// Pauses is what the server asks of the relay about pauses. Errors are of type *Error where the operator
// can do something about them.
type Pauses interface {
	Pauses(context.Context) (PauseList, error)
	BeginPause(context.Context, BeginPause) (Pause, error)
	EndPause(context.Context, EndPause) (Pause, error)
}

func checkPause(what PauseWhat, name string) error {
	switch {
	case !slices.Contains(PauseWhats, what):
		return Invalid("what can be: "+join(PauseWhats), "%q is nothing that can be paused", what)
	case what == PauseEverything && name != "":
		return Invalid("", "everything has no name, not %q", name)
	case what != PauseEverything && name == "":
		return Invalid("", "which %s? its name is missing", what)
	}
	return nil
}

func (s *Server) beginPause(r *http.Request, b BeginPause) (PauseChanged, error) {
	if err := checkPause(b.What, b.Name); err != nil {
		return PauseChanged{}, err
	}
	if b.For < 0 {
		return PauseChanged{}, Invalid("", "for: want a time ahead")
	}
	b.By = cmp.Or(actorOf(r.Context()).Name(), b.By)
	b.Reason = cmp.Or(b.Reason, ReasonOf(r.Context()))
	p, err := s.config.Pauses.BeginPause(r.Context(), b)
	return PauseChanged{one(err), p}, err
}

func (s *Server) endPause(r *http.Request, e EndPause) (PauseChanged, error) {
	if err := checkPause(e.What, e.Name); err != nil {
		return PauseChanged{}, err
	}
	p, err := s.config.Pauses.EndPause(r.Context(), e)
	return PauseChanged{one(err), p}, err
}
