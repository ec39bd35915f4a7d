package mta

import (
	"github.com/prometheus/client_golang/prometheus"

	"example.org/mta/delivery"
	"example.org/mta/mta/accounting"
	"example.org/mta/queue"
	"example.org/mta/router"
	"example.org/mta/router/resolver"
	"example.org/mta/warmup"
)

// relayCollector reads the parts' own counters when it is asked, so that counting costs mail
// nothing.
type relayCollector struct{ r *Relay }

// metric is one number of a part's counters, which are a T.
type metric[T any] struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*T) float64
}

func newMetric[T any](kind prometheus.ValueType, name, help string, of func(*T) float64) metric[T] {
	return metric[T]{prometheus.NewDesc(name, help, nil, nil), kind, of}
}

func describe[T any](ch chan<- *prometheus.Desc, metrics []metric[T]) {
	for _, m := range metrics {
		ch <- m.desc
	}
}

func collect[T any](ch chan<- prometheus.Metric, metrics []metric[T], of T) {
	for _, m := range metrics {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.of(&of))
	}
}

// The first seven add up: recovered + accepted = delivered + bounced + expired + removed + queued.
var queueMetrics = []metric[queue.Stats]{
	newMetric(prometheus.CounterValue, "mta_recipients_recovered_total", "Recipients found in the queue at the start.",
		func(s *queue.Stats) float64 { return float64(s.Recovered) }),
	newMetric(prometheus.CounterValue, "mta_recipients_accepted_total", "Recipients accepted since the start.",
		func(s *queue.Stats) float64 { return float64(s.Accepted) }),
	newMetric(prometheus.CounterValue, "mta_recipients_delivered_total", "Recipients whose message a remote host took.",
		func(s *queue.Stats) float64 { return float64(s.Delivered) }),
	newMetric(prometheus.CounterValue, "mta_recipients_bounced_total", "Recipients given up after a permanent refusal, or by an operator.",
		func(s *queue.Stats) float64 { return float64(s.Bounced) }),
	newMetric(prometheus.CounterValue, "mta_recipients_expired_total", "Recipients given up after max_age.",
		func(s *queue.Stats) float64 { return float64(s.Expired) }),
	newMetric(prometheus.CounterValue, "mta_recipients_removed_total", "Recipients removed by an operator.",
		func(s *queue.Stats) float64 { return float64(s.Removed) }),
	newMetric(prometheus.GaugeValue, "mta_recipients_queued", "Recipients in the queue, in any state.",
		func(s *queue.Stats) float64 { return float64(s.Queued) }),

	newMetric(prometheus.GaugeValue, "mta_queue_oldest_due_seconds", "How long the first of what is due has been due. A rise means that delivery doesn't keep up.",
		func(s *queue.Stats) float64 { return s.OldestDue.Seconds() }),
	newMetric(prometheus.GaugeValue, "mta_queue_disk_bytes", "Octets that the queue takes on disk.",
		func(s *queue.Stats) float64 { return float64(s.Bytes) }),
	newMetric(prometheus.GaugeValue, "mta_queue_disk_live_bytes", "Octets of those that are still needed.",
		func(s *queue.Stats) float64 { return float64(s.LiveBytes) }),
	newMetric(prometheus.GaugeValue, "mta_queue_disk_free_bytes", "Octets free on the queue's disk.",
		func(s *queue.Stats) float64 { return float64(s.FreeBytes) }),
	newMetric(prometheus.GaugeValue, "mta_queue_schedule_bytes", "Octets of memory for the schedule.",
		func(s *queue.Stats) float64 { return float64(s.MemoryBytes) }),
	newMetric(prometheus.CounterValue, "mta_queue_syncs_total", "Syncs of the journal.",
		func(s *queue.Stats) float64 { return float64(s.Syncs) }),
	newMetric(prometheus.CounterValue, "mta_queue_faults_total", "Failed writes and syncs of the journal. Any rise means trouble with the disk.",
		func(s *queue.Stats) float64 { return float64(s.Faults) }),
	newMetric(prometheus.GaugeValue, "mta_queue_healthy", "1 while the journal can be written.",
		func(s *queue.Stats) float64 {
			if s.Healthy {
				return 1
			}
			return 0
		}),
	newMetric(prometheus.CounterValue, "mta_queue_damaged_total", "Stretches of the journal that could not be read.",
		func(s *queue.Stats) float64 { return float64(s.DamagedRecords) + float64(s.DamagedFiles) }),
}

