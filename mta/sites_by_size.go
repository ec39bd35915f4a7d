package mta

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"mta/mta/control"
	"mta/queue"
)

// sitesBySize is Sites in the order of their queues. The cursor is the size and the name of the last
// site before: sizes change between pages, and a site may be seen twice or be missed.
func (d destinations) sitesBySize(ctx context.Context, f control.SiteFilter, after string, limit int) (l control.SiteList, _ error) {
	size, name := -1, ""
	if after != "" {
		if _, err := fmt.Sscanf(after, "%d %s", &size, &name); err != nil {
			return l, control.Invalid("give --after what the page before ended with", "cursor %q is none", after)
		}
	}
	queued, now := d.queuedByKey(), d.r.now()
	for _, s := range d.sizes(f.Names, queued) {
		if after != "" && (s.size > size || s.size == size && s.name <= name) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return l, err
		}
		info, _ := d.r.delivery.Site(s.name)
		info.Name = s.name
		site := d.shown(&info, queued[s.name], now)
		site.Queued = s.size // which its place goes by
		if !site.fits(&f) {
			continue
		}
		if len(l.Sites) == limit {
			last := &l.Sites[limit-1]
			l.Next = fmt.Sprintf("%d %s", last.Queued, last.Name)
			break
		}
		l.Sites = append(l.Sites, site.Site)
	}
	return l, nil
}

// sizedSite is what the order of sites depends on.
type sizedSite struct {
	name string
	size int // recipients in the queue
}

// sizes gives all sites of some names, the longest queue first.
func (d destinations) sizes(names []string, queued map[string]*queue.KeySummary) []sizedSite {
	var list []sizedSite
	for s := range withQueued(knownSites(d.r.delivery, names, ""), waitingKeys(queued, names, "")) {
		x := site{}
		x.addLanes(s.Lanes)
		x.addQueued(queued[s.Name])
		list = append(list, sizedSite{s.Name, x.Queued})
	}
	slices.SortFunc(list, func(a, b sizedSite) int {
		return cmp.Or(cmp.Compare(b.size, a.size), cmp.Compare(a.name, b.name))
	})
	return list
}
