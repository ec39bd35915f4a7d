package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"sync"

	"example.org/mta/submission/auth"
)

// operation is a row of the table: what a request is called, where it stands, and the answer to it. An answer that
// returns an error has written nothing.
type operation struct {
	name, method, path string
	help               string
	action             string    // in the audit log; "": it isn't there
	least              auth.Role // the role that the console asks for; on the socket all may be asked
	request, answer    reflect.Type
	media              string // of an answer other than JSON
	takes              string // the form of a request that is not JSON: it is read as it comes, whatever its size
	exact              bool   // do looks at Intent.Expect itself, and changes exactly what it has counted
	serve              func(*operation, *Server, http.ResponseWriter, *http.Request) error
}

// operations is the table, in the order of operations.go.
var operations []*operation

// Op is a row of the table with the types of its request and its answer, for the client.
type Op[Q, A any] struct{ *operation }

func add[Q, A any](o operation) Op[Q, A] {
	o.least = cmp.Or(o.least, auth.Admin) // a row that forgets it is for nobody else
	o.request, o.answer = reflect.TypeFor[Q](), reflect.TypeFor[A]()
	operations = append(operations, &o)
	return Op[Q, A]{&o}
}

// Role is the least that somebody needs who asks at the console.
func (o *operation) Role() auth.Role { return o.least }

// admins marks a row as one for administrators. Of the others, viewers ask what changes nothing.
func admins[Q, A any](o Op[Q, A]) Op[Q, A] {
	o.least = auth.Admin
	return o
}

// exactly marks a row of changes as exact. The others change what their request names.
func exactly[Q, A any](o Op[Q, A]) Op[Q, A] {
	o.exact = true
	return o
}

// None is the request without parameters.
type None struct{}

// reads makes a row for a question. do returns the answer.
func reads[Q, A any](name, path, help string, do func(*Server, *http.Request, Q) (A, error)) Op[Q, A] {
	return asks(name, http.MethodGet, path, help, do)
}

// asks is reads for a question whose parameters are the body of a POST.
func asks[Q, A any](name, method, path, help string, do func(*Server, *http.Request, Q) (A, error)) Op[Q, A] {
	serve := func(_ *operation, s *Server, w http.ResponseWriter, r *http.Request) error {
		var q Q
		if _, err := readRequest(r, &q); err != nil {
			return err
		}
		a, err := do(s, r, q)
		if err != nil {
			return err
		}
		return writeJSON(w, &a)
	}
	return add[Q, A](operation{name: name, method: method, path: path, help: help, least: auth.Viewer, serve: serve})
}

// gives makes a row for an answer that isn't JSON, or not always. With an action it is put on record before the first
// octet leaves.
func gives[Q, A any](name, path, action, media, help string,
	do func(*Server, http.ResponseWriter, *http.Request, Q) error) Op[Q, A] {
	serve := func(o *operation, s *Server, w http.ResponseWriter, r *http.Request) error {
		answer := func(w http.ResponseWriter) error {
			var q Q
			if _, err := readRequest(r, &q); err != nil {
				return err
			}
			if p, either := any(&q).(pager); either && rightsOf(r.Context()).carried {
				if err := p.paged(); err != nil {
					return err
				}
			}
			return do(s, w, r, q)
		}
		if o.action == "" || s.config.Audit == nil {
			return answer(w)
		}
		return s.record(w, r, o.action, answer)
	}
	return add[Q, A](operation{
		name: name, method: http.MethodGet, path: path, action: action, least: auth.Viewer, media: media,
		help: help, serve: serve,
	})
}

