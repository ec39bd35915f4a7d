package main

import (
	"testing"

	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
)

// TestLostEventsOfAStream: a number that nobody knows is not shown as 0.
func TestLostEventsOfAStream(t *testing.T) {
	for _, tc := range []struct {
		s           api.Stream
		short, long string
	}{
		{api.Stream{}, "0", "0 events in 0 gaps"},
		{api.Stream{Gaps: 1, Lost: 40}, "40", "40 events in 1 gap"},
		{api.Stream{Gaps: 1, Uncounted: 1}, "unknown", "an unknown number of events in 1 gap: accounting files were deleted or damaged before the stream had read them"},
		{api.Stream{Gaps: 2, Uncounted: 1, Lost: 40}, "40+", "at least 40 events in 2 gaps: accounting files were deleted or damaged before the stream had read them"},
	} {
		if short, long := listing.Lost(&tc.s).Text, lostInWords(&tc.s); short != tc.short || long != tc.long {
			t.Errorf("%+v: %q and %q", tc.s, short, long)
		}
	}
}
