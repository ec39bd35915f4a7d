package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/visible"
)

// route is a path, the parameters that may stand after it, and who answers. An answer that
// returns an error has written nothing.
type route struct {
	method, path string
	params       []string
	answer       func(*Server, http.ResponseWriter, *http.Request, *query) error
}

var routes = []route{
	{"GET", "/openapi.json", nil, (*Server).openAPI},
	{"GET", "/v1/status", nil, (*Server).status},
	{"GET", "/v1/messages", slices.Concat(filterParams, []string{"order", "after", "limit", "recipients"}), (*Server).list},
	{"GET", "/v1/messages/{id}", nil, (*Server).show},
	{"GET", "/v1/messages/{id}/content", nil, reading("queue content", (*Server).content)},
	{"POST", "/v1/messages/change", nil, changing("queue", (*Server).change)},
	{"GET", "/v1/queue/export", filterParams, reading("queue export", (*Server).exportQueue)},
	{"POST", "/v1/queue/import", importParams, (*Server).importQueue},
	{"POST", "/v1/queue/remove-moved", nil, changing("queue remove", (*Server).removeMoved)},
	{"GET", "/v1/summary", slices.Concat(filterParams[1:], []string{"by", "limit", "after"}), (*Server).summary},
	{"GET", "/v1/log", []string{"type", "id", "sender", "recipient", "domain", "site", "tenant", "class", "since", "until", "last", "follow", "order", "after", "limit"}, (*Server).log},
	{"GET", "/v1/sites", siteParams, (*Server).sites},
	{"POST", "/v1/sites/suspend", nil, changing("sites suspend", (*Server).suspend)},
	{"POST", "/v1/sites/resume", nil, changing("sites resume", (*Server).resume)},
	{"GET", "/v1/sites/{name}/recent", nil, (*Server).recent},
	{"GET", "/v1/connections", connectionParams, (*Server).connections},
	{"POST", "/v1/connections/close", nil, changing("connections close", (*Server).closeConnections)},
	{"GET", "/v1/providers", providerParams, (*Server).providers},
	{"GET", "/v1/sources", blockParams, (*Server).sources},
	{"GET", "/v1/pools", poolParams, (*Server).pools},
	{"GET", "/v1/tenants", tenantParams, (*Server).tenants},
	{"GET", "/v1/hosts", hostParams, (*Server).hosts},
	{"POST", "/v1/hosts/forget", nil, changing("hosts forget", (*Server).forget)},
	{"POST", "/v1/hosts/suspend", nil, changing("hosts suspend", (*Server).suspendHosts)},
	{"POST", "/v1/hosts/resume", nil, changing("hosts resume", (*Server).resumeHosts)},
	{"GET", "/v1/pauses", nil, (*Server).pauses},
	{"POST", "/v1/pauses/begin", nil, changing("pause", (*Server).beginPause)},
	{"POST", "/v1/pauses/end", nil, changing("resume", (*Server).endPause)},
	{"GET", "/v1/streams", nil, (*Server).listStreams},
	{"GET", "/v1/streams/{name}", nil, (*Server).stream},
	{"POST", "/v1/streams/{name}/pause", nil, changing("streams pause", pauseStream(true))},
	{"POST", "/v1/streams/{name}/resume", nil, changing("streams resume", pauseStream(false))},
	{"POST", "/v1/streams/{name}/skip", nil, changing("streams skip", (*Server).skipStream)},
	{"POST", "/v1/streams/{name}/replay", nil, changing("streams replay", (*Server).replayStream)},
	{"POST", "/v1/streams/{name}/test", nil, changing("streams test", (*Server).testStream)},
	{"GET", "/v1/suppressions", suppressionParams, (*Server).suppressions},
	{"POST", "/v1/suppressions/check", nil, (*Server).checkSuppressed},
	{"POST", "/v1/suppressions/add", nil, changing("suppress add", (*Server).suppress)},
	{"POST", "/v1/suppressions/remove", nil, changing("suppress remove", (*Server).unsuppress)},
	{"POST", "/v1/suppressions/remove-matching", nil, changing("suppress remove", (*Server).unsuppressMatching)},
	{"GET", "/v1/suppressions/pending", suppressionParams, (*Server).pendingSuppressions},
	{"POST", "/v1/suppressions/pending/accept", nil, changing("suppress pending accept", (*Server).acceptPending)},
	{"POST", "/v1/suppressions/pending/drop", nil, changing("suppress pending drop", (*Server).dropPending)},
	{"GET", "/v1/bounces/unknown", []string{"provider"}, (*Server).unknownReplies},
	{"GET", "/v1/keys", nil, (*Server).apiKeys},
	{"POST", "/v1/keys/add", nil, changing("key add", (*Server).addAPIKey)},
	{"POST", "/v1/keys/rotate", nil, changing("key rotate", (*Server).rotateAPIKey)},
	{"POST", "/v1/keys/remove", nil, changing("key remove", (*Server).removeAPIKeys)},
	{"GET", "/v1/explain", []string{"domain", "tenant", "id"}, (*Server).explain},
	{"GET", "/v1/mta-sts/{domain}", nil, (*Server).stsPolicy},
	{"POST", "/v1/mta-sts/{domain}/refresh", nil, changing("tls policy", (*Server).refreshSTSPolicy)},
	{"GET", "/v1/trace", []string{"site", "source", "tenant", "recipient", "content", "clients", "listener", "client"}, reading("trace", (*Server).trace)},
	{"GET", "/v1/warmup", warmupParams, (*Server).warmups},
	{"GET", "/v1/warmup/plans", nil, (*Server).warmupPlans},
	{"GET", "/v1/warmup/{name}", nil, (*Server).warmup},
	{"POST", "/v1/warmup/simulate", nil, (*Server).simulateWarmup},
	{"POST", "/v1/warmup/{name}/start", nil, changing("warmup start", changeWarmup(WarmupStart))},
	{"POST", "/v1/warmup/{name}/pause", nil, changing("warmup pause", changeWarmup(WarmupPause))},
	{"POST", "/v1/warmup/{name}/resume", nil, changing("warmup resume", changeWarmup(WarmupResume))},
	{"POST", "/v1/warmup/{name}/set-stage", nil, changing("warmup set-stage", changeWarmup(WarmupSetStage))},
	{"POST", "/v1/warmup/{name}/report", nil, changing("warmup report", (*Server).reportWarmup)},
	{"GET", "/v1/admission", nil, (*Server).admission},
	{"GET", "/v1/admission/why", whyParams, (*Server).whyRefused},
	{"GET", "/v1/history", historyParams, (*Server).history},
	{"GET", "/v1/history/names", historyParams[:1], (*Server).historyNames},
	{"GET", "/v1/tls-reports", tlsReportParams, (*Server).tlsReports},
	{"GET", "/v1/inbound", inboundParams, (*Server).inbound},
	{"GET", "/v1/inbound/{id}", nil, (*Server).inboundMail},
	{"GET", "/v1/inbound/{id}/content", nil, reading("bounce inbound content", (*Server).inboundContent)},
	{"GET", "/v1/actions", actionParams, (*Server).actions},
	{"POST", "/v1/actions/begin", nil, (*Server).beginFileChange},
	{"POST", "/v1/actions/end", nil, (*Server).endFileChange},
	{"GET", "/v1/backup", backupParams, reading("backup", (*Server).backup)},
	{"GET", "/v1/upgrade", nil, (*Server).upgrade},
	{"POST", "/v1/upgrade/finish", nil, changing("upgrade finish", (*Server).finishUpgrade)},
	{"GET", "/v1/config", []string{"format"}, (*Server).effective},
	{"GET", "/v1/config/changes", nil, (*Server).configChanges},
	{"POST", "/v1/config/reload", nil, changing("config reload", (*Server).reload)},
}

