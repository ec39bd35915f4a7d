package simulate

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Row is a row of Run's output.
type Row struct {
	T          int64  `json:"t"` // when the interval begins, in seconds
	Stage      int64  `json:"stage"`
	Provider   string `json:"provider"`
	State      string `json:"state"` // normal, paused or store_down
	CapHour    int64  `json:"cap_hour"`
	CapDay     int64  `json:"cap_day"`
	Offered    int64  `json:"offered"`
	Sent       int64  `json:"sent"`
	Diverted   int64  `json:"diverted"`
	Held       int64  `json:"held"` // at the interval's end
	Deferred   int64  `json:"deferred"`
	Bounced    int64  `json:"bounced"`
	Complained int64  `json:"complained"`
}

// ReadRows reads what Run has written.
func ReadRows(r io.Reader) ([]Row, error) {
	in := bufio.NewScanner(r)
	if !in.Scan() || in.Text() != Header {
		return nil, fmt.Errorf("reading simulation: it does not begin with %q", Header)
	}
	var rows []Row
	for in.Scan() {
		f := strings.Split(in.Text(), ",")
		if len(f) != 13 {
			return nil, fmt.Errorf("reading simulation: row %d has %d fields", len(rows)+1, len(f))
		}
		row := Row{Provider: f[2], State: f[3]}
		for i, at := range []*int64{&row.T, &row.Stage, nil, nil, &row.CapHour, &row.CapDay, &row.Offered, &row.Sent,
			&row.Diverted, &row.Held, &row.Deferred, &row.Bounced, &row.Complained} {
			if at == nil {
				continue
			}
			n, err := strconv.ParseInt(f[i], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("reading simulation: row %d: %w", len(rows)+1, err)
			}
			*at = n
		}
		rows = append(rows, row)
	}
	return rows, in.Err()
}

// Summary counts a simulation, from its printed rows alone.
type Summary struct {
	Offered, Sent, Diverted, Held int64 // Held is what still waited at the end
	Deferred, Bounced, Complained int64

	Hours, Days int   // that had mail
	OverHour    int64 // most that an hour's mail was above its cap; 0: none was
	OverDay     int64 // and a day's
}

// Summarize recounts rows. Hours are only looked at when the interval divides them.
func Summarize(rows []Row) Summary {
	var s Summary
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
			s.Held += r.Held
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
func (s Summary) String() string {
	over := "never over a cap"
	if s.OverHour > 0 || s.OverDay > 0 {
		over = fmt.Sprintf("over a cap by up to %d in an hour and %d in a day", s.OverHour, s.OverDay)
	}
	return fmt.Sprintf("%d offered, %d sent, %d diverted, %d held at the end; %d deferred, %d bounced, %d complained; %d hours, %s",
		s.Offered, s.Sent, s.Diverted, s.Held, s.Deferred, s.Bounced, s.Complained, s.Hours, over)
}
