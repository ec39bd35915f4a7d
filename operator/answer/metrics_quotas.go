package answer

import (
	"github.com/prometheus/client_golang/prometheus"

	"example.org/mta/submission/quota"
)

// Labels are bounded by the file's tenant blocks and the kinds of limits.
var (
	tenantOpen     = prometheus.NewDesc("mta_tenant_connections", "Connections of a tenant's clients.", []string{"tenant"}, nil)
	tenantQueued   = prometheus.NewDesc("mta_tenant_queued_messages", "Messages of a tenant in the queue.", []string{"tenant"}, nil)
	tenantOctets   = prometheus.NewDesc("mta_tenant_queued_bytes", "Size of a tenant's messages in the queue.", []string{"tenant"}, nil)
	tenantRefused  = prometheus.NewDesc("mta_tenant_refused_total", "Connections and messages of a tenant that were refused for one of its limits.", []string{"tenant", "limit"}, nil)
	tenantLowered  = prometheus.NewDesc("mta_tenant_lowered_total", "Messages of a tenant that were moved to the last tier for one of its limits.", []string{"tenant", "limit"}, nil)
	quotaDescs     = []*prometheus.Desc{tenantOpen, tenantQueued, tenantOctets, tenantRefused, tenantLowered}
	messageReasons = []quota.Reason{quota.Rate, quota.Messages, quota.Octets}
)

// quotas sends what tenants use of their limits.
func (m Metrics) quotas(ch chan<- prometheus.Metric) {
	for _, t := range m.Policy().Config.Tenants {
		s, known := m.Quotas.State(t.Name)
		if !known {
			continue
		}
		send(ch, tenantOpen, prometheus.GaugeValue, int64(s.Connections), t.Name)
		send(ch, tenantQueued, prometheus.GaugeValue, s.Queued.Messages, t.Name)
		send(ch, tenantOctets, prometheus.GaugeValue, s.Queued.Octets, t.Name)
		for _, why := range append(messageReasons, quota.Connections, quota.Share) {
			send(ch, tenantRefused, prometheus.CounterValue, s.Refused[why], t.Name, why.String())
		}
		for _, why := range messageReasons {
			send(ch, tenantLowered, prometheus.CounterValue, s.Lowered[why], t.Name, why.String())
		}
	}
}
