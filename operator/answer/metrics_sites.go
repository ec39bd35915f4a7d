package answer

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/mta/internal/parking"
	"example.org/mta/mta/tally"
	"example.org/mta/queue/schedule"
)

var (
	providerQueued = prometheus.NewDesc("mta_provider_queued_recipients", "Recipients in the queue by provider; provider \"\" is of sites that are none's, or whose provider is not known yet.", []string{"provider"}, nil)
	siteQueued     = prometheus.NewDesc("mta_site_queued_recipients", "Recipients in the queue by site, of the top_sites fullest; the others are \"other\".", []string{"site"}, nil)
	siteRecipients = prometheus.NewDesc("mta_site_recipients_total", "Recipients at those sites by result: delivered, deferred (attempts), bounced, expired.", []string{"site", "result"}, nil)
	queuedDescs    = []*prometheus.Desc{providerQueued, siteQueued, siteRecipients}
)

// otherSites is the label of all sites without metrics of their own.
const otherSites = "other"

// topStay is how long a site keeps its metrics at least: shorter series are of little use, and cost Prometheus as much.
const topStay = time.Hour

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
	var top []sizedSite
	for name, n := range queued {
		s := sizedSite{name, n}
		i, _ := slices.BinarySearchFunc(top, s, func(a, b sizedSite) int {
			if b.behind(a) {
				return -1
			}
			return 1
		})
		if i < most && n > 0 {
			top = slices.Insert(top, i, s)
			top = top[:min(len(top), most)]
		}
	}
	names := make([]string, len(top))
	for i, s := range top {
		names[i] = s.name
	}
	return names
}

// queued sends what is in the queue by provider and by site.
func (m Metrics) queued(ch chan<- prometheus.Metric) {
	cfg := m.Policy().Config
	providers, sites, all := map[string]int{"": 0}, map[string]int{}, 0
	m.Queue.EachLine(func(line parking.Line, n *schedule.Count) {
		provider, _ := m.Sites.Provider(line.Key)
		providers[provider] += int(n.Total)
		all += int(n.Total)
		if line.Key.Kind == parking.Site && line.Key.Name != "" && line.Key.Name != otherSites {
			sites[line.Key.Name] += int(n.Total)
		}
	})
	send(ch, providerQueued, prometheus.GaugeValue, int64(providers[""]), "")
	for _, p := range cfg.Providers {
		send(ch, providerQueued, prometheus.GaugeValue, int64(providers[p.Name]), p.Name)
	}
	for _, name := range m.tops.choose(m.Now(), cfg.HTTP.TopSites, sites) {
		send(ch, siteQueued, prometheus.GaugeValue, int64(sites[name]), name)
		all -= sites[name]
		n := m.Tally.Get(tally.Site, name)
		send(ch, siteRecipients, prometheus.CounterValue, n.Delivered, name, "delivered")
		send(ch, siteRecipients, prometheus.CounterValue, n.Deferred, name, "deferred")
		send(ch, siteRecipients, prometheus.CounterValue, n.Bounced, name, "bounced")
		send(ch, siteRecipients, prometheus.CounterValue, n.Expired, name, "expired")
	}
	send(ch, siteQueued, prometheus.GaugeValue, int64(all), otherSites)
}
