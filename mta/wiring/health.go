package wiring

import (
	"example.org/mta/bounce"
	"example.org/mta/mta/config"
)

// Health says what classes of replies count against a warm-up.
type Health struct {
	Refusals []bounce.Class // about the sender
	Bounces  []bounce.Class // those whose permanent replies are hard bounces
}

func newHealth(cfg *config.Config, plan string) *Health {
	refusals, bounces := cfg.HealthClasses(plan)
	return &Health{refusals, bounces}
}

// DefaultHealth is that of a plan that says nothing of classes.
func DefaultHealth() *Health { return newHealth(&config.Config{}, "") }

// Health returns that of a source with a plan, by the warm-up's name of it.
func (p *Policy) Health(key string) *Health {
	if h := p.health[key]; h != nil {
		return h
	}
	return DefaultHealth()
}
