package sites

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"example.org/mta/operator/api"
)

// sitesBySize is Sites in the order of their queues. The cursor is the size and the name of the last
// site before: sizes change between pages, and a site may be seen twice or be missed.
func (d *Sites) sitesBySize(ctx context.Context, f api.SiteFilter) (l api.SiteList, err error) {
	from := sizedSite{size: -1}
	if f.After != "" {
		size, name, _ := strings.Cut(f.After, " ")
		n, err := strconv.Atoi(size)
		if from = (sizedSite{name, n}); err != nil {
			return l, api.Invalid("give --after what the page before ended with", "%q is not a valid cursor", f.After)
		}
	}
	queued, now := d.queuedByKey(), d.Now()
	sizes := make(map[string]int, len(queued))
	if f.Order == api.ByWorst {
		for key, reasons := range d.Messages.Waits.Picture().ByKey {
			sizes[key.String()] = api.Worst(reasons)
		}
	} else {
		for name, k := range queued {
			sizes[name] = k.Total
		}
	}
	sized := d.bySize(f.Names, sizes, from)
	l.Sites, l.Next, err = pageOf(ctx, sized, f.Limit, func(s *sizedSite) (api.Site, bool) {
		info, _ := d.Delivery.Site(s.name)
		info.Name = s.name
		site := d.shown(&info, queued[s.name], now)
		return site, f.Fits(&site)
	}, func(s *sizedSite) string { return fmt.Sprintf("%d %s", s.size, s.name) })
	return l, err
}

// sizedSite is what the order of sites depends on.
type sizedSite struct {
	name string
	size int // recipients in the queue, or those that count for the order
}

// behind reports whether s comes after another in a listing; all come after a size of -1.
func (s sizedSite) behind(o sizedSite) bool {
	return o.size < 0 || s.size < o.size || s.size == o.size && s.name > o.name
}

// bySize gives the sites behind one, the longest queue first. Those with mail are sorted; the others
// follow by name, and are asked for as they are wanted.
func (d *Sites) bySize(names []string, sizes map[string]int, from sizedSite) iter.Seq[sizedSite] {
	sized := withMail(names, sizes)
	return func(yield func(sizedSite) bool) {
		for _, s := range sized {
			if s.behind(from) && !yield(s) {
				return
			}
		}
		shown := make(map[string]bool, len(sized))
		for _, s := range sized {
			shown[s.name] = true
		}
		if from.size != 0 {
			from.name = ""
		}
		for s := range knownSites(d.Delivery, names, from.name) {
			if !shown[s.Name] && !yield(sizedSite{name: s.Name}) {
				return
			}
		}
	}
}

// withMail gives the sites of some names that have mail in the queue, the longest queue first. Mail that
// waits for no site yet has no name.
func withMail(names []string, sizes map[string]int) []sizedSite {
	var list []sizedSite
	for name, n := range sizes {
		if name != "" && n > 0 && api.Names(names, name) {
			list = append(list, sizedSite{name, n})
		}
	}
	slices.SortFunc(list, func(a, b sizedSite) int {
		return cmp.Or(cmp.Compare(b.size, a.size), cmp.Compare(a.name, b.name))
	})
	return list
}
