package control

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
	{"GET", "/v1/messages/{id}/content", nil, (*Server).content},
	{"POST", "/v1/messages/change", nil, (*Server).change},
	{"GET", "/v1/summary", slices.Concat(filterParams[1:], []string{"by", "limit"}), (*Server).summary},
	{"GET", "/v1/log", []string{"type", "id", "sender", "recipient", "domain", "site", "tenant", "since", "until", "last", "follow"}, (*Server).log},
	{"GET", "/v1/sites", siteParams, (*Server).sites},
	{"POST", "/v1/sites/suspend", nil, (*Server).suspend},
	{"POST", "/v1/sites/resume", nil, (*Server).resume},
	{"GET", "/v1/sources", blockParams, (*Server).sources},
	{"GET", "/v1/pools", poolParams, (*Server).pools},
	{"GET", "/v1/tenants", tenantParams, (*Server).tenants},
	{"GET", "/v1/hosts", hostParams, (*Server).hosts},
	{"POST", "/v1/hosts/forget", nil, (*Server).forget},
	{"POST", "/v1/hosts/suspend", nil, (*Server).suspendHosts},
	{"POST", "/v1/hosts/resume", nil, (*Server).resumeHosts},
	{"GET", "/v1/pauses", nil, (*Server).pauses},
	{"POST", "/v1/pauses/begin", nil, (*Server).beginPause},
	{"POST", "/v1/pauses/end", nil, (*Server).endPause},
	{"GET", "/v1/suppressions", suppressionParams, (*Server).suppressions},
	{"POST", "/v1/suppressions/check", nil, (*Server).checkSuppressed},
	{"POST", "/v1/suppressions/add", nil, (*Server).suppress},
	{"POST", "/v1/suppressions/remove", nil, (*Server).unsuppress},
	{"GET", "/v1/keys", nil, (*Server).apiKeys},
	{"POST", "/v1/keys/add", nil, (*Server).addAPIKey},
	{"POST", "/v1/keys/rotate", nil, (*Server).rotateAPIKey},
	{"POST", "/v1/keys/remove", nil, (*Server).removeAPIKeys},
	{"GET", "/v1/explain", []string{"domain", "tenant", "id"}, (*Server).explain},
	{"GET", "/v1/mta-sts/{domain}", nil, readSTSPolicy(false)},
	{"POST", "/v1/mta-sts/{domain}/refresh", nil, readSTSPolicy(true)},
	{"GET", "/v1/trace", []string{"site", "source", "tenant", "recipient", "content", "clients", "listener", "client"}, (*Server).trace},
	{"GET", "/v1/warmup", warmupParams, (*Server).warmups},
	{"GET", "/v1/warmup/plans", nil, (*Server).warmupPlans},
	{"GET", "/v1/warmup/{name}", nil, (*Server).warmup},
	{"POST", "/v1/warmup/{name}/start", nil, changeWarmup(WarmupStart)},
	{"POST", "/v1/warmup/{name}/pause", nil, changeWarmup(WarmupPause)},
	{"POST", "/v1/warmup/{name}/resume", nil, changeWarmup(WarmupResume)},
	{"POST", "/v1/warmup/{name}/set-stage", nil, changeWarmup(WarmupSetStage)},
	{"POST", "/v1/warmup/{name}/report", nil, (*Server).reportWarmup},
	{"GET", "/v1/admission", nil, (*Server).admission},
	{"GET", "/v1/admission/why", whyParams, (*Server).whyRefused},
	{"GET", "/v1/tls-reports", tlsReportParams, (*Server).tlsReports},
	{"GET", "/v1/config", []string{"format"}, (*Server).effective},
	{"POST", "/v1/config/reload", nil, (*Server).reload},
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
	s.config.Events.Info("operator reads the content of a message", "id", id)
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

func (s *Server) change(w http.ResponseWriter, r *http.Request, _ *query) error {
	var c Change
	if err := readJSON(r.Body, &c); err != nil {
		return err
	}
	if !slices.Contains(Actions, c.Action) {
		return Invalid("", "action: want %s, not %q", join(Actions), c.Action)
	}
	if err := c.Filter.Check(); err != nil {
		return err
	}
	if c.Filter.Empty() && !c.All {
		return Invalid("to mean the whole queue, say so: all", "%s: no message is named and no filter given", c.Action)
	}
	if (c.Scheduled || c.Now) && c.Action != Retry {
		return Invalid("", "scheduled and now are for the action %s", Retry)
	}
	changed, err := s.config.Queue.Change(r.Context(), c)
	changed.DryRun = c.DryRun
	if changed.Recipients > 0 && !c.DryRun {
		s.config.Events.Info("operator changes the queue", "action", c.Action, "filter", c.Filter, "recipients", changed.Recipients)
		if err != nil {
			err = fmt.Errorf("%w; %s of %d others is done", err, c.Action, changed.Recipients)
		}
	}
	if err != nil {
		return err
	}
	return writeJSON(w, changed)
}

func readJSON(r io.Reader, v any) error {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			return Invalid("name fewer messages, or use a filter", "the request is larger than %d octets", maxRequest)
		}
		return Invalid("", "reading the request: %v", err)
	}
	if d.More() {
		return Invalid("", "reading the request: more than one object")
	}
	return nil
}

func (s *Server) summary(w http.ResponseWriter, r *http.Request, q *query) error {
	f := q.filter()
	by := oneOf(q, "by", SummaryBys)
	limit := q.number("limit", 0, 0, math.MaxInt32)
	if q.err != nil {
		return q.err
	}
	sum, err := s.summarise(r.Context(), by, f, limit)
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
	if q.err != nil {
		return q.err
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.streams, cancel)()
	out := &recordWriter{w: w}
	err := s.config.Log.Read(ctx, lq, out.write, out.flush)
	switch {
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

// recordWriter sends records, one to a line.
type recordWriter struct {
	w     http.ResponseWriter
	begun bool
}

func (o *recordWriter) begin() {
	if !o.begun {
		o.w.Header().Set("Content-Type", "application/x-ndjson")
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

func (s *Server) reload(w http.ResponseWriter, r *http.Request, _ *query) error {
	reload, err := s.config.Relay.Reload(r.Context())
	if err != nil {
		return err
	}
	if reload.Changes == nil {
		reload.Changes = []string{}
	}
	return writeJSON(w, reload)
}
