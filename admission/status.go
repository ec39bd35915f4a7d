package admission

// Status is what the last calibration found and decided.
type Status struct {
	Load      Load
	Share     float64        // of what is offered that is refused, 0 to 1
	Reason    string         // Overload, CPU, or the pressure that decided
	Level     int            // the first that is not admitted whole; Levels when all are
	Part      float64        // of that level that is admitted
	Admitted  [Tiers]float64 // the part of what is offered of each tier
	Limit     float64        // slots
	Why       string         // there are as many
	Pressures []Reading
}

// Reading is what one pressure read, and the share that it refuses: none up to From, nearly
// everything from To on.
type Reading struct {
	Name            string
	Value, From, To float64
	Share           float64
}

// Status returns what the last calibration found.
func (c *Controller) Status() Status { return *c.status.Load() }

// Count is what was asked for and refused in a tier since the start, refusals in line included.
type Count struct{ Asked, Refused uint64 }

// Counts returns the counts of all tiers.
func (c *Controller) Counts() (counts [Tiers]Count) {
	for i := range c.tiers {
		counts[i] = Count{c.tiers[i].asked.Load(), c.tiers[i].refused.Load()}
	}
	return counts
}