var deliveryMetrics = []metric[delivery.Counts]{
	newMetric(prometheus.GaugeValue, "mta_delivery_connections", "Connections to remote hosts, those that are being opened included.",
		func(c *delivery.Counts) float64 { return float64(c.Live) }),
	newMetric(prometheus.CounterValue, "mta_delivery_connects_total", "Connections that were made.",
		func(c *delivery.Counts) float64 { return float64(c.Connected) }),
	newMetric(prometheus.CounterValue, "mta_delivery_connect_failures_total", "Connections that could not be made, or whose host had no greeting for us.",
		func(c *delivery.Counts) float64 { return float64(c.ConnectFailed) }),
	newMetric(prometheus.GaugeValue, "mta_delivery_jobs", "Jobs in memory: they wait for a connection, or are on one.",
		func(c *delivery.Counts) float64 { return float64(c.Waiting) }),
	newMetric(prometheus.GaugeValue, "mta_delivery_transactions", "Transactions on connections, under way or next.",
		func(c *delivery.Counts) float64 { return float64(c.Running) }),
	newMetric(prometheus.CounterValue, "mta_delivery_parked_total", "Jobs that waited in the queue because their site and source had no room.",
		func(c *delivery.Counts) float64 { return float64(c.Refused) }),
	newMetric(prometheus.CounterValue, "mta_delivery_ambiguous_total", "Recipients that may get a message twice: the host's answer to it was lost.",
		func(c *delivery.Counts) float64 { return float64(c.Ambiguous) }),
}

var signingMetrics = []metric[*signingCounts]{
	newMetric(prometheus.CounterValue, "mta_dkim_signed_total", "Messages that were signed with DKIM, each time they were.",
		func(c **signingCounts) float64 { return float64((*c).Signed.Load()) }),
	newMetric(prometheus.CounterValue, "mta_dkim_unsigned_total", "Messages that no key signs, of tenants whose mail may be signed.",
		func(c **signingCounts) float64 { return float64((*c).Unsigned.Load()) }),
	newMetric(prometheus.CounterValue, "mta_dkim_failures_total", "Messages that could not be signed, each try counted.",
		func(c **signingCounts) float64 { return float64((*c).Failed.Load()) }),
}

var routerMetrics = []metric[router.Stats]{
	newMetric(prometheus.CounterValue, "mta_router_hits_total", "Domains whose route was known.",
		func(s *router.Stats) float64 { return float64(s.Hits) }),
	newMetric(prometheus.CounterValue, "mta_router_lookups_total", "Domains whose route was looked up.",
		func(s *router.Stats) float64 { return float64(s.Lookups) }),
	newMetric(prometheus.GaugeValue, "mta_router_waiting", "Messages with domains that wait to be looked up.",
		func(s *router.Stats) float64 { return float64(s.Messages) }),
	newMetric(prometheus.GaugeValue, "mta_router_busy", "Look-ups of routes that are under way.",
		func(s *router.Stats) float64 { return float64(s.Running) }),
}

var dnsMetrics = []metric[resolver.Stats]{
	newMetric(prometheus.CounterValue, "mta_dns_queries_total", "Questions to name servers, each try counted.",
		func(s *resolver.Stats) float64 { return float64(s.Asked) }),
	newMetric(prometheus.CounterValue, "mta_dns_cache_hits_total", "Questions that the cache answered.",
		func(s *resolver.Stats) float64 { return float64(s.Hits) }),
	newMetric(prometheus.CounterValue, "mta_dns_failures_total", "Look-ups after which nothing was known: no answer, SERVFAIL, REFUSED and the like.",
		func(s *resolver.Stats) float64 { return float64(s.Failed) }),
}

var accountingMetrics = []metric[accounting.Stats]{
	newMetric(prometheus.CounterValue, "mta_accounting_records_total", "Accounting records written.",
		func(s *accounting.Stats) float64 { return float64(s.Written) }),
	newMetric(prometheus.CounterValue, "mta_accounting_lost_total", "Accounting records that were dropped, since they could not be written.",
		func(s *accounting.Stats) float64 { return float64(s.Lost) }),
}

var inboundDesc = prometheus.NewDesc("mta_submission_connections", "Connections of clients, to all listeners.", nil, nil)

var tenantsIgnoredDesc = prometheus.NewDesc("mta_submission_tenant_headers_ignored_total", "X-MTA-Tenant fields of clients that may not name a tenant.", nil, nil)

var stateDesc = prometheus.NewDesc("mta_recipients_by_state", "Recipients in the queue by what they are doing.", []string{"state"}, nil)

var alarmDesc = prometheus.NewDesc("mta_alarm", "1 while an alarm is on; the log has its reason.", []string{"alarm"}, nil)

var missingDesc = prometheus.NewDesc("mta_source_missing", "1 while a source is left out because this machine does not have its address.", []string{"source"}, nil)

