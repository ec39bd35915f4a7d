package answer

import (
	"context"

	"example.org/mta/operator/api"
)

// bounces answers operators about refusals.
type bounces struct{ r *Relay }

func (b bounces) UnknownReplies(_ context.Context, provider *string) (api.UnknownList, error) {
	l := api.UnknownList{Since: b.r.Started, Unknown: []api.UnknownReplies{}}
	for _, of := range b.r.Unknown.List(provider) {
		out := api.UnknownReplies{Provider: of.Provider, Count: of.Count, Samples: []api.UnknownSample{}}
		for _, s := range of.Samples {
			out.Samples = append(out.Samples, api.UnknownSample{Reply: *replyOf(s.Reply), Message: s.Message, Count: s.Count, First: s.First, Last: s.Last})
		}
		l.Unknown = append(l.Unknown, out)
	}
	return l, nil
}
