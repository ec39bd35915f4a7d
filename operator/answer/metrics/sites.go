package metrics

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/mta/internal/parking"
	"example.org/mta/mta/tally"
	"example.org/mta/queue/schedule"
)

// otherSites is the label of all sites without metrics of their own.
const otherSites = "other"

// topStay is how long a site keeps its metrics at least: shorter series are of little use, and cost Prometheus as much.
const topStay = time.Hour

// mostSites are how many sites have metrics of their own.
const mostSites = 20

// topSites are the sites that have metrics of their own.
type topSites struct {
	mu    sync.Mutex // guards since
	since map[string]time.Time
}

// choose returns them. A fuller site gets the place of one that has had it for topStay, and is no longer among the
// fullest.
func (t *topSites) choose(now time.Time, most int, queued map[string]int) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	fullest := fullestOf(queued, most)
	maps.DeleteFunc(t.since, func(name string, since time.Time) bool {
		return now.Sub(since) >= topStay && !slices.Contains(fullest, name)
	})
	for _, name := range fullest {
		if _, is := t.since[name]; !is && len(t.since) < most {
			if t.since == nil {
				t.since = make(map[string]time.Time)
			}
			t.since[name] = now
		}
	}
	return slices.Sorted(maps.Keys(t.since))
}

// fullestOf returns the names with the most recipients, the fullest first.
func fullestOf(queued map[string]int, most int) []string {
	var top []string
	for name, n := range queued {
		i, _ := slices.BinarySearchFunc(top, name, func(a, b string) int {
			return cmp.Or(cmp.Compare(queued[b], queued[a]), cmp.Compare(a, b))
		})
		if i < most && n > 0 {
			top = slices.Insert(top, i, name)
			top = top[:min(len(top), most)]
		}
	}
	return top
}

// waiting sends what waits by reason and provider. A reason without mail is of no provider.
func (p *Parts) waiting(c *collector) collect {
	waiting := add[int](c, "waiting")
	return func(ch chan<- prometheus.Metric) {
		type row struct{ reason, provider string }
		rows := map[row]int{}
		for _, r := range parking.Reasons() {
			rows[row{r, ""}] = 0
		}
		p.Waiting(func(r parking.Reason, provider string, n int) { rows[row{r.String(), provider}] += n })
		for r, n := range rows {
			waiting(ch, n, r.reason, r.provider)
		}
	}
}

// queued sends what is in the queue by provider and by site.
func (p *Parts) queued(c *collector) collect {
	byProvider, bySite := add[int](c, "queue by provider"), add[int](c, "queue by site")
	outcomes := add[tally.Tally](c, "sites")
	var top topSites
	return func(ch chan<- prometheus.Metric) {
		cfg := p.Config()
		providers, sites, all := map[string]int{"": 0}, map[string]int{}, 0
		p.EachLine(func(line parking.Line, n *schedule.Count) {
			provider, _ := p.ProviderOf(line.Key)
			providers[provider] += int(n.Total)
			all += int(n.Total)
			if line.Key.Kind == parking.Site && line.Key.Name != "" && line.Key.Name != otherSites {
				sites[line.Key.Name] += int(n.Total)
			}
		})
		byProvider(ch, providers[""], "")
		for _, b := range cfg.Providers {
			byProvider(ch, providers[b.Name], b.Name)
		}
		for _, name := range top.choose(p.Now(), mostSites, sites) {
			bySite(ch, sites[name], name)
			all -= sites[name]
			outcomes(ch, p.Tally.Get(tally.Site, name), name)
		}
		bySite(ch, all, otherSites)
	}
}
