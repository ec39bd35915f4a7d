package listing

import (
	"testing"
	"time"

	"example.org/mta/operator/api"
)

// TestColumns: on each face a listing has its name first, no title twice, and a way to make each cell.
func TestColumns(t *testing.T) {
	columns(t, Sites)
	columns(t, Hosts)
	columns(t, Providers)
	columns(t, Sources)
	columns(t, Pools)
	columns(t, Tenants)
	columns(t, TenantLimits)
	columns(t, Warmups)
	columns(t, Connections)
	columns(t, Streams)
	columns(t, Queue)
	columns(t, Rules)
	columns(t, Suppressions)
	columns(t, Actions)
}

func columns[T any](t *testing.T, l Listing[T]) {
	for _, face := range []Face{CLI, Top, Console} {
		titles := make(map[string]bool)
		for i, c := range l.For(face).Columns {
			if titles[c.Title] || (c.Cell == nil) == (c.At == nil) || i == 0 && (c.Right || c.Spare > 0) {
				t.Errorf("%s on face %d: the column %s", l.Name, face, c.Title)
			}
			titles[c.Title] = true
		}
	}
}

// TestSiteSays: what holds back a site's mail is its state, and the note says for how long.
func TestSiteSays(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	look := Look{Now: now, Zone: time.UTC}
	failed := api.Tally{LastError: &api.Reply{Code: 451, Text: "later"}, ErrorAt: now.Add(-time.Minute)}
	suspended := []api.SiteAction{{What: "suspended", Source: "out1", Reason: "asked\nto", End: now.Add(8 * time.Minute)}}
	for _, tc := range []struct {
		s           site
		state, note string
	}{
		{site{}, Nothing, ""},
		{site{Running: 1}, "sending", ""},
		{site{Why: "no slot", Parked: 1, Running: 1, Until: now.Add(time.Minute)}, "waiting", "waits: no slot (for 1m more)"},
		{site{Why: "no host", Tally: failed}, "retry", "can't be tried: no host; last error 1m ago: " + failed.LastError.String()},
		{site{Why: "no slot", Parked: 1, Actions: suspended}, "suspended", "suspended from out1 for 8m more: asked / to"},
	} {
		l := Sites.For(Top)
		cells := l.Cells(&tc.s, look)
		if state, note := cells[len(cells)-1].Text, l.Note(&tc.s, look); state != tc.state || note != tc.note {
			t.Errorf("%+v: %q, %q", tc.s, state, note)
		}
	}
}

// TestCells: figures are short in terminals, have words where there is room, and are ordered by number.
func TestCells(t *testing.T) {
	for _, tc := range []struct {
		c           Cell
		short, long string
	}{
		{Count(1234567), "1234567", "1,234,567"},
		{Count(-1000), "-1000", "-1,000"},
		{Of(10, 2000), "10/2000", "10 of 2,000"},
		{OfLimit(7, 0), "7", "7"},
		{Names(ToPool, []string{"a", "b"}), "2", "2"},
		{Address(""), "<>", "<>"},
		{Address("a@b.example"), "<a@b.example>", "a@b.example"},
		{Word(""), Nothing, ""},
	} {
		if tc.c.Text != tc.short || tc.c.Long != tc.long {
			t.Errorf("%q and %q, want %q and %q", tc.c.Text, tc.c.Long, tc.short, tc.long)
		}
	}
	if Count(10).Compare(Count(9)) != 1 || Unknown().Compare(Count(0)) != -1 || Word("B").Compare(Word("a")) != 1 {
		t.Error("the order is another")
	}
}
