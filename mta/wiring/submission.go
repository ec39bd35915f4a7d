package wiring

import (
	"cmp"
	"net/netip"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/gcra"
	"example.org/mta/mta/config"
	"example.org/mta/submission"
	"example.org/mta/submission/http"
	"example.org/mta/submission/intake"
	"example.org/mta/submission/milter"
)

// Submission makes the settings of a listener.
func Submission(cfg *config.Config, l *config.Listener) submission.Config {
	return submission.Config{
		Intake:     intakeOf(cfg, l),
		RelayFrom:  l.RelayFrom,
		ProxyFrom:  l.ProxyFrom,
		Postmaster: envelope.Address(cfg.Postmaster),
		Limits: submission.Limits{
			Connections:          l.MaxConnections,
			ConnectionsPerClient: l.MaxConnectionsPerClient,
		},
		Timeouts: submission.Timeouts{
			Command:    l.CommandTimeout,
			GreetDelay: l.GreetDelay,
		},
		ImplicitTLS: l.TLS.Implicit,

		Mechanisms:      l.Auth.Mechanisms,
		AuthRequired:    l.Auth.Required,
		ClearOnLoopback: l.Auth.ClearOnLoopback,

		NormaliseFrom: l.NormaliseFrom,
	}
}

// intakeOf makes the settings of what a listener's messages are held to.
func intakeOf(cfg *config.Config, l *config.Listener) intake.Config {
	tier := l.Tier
	if t := cfg.Tenant(l.Tenant); t != nil {
		tier = t.Tier
	}
	return intake.Config{
		Hostname:    cmp.Or(l.Banner, cfg.Hostname),
		Tenant:      l.Tenant,
		CheckFrom:   l.CheckFrom,
		MaxHold:     l.MaxHold,
		Marks:       marks(cfg),
		Copies:      cfg.Accounting.Headers,
		Tier:        uint8(tier),
		TierCeiling: uint8(tier),
		Limits: intake.Limits{
			Recipients: l.MaxRecipients,
			Size:       int64(l.MaxMessageSize),
		},
		TenantFieldFrom: l.TenantHeaderFrom,
		Foreign: intake.ForeignFields{Pool: l.PoolHeader, Campaign: l.CampaignHeader, EnvID: l.EnvIDHeader,
			From: l.HeadersFrom},
		Remove:     patterns(l.HeadersRemove),
		Buffered:   config.LargeBody,
		Recipients: intake.Recipients{Verify: l.VerifyRecipients == "domain"},
	}
}

// Milters makes the settings of the milters.
func Milters(cfg *config.Config) (all []milter.Settings) {
	for _, m := range cfg.Milters {
		all = append(all, milter.Settings{Name: m.Name, Network: m.Address.Network, Address: m.Address.Address,
			Timeout: m.Timeout, Accept: m.OnError == "accept", Listeners: m.Listeners, Tenants: m.Tenants})
	}
	return all
}

func patterns(fields []config.FieldPattern) (p intake.FieldPatterns) {
	for _, f := range fields {
		p = append(p, string(f))
	}
	return p
}

// WithoutLogin changes a listener's settings to those for programs on this machine, which may submit without a login.
func WithoutLogin(sc submission.Config) submission.Config {
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	sc.RelayFrom = []netip.Prefix{netip.PrefixFrom(loopback, loopback.BitLen())}
	sc.ProxyFrom, sc.ImplicitTLS, sc.Mechanisms, sc.AuthRequired, sc.Timeouts.GreetDelay = nil, false, nil, false, 0
	return sc
}

func rates(requests, recipients config.Rate, octets config.ByteRate) http.Rates {
	return http.Rates{Requests: rate(requests), Recipients: rate(recipients),
		Octets: gcra.Rate{Events: int(octets), Per: time.Second}}
}

// apiIntake makes the settings of what messages by HTTP are held to. Authors are held to the tenant's senders
// always: a key is an application's, and no relay's.
func apiIntake(cfg *config.Config, a *config.API) intake.Config {
	return intake.Config{
		Hostname:    cfg.Hostname,
		CheckFrom:   true,
		MaxHold:     a.MaxHold,
		Marks:       marks(cfg),
		Copies:      cfg.Accounting.Headers,
		Tier:        config.DefaultTier,
		TierCeiling: config.DefaultTier,
		Limits:      intake.Limits{Recipients: maxAddresses, Size: int64(a.MaxRequest)},
		Remove:      patterns(a.HeadersRemove),
		Buffered:    config.LargeBody,
		Recipients:  intake.Recipients{Verify: a.VerifyRecipients == "domain"},
	}
}

// maxAddresses is how many addresses a request can have.
const maxAddresses = 1000

// API makes the settings of an api block.
func API(cfg *config.Config, a *config.API) http.Config {
	return http.Config{
		Mail:    http.Mail{Intake: apiIntake(cfg, a)},
		Tenants: a.Tenants, TrustedProxies: a.TrustedProxies, ProxyFrom: a.ProxyFrom,
		Rates:      rates(a.MaxRequestRate, a.MaxRecipientRate, a.MaxByteRate),
		MaxRequest: int64(a.MaxRequest), MaxConnections: a.MaxConnections,
	}
}
