package controltest

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"example.org/mta/mta/exported"
	"example.org/mta/operator/api"
)

// Node is the nodeid of the relay.
const Node = "relay.example"

// Export gives the held recipients of what fits; the others are in delivery. All messages have the same content, if they
// have none in Contents.
func (r *Relay) Export(_ context.Context, w io.Writer, f api.Filter) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := exported.NewWriter(w, exported.Summary{Node: Node, Hostname: "relay.example", Program: "0.2.0", At: r.Now})
	left := exported.Summary{}
	for _, item := range r.selected(f) {
		m := &exported.Message{ID: item.ID, Sender: item.Sender, Accepted: item.Received, Total: item.Total, Tenant: exported.Text(item.Tenant)}
		for i, rcpt := range item.Recipients {
			if rcpt.State != api.StateHeld {
				left.InDelivery++
				continue
			}
			m.Recipients = append(m.Recipients, exported.Recipient{Index: i, Address: rcpt.Address, Attempts: rcpt.Attempts, Held: true})
		}
		if len(m.Recipients) == 0 {
			continue
		}
		content := r.Contents[item.ID]
		if content == "" {
			content = "Subject: x\r\n\r\n"
		}
		if _, err := out.Add(m, func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil }); err != nil {
			return err
		}
	}
	return out.Close(left)
}

// Import takes all but the mail of tenants that are not known, and what it has taken before.
func (r *Relay) Import(_ context.Context, from io.Reader, o api.ImportOptions) (done api.Imported, _ error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	in := exported.NewReader(from, "archive")
	for {
		m, _, err := in.Next()
		if errors.Is(err, io.EOF) {
			return done, nil
		}
		if bad := (*exported.Error)(nil); errors.As(err, &bad) {
			return done, api.Invalid(bad.Remedy, "%v", bad)
		}
		if err != nil {
			return done, err
		}
		if _, err := m.Envelope(); err != nil {
			return done, api.Invalid("", "%v", err)
		}
		if t := string(m.Tenant); t != "" && !slices.ContainsFunc(r.KnownTenants, func(k api.Tenant) bool { return k.Name == t }) {
			done.Refused = append(done.Refused, api.Refused{Node: m.Node, ID: m.ID, Recipients: len(m.Recipients), Why: "there is no tenant \"" + t + "\" here", Remedy: "add it to the configuration"})
			continue
		}
		moved := api.MovedMessage{Node: m.Node, ID: m.ID}
		for _, rcpt := range m.Recipients {
			moved.Recipients = append(moved.Recipients, rcpt.Index)
		}
		if r.taken[m.ID] {
			done.There += len(m.Recipients)
		} else {
			done.Messages++
			done.Recipients += len(m.Recipients)
		}
		if !o.DryRun {
			if r.taken == nil {
				r.taken = map[string]bool{}
			}
			r.taken[m.ID] = true
			done.Receipt = append(done.Receipt, moved)
		}
	}
}

// RemoveMoved removes what is named.
func (r *Relay) RemoveMoved(_ context.Context, c api.RemoveMoved) (done api.MovedRemoved, _ error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range c.Receipt {
		if m.Node != Node {
			return done, api.Invalid("remove it at the relay that it was exported from", "the receipt is for mail of node %s, and this is node %s", m.Node, Node)
		}
		at := slices.IndexFunc(r.Messages, func(i api.Item) bool { return i.ID == m.ID })
		for _, index := range slices.Backward(m.Recipients) {
			if at < 0 || index >= len(r.Messages[at].Recipients) {
				done.Gone++
				continue
			}
			done.Recipients++
			if !c.DryRun {
				r.Messages[at].Recipients = slices.Delete(slices.Clone(r.Messages[at].Recipients), index, index+1)
			}
		}
		if at >= 0 && len(r.Messages[at].Recipients) == 0 {
			r.Messages = slices.Delete(r.Messages, at, at+1)
		}
	}
	return done, nil
}
