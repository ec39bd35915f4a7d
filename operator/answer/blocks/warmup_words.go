package blocks

import (
	"fmt"
	"time"

	"example.org/mta/internal/parking"
	"example.org/mta/mta/wiring"
	"example.org/mta/warmup"
)

// Awaited returns the warm-up that mail in a line waits for, of several the one that is first to have space
// for it: its source, where it stands, what it lacks and until when.
func (w *Warmups) Awaited(
	line parking.Line) (source string, s warmup.Status, lack string, until time.Time, known bool) {
	cfg := w.Policy().Config
	p := cfg.Pool(line.Name)
	if p == nil {
		return "", s, "", until, false
	}
	for _, d := range p.Dedicated {
		if d.Plan == "" || line.Source != "" && line.Source != d.Name {
			continue
		}
		st, ok := w.Controller.Status(wiring.WarmupKey(cfg, d))
		if !ok {
			continue
		}
		l, t := Lacking(&st, line.Provider)
		if !known || sooner(l, t, lack, until) {
			source, s, lack, until, known = d.Name, st, l, t, true
		}
	}
	return source, s, lack, until, known
}

// sooner reports whether a warm-up that lacks something until a time, zero when that is not known, has space
// before another.
func sooner(lack string, until time.Time, otherLack string, other time.Time) bool {
	switch {
	case lack == "" || otherLack == "":
		return lack == "" && otherLack != ""
	case until.IsZero() || other.IsZero():
		return other.IsZero() && !until.IsZero()
	}
	return until.Before(other)
}

// WhyThrottled returns why mail in a line waits, and the earliest end of the wait. ok is false if the mail
// waits for no warm-up.
func (w *Warmups) WhyThrottled(line parking.Line) (why string, until time.Time, ok bool) {
	if line.Kind != parking.Tokens {
		return "", time.Time{}, false
	}
	source, s, lack, until, known := w.Awaited(line)
	if !known {
		return fmt.Sprintf("it waited for a warm-up of pool %s, which has ended: it is taken up within a minute",
			line.Name), time.Time{}, true
	}
	why = fmt.Sprintf("it waits for the warm-up of source %s (%s): %s", source, s.IP, standing(&s))
	if lack != "" {
		why += ": " + lack
	}
	return why, until, true
}

// ThrottledBy is WhyThrottled in a few words.
func (w *Warmups) ThrottledBy(line parking.Line) (text string, until time.Time, ok bool) {
	if line.Kind != parking.Tokens {
		return "", until, false
	}
	source, _, lack, until, known := w.Awaited(line)
	if text = "waits for the warm-up of " + source; !known {
		text = "waits for a warm-up of pool " + line.Name
	}
	if line.Provider != warmup.Other {
		text += ", provider " + line.Provider
	}
	if lack != "" {
		text += ": " + lack
	}
	return text, until, true
}

// Lacking returns what keeps mail for a provider from a warm-up, "" without an obstacle, and the earliest end
// of that if it is known.
func Lacking(s *warmup.Status, provider string) (string, time.Time) {
	switch {
	case s.State == "warm":
		return "", time.Time{}
	case s.State == "paused":
		return "paused by an operator", time.Time{}
	case s.State == "scheduled":
		return "it begins later", s.Started
	case s.State != "normal":
		return s.LedgerFailure(), time.Time{}
	case s.SentDay >= s.StageLimit:
		return "the day's cap is used", s.DayEnds
	case s.SentHour >= s.HourlyLimit:
		return "the hour's cap is used", s.HourEnds
	}
	if p := s.Of(provider); p != nil {
		return lackingAt(p, s)
	}
	return "", time.Time{}
}

// lackingAt is Lacking for a provider by itself.
func lackingAt(p *warmup.ProviderStatus, s *warmup.Status) (string, time.Time) {
	const spread = "an hour's mail is spread over the hour"
	switch {
	case p.State != "normal":
		return "provider " + p.Provider + " is " + p.State, p.Until
	case p.DailyLimit > 0 && p.SentDay >= p.DailyLimit:
		return "the day's cap for " + p.Provider + " is used", s.DayEnds
	case p.HourlyLimit > 0 && p.SentHour >= p.HourlyLimit:
		return "the hour's cap for " + p.Provider + " is used", s.HourEnds
	case p.Waiting > 0 && p.Rate > 0:
		return fmt.Sprintf("%s, now %.3g a minute", spread, 60*p.Rate), p.NextToken
	case p.Waiting > 0:
		return spread, time.Time{}
	}
	return "", time.Time{}
}

// standing describes how far a warm-up has come.
func standing(s *warmup.Status) string {
	if s.State == "scheduled" {
		return fmt.Sprintf("plan %s, which begins at %s", s.Plan, s.Started.Format(time.RFC3339))
	}
	return fmt.Sprintf("plan %s, stage %d of %d, %d of %d sent this hour, %d of %d today",
		s.Plan, s.Stage, s.TotalStages, s.SentHour, s.HourlyLimit, s.SentDay, s.StageLimit)
}

// Of returns the warm-up of a source; false when it has none.
func (w *Warmups) Of(source string) (warmup.Status, bool) {
	key, ok := w.Policy().WarmupKeyOf(source)
	if !ok {
		return warmup.Status{}, false
	}
	return w.Controller.Status(key)
}

// Progress describes how far a warm-up has come, for mail to a provider.
func Progress(s *warmup.Status, provider string) string {
	text := standing(s)
	if s.State != "normal" {
		text += ": " + s.State
	}
	p := s.Of(provider)
	if p == nil {
		return text
	}
	if p.HourlyLimit > 0 || p.DailyLimit > 0 {
		text += fmt.Sprintf("; of %s %d of %d this hour, %d of %d today", p.Provider, p.SentHour, p.HourlyLimit,
			p.SentDay, p.DailyLimit)
	}
	if p.State != "normal" {
		text += fmt.Sprintf("; %s is %s", p.Provider, p.State)
	}
	if p.Waiting > 0 {
		text += fmt.Sprintf("; %d waiting", p.Waiting)
	}
	return text
}
