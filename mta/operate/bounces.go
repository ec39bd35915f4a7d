package operate

import (
	"context"

	"example.org/mta/mta/control"
)

// bounces answers operators about refusals.
type bounces struct{ r *Relay }

func (b bounces) UnknownReplies(_ context.Context, provider *string) (control.UnknownList, error) {
	l := control.UnknownList{Since: b.r.Started, Unknown: []control.UnknownReplies{}}
	for _, of := range b.r.Unknown.List(provider) {
		out := control.UnknownReplies{Provider: of.Provider, Count: of.Count, Samples: []control.UnknownSample{}}
		for _, s := range of.Samples {
			out.Samples = append(out.Samples, control.UnknownSample{Reply: *replyOf(s.Reply), Message: s.Message, Count: s.Count, First: s.First, Last: s.Last})
		}
		l.Unknown = append(l.Unknown, out)
	}
	return l, nil
}
