package answer

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/mta/bounce/inbox"
	"example.org/mta/delivery"
	"example.org/mta/delivery/tlspolicy/sts"
	"example.org/mta/internal/certificates"
	"example.org/mta/internal/dnscheck"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/admit"
	"example.org/mta/queue"
	"example.org/mta/router"
	"example.org/mta/router/resolver"
	"example.org/mta/submission/auth"
	"example.org/mta/submission/callout"
	"example.org/mta/submission/keys"
	"example.org/mta/submission/quota"
	"example.org/mta/suppression"
	"example.org/mta/suppression/feed"
)

// Metrics gives the figures of a relay's parts to Prometheus. It reads the parts' own counters when it is
// asked, so that counting costs mail nothing. What only Prometheus counts is package tally's.
type Metrics struct {
	*Relay
	Version        string
	Accounting     func() accounting.Stats
	Admission      func() admit.Status
	Signatures     func() Signatures
	Logins         func() (s auth.Stats, on bool) // not without users
	Certificates   func() []certificates.Expiry
	Checks         func() ([]dnscheck.Finding, time.Time) // of the DNS; the time is zero when there was none
	Alarms         func() map[string]bool                 // by name, whether each is on
	Clients        func(listener string) int64            // connections; "" of all listeners
	TenantsIgnored *atomic.Int64
	Quotas         *quota.Book // of tenants
	Callouts       *callout.Checker

	tops *topSites
}

// metric is one number of a part's counters, which are a T.
type metric[T any] struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*T) float64
}

func newMetric[T any](kind prometheus.ValueType, name, help string, of func(*T) float64) metric[T] {
	return metric[T]{prometheus.NewDesc(name, help, nil, nil), kind, of}
}

// collector is some metrics, and what sends their values.
type collector struct {
	descs   []*prometheus.Desc
	collect func(chan<- prometheus.Metric)
}

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) { c.collect(ch) }

// table is the collector of a part's counters. of reports false when the part is off.
func table[T any](metrics []metric[T], of func() (T, bool)) collector {
	var c collector
	for _, m := range metrics {
		c.descs = append(c.descs, m.desc)
	}
	c.collect = func(ch chan<- prometheus.Metric) {
		if v, on := of(); on {
			for _, m := range metrics {
				ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.of(&v))
			}
		}
	}
	return c
}

