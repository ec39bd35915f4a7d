package api

import (
	"context"
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
	What PauseWhat `json:"what" q:"what"`           // the kind of the object to pause
	Name string    `json:"name,omitempty" q:"name"` // of the tenant, pool, source or domain
	// 0: until it is resumed
	For    Age    `json:"for,omitempty" q:"for" help:"the duration, such as 90s, 15m, 2h (default: until resumed)"`
	Reason string `json:"reason,omitempty"` // for those who ask why
	By     string `json:"by,omitempty"`     // who asks for it
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
	BeginPause(context.Context, BeginPause) (PauseChanged, error)
	EndPause(context.Context, EndPause) (PauseChanged, error)
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

// Check refuses a pause of what can't be paused, and one that has ended.
func (b *BeginPause) Check() error {
	if err := checkPause(b.What, b.Name); err != nil || b.For >= 0 {
		return err
	}
	return Invalid("", "for: want a time ahead")
}

// Check refuses the end of a pause that can't be.
func (e *EndPause) Check() error { return checkPause(e.What, e.Name) }
