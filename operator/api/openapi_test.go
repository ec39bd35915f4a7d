package api

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/delivery/tlspolicy/tlsrpt"
	"example.org/mta/operator/audit"
	"example.org/mta/submission/auth"
	"example.org/mta/warmup"
)

// document is as much of OpenAPI as openapi.json makes use of.
type document struct {
	Paths      map[string]map[string]describedOperation
	Components struct {
		Parameters map[string]parameter
		Schemas    map[string]schema
	}
}

type describedOperation struct {
	OperationID string
	Summary     string
	Parameters  []parameter
	RequestBody struct {
		Content map[string]struct{ Schema schema }
	}
	Responses map[string]struct {
		Ref     string `json:"$ref"`
		Content map[string]struct{ Schema schema }
	}
}

type parameter struct {
	Ref         string `json:"$ref"`
	Name, In    string
	Description string
	Schema      schema
}

type schema struct {
	Ref         string `json:"$ref"`
	Type        schemaWord
	Description string
	Enum        []string
	Default     any
	Properties  map[string]schema
	Required    []string
	Items       *schema
	// Others is the schema of what has names that nobody knows beforehand.
	Others *schema `json:"additionalProperties"`
}

// schemaWord is a type; what may be null has two, of which it is the first.
type schemaWord string

func (w *schemaWord) UnmarshalJSON(b []byte) error {
	var words []string
	if b[0] != '[' {
		b = slices.Concat([]byte{'['}, b, []byte{']'})
	}
	if err := json.Unmarshal(b, &words); err != nil {
		return err
	}
	*w = schemaWord(words[0])
	return nil
}

