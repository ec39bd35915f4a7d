package mta

import (
	"cmp"
	"slices"
	"time"

	"mta/mta/control"
	"mta/queue"
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
		if _, err := o.r.queue.Change(sel, queue.Unhold, false); err != nil {
			return done, err
		}
		for site := range sites {
			done.Lifted += o.r.delivery.Lift(site)
		}
		done.Lifted += held
	}
	if done.Recipients, err = o.r.queue.Change(sel, action, c.DryRun); err != nil {
		return done, err
	}
	if !c.Scheduled {
		all, err := o.r.queue.Change(sel, queue.RetryScheduled, true) // what that would do besides
		if err != nil {
			return done, err
		}
		done.Scheduled = all
		if c.DryRun {
			done.Scheduled -= done.Recipients
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
		if why, until := o.inTheWay(name); why != "" {
			all = append(all, control.Obstacle{Site: name, Recipients: n, Why: why, Until: until})
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
func (o operator) inTheWay(name string) (why string, until time.Time) {
	if why, until, ok := o.r.pauses.why(name); ok {
		return why, until
	}
	info, known := o.r.delivery.Site(name)
	if !known {
		return "", until
	}
	for _, a := range actionsOf(info.Actions, o.r.now()) {
		if a.What == suspendedAction && a.Source == "" {
			return "suspended: " + a.Reason, a.End
		}
	}
	return o.r.delivery.OutOfService(name)
}
