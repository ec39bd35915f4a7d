package web

import (
	"net/http"
	"net/netip"
	"strings"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/operator/api"
)

// route is one line of the table of all that the console answers: the path, who may ask, and what
// answers. Exactly one of page, action and serve is set.
type route struct {
	method, path string
	role         Role     // the least that is needed: that of the operation of the relay, see api.Op.Role
	title        string   // heading of a page, verb of an action
	menu         bool     // stands in the menu
	params       []string // that the query, or the form of an action, may have; others are refused
	// never for a page of another site: the audit log has a line for it, or it takes a stream or much work
	own bool

	page   *page
	action *action
	serve  func(*Server, http.ResponseWriter, *request) error
}

// page shows something. data asks the relay and gives what the template is filled with.
type page struct {
	template string
	data     func(*request) (any, error)
	every    time.Duration // between two refreshes, 0: never
}

// How often pages are refreshed.
const (
	often  = 2 * time.Second
	seldom = 5 * time.Second
)

// routes has each path once for each method. The menu is in this order.
var routes = []route{
	{method: "GET", path: "/", role: api.OpStatus.Role(), title: "Overview", menu: true,
		page: &page{"overview.html", overview, often}},
	{method: "POST", path: "/drain", role: api.OpDrain.Role(), title: "Drain",
		action: &action{do: changes("", asks(api.OpDrain), drained),
			help: "The relay takes no new mail, and delivers what it has, until it is undrained or restarted."}},
	{method: "POST", path: "/undrain", role: api.OpUndrain.Role(), title: "Undrain",
		action: &action{do: changes("", asks(api.OpUndrain), drained), help: "The relay takes new mail again."}},

	{method: "GET", path: "/queue", role: api.OpList.Role(), title: "Queue", menu: true, params: queueParams,
		page: &page{"queue.html", queue, seldom}},
	{method: "GET", path: "/queue/summary", role: api.OpSummary.Role(), title: "Queue by age", params: summaryParams,
		page: &page{"summary.html", summary, seldom}},
	{method: "POST", path: "/queue/hold", role: api.OpChange.Role(), title: "Hold", params: changeParams,
		action: &action{do: change(api.Hold), help: "Held mail is not tried until it is released."}},
	{method: "POST", path: "/queue/release", role: api.OpChange.Role(), title: "Release", params: changeParams,
		action: &action{do: change(api.Release), help: "Mail that was held is tried again."}},
	{method: "POST", path: "/queue/retry", role: api.OpChange.Role(), title: "Retry", params: retryParams,
		action: &action{do: change(api.Retry), help: "Mail is tried now, whatever was the time of its next attempt."}},
	{method: "POST", path: "/queue/reroute", role: api.OpChange.Role(), title: "Reroute", params: rerouteParams,
		action: &action{do: change(api.Reroute),
			help: "The mail takes this way from now on, until it has left the queue or is sent its own way again.",
			form: &page{template: "reroute.html", data: wayForm}}},
	{method: "POST", path: "/queue/bounce", role: api.OpChange.Role(), title: "Bounce", params: changeParams,
		action: &action{do: change(api.Bounce),
			help: "The mail is given up, and its senders get a report.", final: true}},
	{method: "POST", path: "/queue/remove", role: api.OpChange.Role(), title: "Remove", params: changeParams,
		action: &action{do: change(api.Remove),
			help: "The mail is given up, and nobody is notified.", final: true}},
	{method: "GET", path: "/messages/{id}", role: api.OpShow.Role(), title: "Message",
		page: &page{"message.html", message, seldom}},
	{method: "GET", path: "/messages/{id}/content", role: api.OpContent.Role(), title: "Content of a message",
		own: true, serve: (*Server).content},
	{method: "GET", path: "/messages/{id}/download", role: api.OpContent.Role(), own: true, serve: (*Server).download},

	{method: "GET", path: "/sites", role: api.OpSites.Role(), title: "Sites", menu: true,
		params: paramsOf(new(siteSearch), "after"), page: &page{"sites.html", sites.page, seldom}},
	{method: "GET", path: "/site", role: api.OpSites.Role(), title: "Site", params: siteParams,
		page: &page{"site.html", site, seldom}},
	{method: "POST", path: "/sites/suspend", role: api.OpSuspend.Role(), title: "Suspend",
		params: paramsOf(new(api.Suspend)), action: &action{do: changes("site", asks(api.OpSuspend), suspended),
			help: "Nothing is sent to the site until the time is up; its mail waits in the queue."}},
	{method: "POST", path: "/sites/resume", role: api.OpResume.Role(), title: "Resume", params: []string{"site"},
		action: &action{do: changes("suspension", asks(api.OpResume), nil),
			help: "All suspensions of the site end, those by the relay itself too."}},
	{method: "GET", path: "/hosts", role: api.OpHosts.Role(), title: "Hosts", menu: true,
		params: paramsOf(new(api.HostFilter), "after"), page: &page{"list.html", hosts.page, seldom}},
	{method: "POST", path: "/hosts/suspend", role: api.OpSuspendHosts.Role(), title: "Suspend", params: hostParams,
		action: &action{do: changes("host", asks(api.OpSuspendHosts), nil),
			help: "No connection to the host is opened until the time is up."}},
	{method: "POST", path: "/hosts/resume", role: api.OpResumeHosts.Role(), title: "Resume", params: hostParams,
		action: &action{do: changes("suspension", asks(api.OpResumeHosts), nil),
			help: "All suspensions of the host end."}},
	{method: "POST", path: "/hosts/forget", role: api.OpForget.Role(), title: "Forget", params: hostParams,
		action: &action{do: changes("host", asks(api.OpForget), nil),
			help: "What was learned of the host is forgotten, its retry time too: it is tried as if it were new."}},

	{method: "GET", path: "/connections", role: api.OpConnections.Role(), title: "Connections", menu: true,
		params: paramsOf(new(api.ConnectionFilter), "after"),
		page:   &page{"connections.html", connections.page, seldom}},
	{method: "POST", path: "/connections/close", role: api.OpCloseConnections.Role(), title: "Close",
		params: []string{"id"}, action: &action{do: changes("connection", closeConnections, closed),
			help: "A message that is coming in is taken first, and a transaction under way is finished."}},
	{method: "GET", path: "/providers", role: api.OpProviders.Role(), title: "Providers", menu: true,
		params: paramsOf(new(api.UnpooledFilter), "after"), page: &page{"list.html", providers.page, seldom}},
	{method: "GET", path: "/sources", role: api.OpSources.Role(), title: "Sources", menu: true,
		params: paramsOf(new(api.BlockFilter), "after"), page: &page{"sources.html", sources.page, seldom}},
	{method: "GET", path: "/pools", role: api.OpPools.Role(), title: "Pools", menu: true,
		params: paramsOf(new(api.UnpooledFilter), "after"), page: &page{"list.html", pools.page, seldom}},
	{method: "POST", path: "/pools/weight", role: api.OpSetWeight.Role(), title: "Set weight",
		params: paramsOf(new(weightChange)), action: &action{do: changes("weight", setWeight, weighted),
			help: "New mail of the pool is shared out by the weights of its sources. At 0 a source gets none, and " +
				"keeps the mail that it has tried.",
			form: &page{template: "weight.html", data: weightForm}}},
	{method: "GET", path: "/tenants", role: api.OpTenants.Role(), title: "Tenants", menu: true,
		params: paramsOf(new(api.BlockFilter), "after"), page: &page{"list.html", tenants.page, seldom}},
	{method: "GET", path: "/rules", role: api.OpRules.Role(), title: "Rules", menu: true,
		page: &page{"rules.html", rules.page, seldom}},
	{method: "POST", path: "/rules/add", role: api.OpAddRule.Role(), title: "Add",
		params: paramsOf(new(api.AddRule)), action: &action{do: changes("rule", addRule, ruled),
			help: "The rule is for mail that fits all that is given, from now on. Bounce and hold act at once on " +
				"what waits for its hours or pace; other mail in the queue follows at its next attempt."}},
	{method: "POST", path: "/rules/end", role: api.OpEndRule.Role(), title: "End", params: []string{"id"},
		action: &action{do: changes("rule", asks(api.OpEndRule), nil),
			help: "What waited for the end of the rule is sent; what it held stays held."}},
	{method: "POST", path: "/rules/pause", role: api.OpAddRule.Role(), title: "Pause",
		params: paramsOf(new(api.AddRule)), action: &action{do: changes("pause", pause, ruled),
			help: "Nothing of it is sent until the pause ends; its mail waits in the queue."}},
	{method: "POST", path: "/rules/resume", role: api.OpEndRule.Role(), title: "Resume",
		params: paramsOf(new(api.EndRule)),
		action: &action{do: changes("pause", asks(api.OpEndRule), nil),
			help: "What waited for the end of the pause is sent."}},

	{method: "GET", path: "/warm-ups", role: api.OpWarmups.Role(), title: "Warm-up", menu: true,
		params: []string{"after"}, page: &page{"warmups.html", warmups.page, seldom}},
	{method: "GET", path: "/warm-ups/simulate", role: api.OpSimulateWarmup.Role(), title: "Simulation of a warm-up",
		params: paramsOf(new(simulateQuery)), page: &page{"simulate.html", simulateWarmup, 0}},
	{method: "GET", path: "/warm-up", role: api.OpWarmup.Role(), title: "Warm-up of a source",
		params: []string{"source"}, page: &page{"warmup.html", warmupOf, seldom}},
	{method: "POST", path: "/warm-up/start", role: api.OpChangeWarmup[api.WarmupStart].Role(), title: "Start again",
		params: paramsOf(new(warmupChange)),
		action: &action{do: changeWarmup(api.WarmupStart),
			help: "The warm-up begins again, on that stage. No counter changes."}},
	{method: "POST", path: "/warm-up/pause", role: api.OpChangeWarmup[api.WarmupPause].Role(), title: "Pause",
		params: paramsOf(new(warmupChange)),
		action: &action{do: changeWarmup(api.WarmupPause),
			help: "No mail takes the source until the warm-up is resumed."}},
	{method: "POST", path: "/warm-up/resume", role: api.OpChangeWarmup[api.WarmupResume].Role(), title: "Resume",
		params: paramsOf(new(warmupChange)),
		action: &action{do: changeWarmup(api.WarmupResume), help: "The pause of the warm-up ends."}},
	{method: "POST", path: "/warm-up/set-stage", role: api.OpChangeWarmup[api.WarmupSetStage].Role(),
		title: "Set stage", params: paramsOf(new(warmupChange)),
		action: &action{do: changeWarmup(api.WarmupSetStage), help: "The warm-up goes on with that stage, at once."}},

	{method: "GET", path: "/log", role: api.OpLog.Role(), title: "Log", menu: true, params: logParams,
		page: &page{"log.html", accountingLog, 0}},
	{method: "GET", path: "/log/counts", role: api.OpLogCounts.Role(), title: "Counts of the log",
		params: paramsOf(new(countFilter)), page: &page{"counts.html", logCounts.page, 0}},
	{method: "GET", path: "/log/follow", role: api.OpLog.Role(), params: logParams, own: true,
		serve: (*Server).followLog},
	{method: "GET", path: "/log/export", role: api.OpLog.Role(), params: logParams, own: true,
		serve: (*Server).exportLog},
	{method: "GET", path: "/trace", role: api.OpTrace.Role(), title: "Trace", menu: true, params: traceParams,
		page: &page{"trace.html", trace, 0}},
	{method: "GET", path: "/trace/follow", role: api.OpTrace.Role(), params: traceParams, own: true,
		serve: (*Server).followTrace},

	{method: "GET", path: "/suppression", role: api.OpSuppressions.Role(), title: "Suppression", menu: true,
		params: paramsOf(new(suppressionQuery), "after"), page: &page{"suppression.html", suppressed.page, seldom}},
	{method: "GET", path: "/suppression/export", role: api.OpSuppressions.Role(),
		params: paramsOf(new(suppressionFilter)), own: true, serve: (*Server).exportSuppressions},
	{method: "GET", path: "/suppression/pending", role: api.OpPendingSuppressions.Role(),
		title: "Suppressions set aside", params: paramsOf(new(ofProvider), "after"),
		page: &page{"pending.html", pending.page, seldom}},
	{method: "POST", path: "/suppression/add", role: api.OpSuppress.Role(), title: "Suppress", params: suppressParams,
		action: &action{do: suppress,
			help: "No mail is sent to suppressed addresses: it is refused when it comes in, and bounced if it waits."}},
	{method: "POST", path: "/suppression/remove", role: api.OpUnsuppress.Role(), title: "Remove from the list",
		params: unsuppressParams, action: &action{do: unsuppress, help: "Mail to these addresses is sent again."}},
	{method: "POST", path: "/suppression/accept", role: api.OpAcceptPending.Role(), title: "Accept",
		params: []string{"provider"}, action: &action{do: changes("entry", asks(api.OpAcceptPending), nil),
			help: "The entries that were set aside come onto the list."}},
	{method: "POST", path: "/suppression/drop", role: api.OpDropPending.Role(), title: "Drop",
		params: []string{"provider"}, action: &action{do: changes("entry", asks(api.OpDropPending), nil),
			help: "The entries that were set aside are forgotten.", final: true}},

	{method: "GET", path: "/configuration", role: api.OpConfig.Role(), title: "Configuration", menu: true,
		page: &page{"configuration.html", configuration, 0}},
	{method: "POST", path: "/configuration/reload", role: api.OpReload.Role(), title: "Reload",
		action: &action{do: changes("", asks(api.OpReload), reloaded),
			help: "The relay reads its configuration file again. A file with a fault changes nothing."}},
	{method: "GET", path: "/actions", role: api.OpActions.Role(), title: "Actions", menu: true,
		params: paramsOf(new(actionFilter), "after"), page: &page{"list.html", actions.page, seldom}},
	{method: "GET", path: "/help", role: Viewer, title: "Help", menu: true, page: &page{"help.html", help, 0}},

	{method: "GET", path: "/search", role: Viewer, params: []string{"q"}, serve: (*Server).search},
	{method: "GET", path: "/assets/{hash}/{name}", role: Anyone, serve: (*Server).asset},
	{method: "GET", path: "/favicon.ico", role: Anyone, serve: (*Server).favicon},
	{method: "GET", path: "/login", role: Anyone, title: "Log in", params: []string{"next", "ticket"},
		serve: (*Server).loginForm},
	{method: "POST", path: "/login", role: Anyone, params: []string{"user", "password", "next"},
		serve: (*Server).login},
	{method: "POST", path: "/logout", role: Anyone, serve: (*Server).logout},
}

