package wiring

import (
	"slices"
	"strings"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/route"
	"example.org/mta/mta/config"
	"example.org/mta/submission/intake"
)

// Selectors select the messages that any of them matches.
type Selectors []selector

type selector struct {
	*config.Selector
	marks []string
}

func newSelectors(all []*config.Selector) (s Selectors) {
	for _, x := range all {
		one := selector{Selector: x}
		for _, m := range marksOf(x) {
			one.marks = append(one.marks, m.Text)
		}
		s = append(s, one)
	}
	return s
}

// marksOf are the header fields that a selector looks for.
func marksOf(s *config.Selector) (marks []intake.Mark) {
	for _, h := range s.Headers {
		name, value, _ := config.Mark(h) // checked with the file
		marks = append(marks, intake.Mark{Text: strings.ToLower(name + ": " + value), Name: name, Value: value})
	}
	return marks
}

// marks are the header fields that any selector of a configuration looks for.
func marks(cfg *config.Config) (all []intake.Mark) {
	for _, s := range cfg.Selectors() {
		for _, m := range marksOf(s) {
			if !slices.ContainsFunc(all, func(x intake.Mark) bool { return x.Text == m.Text }) {
				all = append(all, m)
			}
		}
	}
	return all
}

// Has reports whether a message is selected.
func (s Selectors) Has(m *envelope.Message) bool {
	for i := range s {
		if s[i].has(m) {
			return true
		}
	}
	return false
}

func (s *selector) has(m *envelope.Message) bool {
	return (len(s.Tenants) == 0 || slices.Contains(s.Tenants, m.Tenant)) &&
		(len(s.Tiers) == 0 || slices.Contains(s.Tiers, int(m.Tier))) &&
		(len(s.Campaigns) == 0 || slices.Contains(s.Campaigns, m.Campaign)) &&
		(len(s.SenderDomains) == 0 || slices.ContainsFunc(s.SenderDomains, func(d string) bool {
			return strings.EqualFold(d, m.Sender.Domain())
		})) &&
		(len(s.marks) == 0 || slices.ContainsFunc(s.marks, func(x string) bool { return slices.Contains(m.Marks, x) }))
}

// mail is a mail block and what it matches.
type mail struct {
	*config.Mail
	match Selectors
}

func mailsOf(cfg *config.Config) (all []mail) {
	for _, m := range cfg.Mails {
		all = append(all, mail{m, newSelectors(m.Match)})
	}
	return all
}

// MailOf returns the first mail block that has a setting and matches a message, nil if there is none.
func (p *Policy) MailOf(m *envelope.Message, setting string) *config.Mail {
	for _, x := range p.mails {
		if x.Sets(setting) && x.match.Has(m) {
			return x.Mail
		}
	}
	return nil
}

// Retry returns the waits of a message after temporary failures, and the longest of them when they double.
func (p *Policy) Retry(m *envelope.Message, domain string, rt *route.Route) (config.Retry, time.Duration) {
	t := p.Traffic(domain, rt)
	if x := p.MailOf(m, "retry_interval"); x != nil {
		return x.RetryInterval, max(t.MaxRetryInterval, x.RetryInterval.First)
	}
	return t.RetryInterval, t.MaxRetryInterval
}

// Window returns the mail block whose window a message waits for, nil if there is none. Mail that begins at this relay,
// such as reports, has none.
func (p *Policy) Window(m *envelope.Message) *config.Mail {
	if m.Generated() {
		return nil
	}
	if x := p.MailOf(m, "window"); x != nil && !x.Window.IsZero() {
		return x
	}
	return nil
}

// Pace returns the mail block that has the pace of a message's campaign, nil if there is none.
func (p *Policy) Pace(m *envelope.Message) *config.Mail { return p.MailOf(m, "pace") }

// DelayedAt returns when the sender of a message is notified of its delay, zero for never. BY goes before all settings.
func (p *Policy) DelayedAt(m *envelope.Message) time.Time {
	if by := m.By(); by.Notifies() {
		return by.At
	}
	after := p.Config.Defaults.Traffic.DelayWarning
	if x := p.MailOf(m, "delay_warning"); x != nil {
		after = x.DelayWarning
	}
	if after == 0 {
		return time.Time{}
	}
	return m.Start().Add(after)
}

// soonestDelay returns the least age at which any sender is notified; 0: never.
func soonestDelay(cfg *config.Config) time.Duration {
	soonest := cfg.Defaults.Traffic.DelayWarning
	for _, m := range cfg.Mails {
		if d := m.DelayWarning; d > 0 && (soonest == 0 || d < soonest) {
			soonest = d
		}
	}
	return soonest
}