// changes makes a row for a request that changes something. See Server.act for the audit log. do carries the request
// out, or counts what it would change if Intent.DryRun is set. It sets Effect.Count, also beside an error when a part
// is done.
func changes[Q, A any, PQ interface {
	*Q
	Intended() *Intent
}, PA interface {
	*A
	effect() *Effect
}](name, path, action, help string, do func(*Server, *http.Request, Q) (A, error)) Op[Q, A] {
	serve := func(o *operation, s *Server, w http.ResponseWriter, r *http.Request) error {
		var (
			c    Q
			done A
		)
		body, err := readRequest(r, &c)
		intent := PQ(&c).Intended()
		err = s.act(r, o, body, *intent, err, func(r *http.Request, dry bool) (int, error) {
			intent.DryRun = dry
			var err error
			done, err = do(s, r, c)
			PA(&done).effect().DryRun = dry
			return PA(&done).effect().Count, err
		})
		if err != nil {
			return err
		}
		return writeJSON(w, &done)
	}
	return add[Q, A](operation{
		name: name, method: http.MethodPost, path: path, action: action, least: auth.Operator, help: help, serve: serve,
	})
}

// part returns the part of the relay that answers: the field of Config that has its type.
func part[P any](s *Server) (p P) {
	config := reflect.ValueOf(&s.config).Elem()
	for i := range config.NumField() {
		if field, ok := config.Field(i).Addr().Interface().(*P); ok {
			p = *field
		}
	}
	return p
}

// with has a method of a part answer a request, and toName one with a name in its path; alone and ofName are for
// requests without parameters.
func with[P, Q, A any](do func(P, context.Context, Q) (A, error)) func(*Server, *http.Request, Q) (A, error) {
	return func(s *Server, r *http.Request, q Q) (A, error) { return do(part[P](s), r.Context(), q) }
}

func alone[P, A any](do func(P, context.Context) (A, error)) func(*Server, *http.Request, None) (A, error) {
	return func(s *Server, r *http.Request, _ None) (A, error) { return do(part[P](s), r.Context()) }
}

func ofName[P, A any](do func(P, context.Context, string) (A, error)) func(*Server, *http.Request, None) (A, error) {
	return func(s *Server, r *http.Request, _ None) (A, error) { return do(part[P](s), r.Context(), nameIn(r)) }
}

func toName[P, Q, A any](
	do func(p P, ctx context.Context, name string, q Q) (A, error),
) func(*Server, *http.Request, Q) (A, error) {
	return func(s *Server, r *http.Request, q Q) (A, error) { return do(part[P](s), r.Context(), nameIn(r), q) }
}

// nameIn is the name in the path of a request.
func nameIn(r *http.Request) string { return r.PathValue(pathNames.FindStringSubmatch(r.Pattern)[1]) }

// handler answers the operation's requests.
func (o *operation) handler(s *Server) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if o.takes == "" {
			r.Body = http.MaxBytesReader(w, r.Body, maxRequest)
		}
		carried, err := false, o.allowed(r.Context())
		if err == nil {
			carried, err = o.elsewhere(s, w, r)
		}
		if err == nil && !carried {
			err = o.serve(o, s, w, r)
		}
		if err != nil {
			writeError(w, err)
		}
	})
}

// readRequest reads the parameters of a GET, or the body of a POST, which may be empty. It returns the body also after
// an error.
func readRequest(r *http.Request, request any) (body []byte, err error) {
	var params []Param
	if r.Method == http.MethodGet {
		params = Params(request)
	} else if body, err = io.ReadAll(r.Body); err != nil {
		err = readError(err)
	}
	if queryErr := readQuery(r, params); queryErr != nil {
		return body, queryErr
	}
	if err == nil && len(bytes.TrimSpace(body)) > 0 {
		err = readJSON(bytes.NewReader(body), request)
	}
	if checked, ok := request.(interface{ Check() error }); ok && err == nil {
		err = checked.Check()
	}
	return body, err
}

func readQuery(r *http.Request, params []Param) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return Invalid("", "query: %v", err)
	}
	return decode(query, params)
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
	if kind := (*json.UnmarshalTypeError)(nil); errors.As(err, &kind) && kind.Field != "" {
		return Invalid("", "reading the request: %s can't be a %s", kind.Field, kind.Value)
	}
	return Invalid("", "reading the request: %v", err)
}

// writeJSON answers with what v points to.
func writeJSON(w http.ResponseWriter, v any) error { return encoderFor(w, v).Encode(v) }