// term is a word and its meaning.
type term struct{ Name, Meaning string }

// words are those that pages use, as the manual does.
var words = []term{
	{"message, recipient",
		"A message is accepted once. Each of its recipients has a state, and leaves the queue when it is delivered, " +
			"bounced, expired or removed."},
	{"tenant, campaign", "The customer or application whose mail it is; a finer label that the mail itself has."},
	{"site, host, provider",
		"The hosts that serve a domain, with one budget; one address of a mail exchanger; several sites with one " +
			"budget."},
	{"source, pool", "A local address from which mail leaves; the sources that mail of some tenants may take."},
	{"suspend, resume",
		"Nothing is sent to a site or host for a time. Operators do it, and the relay itself on account of replies."},
	{"rule, pause",
		"Mail that fits is bounced, held, suspended (a pause), rerouted or slowed, until the rule is ended or for a " +
			"time; the stricter of two rules wins."},
	{"hold, release", "Recipients that fit a filter are not tried until they are released."},
	{"retry", "Recipients are tried now, whatever was the time of their next attempt."},
	{"bounce, remove", "Recipients are given up: with a report to the sender, or without."},
	{"warm-up", "A new source sends little on its first days and more on each that goes well, by the stages of its " +
		"plan."},
	{"suppression", "Addresses that no mail is sent to, for one tenant or for everybody."},
	{"class", "What a refusal is about, such as InvalidRecipient or RateLimited, whatever words a host uses."},
	{"dry run", "Each action is counted before it asks for a confirmation. If the count has changed when it is " +
		"confirmed, it asks again."},
}

