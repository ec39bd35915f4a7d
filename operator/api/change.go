package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os/user"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"example.org/mta/operator/audit"
)

// Intent is what every request that changes something can ask for.
type Intent struct {
	DryRun bool `json:"dry_run,omitempty"` // only count
	// the count of a dry run: if it is another now, nothing is changed, and the answer is 409 with the new count
	Expect *int `json:"expect,omitempty"`
}

// Intended is the intent of any request that has one.
func (i *Intent) Intended() *Intent { return i }

// Effect is how much a change has touched, or with Intent.DryRun would touch.
type Effect struct {
	Count  int  `json:"count"`             // what was changed, or with dry_run would be
	DryRun bool `json:"dry_run,omitempty"` // nothing was changed
	// of what all nodes of a cluster know: which nodes don't know of the change after 5 s, and why; else empty
	Behind string `json:"behind,omitempty"`
}

func (e *Effect) effect() *Effect { return e }

// Done is the effect of any answer that has one.
func (e Effect) Done() Effect { return e }

// Audit is what the server asks of the audit log.
type Audit interface {
	// Begin makes it durable that an action begins. After an error the action isn't carried out.
	Begin(audit.Line) (*audit.Begun, error)
	// Add makes a line durable about something that was read.
	Add(audit.Line) error
	Read(context.Context, audit.Query) (audit.Page, error)
}

// act carries an action out. It makes sure that the count is the expected one, and has the action in the audit log
// before and after it is carried out: refused ones too, but no dry runs. The name of the action is that of the command;
// the field "action" of a request stands behind it. refused is why the request itself can't be carried out.
func (s *Server) act(r *http.Request, o *operation, body []byte, in Intent, refused error,
	carryOut func(r *http.Request, dry bool) (int, error)) error {
	action, named := o.action, named(body)
	if word.MatchString(named.Action) {
		action += " " + named.Action
	}
	reason, err := readReason(r.Header)
	if refused == nil {
		refused = err
	}
	reason = cmp.Or(reason, named.Reason)
	subject := subjectOf(r, body)
	r = r.WithContext(WithReason(r.Context(), reason))
	if in.DryRun {
		if refused == nil {
			_, refused = carryOut(r, true)
		}
		return refused
	}
	who := ActorOf(r.Context())
	begun, err := s.beginAction(audit.Line{Actor: who, Action: action, Subject: subject, Reason: reason})
	if err != nil {
		return err
	}
	count := 0
	if err = refused; err == nil && !o.exact {
		err = expected(r, in.Expect, carryOut)
	}
	if err == nil {
		count, err = carryOut(r, false)
	}
	s.endAction(begun, count, err)
	if err == nil || count > 0 {
		s.config.Events.Info("operator acts", "action", action, "subject", subject, "count", count, "by", who.Name(),
			"reason", reason)
	}
	if err != nil && count > 0 {
		err = fmt.Errorf("%w; %s of %d others is done", err, action, count)
	}
	return err
}

// expected counts what an action would change, and refuses it if that is not what is expected; nil is anything.
func expected(r *http.Request, expect *int, carryOut func(r *http.Request, dry bool) (int, error)) error {
	if expect == nil {
		return nil
	}
	n, err := carryOut(r, true)
	if err == nil {
		err = Recount(n, *expect)
	}
	return err
}

// Recount returns the error of a change that would touch n now where another number is expected, nil where it isn't.
func Recount(n, expect int) error {
	if n == expect {
		return nil
	}
	return &Error{
		Status: http.StatusConflict, Count: &n, Hint: "nothing was changed: look again, and expect the new count",
		Message: fmt.Sprintf("this would change %d now, not %d", n, expect),
	}
}

// beginAction writes the first of an action's lines.
func (s *Server) beginAction(l audit.Line) (*audit.Begun, error) {
	if s.config.Audit == nil {
		return nil, nil
	}
	begun, err := s.config.Audit.Begin(l)
	if err != nil {
		return nil, noAudit(err)
	}
	return begun, nil
}

// noAudit refuses what can't be put on record.
func noAudit(err error) error {
	return Unavailable(
		"look at the disk of the relay's data_dir: nothing can be changed while the audit log can't be written",
		"the audit log can't be written: %v", err)
}

