package simulate

import "fmt"

// summary counts a simulation, from its printed rows alone.
type summary struct {
	Offered, Sent, Diverted, Waiting int64 // Waiting is what still did at the end
	Expired                          int64
	Deferred, Bounced, Complained    int64

	Hours, Days int   // that had mail
	OverHour    int64 // most that an hour's mail was above its cap; 0: none was
	OverDay     int64 // and a day's
}

// summarize recounts rows. Hours are only looked at when the interval divides them.
func summarize(rows []Row) summary {
	var s summary
	type window struct {
		sent, most int64
	}
	hours, days := make(map[int64]*window), make(map[int64]*window)
	count := func(m map[int64]*window, key int64, r *Row, most int64) {
		w := m[key]
		if w == nil {
			w = &window{}
			m[key] = w
		}
		w.sent += r.Sent
		w.most = max(w.most, most)
	}
	// A row has its provider's caps; what is known of the IP's is the largest of them.
	last := make(map[string]Row)
	for i := range rows {
		r := &rows[i]
		s.Offered += r.Offered
		s.Sent += r.Sent
		s.Diverted += r.Diverted
		s.Expired += r.Expired
		s.Deferred += r.Deferred
		s.Bounced += r.Bounced
		s.Complained += r.Complained
		last[r.Provider] = *r
		count(hours, r.T/3600, r, r.CapHour)
		count(days, r.T/86_400, r, r.CapDay)
	}
	end := int64(0)
	for _, r := range last {
		end = max(end, r.T)
	}
	for _, r := range last {
		if r.T == end { // a provider that held mail has a row to the end
			s.Waiting += r.Waiting
		}
	}
	s.Hours, s.Days = len(hours), len(days)
	for _, w := range hours {
		s.OverHour = max(s.OverHour, w.sent-w.most)
	}
	for _, w := range days {
		s.OverDay = max(s.OverDay, w.sent-w.most)
	}
	return s
}

// String says it in a line.
func (s summary) String() string {
	over := "never over a cap"
	if s.OverHour > 0 || s.OverDay > 0 {
		over = fmt.Sprintf("over a cap by up to %d in an hour and %d in a day", s.OverHour, s.OverDay)
	}
	return fmt.Sprintf("%d offered, %d sent, %d diverted, %d held at the end; %d deferred, %d bounced, %d complained; %d hours, %s",
		s.Offered, s.Sent, s.Diverted, s.Waiting, s.Deferred, s.Bounced, s.Complained, s.Hours, over)
}