func (s *Server) openAPI(w http.ResponseWriter, r *http.Request, _ *query) error {
	w.Header().Set("Content-Type", "application/json")
	w.Write(openAPI)
	return nil
}

func (s *Server) status(w http.ResponseWriter, r *http.Request, _ *query) error {
	return writeJSON(w, s.config.Relay.Status())
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, q *query) error {
	f := q.filter()
	p := Page{
		Order:      oneOf(q, "order", Orders),
		After:      q.str("after"),
		Limit:      q.number("limit", DefaultLimit, 1, MaxLimit),
		Recipients: q.number("recipients", DefaultRecipients, 0, math.MaxInt32),
	}
	if q.err != nil {
		return q.err
	}
	list, err := s.config.Queue.List(r.Context(), f, p)
	if err != nil {
		return err
	}
	// An empty list is [] for those who loop over it, not null.
	if list.Messages == nil {
		list.Messages = []Item{}
	}
	for i := range list.Messages {
		list.Messages[i].fill()
	}
	return writeJSON(w, list)
}

func (i *Item) fill() {
	if i.Recipients == nil {
		i.Recipients = []RecipientStatus{}
	}
}

func (s *Server) show(w http.ResponseWriter, r *http.Request, _ *query) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	item, err := s.config.Queue.Get(r.Context(), id)
	if err != nil {
		return err
	}
	item.fill()
	return writeJSON(w, item)
}

