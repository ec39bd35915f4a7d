package warmup

// hard is what the caps leave for a provider now, whatever the pacer says.
func (s *State) hard(p *Plan, v *Provider) int64 {
	if s.Now >= s.hourEnd(p)-p.closing() {
		return 0
	}
	n := min(s.leftFor(v),
		int64(p.SlidingHour*float64(s.Caps.Hourly))-s.Total.Sliding,
		int64(p.SlidingHour*float64(v.Caps.Hourly))-v.Count.Sliding)
	if v.block.state == probing {
		n = min(n, v.block.probeLeft)
	}
	return max(0, n)
}

// Grant charges up to want tokens for a provider, or nothing when it would be fewer than least,
// and returns how many.
func (s *State) Grant(p *Plan, provider int, want, least int64) int64 {
	v := &s.Providers[provider]
	soft := min(v.tokens.whole(), s.tokens.whole(), s.peak.whole())
	n := min(max(want, least), soft, s.hard(p, v))
	if n < least && s.fits(p, v, least) {
		n = least
	}
	if n < max(least, 1) {
		return 0
	}
	s.charge(v, n)
	return n
}

// ample reports whether nobody lacks tokens for a provider: so many as flow in some seconds are saved up. A node may
// then keep more than it has mail for.
func (s *State) ample(p *Plan, v *Provider, seconds float64) bool {
	of, all := max(2, v.Rate*seconds), max(2, s.totalRate(p)*seconds)
	return s.Warm || v.tokens.tokens >= of && s.tokens.tokens >= all && float64(s.hard(p, v)) >= of
}

// fits reports whether n tokens may be charged at once.
func (s *State) fits(p *Plan, v *Provider, n int64) bool {
	return n <= s.hard(p, v) && v.tokens.allows(n) && s.tokens.allows(n) && s.peak.allows(n)
}

// charge takes tokens out of the buckets and counts them in all windows.
func (s *State) charge(v *Provider, n int64) {
	v.tokens.tokens -= float64(n)
	s.tokens.tokens -= float64(n)
	s.peak.tokens -= float64(n)
	s.Count(v, n)
	if v.block.state == probing {
		v.block.probeLeft -= n
	}
}

// Count counts what was sent without tokens, when warm.
func (s *State) Count(v *Provider, n int64) {
	v.Count.add(n)
	s.Total.add(n)
	s.StageSent += n
	s.LastSent = s.Now
}

// Receipt says when tokens were charged. They can be taken back only in their windows.
type Receipt struct {
	hour   int64
	minute int64
}

// Receipt is that of tokens charged now.
func (s *State) Receipt() Receipt { return Receipt{s.Hour, s.Total.minute} }

// TakeBack undoes the charge of tokens of which nothing reached the provider, as far as their
// windows last: a lease that was not used, a connection that was not made.
func (s *State) TakeBack(p *Plan, provider int, n int64, r Receipt) {
	v := &s.Providers[provider]
	switch {
	case r.hour == s.Hour:
		v.Count.takeBack(n)
		s.Total.takeBack(n)
		v.tokens.fill(float64(n))
		s.tokens.fill(float64(n))
	case r.hour/24 == s.Hour/24:
		v.Count.Day = max(0, v.Count.Day-n)
		s.Total.Day = max(0, s.Total.Day-n)
	}
	v.Count.forget(n, r.minute)
	s.Total.forget(n, r.minute)
	if r.hour/24 != s.Hour/24 {
		return
	}
	s.StageSent = max(0, s.StageSent-n)
	if v.block.state == probing {
		v.block.probeLeft = min(v.block.probeLeft+n, int64(p.Health.Pause.Probe))
	}
}

// Retry is how long it makes sense to wait before asking again for a token, when there was none.
func (s *State) Retry(p *Plan, provider int) Instant {
	v := &s.Providers[provider]
	most := p.minute()
	if toEnd := s.hourEnd(p) - s.Now; s.left() == 0 || s.Now >= s.hourEnd(p)-p.closing() {
		return min(most, toEnd) // a new hour, or a minute's wait for a refund
	}
	if v.block.state != open && s.hard(p, v) == 0 {
		return most
	}
	return Instant(max(1, min(float64(most), second*s.wait(p, v))))
}

// wait is how many seconds it takes until there is a token for a provider.
func (s *State) wait(p *Plan, v *Provider) float64 {
	return max(v.tokens.wait(v.Rate), s.tokens.wait(s.totalRate(p)))
}

// guardMinutes are the buckets of the sliding hour. 61, the one in progress and the 60 before it,
// cover any 60 minutes that end now; one more, because a token is counted in the minute in which
// a node got it and may be used in the next.
const guardMinutes = 62

// Counter counts what was authorised. Its windows are opened by its owner.
type Counter struct {
	Hour, Day int64 // in the hour and in the day in progress
	Sliding   int64 // in all of minutes

	minute  int64 // the bucket in progress, counted from the warm-up's begin
	minutes [guardMinutes]int64
}

// roll opens a minute; it can only go forward.
func (c *Counter) roll(minute int64) {
	if minute-c.minute >= guardMinutes {
		c.minutes, c.Sliding, c.minute = [guardMinutes]int64{}, 0, minute
		return
	}
	for c.minute < minute {
		c.minute++
		b := &c.minutes[c.minute%guardMinutes]
		c.Sliding -= *b
		*b = 0
	}
}

func (c *Counter) add(n int64) {
	c.Hour += n
	c.Day += n
	c.Sliding += n
	c.minutes[c.minute%guardMinutes] += n
}

// takeBack undoes an add of the same hour.
func (c *Counter) takeBack(n int64) {
	c.Hour = max(0, c.Hour-n)
	c.Day = max(0, c.Day-n)
}

// forget takes what never was sent out of the minute in which it was authorised. An earlier minute
// than that is right as well, for it leaves the sliding hour earlier.
func (c *Counter) forget(n, minute int64) {
	if minute <= c.minute-guardMinutes || minute > c.minute {
		return
	}
	b := &c.minutes[minute%guardMinutes]
	n = min(n, *b)
	*b -= n
	c.Sliding -= n
}
