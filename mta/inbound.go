package mta

import (
	"bytes"
	"context"
	"path/filepath"

	"example.org/mta/bounce/inbox"
	"example.org/mta/internal/envelope"
	"example.org/mta/mta/accept"
	"example.org/mta/mta/accounting/books"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/submission"
	"example.org/mta/submission/intake"
)

// keptInbound bounds what is kept of inbound mail that is not understood.
var keptInbound = inbox.FolderLimits{Messages: 1000, Octets: 64 << 20}

const (
	// inboundMemoryPart of the memory for incoming messages is for inbound mail: strangers must not use up what
	// clients need.
	inboundMemoryPart = 4
	// maxInboundHops are the Received fields of inbound mail that is forwarded.
	maxInboundHops = 100
)

// reports are what takes inbound mail, whatever the listener.
type reports struct {
	inbox  *inbox.Inbox
	folder *inbox.Folder
	memory *intake.Memory    // for what is coming in
	others *accept.Elsewhere // nil without a cluster
}

// openInbound makes what takes reports about the relay's own mail.
func (r *mailIn) openInbound(cfg *config.Config, _ *undoer) error {
	folder, err := inbox.OpenFolder(filepath.Join(cfg.DataDir, "inbound"), keptInbound)
	if err != nil {
		return err
	}
	r.reports.folder = folder
	r.reports.memory = intake.NewMemory(int64(cfg.Queue.IncomingMemory) / inboundMemoryPart)
	ic := inbox.Config{
		Hostname: cfg.Hostname, Node: r.node, Keys: r.returnPaths.Load,
		Books:  &books.Reports{Log: r.accounting, Unknown: &r.unknown, Feeder: r.feeder, End: r.unsubscribes.End},
		Folder: folder, Forward: r.forwardInbound, Classify: r.classes.Of,
		MaxHops: maxInboundHops, Log: r.log,
	}
	if r.cluster == nil {
		r.reports.inbox = inbox.New(ic)
		return nil
	}
	others := accept.NewElsewhere(r.node, r.now, r.log)
	ic.Elsewhere = others.Hand
	r.reports.inbox, r.reports.others = inbox.New(ic), others
	others.Join(r.reports.inbox, wiring.Reports(r.cluster, others, r.log))
	return nil
}

// inboundOf gives what takes a listener's inbound mail, nil when the listener takes none.
func (r *mailIn) inboundOf(l *config.Listener) submission.Inbound {
	in := &l.Inbound
	if !in.On() {
		return nil
	}
	complaints := make([]envelope.Address, len(in.Complaints))
	for i, a := range in.Complaints {
		complaints[i] = envelope.Address(a)
	}
	return accept.Inbound{
		Inbox: r.reports.inbox, Addresses: inbox.NewAddresses(in.Domains, complaints, in.Unsubscribe),
		Forward: envelope.Address(in.Forward), Keys: r.returnPaths.Load, Now: r.now,
	}
}

// forwardInbound puts inbound mail into the queue. Its sender is the null sender: nobody ever gets a report about it,
// and its own sender has not authorised this relay (SPF).
func (r *mailIn) forwardInbound(_ context.Context, to envelope.Address, content []byte) error {
	m := &envelope.Message{
		Recipients: []envelope.Recipient{{Address: to, Notify: envelope.NotifyNever}},
		Tier:       config.DefaultTier, Received: r.now(), Protocol: envelope.ForwardProtocol,
	}
	if bytes.IndexFunc(content, func(c rune) bool { return c > 0x7f }) >= 0 {
		m.Body = envelope.Body8BitMIME
	}
	return r.store.Own(m, content)
}
