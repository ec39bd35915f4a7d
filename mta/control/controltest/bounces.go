package controltest

import (
	"context"
	"time"

	"example.org/mta/mta/control"
)

// UnknownReplies has two replies of one provider, and none of the others.
func (r *Relay) UnknownReplies(_ context.Context, provider *string) (control.UnknownList, error) {
	l := control.UnknownList{Since: r.Now.Add(-48 * time.Hour), Unknown: []control.UnknownReplies{}}
	if provider != nil && *provider != "big" {
		return l, nil
	}
	sample := func(text, id string, count int64, ago time.Duration) control.UnknownSample {
		return control.UnknownSample{Reply: control.Reply{Code: 550, Text: text, Command: "RCPT"}, Message: id, Count: count, First: r.Now.Add(-24 * time.Hour), Last: r.Now.Add(-ago)}
	}
	l.Unknown = append(l.Unknown, control.UnknownReplies{Provider: "big", Count: 41, Samples: []control.UnknownSample{
		sample("The team <carol@big.example> has left", "1m7yz7qb00003", 39, 7*time.Minute),
		sample("Frobnicated\x1b[31m", "", 2, time.Hour),
	}})
	return l, nil
}
