package dispatch

import (
	"example.org/mta/delivery"
	"example.org/mta/internal/parking"
)

// lineOf gives the line in which mail of a flow waits for space in delivery. Each flow has one: who gets
// space must not be handed mail of another source, tenant or tier, for which there is none.
func lineOf(f delivery.Flow) parking.Line {
	return parking.Line{Key: parking.Key{Name: f.Site}, Source: f.Source, Tenant: f.Tenant, Tier: f.Tier}
}
