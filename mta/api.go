package mta

import (
	"context"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/answer/submitted"
	"example.org/mta/submission/auth"
	submissionhttp "example.org/mta/submission/http"
	"example.org/mta/submission/http/compat"
)

// apiServer is an api block's server and what it was made from.
type apiServer struct {
	server   *submissionhttp.Server
	settings submissionhttp.Config // as the configuration says, nothing of the relay's own
	tls      config.Certificates
	compat   []string // services whose clients are understood
}

// newAPI makes the server of an api block, or gives the one that there is when all that it was made
// from is the same: a reload that changes other things disturbs no client.
func (r *mailIn) newAPI(cfg *config.Config, a *config.API) (_ *submissionhttp.Server, err error) {
	made := apiServer{settings: wiring.API(cfg, a), tls: a.TLS, compat: a.Compat}
	made.settings.MaxConnections = wiring.ShareDescriptors(r.files, cfg).Of(a.MaxConnections)
	hc := r.joinedAPI(made.settings, a.Name)
	hc.Routes, hc.Forms = compat.Services(a.Compat)
	if hc.TLS, err = r.tlsOf(a.TLS); err != nil {
		return nil, err
	}
	old := r.apis[a.Name]
	if old.server != nil && reflect.DeepEqual(old.settings, made.settings) && reflect.DeepEqual(old.tls, made.tls) &&
		slices.Equal(old.compat, made.compat) {
		return old.server, nil
	}
	made.server = submissionhttp.New(hc)
	r.apis[a.Name] = made
	return made.server, nil
}

// joinedAPI gives the settings of an api block with what they need of the relay.
func (r *mailIn) joinedAPI(hc submissionhttp.Config, api string) submissionhttp.Config {
	hc.Now, hc.Log, hc.IDs = r.now, r.log.With("api", api), &r.sessions
	hc.Messages = r.everywhere
	if r.puller != nil {
		hc.Events = r.everywhere
	}
	hc.Suppressions, hc.Unsubscribes = submitted.Suppressions{Own: r.suppression, Searches: r.submitted.Searches},
		&r.unsubscribes
	hc.Keys, hc.Memory, hc.Limits, hc.TenantRates = apiKeys{r}, r.requests, r.limits, r.tenants().Rates
	hc.Refused, hc.Draining = r.intruders.Listener(api), r.life.Refuses
	hc.Observer, hc.Open = r.meter, r.clients.Of("api "+api)
	hc.Admission, hc.Tokens, hc.TierOf = r.admission, r.tokens, r.tenants().Tier
	hc.Mail.Intake = r.joinedIntake(hc.Mail.Intake, api)
	hc.Mail.Templates, hc.Mail.Repeats = r.templates, r.repeats
	hc.Mail.MayUsePool = r.tenants().MayUsePool
	return hc
}

// openTokens makes the tokens that prove first attempts. Their secret stays in the data directory, so that
// clients keep their place in the queue while the relay restarts.
func (r *mailIn) openTokens(cfg *config.Config, _ *undoer) error {
	const name = "queue-token.key"
	secret, err := r.data.Secret(name, "clients that wait lose their places in the queue").Secret()
	if err != nil {
		return err
	}
	r.tokens = submissionhttp.NewTokens(secret)
	return r.secrets.Join(name, r.tokens.Accept, secret)
}

// forgetAPIs forgets the servers of blocks that the configuration has no more.
func (r *mailIn) forgetAPIs(cfg *config.Config) {
	maps.DeleteFunc(r.apis, func(name string, _ apiServer) bool {
		return !slices.ContainsFunc(cfg.APIs, func(a *config.API) bool { return a.Name == name })
	})
}

// requestMemory is what bodies of requests under way may hold of memory, all together.
func requestMemory(cfg *config.Config) (most int64) {
	for _, a := range cfg.APIs {
		most = max(most, int64(a.MaxRequest))
	}
	return requestsAtOnce * most
}

// requestsAtOnce is how many requests of the largest size fit into memory, as an octet each.
const requestsAtOnce = 8

// apiKeys are the keys in force.
type apiKeys struct{ r *mailIn }

// Check implements submissionhttp.Keys.
func (k apiKeys) Check(ctx context.Context, token string, from netip.Addr) (auth.Identity, error) {
	book := k.r.keys.Load()
	if book == nil {
		return auth.Identity{}, auth.ErrNoKeys
	}
	return book.Check(ctx, token, from)
}
