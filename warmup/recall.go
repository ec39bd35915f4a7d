package warmup

// A ledger can be lost, or live by a wrong clock. What is then known of a warm-up may be less than what
// was sent: each of these takes as used up what could have been.

// useUp takes what the hour and the day in progress have left as sent.
func (s *State) useUp() {
	s.spent = false
	s.Total.Hour, s.Total.Day = max(s.Total.Hour, s.Caps.Hourly), max(s.Total.Day, s.Caps.Daily)
	if lack := s.Caps.Hourly - s.Total.Sliding; lack > 0 {
		s.Total.Sliding += lack
		s.Total.minutes[s.Total.minute%guardMinutes] += lack
	}
}

// move moves all instants by d.
func (s *State) move(d Instant) {
	for _, t := range []*Instant{&s.Begin, &s.Now, &s.StageSince, &s.LastSent, &s.steered} {
		*t += d
	}
	for i := range s.Providers {
		if b := &s.Providers[i].block; b.state != open {
			b.until += d
		}
	}
}

// healed gives a stored state as it is after the store's clock was found to be ahead by so much: moved
// back, and with the hour and the day in progress used up, since what was sent meanwhile is in windows
// that are gone.
func healed(value []byte, ahead Instant) ([]byte, error) {
	var s State
	if err := s.Decode(value); err != nil {
		return nil, err
	}
	s.move(-ahead)
	s.spent = true
	return s.Append(nil), nil
}

// UsedUp gives a stored state as it goes on where others may have sent since: with what is left of the hour and the day
// in which it is read again taken as sent.
func UsedUp(value []byte) ([]byte, error) { return healed(value, 0) }

// Restored gives the state of a copy that was written behind the ledger. What its last hour had left is
// taken as sent, since the copy may be older than that.
func Restored(value []byte, now Instant) (*State, error) {
	s := &State{}
	if err := s.Decode(value); err != nil {
		return nil, err
	}
	if s.Now > now { // the clock went back as well
		s.move(now - s.Now)
	}
	if !s.Warm {
		s.Total.add(max(0, s.Caps.Hourly-s.Total.Hour))
	}
	return s, nil
}

// Proven gives the state of a warm-up of which nothing is known but the most that it sent in a day:
// on the stage that this takes at least, with the hour and the day in progress used up.
func Proven(p *Plan, now Instant, most int64) *State {
	s := NewState(p, now)
	for i := s.Stage; i < len(p.Stages) && (i == s.Stage || p.Stages[i-1].Daily < most); i++ {
		s.Stage = i
	}
	s.setStage(p, s.Stage)
	s.spent = true
	return s
}

// Copy gives the state of an IP in its stored form, for a second copy, and its version, which is
// never 0; nothing when it is not known, or has the version that the caller has.
func (c *Controller) Copy(ip string, have uint64) (value []byte, version uint64) {
	a := c.address(ip)
	if a == nil {
		return nil, have
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.view.known || a.problem != nil || a.written+1 == have {
		return nil, have
	}
	return a.state.Append(nil), a.written + 1
}
