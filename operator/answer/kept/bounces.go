package kept

import (
	"context"
	"time"

	"example.org/mta/bounce"
	"example.org/mta/operator/api"
)

// Bounces answers about replies that no rule knows; it implements api.Bounces.
type Bounces struct {
	Unknown *bounce.Unknown
	Started time.Time
}

func (b Bounces) UnknownReplies(_ context.Context, q api.UnknownQuery) (api.UnknownList, error) {
	l := api.UnknownList{Since: b.Started, Unknown: []api.UnknownReplies{}}
	for _, of := range b.Unknown.List(q.Provider) {
		out := api.UnknownReplies{Provider: of.Provider, Count: of.Count, Samples: []api.UnknownSample{}}
		for _, s := range of.Samples {
			out.Samples = append(out.Samples,
				api.UnknownSample{Reply: *api.ReplyOf(s.Reply), Message: s.Message, Count: s.Count,
					First: s.First, Last: s.Last})
		}
		l.Unknown = append(l.Unknown, out)
	}
	return l, nil
}
