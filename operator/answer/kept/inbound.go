package kept

import (
	"context"
	"errors"

	"example.org/mta/bounce/inbox"
	"example.org/mta/internal/envelope"
	"example.org/mta/operator/api"
)

// Inbound answers about inbound mail that was not understood; it implements api.Inbound.
type Inbound struct{ Folder *inbox.Folder }

func (i Inbound) Inbound(_ context.Context, after string, limit int) (api.InboundList, error) {
	var before envelope.ID
	if after != "" {
		var err error
		if before, err = envelope.ParseID(after); err != nil {
			return api.InboundList{},
				api.Invalid("give --after what the page before ended with", "%q is not a valid cursor", after)
		}
	}
	s := i.Folder.Stats()
	l := api.InboundList{Kept: s.Messages, Dropped: s.Dropped}
	page, err := i.Folder.List(before, limit+1)
	if err != nil {
		return l, err
	}
	if len(page) > limit {
		page = page[:limit]
		l.Next = page[limit-1].ID.String()
	}
	for _, k := range page {
		l.Mail = append(l.Mail, keptMail(&k))
	}
	return l, nil
}

func (i Inbound) InboundMail(_ context.Context, id string) (api.InboundMail, []byte, error) {
	parsed, err := envelope.ParseID(id)
	if err != nil {
		return api.InboundMail{}, nil, api.Invalid("", "%v", err)
	}
	k, content, err := i.Folder.Get(parsed)
	if errors.Is(err, inbox.ErrNotKept) {
		return api.InboundMail{}, nil,
			api.NotFound("see what is kept: mta bounce list", "no inbound mail with the id %s is kept", id)
	}
	return keptMail(&k), content, err
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