func (s *Server) content(w http.ResponseWriter, r *http.Request, _ *query) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	content, err := s.config.Queue.Content(r.Context(), id)
	if err != nil {
		return err
	}
	defer content.Close()
	from := bufio.NewReader(content)
	if _, err := from.Peek(1); err != nil && err != io.EOF {
		return fmt.Errorf("reading the content of message %s: %w", id, err)
	}
	w.Header().Set("Content-Type", "message/rfc822")
	if _, err := io.Copy(w, from); err != nil {
		// The client must not take a part for the whole: the connection breaks.
		panic(http.ErrAbortHandler)
	}
	return nil
}

// pathID gives the id in the path in its usual spelling.
func pathID(r *http.Request) (string, error) {
	id, err := envelope.ParseID(r.PathValue("id"))
	if err != nil {
		return "", Invalid("", "%v", err)
	}
	return id.String(), nil
}

func (s *Server) change(r *http.Request, c Change) (Changed, error) {
	if !slices.Contains(Actions, c.Action) {
		return Changed{}, Invalid("", "action: want %s, not %q", join(Actions), c.Action)
	}
	if err := c.Filter.Check(); err != nil {
		return Changed{}, err
	}
	if c.Filter.Empty() && !c.All {
		return Changed{}, Invalid("to mean the whole queue, say so: all", "%s: no message is named and no filter given", c.Action)
	}
	if (c.Scheduled || c.Now) && c.Action != Retry {
		return Changed{}, Invalid("", "scheduled and now are for the action %s", Retry)
	}
	if err := c.checkReroute(); err != nil {
		return Changed{}, err
	}
	changed, err := s.config.Queue.Change(r.Context(), c)
	changed.Count = changed.Recipients
	return changed, err
}

func readJSON(r io.Reader, v any) error {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return readError(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return Invalid("", "reading the request: more than one object")
	}
	return nil
}

func readError(err error) error {
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return Invalid("name fewer messages, or use a filter", "the request is larger than %d octets", maxRequest)
	}
	return Invalid("", "reading the request: %v", err)
}

func (s *Server) summary(w http.ResponseWriter, r *http.Request, q *query) error {
	f := q.filter()
	by := oneOf(q, "by", SummaryBys)
	p := SummaryPage{Limit: q.number("limit", 0, 0, math.MaxInt32), After: q.str("after")}
	if q.err != nil {
		return q.err
	}
	sum, err := s.config.Queue.Summary(r.Context(), by, f, p)
	if err != nil {
		return err
	}
	if sum.Rows == nil {
		sum.Rows = []SummaryRow{}
	}
	return writeJSON(w, sum)
}

