package blocks

import (
	"cmp"
	"context"
	"strings"
	"time"

	"example.org/mta/dispatch/rules"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/settings"
	"example.org/mta/mta/config"
	"example.org/mta/operator/api"
)

// Rules answers about rules, and begins and ends them; it implements api.Rules.
type Rules struct {
	Config func() *config.Config // in force
	Now    func() time.Time
	Kept   *rules.Rules
	// Fitting counts the recipients in the queue that a filter fits.
	Fitting func(api.Filter) (int, error)
	// NoHost returns why no mail can go to the host of a given name; nil where that is not known.
	NoHost func(ctx context.Context, name string) error
	// Behind waits for the other nodes of a cluster, and returns which don't know of a change yet; "": all do.
	Behind func(context.Context) string
}

// Rules lists the rules in force.
func (r Rules) Rules(context.Context) (api.RuleList, error) {
	return api.RuleList{Rules: r.Kept.List()}, nil
}

// AddRule puts a rule in force. Only what exists can be selected.
func (r Rules) AddRule(ctx context.Context, b api.AddRule) (done api.RuleChanged, err error) {
	cfg := r.Config()
	for _, t := range b.Terms() {
		if t[0] == "domain" || t[0] == "campaign" {
			continue
		}
		if err := Check(cfg, t[0], t[1]); err != nil {
			return done, err
		}
	}
	x := api.Rule{
		Action: b.Action, Selection: b.Selection, Reason: cmp.Or(b.Reason, api.ReasonOf(ctx)),
		By: cmp.Or(api.ActorOf(ctx).Name(), b.By, "an operator"), Since: r.Now(),
	}
	if x.Domain, err = domainName(b.Domain); err != nil {
		return done, err
	}
	if b.Rate != "" {
		if x.Rate, err = rateOf(b.Rate); err != nil {
			return done, err
		}
	}
	if b.Host != "" {
		if x.Host, err = r.hostOf(ctx, b.Host); err != nil {
			return done, err
		}
	}
	if b.For != nil {
		x.Until = x.Since.Add(time.Duration(*b.For))
	}
	x, err = r.Kept.Begin(x, b.DryRun)
	if done, err = r.changed(ctx, x, b.DryRun, err); err == nil && b.DryRun && b.Pool == "" {
		n, err := r.Fitting(api.Filter{Tenant: b.Tenant, Source: b.Source, Provider: b.Provider, Domain: x.Domain,
			Campaign: b.Campaign})
		done.Fits = &n
		return done, err
	}
	return done, err
}

// changed is the answer to a change of a rule.
func (r Rules) changed(ctx context.Context, x api.Rule, dry bool, err error) (done api.RuleChanged, _ error) {
	if err != nil {
		return done, err
	}
	done = api.RuleChanged{Effect: api.Effect{Count: 1}, Rule: x}
	if !dry {
		done.Behind = r.Behind(ctx)
	}
	return done, nil
}

// EndRule ends a rule, also of what is there no longer.
func (r Rules) EndRule(ctx context.Context, e api.EndRule) (done api.RuleChanged, err error) {
	if e.Domain, err = domainName(e.Domain); err != nil {
		return done, err
	}
	x, found := r.Kept.Find(e.ID, e.Action, e.Selection)
	if found && !e.DryRun {
		found, err = r.Kept.End(x.ID)
	}
	switch {
	case err != nil || found:
		return r.changed(ctx, x, e.DryRun, err)
	case e.ID != 0:
		return done, api.NotFound("for a list: mta rule list", "there is no rule %d", e.ID)
	case e.Action == api.RuleSuspend:
		return done, api.NotFound("what is paused: mta pause", "%s is not paused", e.Selection)
	}
	return done, api.NotFound("for a list: mta rule list", "there is no rule to %s %s", e.Action, e.Selection)
}

// domainName returns a domain as recipients' addresses have it.
func domainName(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	domain, err := envelope.ToASCII(strings.ToLower(name))
	if err != nil {
		return "", api.Invalid("", "domain %s: %v", name, err)
	}
	return domain, nil
}

// rateOf returns the rate of a rule as the configuration writes it.
func rateOf(text string) (string, error) {
	var rate settings.Rate
	if err := rate.UnmarshalText([]byte(text)); err != nil {
		return "", api.Invalid("from 1/d to 2147483647/s, as in 10/s, 100/m, 5000/h", "rate: %v", err)
	}
	if rate.Count == 0 {
		return "", api.Invalid("to let nothing leave: suspend", "the rate %q limits nothing", text)
	}
	return rate.String(), nil
}

// hostOf returns the host of a rule as the configuration writes it.
func (r Rules) hostOf(ctx context.Context, text string) (string, error) {
	if !strings.Contains(text, "://") {
		text = "smtp://" + text
	}
	var host config.Smarthost
	if err := host.UnmarshalText([]byte(text)); err != nil {
		return "", api.Invalid("as in mx.example.net, mx.example.net:2525, smtps://mx.example.net", "host: %v", err)
	}
	if err := r.NoHost(ctx, host.Host); err != nil {
		return "", api.Invalid("check its spelling, or give an address", "host: %v", err)
	}
	return host.String(), nil
}
