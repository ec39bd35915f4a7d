package answer

import (
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/mta/delivery"
	"example.org/mta/mta/tally"
	"example.org/mta/submission/intake"
)

// What is counted by a block of the configuration. Labels have the names that the file has now, and ""
// for what belongs to none of them: their number is bounded by the file, whatever clients send.
var (
	buildDesc           = prometheus.NewDesc("mta_build_info", "1; the labels have the version of the relay, its commit, and the version of Go.", []string{"version", "revision", "goversion"}, nil)
	listenerMessages    = prometheus.NewDesc("mta_listener_messages_total", "Messages that a listener accepted.", []string{"listener"}, nil)
	listenerRecipients  = prometheus.NewDesc("mta_listener_recipients_total", "Recipients of those.", []string{"listener"}, nil)
	listenerOctets      = prometheus.NewDesc("mta_listener_bytes_total", "Octets of their contents.", []string{"listener"}, nil)
	listenerRefusals    = prometheus.NewDesc("mta_listener_refusals_total", "Connections, senders, recipients and contents that a listener refused.", []string{"listener"}, nil)
	listenerConnections = prometheus.NewDesc("mta_listener_connections", "Connections of clients to a listener.", []string{"listener"}, nil)
	tenantRecipients    = prometheus.NewDesc("mta_tenant_recipients_total", "Recipients of a tenant by result: accepted, delivered, deferred (attempts), bounced, expired.", []string{"tenant", "result"}, nil)
	tenantMessages      = prometheus.NewDesc("mta_tenant_messages_total", "Messages of a tenant that listeners accepted.", []string{"tenant"}, nil)
	tenantMissing       = prometheus.NewDesc("mta_tenant_fields_missing_total", "Of those, messages that came without a header field that receivers ask for. The relay adds Date and Message-ID.", []string{"tenant", "field"}, nil)
	poolRecipients      = prometheus.NewDesc("mta_pool_recipients_total", "The same by pool.", []string{"pool", "result"}, nil)
	providerRecipients  = prometheus.NewDesc("mta_provider_recipients_total", "Recipients at a provider's sites by result: delivered, deferred (attempts), bounced, expired.", []string{"provider", "result"}, nil)
	providerConnections = prometheus.NewDesc("mta_provider_connections", "Connections to a provider's hosts.", []string{"provider"}, nil)
	sourceConnections   = prometheus.NewDesc("mta_source_connections", "Connections from a source.", []string{"source"}, nil)
	sourceConnects      = prometheus.NewDesc("mta_source_connects_total", "Connections from a source that were made.", []string{"source"}, nil)
	sourceFailures      = prometheus.NewDesc("mta_source_connect_failures_total", "Connections from a source that could not be made, by reason: source (this machine could not use it), timeout, refused, unreachable, tls, reply (a refusal before the first mail), other.", []string{"source", "reason"}, nil)
	sourceSuspensions   = prometheus.NewDesc("mta_source_suspensions_total", "Automatic suspensions of a source's mail to a site; source \"\" is of all sources' mail.", []string{"source"}, nil)
	tallyDescs          = []*prometheus.Desc{buildDesc, listenerMessages, listenerRecipients, listenerOctets, listenerRefusals, listenerConnections, tenantRecipients, tenantMessages, tenantMissing, poolRecipients, providerRecipients, providerConnections, sourceConnections, sourceConnects, sourceFailures, sourceSuspensions}
)

// tallies sends them.
func (m Metrics) tallies(ch chan<- prometheus.Metric) {
	cfg, t := m.Policy().Config, m.Tally
	send := func(desc *prometheus.Desc, kind prometheus.ValueType, v int64, labels ...string) {
		send(ch, desc, kind, v, labels...)
	}
	send(buildDesc, prometheus.GaugeValue, 1, m.Version, revision(), runtime.Version())
	for _, l := range cfg.Listeners {
		n := t.Get(tally.Listener, l.Name)
		send(listenerMessages, prometheus.CounterValue, n.Messages, l.Name)
		send(listenerRecipients, prometheus.CounterValue, n.Accepted, l.Name)
		send(listenerOctets, prometheus.CounterValue, n.Octets, l.Name)
		send(listenerRefusals, prometheus.CounterValue, n.Refused, l.Name)
		send(listenerConnections, prometheus.GaugeValue, m.Clients(l.Name), l.Name)
	}
	outcomes := func(desc *prometheus.Desc, scope tally.Scope, name string) {
		n := t.Get(scope, name)
		if scope != tally.Provider {
			send(desc, prometheus.CounterValue, n.Accepted, name, "accepted")
		}
		send(desc, prometheus.CounterValue, n.Delivered, name, "delivered")
		send(desc, prometheus.CounterValue, n.Deferred, name, "deferred")
		send(desc, prometheus.CounterValue, n.Bounced, name, "bounced")
		send(desc, prometheus.CounterValue, n.Expired, name, "expired")
		if scope == tally.Tenant {
			send(tenantMessages, prometheus.CounterValue, n.Messages, name)
			for f, missing := range n.Missing {
				send(tenantMissing, prometheus.CounterValue, missing, name, intake.Field(f).String())
			}
		}
	}
	use := m.Delivery.Usage()
	outcomes(tenantRecipients, tally.Tenant, "")
	for _, b := range cfg.Tenants {
		outcomes(tenantRecipients, tally.Tenant, b.Name)
	}
	for _, b := range cfg.Pools {
		outcomes(poolRecipients, tally.Pool, b.Name)
	}
	outcomes(providerRecipients, tally.Provider, "")
	for _, b := range cfg.Providers {
		outcomes(providerRecipients, tally.Provider, b.Name)
		send(providerConnections, prometheus.GaugeValue, int64(use.Providers[b.Name].Connections), b.Name)
	}
	counts := m.Delivery.BySource()
	for _, b := range cfg.Sources {
		send(sourceConnections, prometheus.GaugeValue, int64(use.Sources[b.Name].Connections), b.Name)
		n := counts[b.Name]
		send(sourceConnects, prometheus.CounterValue, int64(n.Connected), b.Name)
		for f := range delivery.Failures {
			send(sourceFailures, prometheus.CounterValue, int64(n.Failed[f]), b.Name, delivery.Failure(f).String())
		}
		send(sourceSuspensions, prometheus.CounterValue, int64(n.Suspended), b.Name)
	}
	send(sourceSuspensions, prometheus.CounterValue, int64(counts[""].Suspended), "")
}

// revision is the commit that this was built from, "" when that is not known.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}
