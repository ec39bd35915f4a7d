package mta

import (
	"path/filepath"

	"example.org/mta/bounce/returnpath"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/smallfile"
	"example.org/mta/mta/accept"
	"example.org/mta/mta/config"
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

// secretsAtOnce is how many secrets are in force while one takes over from another.
const secretsAtOnce = 2

const returnPathSecret = "return-path-secret"

// returnPathKeys makes the keys of a configuration, from the file in the data directory where it has none itself.
func (r *mailOut) returnPathKeys(cfg *config.Config) (*returnpath.Keys, error) {
	return returnPathKeysFrom(cfg, func(string) ([][]byte, error) {
		return r.data.Secret(returnPathSecret, "reports about mail that was sent are refused").Secrets(secretsAtOnce)
	})
}

// ReturnPathKeys gives the keys of a configuration to who only looks at tokens.
func ReturnPathKeys(cfg *config.Config) (*returnpath.Keys, error) {
	return returnPathKeysFrom(cfg, func(path string) ([][]byte, error) {
		return smallfile.ExistingSecrets(path, secretsAtOnce)
	})
}

func returnPathKeysFrom(cfg *config.Config, file func(path string) ([][]byte, error)) (*returnpath.Keys, error) {
	if len(cfg.ReturnPaths.Secrets) > 0 {
		return cfg.ReturnPaths.Keys()
	}
	secrets, err := file(filepath.Join(cfg.DataDir, returnPathSecret))
	if err != nil {
		return nil, err
	}
	return returnpath.New(returnpath.Valid, secrets...)
}

// token makes the token of a message and one of its recipients, or none.
func (r *mailOut) token(p returnpath.Purpose, m *envelope.Message, recipient int) string {
	return r.returnPaths.Load().Make(p,
		returnpath.Token{Node: r.node, Message: m.ID, Recipient: recipient, Day: m.Start()})
}

// openUnsubscribe reads the secret of unsubscribe links. It is there even while no tenant has any: links in
// mail that was sent work on.
func (r *mailIn) openUnsubscribe(cfg *config.Config, _ *undoer) error {
	secret, err := r.data.Secret("unsubscribe-secret", "the links in mail that was sent no longer work").Octets()
	if err != nil {
		return err
	}
	links, err := suppression.NewLinks(secret)
	r.unsubscribes = accept.Unsubscribes{Links: links, List: r.suppression, Events: r.events, Log: r.log}
	return err
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
