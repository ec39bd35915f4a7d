package alarm

import (
	"testing"
	"time"

	"example.org/mta/mta/events"
)

// TestTheAlarmOfAGapNamesItsCause: a receiver that is too slow is another fault than files that are gone.
func TestTheAlarmOfAGapNamesItsCause(t *testing.T) {
	for want, s := range map[string]events.Status{
		`stream "app" has lost 1 event that its receiver did not take within hold (3d)`:                                                                                                            {Gaps: 1, Lost: 1},
		`stream "app" has lost an unknown number of events, since accounting files were deleted or damaged before it had read them`:                                                                {Gaps: 1, Uncounted: 1},
		`stream "app" has lost 40 events that its receiver did not take within hold (3d), and an unknown number of events, since accounting files were deleted or damaged before it had read them`: {Gaps: 1, Uncounted: 1, Lost: 40},
	} {
		s.Name, s.Hold = "app", 72*time.Hour
		if got := gapReason(&s); got != want {
			t.Errorf("%+v:\n%s, want\n%s", s, got, want)
		}
	}
}
