package mta

import (
	"example.org/mta/bounce/returnpath"
	"example.org/mta/internal/envelope"
	"example.org/mta/mta/accept"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/suppression"
)

// openReturnPaths reads the secrets of the tokens in return paths. They are there even while no mail has a return
// path of its own: reports about mail that was sent still come.
func (r *mailOut) openReturnPaths(cfg *config.Config, _ *undoer) error {
	keys, err := r.returnPathKeys(cfg)
	r.returnPaths.Store(keys)
	r.node = returnpath.NodeOf(cfg.NodeID)
	return err
}

// returnPathKeys makes the keys of a configuration, from the file in the data directory where it has none itself. They
// read the tokens of the cluster's other nodes, too.
func (r *mailOut) returnPathKeys(cfg *config.Config) (*returnpath.Keys, error) {
	var own [][]byte
	keys, err := wiring.ReturnPathKeysFrom(cfg, func() (_ [][]byte, err error) {
		file := r.data.Secret(wiring.ReturnPathSecret, "reports about mail that was sent are refused")
		own, err = file.Secrets(wiring.SecretsAtOnce)
		return own, err
	})
	if err != nil {
		return nil, err
	}
	keys.And(&r.othersPaths)
	return keys, r.secrets.Join(wiring.ReturnPathSecret, r.othersPaths.Set, own...)
}

// token makes the token of a message and one of its recipients, or none.
func (r *mailOut) token(p returnpath.Purpose, m *envelope.Message, recipient int) string {
	return r.returnPaths.Load().Make(p,
		returnpath.Token{Node: r.node, Message: m.ID, Recipient: recipient, Day: m.Start()})
}

// openUnsubscribe reads the secret of unsubscribe links. It is there even while no tenant has any: links in
// mail that was sent work on.
func (r *mailIn) openUnsubscribe(cfg *config.Config, _ *undoer) error {
	const name = "unsubscribe-secret"
	secret, err := r.data.Secret(name, "the links in mail that was sent no longer work").Octets()
	if err != nil {
		return err
	}
	links, err := suppression.NewLinks(secret)
	if err != nil {
		return err
	}
	r.unsubscribes = accept.Unsubscribes{Links: links, List: r.suppression, Events: r.events, Log: r.log}
	return r.secrets.Join(name, links.Accept, secret)
}

// unsubscribeLink gives the link for a recipient of a tenant's message, "" where the tenant has none. A
// postmaster gets none, since mail to it is never suppressed.
func (r *mailIn) unsubscribeLink(tenant, campaign string, a envelope.Address) string {
	t := r.policy.Load().Config.Tenant(tenant)
	if t == nil || t.Unsubscribe == "" || suppression.Exempt(a) {
		return ""
	}
	return r.unsubscribes.Links.URL(t.Unsubscribe,
		&suppression.Subscription{Tenant: tenant, Address: a, Campaign: campaign, Sent: r.now()})
}
