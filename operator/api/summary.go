package api

import (
	"cmp"
	"slices"
)

// AddSummaries joins two parts of a summary, neither of which has left out rows. The second is the later.
func AddSummaries(a, b Summary) Summary {
	sum := b
	sum.Rows, sum.Total, sum.Other = slices.Clone(a.Rows), a.Total, a.Other
	at := make(map[string]int, len(sum.Rows))
	for i, row := range sum.Rows {
		at[row.Key] = i
	}
	for _, row := range b.Rows {
		if i, ok := at[row.Key]; ok {
			sum.Rows[i] = sum.Rows[i].Plus(row)
		} else {
			sum.Rows = append(sum.Rows, row)
		}
	}
	slices.SortFunc(sum.Rows, SummaryRow.compare)
	sum.Total = sum.Total.Plus(b.Total)
	switch {
	case sum.Other == nil:
		sum.Other = b.Other
	case b.Other != nil:
		other := sum.Other.Plus(*b.Other)
		sum.Other = &other
	}
	sum.Exact = a.Exact && b.Exact
	sum.Looked += a.Looked
	return sum
}

// Cut leaves the limit largest rows, and counts the others in Other and More. 0 leaves all.
func (s *Summary) Cut(limit int) {
	if limit == 0 || len(s.Rows) <= limit {
		return
	}
	var other SummaryRow
	if s.Other != nil {
		other = *s.Other
	}
	for _, row := range s.Rows[limit:] {
		other = other.Plus(row)
	}
	other.Key = ""
	s.Other, s.More, s.Rows = &other, s.More+len(s.Rows)-limit, s.Rows[:limit]
}

// compare puts the largest row first.
func (r SummaryRow) compare(o SummaryRow) int {
	return cmp.Or(cmp.Compare(o.Total, r.Total), cmp.Compare(r.Key, o.Key))
}

// Plus gives the sum of two rows, with the first one's key.
func (r SummaryRow) Plus(o SummaryRow) SummaryRow {
	counts := make([]int, max(len(r.Counts), len(o.Counts)))
	states := make(map[State]int, len(r.States))
	for _, row := range []SummaryRow{r, o} {
		for i, n := range row.Counts {
			counts[i] += n
		}
		for state, n := range row.States {
			states[state] += n
		}
	}
	return SummaryRow{Key: r.Key, Total: r.Total + o.Total, Counts: counts, States: states, Error: r.Error + o.Error}
}