func readDocument(t *testing.T) document {
	t.Helper()
	var d document
	if err := json.Unmarshal(openAPI, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDocumentHasTheRoutesAndTheirParameters(t *testing.T) {
	d := readDocument(t)
	described := 0
	for _, methods := range d.Paths {
		described += len(methods)
	}
	if described != len(operations) {
		t.Errorf("openapi.json has %d operations, and there are %d routes", described, len(operations))
	}
	for _, r := range operations {
		op, ok := d.Paths[r.path][strings.ToLower(r.method)]
		if !ok {
			t.Errorf("%s %s is not in openapi.json", r.method, r.path)
			continue
		}
		if op.Summary == "" || op.OperationID == "" || op.Responses["default"].Ref != "#/components/responses/Error" {
			t.Errorf("%s %s: summary, operationId or the default response is missing", r.method, r.path)
		}
		var names []string
		for _, p := range op.Parameters {
			if p.Ref != "" {
				p = d.Components.Parameters[strings.TrimPrefix(p.Ref, "#/components/parameters/")]
			}
			switch {
			case p.Description == "":
				t.Errorf("%s %s: parameter %q is not described", r.method, r.path, p.Name)
			case p.In == "path" && !strings.Contains(r.path, "{"+p.Name+"}"):
				t.Errorf("%s %s: parameter %q is not in the path", r.method, r.path, p.Name)
			case p.In == "query":
				names = append(names, p.Name)
			}
		}
		var params []string
		if r.method == "GET" || r.takes != "" {
			for _, p := range Params(reflect.New(r.request).Interface()) {
				params = append(params, p.Name)
			}
		}
		if !slices.Equal(sorted(names), sorted(params)) {
			t.Errorf("%s %s: openapi.json has parameters %v, the route has %v", r.method, r.path, names, params)
		}
	}
}

func sorted(s []string) []string { s = slices.Clone(s); slices.Sort(s); return s }

// TestDocumentHasTheTypes holds each schema to the struct of its name: the same fields of the
// same types, and those that may be absent are not required.
func TestDocumentHasTheTypes(t *testing.T) {
	d := readDocument(t)
	types := map[reflect.Type]bool{}
	addStructs(types, reflect.TypeFor[Error]())
	for _, o := range operations {
		addStructs(types, o.answer)
		if o.method == "POST" && o.takes == "" {
			addStructs(types, o.request)
		}
	}
	for typ := range types {
		s, ok := d.Components.Schemas[schemaName(typ)]
		if !ok {
			t.Errorf("openapi.json has no schema for %s", schemaName(typ))
			continue
		}
		checkStruct(t, typ, s)
	}
	if want := len(types) + len([]string{"State", "Age"}); len(d.Components.Schemas) != want {
		t.Errorf("openapi.json has %d schemas, want %d", len(d.Components.Schemas), want)
	}
}

// addStructs adds the structs of which a type is made.
func addStructs(all map[reflect.Type]bool, t reflect.Type) {
	switch kind := t.Kind(); {
	case kind == reflect.Pointer || kind == reflect.Slice || kind == reflect.Map:
		addStructs(all, t.Elem())
	case kind == reflect.Struct && t != reflect.TypeFor[time.Time]() && !all[t]:
		all[t] = true
		for _, f := range fieldsOf(t) {
			addStructs(all, f.Type)
		}
	}
}

// schemaName is that of a type: its name, for which package warmup has shorter ones.
func schemaName(t reflect.Type) string {
	short := map[reflect.Type]string{
		reflect.TypeFor[warmup.ProviderStatus](): "WarmupProvider", reflect.TypeFor[warmup.DayStatus](): "WarmupDay", reflect.TypeFor[warmup.Forecast](): "WarmupForecast",
		reflect.TypeFor[warmup.PlanFile](): "PlanDocument", reflect.TypeFor[warmup.Stage](): "PlanStage", reflect.TypeFor[warmup.Caps](): "PlanCaps",
		reflect.TypeFor[audit.Page](): "ActionPage", reflect.TypeFor[audit.Line](): "ActionLine",
		reflect.TypeFor[tlsrpt.Day](): "TLSReportDay", reflect.TypeFor[tlsrpt.Policy](): "TLSReportPolicy", reflect.TypeFor[tlsrpt.Detail](): "TLSReportDetail", reflect.TypeFor[tlsrpt.Delivery](): "TLSReportDelivery",
		reflect.TypeFor[warmup.Health](): "PlanHealth", reflect.TypeFor[warmup.Limits](): "PlanLimits", reflect.TypeFor[warmup.PauseRule](): "PlanPause",
	}
	return cmp.Or(short[t], t.Name())
}

// fieldsOf are those of a struct in JSON, with those of the structs that it embeds.
func fieldsOf(typ reflect.Type) (all []reflect.StructField) {
	for f := range typ.Fields() {
		switch tag := f.Tag.Get("json"); {
		case f.Anonymous && tag == "":
			all = append(all, fieldsOf(f.Type)...)
		case tag != "-" && f.IsExported():
			all = append(all, f)
		}
	}
	return all
}

func checkStruct(t *testing.T, typ reflect.Type, s schema) {
	t.Helper()
	fields := fieldsOf(typ)
	for _, f := range fields {
		name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
		p, ok := s.Properties[name]
		if !ok {
			t.Errorf("schema %s lacks %s", typ.Name(), name)
			continue
		}
		if p.Description == "" && p.Ref == "" {
			t.Errorf("schema %s: %s is not described", typ.Name(), name)
		}
		if want := schemaType(f.Type); want != cmpType(p) {
			t.Errorf("schema %s: %s is %s, want %s", typ.Name(), name, cmpType(p), want)
		}
		if required := slices.Contains(s.Required, name); required != (option == "") && !(typ == reflect.TypeFor[Change]() && name == "filter") {
			t.Errorf("schema %s: %s is required: %v, but its tag is %q", typ.Name(), name, required, f.Tag)
		}
	}
	if len(fields) != len(s.Properties) {
		t.Errorf("schema %s has %d properties, the type has %d fields", typ.Name(), len(s.Properties), len(fields))
	}
}

func cmpType(s schema) string {
	switch {
	case s.Ref != "":
		return strings.TrimPrefix(s.Ref, "#/components/schemas/")
	case s.Items != nil:
		return "[]" + cmpType(*s.Items)
	case s.Others != nil:
		return "map of " + cmpType(*s.Others)
	}
	return string(s.Type)
}

func schemaType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return schemaType(t.Elem())
	case reflect.Slice:
		if t == reflect.TypeFor[json.RawMessage]() {
			return "object"
		}
		return "[]" + schemaType(t.Elem())
	case reflect.Map:
		return "map of " + schemaType(t.Elem())
	case reflect.Bool:
		return "boolean"
	case reflect.String:
		if t == reflect.TypeFor[State]() {
			return t.Name()
		}
		return "string"
	case reflect.Struct:
		if t.Name() == "Time" {
			return "string"
		}
		return schemaName(t)
	case reflect.Float64:
		return "number"
	}
	if t == reflect.TypeFor[Age]() {
		return t.Name()
	}
	return "integer"
}