// endAction writes the second one. That it can't be written does not fail the action: the first one is on record, and
// the outcome follows with the next line.
func (s *Server) endAction(begun *audit.Begun, count int, err error) {
	if begun == nil {
		return
	}
	outcome, why := audit.Done, ""
	if err != nil {
		outcome, why = audit.Refused, err.Error()
		if count > 0 || asError(err).Status >= http.StatusInternalServerError {
			outcome = audit.Failed
		}
	}
	if err := begun.End(outcome, count, why); err != nil {
		s.config.Events.Error("the outcome of an action is not in the audit log yet", "outcome", outcome, "count",
			count, "error", err)
	}
}

// record has contents in the audit log before their first octet leaves.
func (s *Server) record(w http.ResponseWriter, r *http.Request, action string,
	answer func(http.ResponseWriter) error) error {
	line := audit.Line{Actor: ActorOf(r.Context()), Action: action, Subject: subjectOf(r, nil), Outcome: audit.Done}
	gate := &auditedAnswer{ResponseWriter: w, record: func() error {
		s.config.Events.Info("operator reads", "action", action, "subject", line.Subject, "by", line.Name())
		return s.config.Audit.Add(line)
	}}
	err := gate.pass(func() error { return answer(gate) })
	if err != nil && !gate.begun {
		line.Outcome, line.Error = audit.Refused, err.Error()
		if err := s.config.Audit.Add(line); err != nil {
			return noAudit(err)
		}
	}
	return err
}

// auditedAnswer has something recorded before it passes an answer on.
type auditedAnswer struct {
	http.ResponseWriter
	record func() error
	begun  bool
	failed error
}

// pass has an answer made. One that can't be recorded is an error, however it ends.
func (a *auditedAnswer) pass(answer func() error) (err error) {
	defer func() {
		if a.failed != nil {
			recover() // it is how contents that break off end
			a.Header().Del("Content-Length")
			err = noAudit(a.failed)
		}
	}()
	return answer()
}

func (a *auditedAnswer) begin() error {
	if !a.begun {
		a.begun = true
		a.failed = a.record()
	}
	return a.failed
}

func (a *auditedAnswer) WriteHeader(status int) {
	if a.begin() == nil {
		a.ResponseWriter.WriteHeader(status)
	}
}

func (a *auditedAnswer) Write(p []byte) (int, error) {
	if err := a.begin(); err != nil {
		return 0, err
	}
	return a.ResponseWriter.Write(p)
}

