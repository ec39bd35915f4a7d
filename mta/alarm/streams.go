package alarm

import (
	"fmt"
	"time"

	"example.org/mta/internal/faultlog"
	"example.org/mta/mta/events"
	"example.org/mta/operator/api"
)

const (
	// streamBehind is how long events wait before that is an alarm.
	streamBehind = 5 * time.Minute
	// streamShown is how long after a refused event or a gap the alarm is on.
	streamShown = time.Hour
)

// OfStreams returns which streams are behind, which had events refused, and which have gaps; "" for none.
func OfStreams(r *events.Streams, now time.Time) (behind, refused, gap string) {
	if r == nil {
		return "", "", ""
	}
	var slow, set, holes []string
	for _, s := range r.List() {
		if s.Lag >= streamBehind && s.State != events.Paused {
			text := fmt.Sprintf("events of stream %q have waited for %s", s.Name, api.Age(s.Lag.Round(time.Second)))
			if s.Tries > 0 {
				text += ": " + s.LastError
			}
			slow = append(slow, text)
		}
		if s.Refused > 0 && now.Sub(s.RefusedAt) < streamShown {
			set = append(set,
				fmt.Sprintf("the receiver of stream %q has refused %d events, which were set aside: "+
					"mta streams show %s",
					s.Name, s.Refused, s.Name))
		}
		if now.Sub(s.GapAt) < streamShown {
			holes = append(holes, gapReason(&s))
		}
	}
	if broken := r.Broken(); broken != "" {
		slow = append(slow, "the cursors of streams can't be written: "+broken)
	}
	return faultlog.Few(slow), faultlog.Few(set), faultlog.Few(holes)
}

// gapReason returns what a stream has lost, and why.
func gapReason(s *events.Status) string {
	text := fmt.Sprintf("stream %q has lost ", s.Name)
	if s.Lost > 0 {
		number := "1 event"
		if s.Lost > 1 {
			number = fmt.Sprintf("%d events", s.Lost)
		}
		text += fmt.Sprintf("%s that its receiver did not take within hold (%s)", number, api.Age(s.Hold))
		if s.Uncounted > 0 {
			text += ", and "
		}
	}
	if s.Uncounted > 0 {
		text += "an unknown number of events, since accounting files were deleted or damaged before it had read them"
	}
	return text
}