func TestDocumentHasTheWords(t *testing.T) {
	d := readDocument(t)
	s := d.Components.Schemas
	if got, want := strings.Join(s["State"].Enum, ", "), join(States); got != want {
		t.Errorf("states %s, want %s", got, want)
	}
	if got, want := strings.Join(s["Change"].Properties["action"].Enum, ", "), join(Actions); got != want {
		t.Errorf("actions %s, want %s", got, want)
	}
	for _, name := range []string{"Host", "HostPath"} {
		if got, want := strings.Join(s[name].Properties["state"].Enum, ", "), join(HostStates); got != want {
			t.Errorf("states of %s: %s, want %s", name, got, want)
		}
	}
	if got, want := strings.Join(s["FileChange"].Properties["action"].Enum, ", "), join(FileActions); got != want {
		t.Errorf("action of FileChange: %s, want %s", got, want)
	}
	for name, want := range map[string]string{"direction": join(Directions), "state": join(ConnectionStates)} {
		if got := strings.Join(s["Connection"].Properties[name].Enum, ", "); got != want {
			t.Errorf("%s of Connection: %s, want %s", name, got, want)
		}
	}
	if got, want := strings.Join(s["RecentOutcome"].Properties["outcome"].Enum, ", "), join(OutcomeNames); got != want {
		t.Errorf("outcome of RecentOutcome: %s, want %s", got, want)
	}
	if got, want := strings.Join(s["Suppression"].Properties["source"].Enum, ", "), join(SuppressionSources); got != want {
		t.Errorf("source: %s, want %s", got, want)
	}
	if got, want := strings.Join(s["Warmup"].Properties["state"].Enum, ", "), join(WarmupStates); got != want {
		t.Errorf("states of Warmup: %s, want %s", got, want)
	}
	for _, a := range WarmupActions {
		if _, ok := d.Paths["/v1/warmup/{name}/"+string(a)]["post"]; !ok {
			t.Errorf("there is no path for %s", a)
		}
	}
	for _, p := range d.Paths["/v1/summary"]["get"].Parameters {
		if p.Name == "by" && strings.Join(p.Schema.Enum, ", ") != join(SummaryBys) {
			t.Errorf("by: %v, want %s", p.Schema.Enum, join(SummaryBys))
		}
	}
	for _, p := range d.Paths["/v1/messages"]["get"].Parameters {
		if p.Name == "order" && strings.Join(p.Schema.Enum, ", ") != join(Orders) {
			t.Errorf("order: %v, want %s", p.Schema.Enum, join(Orders))
		}
		if p.Name == "limit" && p.Schema.Default != float64(DefaultLimit) {
			t.Errorf("limit: %v by default, want %d", p.Schema.Default, DefaultLimit)
		}
		if p.Name == "recipients" && p.Schema.Default != float64(DefaultRecipients) {
			t.Errorf("recipients: %v by default, want %d", p.Schema.Default, DefaultRecipients)
		}
	}
}

// TestWhoMayAsk: each row says who may, and no change is for those who only look.
func TestWhoMayAsk(t *testing.T) {
	for _, o := range operations {
		least := auth.Viewer
		if o.method == "POST" && o.action != "" {
			least = auth.Operator
		}
		if o.Role() < least || o.Role() > auth.Admin {
			t.Errorf("%s is for the role %v", o.name, o.Role())
		}
	}
}
