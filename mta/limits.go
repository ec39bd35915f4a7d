package mta

import (
	"example.org/mta/delivery"
	"example.org/mta/delivery/smtpclient"
	"example.org/mta/mta/config"
)

// deliveryLimits says in delivery's words what the configuration says about mail from a source to
// a destination on behalf of a tenant, either of which may be nil.
func deliveryLimits(t *config.Traffic, b config.Budget, src *config.Source, tenant *config.Tenant) delivery.Limits {
	l := trafficLimits(t, b)
	if src != nil {
		l.Source = delivery.Scope{Connections: src.ConnectionLimit, MessageRate: rate(src.MaxMessageRate), ConnectionRate: rate(src.MaxConnectionRate)}
	}
	if tenant != nil {
		l.Tenant = delivery.Scope{MessageRate: rate(tenant.MaxMessageRate)}
		l.TenantPath = delivery.Scope{MessageRate: rate(tenant.MaxMessageRatePerSource)}
	}
	return l
}

func trafficLimits(t *config.Traffic, b config.Budget) delivery.Limits {
	return delivery.Limits{
		Host:     delivery.Scope{Connections: t.ConnectionLimitPerHost},
		Path:     delivery.Scope{Connections: t.ConnectionLimitPerSource, MessageRate: rate(t.MaxMessageRatePerSource), ConnectionRate: rate(t.MaxConnectionRatePerSource)},
		Site:     delivery.Scope{Connections: t.ConnectionLimit, MessageRate: rate(t.MaxMessageRate), ConnectionRate: rate(t.MaxConnectionRate)},
		Provider: delivery.Scope{Connections: b.ConnectionLimit, MessageRate: rate(b.MaxMessageRate), ConnectionRate: rate(b.MaxConnectionRate)},

		MaxDeliveriesPerConnection: t.MaxDeliveriesPerConnection,
		MaxRecipients:              t.MaxRecipientsPerBatch,
		IdleTimeout:                t.IdleTimeout,
		ActiveTimeout:              t.ActiveTimeout,
		HostRetry:                  t.HostRetryInterval,
		MaxHostRetry:               t.MaxHostRetryInterval,
		ConnectTimeout:             t.Timeouts.Connect,
		Timeouts: smtpclient.Timeouts{
			Greeting: t.Timeouts.Greeting,
			Hello:    t.Timeouts.EHLO,
			Mail:     t.Timeouts.Mail,
			Rcpt:     t.Timeouts.Rcpt,
			Data:     t.Timeouts.Data,
			Block:    t.Timeouts.Block,
			Dot:      t.Timeouts.Dot,
			Quit:     t.Timeouts.Quit,
		},
		MaxMode: map[string]smtpclient.Mode{
			"lockstep":   smtpclient.LockStep,
			"pipelining": smtpclient.Pipelined,
		}[t.Pipelining],
	}
}