func help(*request) (any, error) {
	return map[string]any{"Words": words, "States": envelope.States}, nil
}

// configurationPage is the configuration in force, and what a reload would change.
type configurationPage struct {
	File       string // "": the built-in defaults
	Text       string
	api.Reload        // what would change
	Fault      string // why the file can't be loaded
}

func configuration(r *request) (any, error) {
	s, err := api.OpStatus.Call(r.ctx, r.relay, api.None{})
	if err != nil {
		return nil, err
	}
	p := configurationPage{File: s.Config}
	if p.Text, err = r.relay.EffectiveConfig(r.ctx); err != nil {
		return nil, err
	}
	if p.Reload, err = api.OpConfigChanges.Call(r.ctx, r.relay, api.None{}); err != nil {
		if relayGone(err) {
			return nil, err
		}
		p.Fault = err.Error()
	}
	return p, nil
}

// search goes to the page of what somebody has typed: an id of a message, an address, a domain, a site, an
// IP address, a session.
func (s *Server) search(w http.ResponseWriter, r *request) error {
	q := strings.TrimSpace(r.get("q"))
	if q == "" {
		return api.Invalid("", "type an id, an address, a domain, a site, an IP address or a session")
	}
	if len(q) > 320 {
		return api.Invalid("", "nothing that can be looked for is longer than 320 octets")
	}
	http.Redirect(w, r.http, s.found(r, q), http.StatusSeeOther)
	return nil
}

func (s *Server) found(r *request, q string) string {
	if id, err := envelope.ParseID(q); err == nil {
		return r.url("/messages/" + id.String())
	}
	if _, err := netip.ParseAddr(strings.Trim(q, "[]")); err == nil {
		return r.url("/hosts", "name", strings.Trim(q, "[]"))
	}
	if strings.Contains(q, "@") {
		return r.url("/queue", "recipient", q, "order", string(api.NewestFirst))
	}
	if l, err := sites.ask(r, siteSearch{Find: q}); err == nil && len(l.Sites) == 0 && strings.Contains(q, ".") {
		return r.url("/queue", "domain", q) // no mail for it has found its site yet
	}
	return r.url("/sites", "q", q)
}
