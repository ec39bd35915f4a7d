package blocks

import (
	"fmt"
	"slices"
	"testing"

	"example.org/mta/operator/api"
)

// A page goes on where the one before has ended, in both orders, and all come once.
func TestCutTakesAllRowsOnce(t *testing.T) {
	var rows []row[string]
	for i := range 25 {
		name := fmt.Sprintf("b%02d", i)
		rows = append(rows, row[string]{name, name, i % 4})
	}
	rows = append(rows, row[string]{"", "", 2}) // of nobody in particular
	for _, order := range api.SiteOrders {
		var all []string
		for after, first := "", true; after != "" || first; first = false {
			var page []string
			page, after = cut(rows, &api.BlockFilter{Order: order, Paging: api.Paging{After: after, Limit: 4}})
			all = append(all, page...)
		}
		if len(all) != len(rows) {
			t.Errorf("by %s %d rows come, want %d", order, len(all), len(rows))
		}
		if order == api.BySize && (rows[0].size != 3 || rows[len(rows)-1].size != 0) {
			t.Errorf("by size the first has %d, the last %d", rows[0].size, rows[len(rows)-1].size)
		}
		if order == api.ByName && !slices.IsSorted(all) {
			t.Errorf("by name they come as %q", all)
		}
	}
}