// encoderFor begins an answer with what v points to.
func encoderFor(w http.ResponseWriter, v any) *json.Encoder {
	fillLists(reflect.ValueOf(v).Elem())
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w)
}

// fillLists makes the lists of an answer that have no members, and are not left out then: [] for those who loop over
// them, not null. The relay goes on using what it has answered with: what is below v is copied before it is changed.
func fillLists(v reflect.Value) {
	switch t := v.Type(); {
	case !hasLists(t):
	case t.Kind() == reflect.Pointer && !v.IsNil():
		whole := reflect.New(t.Elem())
		whole.Elem().Set(v.Elem())
		fillLists(whole.Elem())
		v.Set(whole)
	case t.Kind() == reflect.Slice && v.Len() > 0:
		whole := reflect.MakeSlice(t, v.Len(), v.Len())
		reflect.Copy(whole, v)
		for i := range whole.Len() {
			fillLists(whole.Index(i))
		}
		v.Set(whole)
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			if f := v.Field(i); isList(t.Field(i)) && f.IsNil() {
				f.Set(reflect.MakeSlice(f.Type(), 0, 0))
			} else {
				fillLists(f)
			}
		}
	}
}

// isList reports whether a field is a list that is not left out when it has no members.
func isList(f reflect.StructField) bool {
	_, option, _ := strings.Cut(f.Tag.Get("json"), ",")
	return f.IsExported() && f.Type.Kind() == reflect.Slice && option == "" &&
		f.Type != reflect.TypeFor[json.RawMessage]()
}

// hasLists reports whether there are such fields in a type.
func hasLists(t reflect.Type) bool {
	if known, ok := listTypes.Load(t); ok {
		return known.(bool)
	}
	has := false
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		has = hasLists(t.Elem())
	case reflect.Struct:
		for f := range t.Fields() {
			has = has || isList(f) || f.IsExported() && hasLists(f.Type)
		}
	}
	listTypes.Store(t, has)
	return has
}

// listTypes keeps the answers of hasLists.
var listTypes sync.Map

// at is the path with the names in it.
func (o *operation) at(names []string) string {
	path := o.path
	for _, name := range names {
		begin, end := strings.IndexByte(path, '{'), strings.IndexByte(path, '}')
		path = path[:begin] + url.PathEscape(name) + path[end+1:]
	}
	return path
}

// open asks the relay. names are those in the path. The caller closes the body of the answer.
func (o Op[Q, A]) open(ctx context.Context, c *Client, q Q, names ...string) (*http.Response, error) {
	if o.method == http.MethodGet {
		return c.send(ctx, o.method, o.at(names), encode(Params(&q)), http.NoBody, "")
	}
	body, err := json.Marshal(q)
	if err != nil {
		return nil, fmt.Errorf("writing the request: %w", err)
	}
	return c.send(ctx, o.method, o.at(names), nil, bytes.NewReader(body), "application/json")
}

// Call asks the relay, and reads the answer. names are those in the path.
func (o Op[Q, A]) Call(ctx context.Context, c *Client, q Q, names ...string) (a A, err error) {
	answer, err := o.open(ctx, c, q, names...)
	if err != nil {
		return a, err
	}
	return a, readAnswer(answer, &a)
}

func readAnswer(answer *http.Response, v any) error {
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(v); err != nil {
		return fmt.Errorf("reading the relay's answer: %w", err)
	}
	return nil
}

// Copy asks the relay, and writes the answer to w as it comes.
func (o Op[Q, A]) Copy(ctx context.Context, c *Client, w io.Writer, q Q, names ...string) error {
	answer, err := o.open(ctx, c, q, names...)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(w, answer.Body); err != nil {
		return fmt.Errorf("reading %s: %w", contents[o.media]+strings.Join(names, ""), err)
	}
	return nil
}

// contents are the names of answers that aren't JSON, in errors.
var contents = map[string]string{
	"application/x-tar": "the archive", "message/rfc822": "the content of ", "text/plain": "the configuration",
}
