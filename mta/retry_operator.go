package mta

import (
	"cmp"
	"slices"
	"strings"

	"example.org/mta/mta/control"
	"example.org/mta/queue"
)

// retry makes what is selected due, and says what stands in its way all the same. With c.Now that is
// lifted first.
func (o operator) retry(sel queue.Selector, c control.Change) (done control.Changed, err error) {
	sites, held := o.keysOf(sel)
	action := queue.RetryNow
	if c.Scheduled {
		action = queue.RetryScheduled
	}
	if c.Now && !c.DryRun {
		if _, err := o.r.queue.Change(sel, queue.UnholdToRetry, false); err != nil {
			return done, err
		}
		for site := range sites {
			done.Ended += o.r.delivery.Lift(site)
		}
		done.Ended += held
	}
	if done.Recipients, err = o.r.queue.Change(sel, action, c.DryRun); err != nil {
		return done, err
	}
	if !c.Scheduled {
		if done.Scheduled, err = o.r.queue.Scheduled(sel); err != nil {
			return done, err
		}
	}
	done.Obstacles = o.obstacles(sites)
	if held > 0 && (!c.Now || c.DryRun) {
		done.Obstacles = append(done.Obstacles, control.Obstacle{Recipients: held, Why: "held by an operator"})
	}
	return done, nil
}

// keysOf counts the recipients of a selection by what they wait for, and those that are held.
func (o operator) keysOf(sel queue.Selector) (sites map[string]int, held int) {
	sites = make(map[string]int)
	if len(sel.IDs) == 0 {
		for _, k := range o.r.queue.Summary(sel.Filter) {
			held += k.States[queue.StateHeld]
			sites[k.Key] += k.Total - k.States[queue.StateHeld]
		}
		return sites, held
	}
	for _, it := range o.r.queue.Pick(sel.IDs, sel.Filter) {
		for i := range it.Recipients {
			if it.Recipients[i].State == queue.StateHeld {
				held++
			}
			sites[it.Recipients[i].Key]++
		}
	}
	return sites, held
}

// obstacles names what keeps the mail for some sites, those with the most recipients first.
func (o operator) obstacles(sites map[string]int) (all []control.Obstacle) {
	for name, n := range sites {
		if n == 0 {
			continue
		}
		if x := o.inTheWay(name); x.Why != "" {
			x.Recipients = n
			all = append(all, x)
		}
	}
	slices.SortFunc(all, func(a, b control.Obstacle) int {
		return cmp.Or(cmp.Compare(b.Recipients, a.Recipients), cmp.Compare(a.Site, b.Site))
	})
	return all[:min(len(all), mostObstacles)]
}

// mostObstacles is how many sites are named.
const mostObstacles = 100

// inTheWay says what keeps mail from leaving for a site for a while.
func (o operator) inTheWay(name string) (x control.Obstacle) {
	if p, on := o.r.pauses.get(name); on {
		return control.Obstacle{Why: inWords(&p), Until: p.Until, Remedy: "mta resume " + strings.TrimPrefix(name, pausedPrefix)}
	}
	if why, until, waits := o.r.warm.doing(name, ""); waits {
		x = control.Obstacle{Why: strings.TrimPrefix(why, "waits for "), Until: until, Stays: true}
		if source, s, _, _, known := o.r.warm.awaited(name, ""); known && s.State == string(control.WarmupPaused) {
			x.Remedy = "mta warmup resume " + source
		}
		return x
	}
	info, known := o.r.delivery.Site(name)
	if !known {
		return x
	}
	x.Site = name
	for _, a := range actionsOf(info.Actions, o.r.now()) {
		if a.What == suspendedAction && a.Source == "" {
			x.Why, x.Until = "suspended: "+a.Reason, a.End
			return x
		}
	}
	x.Why, x.Until = o.r.delivery.OutOfService(name)
	return x
}
