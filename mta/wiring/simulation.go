package wiring

import (
	"time"

	"example.org/mta/mta/config"
	"example.org/mta/warmup/simulate"
)

// Simulation returns how long mail of a tier waits for the sources of a plan, and when it expires, as in the relay.
func Simulation(cfg *config.Config, plan string, tier int) simulate.Options {
	return simulate.Options{
		Patience: cfg.PatienceOf(plan, tier),
		MaxAge:   func(provider string) time.Duration { return cfg.Traffic("", provider).MaxAge },
	}
}
