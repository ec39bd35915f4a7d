package sites

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"example.org/mta/delivery"
	"example.org/mta/destdb"
	"example.org/mta/internal/parking"
	"example.org/mta/operator/api"
)

// sitesBySize is Sites in the order of their queues.
func (d *Sites) sitesBySize(ctx context.Context, f api.SiteFilter) (l api.SiteList, err error) {
	queued, now := d.queuedByKey(), d.Now()
	sizes := make(map[string]int, len(queued))
	add := func(name string, n int) {
		if name != "" && n > 0 && api.Names(f.Names, name) { // mail that waits for no site yet has no name
			sizes[name] = n
		}
	}
	if f.Order == api.ByWorst {
		for key, reasons := range d.Messages.Waits.Picture().ByKey {
			if isPlace(key) {
				add(key.String(), api.Worst(reasons))
			}
		}
	} else {
		for name, k := range queued {
			add(name, k.Total)
		}
	}
	from, err := placeOf(f.After, func(name string) string { return name })
	if err != nil {
		return l, err
	}
	all := largestFirst(sizes, from, strings.Compare, func(after string) iter.Seq[string] {
		return keys(knownSites(d.Delivery, f.Names, after), func(s delivery.SiteInfo) string { return s.Name })
	})
	l.Sites, l.Next, err = pageOf(ctx, all, f.Limit, func(s *sized[string]) (api.Site, bool) {
		info, _ := d.Delivery.Site(s.key)
		info.Name = s.key
		site := d.shown(&info, queued[s.key], now)
		return site, f.Fits(&site)
	}, func(s *sized[string]) string { return fmt.Sprintf("%d %s", s.size, s.key) })
	return l, err
}

// hostsBySize is Hosts in the order of the mail that may go there.
func (d *Sites) hostsBySize(ctx context.Context, f api.HostFilter, waits map[destdb.HostKey][]api.WaitsFor,
	show func(*destdb.HostInfo) (api.Host, bool)) (l api.HostList, err error) {
	sizes := make(map[destdb.HostKey]int)
	for h, reasons := range waits {
		n := 0
		for _, w := range reasons {
			if f.Order == api.BySize || w.Reason != parking.Turn {
				n += w.Recipients
			}
		}
		if n > 0 && namesHost(f.Names, h) {
			sizes[h] = n
		}
	}
	from, err := placeOf(f.After, hostCursor)
	if err != nil {
		return l, err
	}
	all := largestFirst(sizes, from, destdb.HostKey.Compare, func(after destdb.HostKey) iter.Seq[destdb.HostKey] {
		return keys(knownHosts(d.Delivery, f.Names, after), func(h destdb.HostInfo) destdb.HostKey { return h.Key() })
	})
	l.Hosts, l.Next, err = pageOf(ctx, all, f.Limit, func(s *sized[destdb.HostKey]) (api.Host, bool) {
		at := d.Delivery.HostsAt(s.key.Addr.Addr())
		i := slices.IndexFunc(at, func(h destdb.HostInfo) bool { return h.Key() == s.key })
		if i < 0 { // forgotten meanwhile
			return api.Host{}, false
		}
		return show(&at[i])
	}, func(s *sized[destdb.HostKey]) string { return fmt.Sprintf("%d %s", s.size, cursorOf(s.key)) })
	return l, err
}

// sized is a row of a listing by size: with how many recipients in the queue, or those that count for the order.
type sized[K any] struct {
	key  K
	size int
}

// placeOf reads the cursor of a listing by size, the size and the key of the last row before: sizes change between
// pages, and a row may be seen twice or be missed. The place before all has the size -1.
func placeOf[K any](cursor string, read func(string) K) (from sized[K], err error) {
	if cursor == "" {
		return sized[K]{size: -1}, nil
	}
	size, key, _ := strings.Cut(cursor, " ")
	if from.size, err = strconv.Atoi(size); err != nil {
		return from, api.Invalid("give --after what the page before ended with", "%q is not a valid cursor", cursor)
	}
	from.key = read(key)
	return from, nil
}

// largestFirst gives the rows behind a place: those that have a size, and then the rest, which is asked for by key as
// it is wanted.
func largestFirst[K comparable](sizes map[K]int, from sized[K], compare func(a, b K) int,
	rest func(after K) iter.Seq[K]) iter.Seq[sized[K]] {
	order := func(a, b sized[K]) int { return cmp.Or(cmp.Compare(b.size, a.size), compare(a.key, b.key)) }
	list := make([]sized[K], 0, len(sizes))
	for key, n := range sizes {
		list = append(list, sized[K]{key, n})
	}
	slices.SortFunc(list, order)
	return func(yield func(sized[K]) bool) {
		for _, s := range list {
			if (from.size < 0 || order(from, s) < 0) && !yield(s) {
				return
			}
		}
		if from.size != 0 {
			from = sized[K]{}
		}
		for key := range rest(from.key) {
			if sizes[key] == 0 && !yield(sized[K]{key: key}) {
				return
			}
		}
	}
}

// keys gives the keys of rows.
func keys[T, K any](all iter.Seq[T], key func(T) K) iter.Seq[K] {
	return func(yield func(K) bool) {
		for x := range all {
			if !yield(key(x)) {
				return
			}
		}
	}
}