func (s *Server) log(w http.ResponseWriter, r *http.Request, q *query) error {
	lq := LogQuery{
		Types:     q.strs("type"),
		ID:        q.str("id"),
		Sender:    q.str("sender"),
		Recipient: q.str("recipient"),
		Domain:    q.str("domain"),
		Site:      q.str("site"),
		Tenant:    q.str("tenant"),
		Classes:   q.strs("class"),
		Since:     q.time("since"),
		Until:     q.time("until"),
		Last:      q.number("last", 0, 0, math.MaxInt32),
		Follow:    q.flag("follow"),
	}
	if lq.ID != "" {
		if _, err := envelope.ParseID(lq.ID); err != nil {
			q.fail(Invalid("", "%v", err))
		}
	}
	if oneOf(q, "order", LogOrders) == NewestFirst {
		return s.newestRecords(w, r, q, lq)
	}
	if q.str("after") != "" || q.str("limit") != "" {
		q.fail(Invalid("add order=newest", "after and limit are for pages of the newest records"))
	}
	if q.err != nil {
		return q.err
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.streams, cancel)()
	out := &recordWriter{w: w}
	err := s.config.Log.Read(ctx, lq, out.write, out.flush)
	var damaged *LogDamaged
	switch {
	case errors.As(err, &damaged):
		out.begin()
		w.Header().Set(damageTrailer, visible.Line(damaged.Text, maxDamage))
		return nil
	case err != nil && ctx.Err() != nil:
		// The client went, or the relay stops: this is how following ends.
	case err != nil && out.begun:
		panic(http.ErrAbortHandler)
	case err != nil:
		return err
	}
	out.begin()
	return nil
}

// newestRecords gives a page.
func (s *Server) newestRecords(w http.ResponseWriter, r *http.Request, q *query, lq LogQuery) error {
	limit := q.number("limit", DefaultLimit, 1, MaxLimit)
	if lq.Last != 0 || lq.Follow {
		q.fail(Invalid("leave out order, or use limit and after", "last and follow give the oldest first"))
	}
	if q.err != nil {
		return q.err
	}
	p, err := s.config.Log.Newest(r.Context(), lq, q.str("after"), limit)
	if err != nil {
		return err
	}
	if p.Records == nil {
		p.Records = []json.RawMessage{}
	}
	return writeJSON(w, p)
}

// recordWriter sends records, one to a line.
type recordWriter struct {
	w     http.ResponseWriter
	begun bool
}

func (o *recordWriter) begin() {
	if !o.begun {
		o.w.Header().Set("Content-Type", "application/x-ndjson")
		o.w.Header().Set("Trailer", damageTrailer)
		o.w.WriteHeader(http.StatusOK)
		o.begun = true
	}
}

func (o *recordWriter) write(record []byte) error {
	o.begin()
	if _, err := o.w.Write(record); err != nil {
		return err
	}
	_, err := o.w.Write([]byte{'\n'})
	return err
}

func (o *recordWriter) flush() {
	o.begin()
	// An error shows at the next write.
	_ = http.NewResponseController(o.w).Flush()
}

// ConfigFormat is the form of a configuration.
type ConfigFormat string

// The forms.
const (
	ConfigText ConfigFormat = "text" // as a file that loads
	ConfigJSON ConfigFormat = "json"
)

// ConfigFormats are all of them.
var ConfigFormats = []ConfigFormat{ConfigText, ConfigJSON}

func (s *Server) effective(w http.ResponseWriter, r *http.Request, q *query) error {
	format := oneOf(q, "format", ConfigFormats)
	if q.err != nil {
		return q.err
	}
	if format == ConfigJSON {
		return writeJSON(w, s.config.Relay.ConfigObject())
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	io.WriteString(w, s.config.Relay.Config())
	return nil
}

func (s *Server) configChanges(w http.ResponseWriter, _ *http.Request, _ *query) error {
	changes, err := s.config.Relay.ConfigChanges()
	if err != nil {
		return err
	}
	changes.fill()
	return writeJSON(w, changes)
}

func (s *Server) reload(r *http.Request, in Intent) (Reload, error) {
	read := s.config.Relay.Reload
	if in.DryRun {
		read = s.config.Relay.PreviewReload
	}
	reload, err := read(r.Context())
	reload.fill()
	return reload, err
}

func (r *Reload) fill() {
	if r.Changes == nil {
		r.Changes = []string{}
	}
	r.Count = len(r.Changes)
}