// Collectors are all of them.
func (m Metrics) Collectors() []prometheus.Collector {
	m.tops = new(topSites)
	return []prometheus.Collector{
		collector{[]*prometheus.Desc{stateDesc}, m.states},
		table(queueMetrics, func() (queue.Stats, bool) { return m.Queue.Stats(), true }),
		table(deliveryMetrics, func() (delivery.Counts, bool) { return m.Delivery.Counts(), true }),
		table(signingMetrics, func() (Signatures, bool) { return m.Signatures(), true }),
		table(loginMetrics, func() (auth.Stats, bool) { return m.Logins() }),
		table(keyMetrics, m.keys),
		table(calloutMetrics, func() (callout.Stats, bool) { return m.Callouts.Stats(), true }),
		table(routerMetrics, func() (router.Stats, bool) { return m.Router.Stats(), true }),
		table(dnsMetrics, func() (resolver.Stats, bool) { return m.Resolver.Stats(), true }),
		table(accountingMetrics, func() (accounting.Stats, bool) { return m.Accounting(), true }),
		table(feedMetrics, func() (feed.Stats, bool) { return m.Feeder.Stats(), true }),
		collector{[]*prometheus.Desc{fedDesc}, m.fed},
		collector{[]*prometheus.Desc{tenantsIgnoredDesc, inboundDesc, suppressedDesc, alarmDesc, missingDesc}, m.others},
		table(admissionMetrics, func() (admit.Status, bool) { s := m.Admission(); return s, s.On }),
		collector{[]*prometheus.Desc{pressureDesc, offeredDesc, shedDesc}, m.admission},
		table(stsMetrics, func() (sts.Stats, bool) { return m.STS.Stats(), true }),
		collector{[]*prometheus.Desc{stsLookupsDesc}, m.stsLookups},
		table(tlsReportMetrics, m.tlsReports),
		collector{[]*prometheus.Desc{inboundMailDesc}, m.inboundMail},
		table(keptMetrics, func() (inbox.FolderStats, bool) { return m.InboundFolder.Stats(), true }),
		collector{[]*prometheus.Desc{certificateExpiry}, m.certificates},
		collector{[]*prometheus.Desc{checkFindings, checkFailed, checkTimestamp}, m.checks},
		collector{tallyDescs, m.tallies},
		collector{quotaDescs, m.quotas},
		collector{queuedDescs, m.queued},
		collector{streamDescs(), m.streams},
		collector{warmupDescs(), m.warmups},
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
	newMetric(prometheus.GaugeValue, "mta_queue_idempotency_keys", "Idempotency keys that are remembered.",
		func(s *queue.Stats) float64 { return float64(s.IdempotencyKeys) }),
	newMetric(prometheus.CounterValue, "mta_queue_idempotency_keys_evicted_total", "Idempotency keys forgotten before their time, since there were more than idempotency_keys. A retry with such a key is taken as a new request.",
		func(s *queue.Stats) float64 { return float64(s.IdempotencyKeysEvicted) }),
	newMetric(prometheus.GaugeValue, "mta_queue_import_keys", "Keys of 'mta queue import' that are remembered: messages of other relays, and their requests.",
		func(s *queue.Stats) float64 { return float64(s.ImportKeys) }),
	newMetric(prometheus.CounterValue, "mta_queue_import_keys_evicted_total", "Keys of imports forgotten before their time, since there were more than idempotency_keys. A message that is imported again then is sent twice.",
		func(s *queue.Stats) float64 { return float64(s.ImportKeysEvicted) }),
	newMetric(prometheus.CounterValue, "mta_queue_syncs_total", "Syncs of the journal.",
		func(s *queue.Stats) float64 { return float64(s.Syncs) }),
	newMetric(prometheus.CounterValue, "mta_queue_faults_total", "Failed writes and syncs of the journal. Any rise means that the disk is failing.",
		func(s *queue.Stats) float64 { return float64(s.Faults) }),
	newMetric(prometheus.GaugeValue, "mta_queue_healthy", "1 while the journal can be written.",
		func(s *queue.Stats) float64 { return float64(oneIf(s.Healthy)) }),
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
	newMetric(prometheus.CounterValue, "mta_delivery_parked_total", "Jobs returned to the queue because delivery had enough for their site and source.",
		func(c *delivery.Counts) float64 { return float64(c.Refused) }),
	newMetric(prometheus.CounterValue, "mta_delivery_ambiguous_total", "Recipients that may get a message twice: the host's answer to it was lost.",
		func(c *delivery.Counts) float64 { return float64(c.Ambiguous) }),
}

// Signatures counts messages by whether they were signed.
type Signatures struct{ Signed, Unsigned, Failed int64 }

var signingMetrics = []metric[Signatures]{
	newMetric(prometheus.CounterValue, "mta_dkim_signed_total", "Messages that were signed with DKIM, each time they were.",
		func(s *Signatures) float64 { return float64(s.Signed) }),
	newMetric(prometheus.CounterValue, "mta_dkim_unsigned_total", "Messages that no key signs, of tenants whose mail may be signed.",
		func(s *Signatures) float64 { return float64(s.Unsigned) }),
	newMetric(prometheus.CounterValue, "mta_dkim_failures_total", "Messages that could not be signed, each try counted.",
		func(s *Signatures) float64 { return float64(s.Failed) }),
}

var calloutMetrics = []metric[callout.Stats]{
	newMetric(prometheus.CounterValue, "mta_callouts_asked_total", "Mailboxes that hosts were asked for.",
		func(s *callout.Stats) float64 { return float64(s.Asked) }),
	newMetric(prometheus.CounterValue, "mta_callouts_refused_total", "Recipients refused since their hosts did not know them.",
		func(s *callout.Stats) float64 { return float64(s.Refused) }),
	newMetric(prometheus.CounterValue, "mta_callouts_unknown_total", "Recipients that passed since their hosts gave no answer.",
		func(s *callout.Stats) float64 { return float64(s.Unknown) }),
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
	newMetric(prometheus.CounterValue, "mta_dns_answers_total", "Look-ups that name servers answered, if only by \"there is none\".",
		func(s *resolver.Stats) float64 { return float64(s.Answered) }),
	newMetric(prometheus.CounterValue, "mta_dns_failures_total", "Look-ups after which nothing was known: no answer, SERVFAIL, REFUSED and the like.",
		func(s *resolver.Stats) float64 { return float64(s.Failed) }),
}

var accountingMetrics = []metric[accounting.Stats]{
	newMetric(prometheus.CounterValue, "mta_accounting_records_total", "Accounting records written.",
		func(s *accounting.Stats) float64 { return float64(s.Written) }),
	newMetric(prometheus.CounterValue, "mta_accounting_lost_total", "Accounting records that were dropped, since they could not be written.",
		func(s *accounting.Stats) float64 { return float64(s.Lost) }),
}

// keys counts checks of API keys, where there are any.
func (m Metrics) keys() (s keys.Stats, on bool) {
	book := m.Keys()
	if book == nil {
		return s, false
	}
	return book.Stats(), true
}

var keyMetrics = []metric[keys.Stats]{
	newMetric(prometheus.CounterValue, "mta_api_keys_accepted_total", "Requests by HTTP with a valid API key.",
		func(s *keys.Stats) float64 { return float64(s.Accepted) }),
	newMetric(prometheus.CounterValue, "mta_api_keys_refused_total", "Requests by HTTP with an API key that is unknown, expired or not allowed from the client's address.",
		func(s *keys.Stats) float64 { return float64(s.Refused) }),
	newMetric(prometheus.CounterValue, "mta_api_keys_put_off_total", "Requests by HTTP that were put off, since too many of their network had no valid API key.",
		func(s *keys.Stats) float64 { return float64(s.TooMany) }),
}

var loginMetrics = []metric[auth.Stats]{
	newMetric(prometheus.CounterValue, "mta_logins_total", "Logins of clients that succeeded.",
		func(s *auth.Stats) float64 { return float64(s.Succeeded) }),
	newMetric(prometheus.CounterValue, "mta_logins_remembered_total", "Logins of those with a password that had been verified minutes before.",
		func(s *auth.Stats) float64 { return float64(s.Remembered) }),
	newMetric(prometheus.CounterValue, "mta_logins_failed_total", "Logins with a wrong name, password or certificate.",
		func(s *auth.Stats) float64 { return float64(s.Failed) }),
	newMetric(prometheus.CounterValue, "mta_logins_refused_total", "Logins that were put off, since too many had failed or waited.",
		func(s *auth.Stats) float64 { return float64(s.Refused) }),
}

var feedMetrics = []metric[feed.Stats]{
	newMetric(prometheus.CounterValue, "mta_suppressions_set_aside_total", "Entries that were set aside, since their provider called far more recipients unknown than usual.",
		func(s *feed.Stats) float64 { return float64(s.SetAside) }),
	newMetric(prometheus.CounterValue, "mta_suppressions_lost_total", "Entries that were forgotten because too many are set aside.",
		func(s *feed.Stats) float64 { return float64(s.Lost) }),
	newMetric(prometheus.GaugeValue, "mta_suppressions_pending", "Addresses that are set aside until an operator decides.",
		func(s *feed.Stats) float64 { return float64(s.Pending) }),
	newMetric(prometheus.GaugeValue, "mta_suppression_floods", "Providers, and sites that have none, that call far more recipients unknown than usual.",
		func(s *feed.Stats) float64 { return float64(s.Floods) }),
	newMetric(prometheus.GaugeValue, "mta_suppression_counters", "Addresses with refusals of which one is not enough.",
		func(s *feed.Stats) float64 { return float64(s.Counters) }),
	newMetric(prometheus.CounterValue, "mta_suppression_uncounted_total", "Refusals for which there was no counter.",
		func(s *feed.Stats) float64 { return float64(s.Uncounted) }),
	newMetric(prometheus.CounterValue, "mta_complaints_repeated_total", "Complaints about a message that its recipient had complained about before.",
		func(s *feed.Stats) float64 { return float64(s.Duplicates) }),
}

var (
	fedDesc            = prometheus.NewDesc("mta_suppressions_total", "Entries that mail put on the suppression list, by source: bounce, report or complaint.", []string{"source"}, nil)
	stateDesc          = prometheus.NewDesc("mta_recipients_by_state", "Recipients in the queue by what they are doing.", []string{"state"}, nil)
	inboundDesc        = prometheus.NewDesc("mta_submission_connections", "Connections of clients, to all listeners.", nil, nil)
	tenantsIgnoredDesc = prometheus.NewDesc("mta_submission_tenant_headers_ignored_total", "X-MTA-Tenant fields, and those of pool_header, campaign_header and envid_header, of clients whose fields do not count.", nil, nil)
	alarmDesc          = prometheus.NewDesc("mta_alarm", "1 while an alarm is on; the log has its reason.", []string{"alarm"}, nil)
	missingDesc        = prometheus.NewDesc("mta_source_missing", "1 while a source is left out because this machine does not have its address.", []string{"source"}, nil)
	suppressedDesc     = prometheus.NewDesc("mta_suppressed_addresses", "Entries of the suppression list. A steep rise with suppression { feed = true } means bad lists, or a failing provider.", nil, nil)
)

// send sends one value.
func send(ch chan<- prometheus.Metric, desc *prometheus.Desc, kind prometheus.ValueType, v int64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(desc, kind, float64(v), labels...)
}

// oneIf is how a yes is written.
func oneIf(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

func (m Metrics) states(ch chan<- prometheus.Metric) {
	s := m.Queue.Stats()
	for state, n := range m.States(&s) {
		send(ch, stateDesc, prometheus.GaugeValue, n, state)
	}
}

func (m Metrics) fed(ch chan<- prometheus.Metric) {
	made := m.Feeder.Stats().Made
	for kind, source := range map[feed.Kind]suppression.Source{feed.Refusal: suppression.Bounce, feed.Report: suppression.Report, feed.Complaint: suppression.Complaint} {
		send(ch, fedDesc, prometheus.CounterValue, made[kind], string(source))
	}
}

// others sends what no table has.
func (m Metrics) others(ch chan<- prometheus.Metric) {
	send(ch, tenantsIgnoredDesc, prometheus.CounterValue, m.TenantsIgnored.Load())
	send(ch, inboundDesc, prometheus.GaugeValue, m.Clients(""))
	send(ch, suppressedDesc, prometheus.GaugeValue, int64(m.Suppressed.Stats().Entries))
	for name, on := range m.Alarms() {
		send(ch, alarmDesc, prometheus.GaugeValue, oneIf(on), name)
	}
	for _, src := range m.Policy().Config.Sources {
		send(ch, missingDesc, prometheus.GaugeValue, oneIf(m.Missing(src.Name)), src.Name)
	}
}