// warmupMetrics are of one warming source each.
var warmupMetrics = []struct {
	desc *prometheus.Desc
	of   func(*warmup.Status) float64
}{
	{warmupDesc("stage", "Stage of the plan that a source is on, counted from 1."), func(s *warmup.Status) float64 { return float64(s.Stage) }},
	{warmupDesc("sent_this_hour", "Recipients charged to the hour that is under way."), func(s *warmup.Status) float64 { return float64(s.SentHour) }},
	{warmupDesc("hourly_limit", "The hour's cap in force."), func(s *warmup.Status) float64 { return float64(s.HourlyLimit) }},
	{warmupDesc("sent_today", "Recipients charged to the plan's day that is under way."), func(s *warmup.Status) float64 { return float64(s.SentDay) }},
	{warmupDesc("stage_limit", "The day's cap in force."), func(s *warmup.Status) float64 { return float64(s.StageLimit) }},
	{warmupDesc("throttle", "Share of the demand that takes the source, 0 to 1."), func(s *warmup.Status) float64 { return s.Throttle }},
	{warmupDesc("waiting", "Recipients that wait for the source."), func(s *warmup.Status) (n float64) {
		for i := range s.Providers {
			n += float64(s.Providers[i].Waiting)
		}
		return n
	}},
	{warmupDesc("paused", "1 while nothing may take the source: an operator's pause, its plan has not begun, or its ledger can't be reached."), func(s *warmup.Status) float64 {
		if s.State == "normal" || s.State == "warm" {
			return 0
		}
		return 1
	}},
}

var warmupEventsDesc = prometheus.NewDesc("mta_warmup_events_total", "What happened to the warm-up of a source, as in the accounting records of the type Warmup.", []string{"source", "event"}, nil)

func warmupDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("mta_warmup_"+name, help, []string{"source"}, nil)
}

var suppressedDesc = prometheus.NewDesc("mta_suppressed_addresses", "Entries of the suppression list. A steep rise with suppression { feed = true } means bad lists, or a provider in trouble.", nil, nil)

// Describe sends the descriptions of all metrics.
func (c relayCollector) Describe(ch chan<- *prometheus.Desc) {
	describe(ch, queueMetrics)
	describe(ch, deliveryMetrics)
	describe(ch, signingMetrics)
	describe(ch, loginMetrics)
	ch <- certificateExpiry
	describe(ch, tlsReportMetrics)
	describe(ch, routerMetrics)
	describe(ch, dnsMetrics)
	describe(ch, stsMetrics)
	ch <- stsLookupsDesc
	describe(ch, accountingMetrics)
	ch <- tenantsIgnoredDesc
	ch <- inboundDesc
	ch <- stateDesc
	ch <- alarmDesc
	ch <- missingDesc
	ch <- suppressedDesc
	ch <- checkFindings
	ch <- checkFailed
	ch <- checkTimestamp
	for _, desc := range tallyDescs {
		ch <- desc
	}
	ch <- warmupEventsDesc
	for _, m := range warmupMetrics {
		ch <- m.desc
	}
}

// Collect sends their values, those of the queue from one instant.
func (c relayCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.r.queue.Stats()
	collect(ch, queueMetrics, s)
	collect(ch, deliveryMetrics, c.r.delivery.Counts())
	collect(ch, signingMetrics, &c.r.dispatcher.signing.counts)
	c.r.collectCertificates(ch)
	if logins := c.r.logins.Load(); logins != nil {
		collect(ch, loginMetrics, logins.Stats())
	}
	if c.r.tlsReports != nil {
		collect(ch, tlsReportMetrics, c.r.tlsReports.Stats())
	}
	collect(ch, routerMetrics, c.r.router.Stats())
	collect(ch, dnsMetrics, c.r.resolver.Stats())
	c.policies(ch)
	collect(ch, accountingMetrics, c.r.accountingStats())
	ch <- prometheus.MustNewConstMetric(tenantsIgnoredDesc, prometheus.CounterValue, float64(c.r.tenantsIgnored.Load()))
	ch <- prometheus.MustNewConstMetric(inboundDesc, prometheus.GaugeValue, float64(c.r.inbound.total()))
	for state, n := range c.r.states(&s) {
		ch <- prometheus.MustNewConstMetric(stateDesc, prometheus.GaugeValue, float64(n), state)
	}
	for _, name := range alarmNames {
		on := 0.0
		if c.r.alarms.isOn(name) {
			on = 1
		}
		ch <- prometheus.MustNewConstMetric(alarmDesc, prometheus.GaugeValue, on, name)
	}
	for _, src := range c.r.policy.Load().Config.Sources {
		missing := 0.0
		if c.r.sources.isMissing(src.Name) {
			missing = 1
		}
		ch <- prometheus.MustNewConstMetric(missingDesc, prometheus.GaugeValue, missing, src.Name)
	}
	ch <- prometheus.MustNewConstMetric(suppressedDesc, prometheus.GaugeValue, float64(c.r.suppression.Stats().Entries))
	c.r.checks.collect(ch)
	c.tallies(ch)
	for e, n := range c.r.warm.counted() {
		ch <- prometheus.MustNewConstMetric(warmupEventsDesc, prometheus.CounterValue, float64(n), e.source, string(e.kind))
	}
	for _, key := range c.r.warm.IPs() {
		s, ok := c.r.warm.Status(key)
		for _, m := range warmupMetrics {
			if ok { // a reload may have ended it
				ch <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, m.of(&s), c.r.warm.sourceOf(key))
			}
		}
	}
}
