package controltest

import (
	"context"
	"time"

	"example.org/mta/operator/api"
)

// UnknownReplies has two replies of one provider, and none of the others.
func (r *Relay) UnknownReplies(_ context.Context, provider *string) (api.UnknownList, error) {
	l := api.UnknownList{Since: r.Now.Add(-48 * time.Hour), Unknown: []api.UnknownReplies{}}
	if provider != nil && *provider != "big" {
		return l, nil
	}
	sample := func(text, id string, count int64, ago time.Duration) api.UnknownSample {
		return api.UnknownSample{Reply: api.Reply{Code: 550, Text: text, Command: "RCPT"}, Message: id, Count: count, First: r.Now.Add(-24 * time.Hour), Last: r.Now.Add(-ago)}
	}
	l.Unknown = append(l.Unknown, api.UnknownReplies{Provider: "big", Count: 41, Samples: []api.UnknownSample{
		sample("The team <carol@big.example> has left", "1m7yz7qb00003", 39, 7*time.Minute),
		sample("Frobnicated\x1b[31m", "", 2, time.Hour),
	}})
	return l, nil
}
