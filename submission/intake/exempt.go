package intake

import (
	"strings"
	"sync"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/gcra"
)

// exemptRate is how many reports and postmasters' messages of a tenant a desk exempts from
// admission and from the tenant's limits. The client chooses the sender, so that without a bound
// everything could be sent past them. Beyond it, such mail is treated as all of the tenant's is.
var exemptRate = gcra.Rate{Events: 1, Per: time.Second, Burst: 100}

// exemptions paces exempt mail by tenant. The zero value is ready for use.
type exemptions struct {
	mu    sync.Mutex
	paces map[string]*gcra.Limiter
}

// maxPaces is how many tenants are kept before those that have sent no exempt mail lately are forgotten.
const maxPaces = 1000

// take uses one of a tenant's exemptions, if there is one left.
func (e *exemptions) take(now time.Time, tenant string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	pace := e.paces[tenant]
	if pace == nil {
		if len(e.paces) >= maxPaces {
			e.forgetPaid(now)
		}
		if e.paces == nil {
			e.paces = make(map[string]*gcra.Limiter)
		}
		pace = new(gcra.Limiter)
		e.paces[tenant] = pace
	}
	if longest := time.Duration(exemptRate.Burst) * exemptRate.Interval(); pace.Next(now, exemptRate,
		1).Sub(now) > longest {
		*pace = gcra.Limiter{} // the clock was set back
	}
	if pace.Next(now, exemptRate, 1).After(now) {
		return false
	}
	pace.Take(now, exemptRate, 1)
	return true
}

// forgetPaid drops the tenants whose exemptions are all there again. mu is held.
func (e *exemptions) forgetPaid(now time.Time) {
	for tenant, pace := range e.paces {
		if pace.Paid(now) {
			delete(e.paces, tenant)
		}
	}
}

// protected reports whether a sender's mail is to be exempt: reports, which have the null sender,
// and a postmaster's.
func protected(sender envelope.Address) bool {
	return sender.Null() || strings.EqualFold(sender.Local(), "postmaster")
}

// exempt reports whether a message is neither refused for load nor held to its tenant's limits. It
// is asked once for each message, when its tenant is known. Strangers use up nothing.
func (d *Desk) exempt(c *Client, tenant string, sender envelope.Address) bool {
	return protected(sender) && c.MayRelay && d.exempted.take(d.cfg.Now(), tenant)
}
