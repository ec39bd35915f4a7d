package api

import (
	"errors"
	"net/http"

	"example.org/mta/operator/audit"
)

// The table of operations: what the server answers, the client asks, and openapi.json describes. A new one is a row
// here, with the types of its request and its answer, whose fields have the tags of Param. admins marks
// what only administrators may ask.
var (
	_ = gives[None, any]("openAPI", "/openapi.json", "", "application/json", "this document",
		func(_ *Server, w http.ResponseWriter, _ *http.Request, _ None) error {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(openAPI)
			return nil
		})
	OpStatus = reads("status", "/v1/status", "how the relay is",
		func(s *Server, _ *http.Request, _ None) (Status, error) { return s.config.Relay.Status(), nil })
	OpDrain = changes("drain", "/v1/drain", "drain",
		"take no new mail, until undrain or a restart; what is queued is delivered", with(Relay.Drain))
	OpUndrain = changes("undrain", "/v1/undrain", "undrain", "take new mail again", with(Relay.Undrain))

	OpList = reads("list", "/v1/messages", "messages in the queue, a page at a time",
		with(Queue.List))
	OpShow = reads("show", "/v1/messages/{id}", "a message with all its recipients in the queue",
		ofName(Queue.Get))
	OpContent = admins(gives[None, any]("content", "/v1/messages/{id}/content", "queue content", "message/rfc822",
		"the content of a message: headers and body", (*Server).content))
	OpChange = exactly(changes("change", "/v1/messages/change", "queue",
		"hold, release, retry, bounce or remove messages",
		with(Queue.Change)))
	OpExport = admins(gives[Filter, any]("exportQueue", "/v1/queue/export", "queue export", "application/x-tar",
		"queued messages, for another relay", (*Server).exportQueue))
	OpImport = add[ImportOptions, Imported](operation{name: "importQueue", method: "POST", path: "/v1/queue/import",
		action: "queue import", takes: "application/x-tar", serve: importQueue,
		help: "take messages of another relay into the queue, each recipient once; up to 10,000 messages"})
	OpRemoveMoved = changes("removeMoved", "/v1/queue/remove-moved", "queue remove",
		"remove exactly the recipients that another relay has taken", with(Moves.RemoveMoved))
	OpSummary = reads("summary", "/v1/summary", "queued recipients by a property and by age",
		with(Queue.Summary))
	OpLog = gives[logQuery, LogPage]("log", "/v1/log", "", "application/x-ndjson", "accounting records, oldest first",
		(*Server).log)
	OpLogCounts = reads("logCounts", "/v1/log/counts", "how many accounting records have each value of a property",
		with(Log.Count))

	OpSites   = reads("sites", "/v1/sites", "what is known of sites", with(Destinations.Sites))
	OpSuspend = changes("suspend", "/v1/sites/suspend", "sites suspend", "send nothing to a site for a while",
		with(Destinations.Suspend))
	OpResume = changes("resume", "/v1/sites/resume", "sites resume", "end all suspensions of a site",
		with(Destinations.Resume))
	OpRecent = reads("recentOutcomes", "/v1/sites/{name}/recent", "the latest outcomes and errors of a site's mail",
		ofName(Destinations.Recent))
	OpConnections = reads("connections", "/v1/connections", "the open connections, with clients and with remote hosts",
		with(OpenConnections.Connections))
	OpCloseConnections = changes("closeConnections", "/v1/connections/close", "connections close",
		"end connections without loss of mail", with(OpenConnections.CloseConnections))
	OpProviders = reads("providers", "/v1/providers", "the providers of the configuration", with(Blocks.Providers))
	OpSources   = reads("sources", "/v1/sources", "the sources of the configuration", with(Blocks.Sources))
	OpPools     = reads("pools", "/v1/pools", "the pools of the configuration", with(Blocks.Pools))
	OpSetWeight = changes("setWeight", "/v1/pools/{name}/weight", "pools weight",
		"give a source of a pool another part of its new mail; at 0 it gets none", toName(Blocks.SetWeight))
	OpTenants = reads("tenants", "/v1/tenants", "the tenants of the configuration", with(Blocks.Tenants))
	OpHosts   = reads("hosts", "/v1/hosts", "what is known of hosts", with(Destinations.Hosts))
	OpForget  = changes("forget", "/v1/hosts/forget", "hosts forget",
		"make hosts unknown again, so that they are tried anew", with(Destinations.Forget))
	OpSuspendHosts = changes("suspendHosts", "/v1/hosts/suspend", "hosts suspend", "send nothing to hosts for a while",
		with(Destinations.SuspendHosts))
	OpResumeHosts = changes("resumeHosts", "/v1/hosts/resume", "hosts resume", "end all suspensions of hosts",
		with(Destinations.ResumeHosts))

	OpRules   = reads("rules", "/v1/rules", "the rules for mail, and what is paused by them", alone(Rules.Rules))
	OpAddRule = changes("addRule", "/v1/rules/add", "rule add",
		"bounce, hold, suspend, reroute or slow some mail, or all, from now on", with(Rules.AddRule))
	OpEndRule = changes("endRule", "/v1/rules/end", "rule end",
		"end a rule: what waited for its end is sent", with(Rules.EndRule))

	OpStreams = reads("streams", "/v1/streams", "list the streams of events, and how far they are",
		alone(Streams.Streams))
	OpStream = reads("stream", "/v1/streams/{name}", "one stream, with the events that its receiver has refused",
		ofName(Streams.Stream))
	OpPauseStream = changes("pauseStream", "/v1/streams/{name}/pause", "streams pause",
		"send no events until the stream is resumed", toName(Streams.PauseStream))
	OpResumeStream = changes("resumeStream", "/v1/streams/{name}/resume", "streams resume",
		"send events again, and at once where an attempt failed", toName(Streams.ResumeStream))
	OpSkipStream = changes("skipStream", "/v1/streams/{name}/skip", "streams skip", "leave out all events that wait",
		toName(Streams.SkipStream))
	OpReplayStream = changes("replayStream", "/v1/streams/{name}/replay", "streams replay",
		"send the events from one, or from a time on, once more", toName(Streams.ReplayStream))
	OpTestStream = changes("testStream", "/v1/streams/{name}/test", "streams test",
		"send an event of the type Test, beside those of the stream", toName(Streams.TestStream))

	OpSuppressions = reads("suppressions", "/v1/suppressions", "list the addresses that no mail is sent to",
		with(Suppressions.Suppressions))
	OpCheckSuppressed = asks("checkSuppressed", "POST", "/v1/suppressions/check", "what keeps mail from addresses",
		with(Suppressions.CheckSuppressed))
	OpSuppress = changes("suppress", "/v1/suppressions/add", "suppress add", "put addresses on the list",
		with(Suppressions.Suppress))
	OpUnsuppress = changes("unsuppress", "/v1/suppressions/remove", "suppress remove", "take addresses off the list",
		with(Suppressions.Unsuppress))
	OpUnsuppressMatching = exactly(changes("unsuppressMatching", "/v1/suppressions/remove-matching", "suppress remove",
		"take all entries off the list that fit", with(Suppressions.UnsuppressMatching)))
	OpPendingSuppressions = reads("pendingSuppressions", "/v1/suppressions/pending",
		"list the entries that were set aside, since their provider is doubted",
		with(Suppressions.PendingSuppressions))
	OpAcceptPending = exactly(changes("acceptPending", "/v1/suppressions/pending/accept", "suppress pending accept",
		"put entries that were set aside on the list", with(Suppressions.AcceptPending)))
	OpDropPending = exactly(changes("dropPending", "/v1/suppressions/pending/drop", "suppress pending drop",
		"forget entries that were set aside", with(Suppressions.DropPending)))
	OpUnknownReplies = reads("unknownReplies", "/v1/bounces/unknown", "replies that no rule for classes knows",
		with(Bounces.UnknownReplies))

	OpAPIKeys = admins(reads("apiKeys", "/v1/keys", "list the API keys of tenants, without their secrets",
		alone(APIKeys.APIKeys)))
	OpAddAPIKey    = admins(changes("addAPIKey", "/v1/keys/add", "key add", "add an API key", with(APIKeys.AddAPIKey)))
	OpRotateAPIKey = admins(changes("rotateAPIKey", "/v1/keys/rotate", "key rotate",
		"replace an API key by a new one; both are valid for a while",
		with(APIKeys.RotateAPIKey)))
	OpRemoveAPIKeys = admins(changes("removeAPIKeys", "/v1/keys/remove", "key remove",
		"remove API keys: all of a name, or the one of an id", with(APIKeys.RemoveAPIKeys)))

	OpChangeUsers = admins(changes("changeUsers", "/v1/users/change", "user",
		"add a user who may log in at the listeners, give one another password, or remove some",
		with(Users.ChangeUsers)))
	OpChangeConsoleUsers = admins(changes("changeConsoleUsers", "/v1/console/users/change", "console user",
		"add a user of the console, give one another password, or remove some", with(Users.ChangeConsoleUsers)))

	OpExplain = reads("explain", "/v1/explain", "why mail waits, or what would happen to it",
		with(Destinations.Explain))
	OpSTSPolicy = reads("stsPolicy", "/v1/mta-sts/{domain}", "what is known of a domain's MTA-STS policy (RFC 8461)",
		ofName(Destinations.STSPolicy))
	OpRefreshSTSPolicy = changes("refreshSTSPolicy", "/v1/mta-sts/{domain}/refresh", "tls policy",
		"look up a domain's MTA-STS policy now, whatever is cached", toName(Destinations.RefreshSTSPolicy))
	OpTrace = gives[TraceQuery, TraceLine]("trace", "/v1/trace", "trace", "application/x-ndjson",
		"SMTP conversations as they happen, without credentials", (*Server).trace)

	OpWarmups = reads("warmups", "/v1/warmup", "the sources that warm up, without their providers and history",
		with(Warmups.Warmups))
	OpWarmupPlans = reads("warmupPlans", "/v1/warmup/plans",
		"the plans that can be named: the presets and the configuration's",
		alone(Warmups.WarmupPlans))
	OpWarmup         = reads("warmup", "/v1/warmup/{name}", "where a source stands in its plan", ofName(Warmups.Warmup))
	OpSimulateWarmup = asks("simulateWarmup", "POST", "/v1/warmup/simulate",
		"how a plan would take a daily volume; nothing is changed", with(Warmups.SimulateWarmup))
	OpChangeWarmup = map[WarmupAction]Op[StageChoice, WarmupChanged]{
		WarmupStart: changes("startWarmup", "/v1/warmup/{name}/start", "warmup start",
			"begin a warm-up again, on a stage; what was sent in this hour and day still counts",
			changeWarmup(WarmupStart)),
		WarmupPause: changes("pauseWarmup", "/v1/warmup/{name}/pause", "warmup pause",
			"send nothing by a source; its stage and its counters stay", changeWarmup(WarmupPause)),
		WarmupResume: changes("resumeWarmup", "/v1/warmup/{name}/resume", "warmup resume", "end a pause",
			changeWarmup(WarmupResume)),
		WarmupSetStage: changes("setWarmupStage", "/v1/warmup/{name}/set-stage", "warmup set-stage",
			"go on with another stage and its caps at once", changeWarmup(WarmupSetStage)),
	}
	OpReportWarmup = changes("reportWarmup", "/v1/warmup/{name}/report", "warmup report",
		"take the complaints of a day into account, in the place of what was reported for it before",
		toName(Warmups.ReportWarmup))

	OpAdmission = reads("admission", "/v1/admission",
		"which mail is refused while more is offered than can be kept, and why",
		alone(Admissions.Admission))
	OpWhyRefused = reads("whyRefused", "/v1/admission/why",
		"what becomes of somebody's mail now, and what was refused of it lately",
		with(Admissions.WhyRefused))
	OpHistory = reads("history", "/v1/history",
		"figures over time: of the relay, a provider, a source, a site or a tenant",
		with(Histories.History))
	OpHistoryNames = reads("historyNames", "/v1/history/names",
		"the subjects that have a history, the busiest first, with their latest figures",
		with(Histories.HistoryNames))
	OpTLSReports = reads("tlsReports", "/v1/tls-reports",
		"what is counted for TLS reports (RFC 8460), and what was sent",
		with(TLSReports.TLSReports))
	OpCluster = reads("cluster", "/v1/cluster", "the nodes of the cluster, and this relay's part in it",
		alone(Clusters.Cluster))
	OpDrainNode = changes("drainNode", "/v1/cluster/drain", "cluster drain",
		"take no new mail, and have the queue move to the other nodes, until undrain or a restart",
		with(Clusters.DrainNode))
	OpUndrainNode = changes("undrainNode", "/v1/cluster/undrain", "cluster undrain",
		"take new mail again, and keep the queue", with(Clusters.UndrainNode))
	OpMoving = reads("moving", "/v1/cluster/moving", "how far the queue has moved to the other nodes",
		alone(Clusters.Moving))
	OpReset = admins(changes("reset", "/v1/cluster/reset", "cluster reset",
		"have the nodes of the cluster begin anew in the database, after that has lost writes", with(Clusters.Reset)))
	OpAdopt = admins(changes("adopt", "/v1/cluster/adopt", "cluster adopt",
		"move the mail of a dead node to the living ones, from its data directory", with(Adopters.Adopt)))
	OpAdoption = reads("adoption", "/v1/cluster/adoption", "how far the mail of a dead node has moved",
		alone(Adopters.Adoption))
	OpInbound = reads("inbound", "/v1/inbound",
		"mail for the relay itself that it did not understand and keeps, the newest first",
		with(Inbound.Inbound))
	OpInboundMail = reads("inboundMail", "/v1/inbound/{id}", "what is known of a kept mail",
		ofName(Inbound.InboundMail))
	OpInboundContent = admins(gives[None, any]("inboundContent", "/v1/inbound/{id}/content", "bounce inbound content",
		"message/rfc822", "the content of a kept mail: headers and body, as they came", (*Server).inboundContent))

	OpActions = admins(reads("actions", "/v1/actions", "what operators did, newest first",
		func(s *Server, r *http.Request, q ActionQuery) (ActionPage, error) {
			p, err := s.config.Audit.Read(r.Context(), q)
			if errors.Is(err, audit.ErrCursor) {
				err = Invalid("give after what the page before ended with", "after: %v", err)
			}
			return p, err
		}))
	OpBeginFileChange = admins(asks("beginFileChange", "POST", "/v1/actions/begin",
		"put it on record that a command begins to change a file; the outcome must follow within a minute",
		(*Server).beginFileChange))
	OpEndFileChange = admins(asks("endFileChange", "POST", "/v1/actions/end", "put on record how a command has ended",
		(*Server).endFileChange))
	OpBackup = admins(gives[BackupOptions, any]("backup", "/v1/backup", "backup", "application/x-tar",
		"the relay's state at one instant", (*Server).backup))
	OpUpgrade = reads("upgrade", "/v1/upgrade",
		"the formats of the relay's stores, and whether the version before can be put back", alone(Upgrades.Upgrade))
	OpFinishUpgrade = admins(changes("finishUpgrade", "/v1/upgrade/finish", "upgrade finish",
		"write the newest formats from now on; the version before can't be put back then",
		with(Upgrades.FinishUpgrade)))
	OpConfig = gives[configQuery, map[string]any]("config", "/v1/config", "", "text/plain",
		"the configuration in force, without secrets", (*Server).effective)
	OpConfigChanges = reads("configChanges", "/v1/config/changes",
		"the differences between the configuration file and the "+
			"configuration in force; a reload checks more, and its dry run tries all of it",
		alone(Relay.ConfigChanges))
	OpReload = admins(changes("reload", "/v1/config/reload", "config reload",
		"read the configuration file again; all of it comes into force, or nothing", (*Server).reload))
)
