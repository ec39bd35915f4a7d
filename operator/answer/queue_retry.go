package answer

import (
	"cmp"
	"slices"
	"strings"

	"example.org/mta/dispatch/pauses"
	"example.org/mta/internal/parking"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
)

// retry makes what is selected due, and says what stands in its way all the same. With c.Now that is
// lifted first.
func (o messages) retry(sel *queue.Selector, c api.Change) (done api.Changed, err error) {
	asked := *sel
	keys, held := o.keysOf(asked)
	action := queue.RetryNow
	switch {
	case c.Scheduled && c.Now:
		action = queue.RetryHeldScheduled
	case c.Scheduled:
		action = queue.RetryScheduled
	case c.Now:
		action = queue.RetryHeld
	}
	if err := o.expect(sel, c.Intent, func() (*queue.Counted, error) { return o.r.Queue.Count(asked, action) }); err != nil {
		return done, err
	}
	if c.Now && !c.DryRun {
		for key := range keys {
			done.Ended += o.r.Delivery.Unblock(key.Site())
		}
		done.Ended += held
	}
	if done.Recipients, err = o.r.Queue.Change(*sel, action, c.DryRun); err != nil {
		return done, err
	}
	if !c.Scheduled {
		if done.Scheduled, err = o.r.Queue.Scheduled(asked); err != nil {
			return done, err
		}
	}
	done.Obstacles = o.obstacles(keys)
	if held > 0 && (!c.Now || c.DryRun) {
		done.Obstacles = append(done.Obstacles, api.Obstacle{Recipients: held, Why: "held by an operator"})
	}
	return done, nil
}

// keysOf counts the recipients of a selection by what they wait for, and those that are held.
func (o messages) keysOf(sel queue.Selector) (keys map[parking.Key]int, held int) {
	keys = make(map[parking.Key]int)
	if len(sel.IDs) == 0 {
		for _, k := range o.r.Queue.Summary(sel.Filter) {
			held += k.States[queue.StateHeld]
			keys[k.Key] += k.Total - k.States[queue.StateHeld]
		}
		return keys, held
	}
	for _, it := range o.r.Queue.Pick(sel.IDs, sel.Filter) {
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
func (o messages) obstacles(keys map[parking.Key]int) (all []api.Obstacle) {
	for key, n := range keys {
		if n == 0 {
			continue
		}
		if x := o.inTheWay(key); x.Why != "" {
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
func (o messages) inTheWay(key parking.Key) (x api.Obstacle) {
	if p, on := o.r.Pauses.Get(key); on {
		return api.Obstacle{Why: pauses.InWords(&p), Until: p.Until, Remedy: "mta resume " + key.Name}
	}
	if why, until, waits := o.r.throttledBy(parking.Line{Key: key}); waits {
		x = api.Obstacle{Why: strings.TrimPrefix(why, "waits for "), Until: until, Stays: true}
		if source, s, _, _, known := o.r.awaited(parking.Line{Key: key}); known && s.State == string(api.WarmupPaused) {
			x.Remedy = "mta warmup resume " + source
		}
		return x
	}
	name := key.Site()
	info, known := o.r.Delivery.Site(name)
	if !known {
		return x
	}
	x.Site = name
	for _, a := range actionsOf(info.Actions, o.r.Now()) {
		if a.What == suspendedAction && a.Source == "" {
			x.Why, x.Until = "suspended: "+a.Reason, a.End
			return x
		}
	}
	x.Why, x.Until = o.r.Delivery.OutOfService(name)
	return x
}