// Unwrap gives http.ResponseController the deadlines.
func (a *auditedAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// FlushError passes on what was written. http.ResponseController calls it.
func (a *auditedAnswer) FlushError() error {
	if err := a.begin(); err != nil {
		return err
	}
	return http.NewResponseController(a.ResponseWriter).Flush()
}

var word = regexp.MustCompile(`^[a-z][a-z-]{0,30}$`)

// common is what requests of several routes have.
type common struct {
	Action string `json:"action"`
	Reason string `json:"reason"`
}

func named(body []byte) (c common) {
	_ = json.Unmarshal(body, &c) // what is wrong with it, the route says
	return c
}

var pathNames = regexp.MustCompile(`\{([a-z]+)\}`)

// subjectOf puts what a request is about into words: the names in its path, its parameters, and the fields of its body
// that are set, as name=value.
func subjectOf(r *http.Request, body []byte) string {
	var parts []string
	for _, m := range pathNames.FindAllStringSubmatch(r.Pattern, -1) {
		parts = append(parts, valueOf(m[1], r.PathValue(m[1])))
	}
	if r.URL.RawQuery != "" {
		parts = append(parts, r.URL.RawQuery)
	}
	if about := subjectIn(body); about != "" {
		parts = append(parts, about)
	}
	return strings.Join(parts, " ")
}

// subjectIn puts the fields of a body that are set into words.
func subjectIn(body []byte) string {
	var about json.RawMessage
	if json.Unmarshal(body, &about) != nil {
		return ""
	}
	return strings.Join(appendSubject(nil, "", about, 0), " ")
}

// subjectList is how many members of a list are named.
const subjectList = 10

// appendSubject adds a value of a request. Objects within are not named: the fields of a filter stand for themselves.
func appendSubject(parts []string, name string, value json.RawMessage, depth int) []string {
	var (
		list  []json.RawMessage
		text  string
		d     = json.NewDecoder(bytes.NewReader(value))
		begin = strings.TrimSpace(string(value))
	)
	switch {
	case depth > 4 || begin == "" || begin == "null" || begin == "false" || begin == `""` || name != "" && begin == "0":
	case begin[0] == '{':
		for d.Token(); d.More(); {
			key, _ := d.Token()
			var member json.RawMessage
			if d.Decode(&member) != nil {
				return parts
			}
			switch key := fmt.Sprint(key); {
			case depth == 0 && slices.Contains([]string{"action", "reason", "dry_run", "expect", "hash"}, key):
			default:
				parts = appendSubject(parts, key, member, depth+1)
			}
		}
	case begin[0] == '[' && json.Unmarshal(value, &list) == nil:
		var some []string
		for _, member := range list[:min(len(list), subjectList)] {
			some = append(some, strings.Join(appendSubject(nil, "", member, depth+1), " "))
		}
		text = strings.Join(some, ",")
		if more := len(list) - len(some); more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		parts = append(parts, valueOf(name, text))
	case json.Unmarshal(value, &text) == nil:
		parts = append(parts, valueOf(name, text))
	default:
		parts = append(parts, valueOf(name, begin))
	}
	return parts
}

// valueOf writes name=value, with quotes where the value is more than a word.
func valueOf(name, value string) string {
	if name == "" {
		return value
	}
	if value == "" || strings.ContainsAny(value, " \"=\t\n") {
		value = strconv.Quote(value)
	}
	return name + "=" + value
}

// The kinds of actors: how a request has reached the relay.
const (
	BySocket  = "socket"  // a process on the control socket
	ByConsole = "console" // a user of the console that runs in the relay
	ByAPI     = "api"     // a caller of another interface that mounts Server.Handler
	BySignal  = audit.BySignal
)

// Actor is who sends a request.
type Actor = audit.Actor

type actorKey struct{}

// WithActor names the actor of the requests that a local client, see NewLocalClient, sends with ctx. Over a socket it
// has no effect: there the system names the process.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// ActorOf returns who has sent the request of a context.
func ActorOf(ctx context.Context) Actor {
	a, _ := ctx.Value(actorKey{}).(Actor)
	a.Kind = cmp.Or(a.Kind, BySocket)
	if a.User == "" && a.UID != nil {
		if u, err := user.LookupId(fmt.Sprint(*a.UID)); err == nil {
			a.User = u.Username
		}
	}
	return a
}

// withPeer makes the process at the other end of a unix socket the actor of all that it asks, where the system
// names it.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	conn, ok := c.(syscall.Conn)
	if !ok {
		return ctx
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return ctx
	}
	var (
		uid   uint32
		pid   int
		known bool
	)
	if err := raw.Control(func(fd uintptr) { uid, pid, known = peerID(int(fd)) }); err != nil || !known {
		return ctx
	}
	return WithActor(ctx, Actor{Kind: BySocket, UID: &uid, PID: pid})
}

const (
	// reasonHeader carries why an operator changes something, percent-encoded.
	reasonHeader = "Mta-Reason"
	// MaxReason is the largest length of a reason, in octets of UTF-8.
	MaxReason = 500
)

type reasonKey struct{}

// WithReason gives the changing requests that a client sends with ctx a reason, for the audit log: text of at most
// MaxReason octets.
func WithReason(ctx context.Context, text string) context.Context {
	return context.WithValue(ctx, reasonKey{}, text)
}

// sendReason puts the reason of a context into a request.
func sendReason(ctx context.Context, h http.Header) {
	if text := ReasonOf(ctx); text != "" {
		h.Set(reasonHeader, url.PathEscape(text))
	}
}

// readReason returns the reason that a request comes with, "" if it has none.
func readReason(h http.Header) (string, error) {
	text, err := url.PathUnescape(h.Get(reasonHeader))
	switch {
	case err != nil || !utf8.ValidString(text) || hasControl(text):
		return "", Invalid("write it on one line, by HTTP as percent-encoded UTF-8", "the reason can't be read")
	case len(text) > MaxReason:
		return "", Invalid("", "the reason has %d octets; %d is the most", len(text), MaxReason)
	}
	return text, nil
}

// reasonOf returns the reason of a request that act has read.
func ReasonOf(ctx context.Context) string {
	text, _ := ctx.Value(reasonKey{}).(string)
	return text
}

// ActionQuery says which lines of the audit log are wanted.
type ActionQuery = audit.Query

// ActionLine is a line of the audit log.
type ActionLine = audit.Line

// ActionPage is lines of the audit log, newest first. It can have fewer than were asked for, even none, and a next
// page: then there was much to look through.
type ActionPage = audit.Page
