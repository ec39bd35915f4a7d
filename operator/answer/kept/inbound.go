package kept

import (
	"context"
	"errors"
	"time"

	"example.org/mta/bounce"
	"example.org/mta/bounce/inbox"
	"example.org/mta/internal/envelope"
	"example.org/mta/operator/api"
)

// Inbound answers about inbound mail that was not understood; it implements api.Inbound.
type Inbound struct{ Folder *inbox.Folder }

func (i Inbound) Inbound(_ context.Context, q api.Paging) (api.InboundList, error) {
	var before envelope.ID
	if q.After != "" {
		var err error
		if before, err = envelope.ParseID(q.After); err != nil {
			return api.InboundList{},
				api.Invalid("give --after what the page before ended with", "%q is not a valid cursor", q.After)
		}
	}
	s := i.Folder.Stats()
	l := api.InboundList{Kept: s.Messages, Dropped: s.Dropped}
	page, err := i.Folder.List(before, q.Limit+1)
	if err != nil {
		return l, err
	}
	if len(page) > q.Limit {
		page = page[:q.Limit]
		l.Next = page[q.Limit-1].ID.String()
	}
	for _, k := range page {
		l.Mail = append(l.Mail, keptMail(&k))
	}
	return l, nil
}

func (i Inbound) InboundMail(_ context.Context, id string) (api.InboundMail, error) {
	k, _, err := i.get(id)
	return keptMail(&k), err
}

func (i Inbound) InboundContent(_ context.Context, id string) ([]byte, error) {
	_, content, err := i.get(id)
	return content, err
}

func (i Inbound) get(text string) (inbox.KeptMail, []byte, error) {
	id, err := envelope.ParseID(text)
	if err != nil {
		return inbox.KeptMail{}, nil, api.Invalid("", "%v", err)
	}
	k, content, err := i.Folder.Get(id)
	if errors.Is(err, inbox.ErrNotKept) {
		err = api.NotFound("see what is kept: mta bounce list", "no inbound mail with the id %s is kept", id)
	}
	return k, content, err
}

func keptMail(k *inbox.KeptMail) api.InboundMail {
	m := api.InboundMail{
		ID: k.ID.String(), Time: k.Time, Kind: k.Kind, Sender: string(k.Sender), Recipients: []string{},
		Peer: k.Peer, Helo: k.Helo,
		Size: k.Size, From: k.From, Subject: k.Subject, Message: k.Message,
	}
	for _, a := range k.Recipients {
		m.Recipients = append(m.Recipients, string(a))
	}
	return m
}

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
