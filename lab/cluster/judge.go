package cluster

import (
	"fmt"
	"time"

	"example.org/mta/cluster/ledger"
	"example.org/mta/cluster/share"
)

// judge sees what hosts see: events, open connections and mail from an address, with the right time.
type judge struct {
	w      *world
	limits []*observed
	caps   func(address, provider string) (hourly, daily int64)
	hour   time.Duration
	sent   map[ledger.Key]*counted
	faults []string

	mails    map[string]uint16 // keys of mail that exists, with its node
	accepted map[string]bool
	repeats  int
}

// use is how much of what was wanted was used.
type use struct{ wanted, used float64 }

func (u *use) add(v use) { u.wanted, u.used = u.wanted+v.wanted, u.used+v.used }

func (u *use) percent() float64 { return 100 * u.used / max(u.wanted, 1e-9) }

// observed is a limit.
type observed struct {
	share.Limit
	level float64 // of the leaky bucket
	at    time.Duration
	open  int64 // connections, without those of stopped nodes
	peak  int64 // with those
	stuck int64
	use   use
}

type counted struct{ hour, day, inHour, inDay, total int64 } // total: of the hours before

func (j *judge) fault(format string, args ...any) {
	if len(j.faults) < 20 {
		j.faults = append(j.faults, fmt.Sprintf("%v: ", j.w.now)+fmt.Sprintf(format, args...))
	}
}

// events notes that n events of a limit happen now: in no window of w seconds may there be more than rate * w + burst.
func (j *judge) events(limit int, node uint16, n int64) {
	o := j.limits[limit]
	o.level = max(0, o.level-o.Rate*(j.w.now-o.at).Seconds()) + float64(n)
	o.at = j.w.now
	o.use.used += float64(n)
	if o.level > float64(o.Burst)+1e-3 {
		j.fault("limit %s: node %d is over the rate by %.3f events", o.Name, node, o.level-float64(o.Burst))
	}
}

// connections notes that a node opens or closes some.
func (j *judge) connections(limit int, node uint16, n int64) {
	o := j.limits[limit]
	o.use.used += float64(o.open) * (j.w.now - o.at).Seconds()
	o.at = j.w.now
	o.open += n
	if o.open > o.Connections {
		j.fault("limit %s: node %d makes it %d connections of %d", o.Name, node, o.open, o.Connections)
	}
}

// stuck notes that connections stay open while their node is stopped, or no longer do.
func (j *judge) stuck(limit int, node uint16, n int64) {
	j.connections(limit, node, -n)
	o := j.limits[limit]
	o.stuck += n
	o.peak = max(o.peak, o.stuck+o.open)
}

// wanted notes how much all nodes could have used of a limit in d.
func (j *judge) wanted(limit int, demand float64, d time.Duration) {
	o := j.limits[limit]
	most := o.Rate
	if o.Connections > 0 {
		most = float64(o.Connections)
	}
	o.use.wanted += min(demand, most) * d.Seconds()
}

// mail notes n recipients of a provider from a warming address.
func (j *judge) mail(k ledger.Key, node uint16, n int64) {
	hour := int64((j.w.now + time.Hour) / j.hour)
	for _, k := range []ledger.Key{k, {Address: k.Address}} {
		c := j.sent[k]
		if c == nil {
			c = &counted{}
			j.sent[k] = c
		}
		if c.day != hour/24 {
			c.day, c.inDay = hour/24, 0
		}
		if c.hour != hour {
			c.total += c.inHour
			c.hour, c.inHour = hour, 0
		}
		c.inHour += n
		c.inDay += n
		if hourly, daily := j.caps(k.Address, k.Provider); c.inHour > hourly || c.inDay > daily {
			j.fault("%s, %q: node %d makes it %d of %d in the hour, %d of %d in the day", k.Address, k.Provider, node,
				c.inHour, hourly, c.inDay, daily)
		}
	}
}
