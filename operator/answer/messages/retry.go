package messages

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"example.org/mta/internal/parking"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
)

// retry makes what is selected due, and says what stands in its way all the same. With c.Now that is
// ended first.
func (m *Messages) retry(sel *queue.Selector, c api.Change) (done api.Changed, err error) {
	asked := *sel
	keys, held := m.keysOf(asked)
	action := queue.RetryNow
	switch {
	case c.Scheduled && c.Now:
		action = queue.RetryHeldScheduled
	case c.Scheduled:
		action = queue.RetryScheduled
	case c.Now:
		action = queue.RetryHeld
	}
	if err := m.expect(sel, c.Intent, func() (*queue.Counted, error) {
		return m.Queue.Count(asked, action)
	}); err != nil {
		return done, err
	}
	if c.Now && !c.DryRun {
		for key := range keys {
			done.Ended += m.Delivery.Unblock(key.Site())
		}
		done.Ended += held
	}
	if done.Recipients, err = m.Queue.Change(*sel, action, c.DryRun); err != nil {
		return done, err
	}
	if !c.Scheduled {
		if done.Scheduled, err = m.Queue.Scheduled(asked); err != nil {
			return done, err
		}
	}
	done.Obstacles = m.obstacles(keys)
	if held > 0 && (!c.Now || c.DryRun) {
		done.Obstacles = append(done.Obstacles, api.Obstacle{Recipients: held, Why: "held by an operator"})
	}
	return done, nil
}

// keysOf counts the recipients of a selection by what they wait for, and those that are held.
func (m *Messages) keysOf(sel queue.Selector) (keys map[parking.Key]int, held int) {
	keys = make(map[parking.Key]int)
	if len(sel.IDs) == 0 {
		for _, k := range m.Queue.Summary(sel.Filter) {
			held += k.States[queue.StateHeld]
			keys[k.Key] += k.Total - k.States[queue.StateHeld]
		}
		return keys, held
	}
	for _, it := range m.Queue.Pick(sel.IDs, sel.Filter) {
		for i := range it.Recipients {
			if it.Recipients[i].State == queue.StateHeld {
				held++
			}
			keys[it.Recipients[i].Line.Key]++
		}
	}
	return keys, held
}

// obstacles names what keeps the mail for some sites, those with the most recipients first.
func (m *Messages) obstacles(keys map[parking.Key]int) (all []api.Obstacle) {
	for key, n := range keys {
		if n == 0 {
			continue
		}
		if x := m.inTheWay(key); x.Why != "" {
			x.Recipients = n
			all = append(all, x)
		}
	}
	slices.SortFunc(all, func(a, b api.Obstacle) int {
		return cmp.Or(cmp.Compare(b.Recipients, a.Recipients), cmp.Compare(a.Site, b.Site))
	})
	return all[:min(len(all), mostObstacles)]
}

// mostObstacles is how many sites are named.
const mostObstacles = 100

// inTheWay lists the temporary obstacles to mail for a site.
func (m *Messages) inTheWay(key parking.Key) (x api.Obstacle) {
	if r, on := m.Rules.Get(key); on {
		return api.Obstacle{Why: r.InWords(), Until: r.Until, Remedy: fmt.Sprintf("mta rule end %d", r.ID)}
	}
	if why, until, waits := m.Warmups.ThrottledBy(parking.Line{Key: key}); waits {
		x = api.Obstacle{Why: strings.TrimPrefix(why, "waits for "), Until: until, Stays: true}
		if source, s, _, _, known := m.Warmups.Awaited(parking.Line{Key: key}); known &&
			s.State == string(api.WarmupPaused) {
			x.Remedy = "mta warmup resume " + source
		}
		return x
	}
	if why, until, waits := m.Rules.Why(key); waits {
		return api.Obstacle{Why: why, Until: until, Stays: true}
	}
	name := key.Site()
	info, known := m.Delivery.Site(name)
	if !known {
		return x
	}
	x.Site = name
	for _, a := range info.Actions {
		if a.What == api.SiteSuspended && a.Source == "" && m.Now().Before(a.End) {
			x.Why, x.Until = "suspended: "+a.Reason, a.End
			return x
		}
	}
	x.Why, x.Until = m.Delivery.OutOfService(name)
	return x
}
