package http

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/submission/intake"
	"example.org/mta/submission/request"
)

// document is what the tests look at of the OpenAPI document.
type document struct {
	OpenAPI string
	Paths   map[string]map[string]struct {
		Parameters  []struct{ Name, In string }
		RequestBody struct{ Content map[string]content }
		Responses   map[string]struct {
			Ref     string `json:"$ref"`
			Content map[string]content
		}
		Security []any
	}
	Components struct {
		Schemas map[string]struct {
			Properties map[string]any
		}
	}
}

type content struct {
	Example  json.RawMessage
	Examples map[string]struct{ Value json.RawMessage }
}

func readDocument(t *testing.T) (d document) {
	t.Helper()
	if err := json.Unmarshal(openAPI, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// wholeServer has all routes of this package.
func wholeServer(t *testing.T) *Server {
	t.Helper()
	s, _ := mailServer(t, func(c *Config, desk *intake.Config) {
		c.Suppressions, c.Unsubscribes = someSuppressions{"acme": {}}, someLinks{}
		c.Messages, c.Events = someMessages{}, someEvents{}
		desk.MaxHold = 200 * 365 * 24 * time.Hour // examples are scheduled far ahead, so as not to grow old
	})
	return s
}

func TestDocumentHasEachRoute(t *testing.T) {
	d := readDocument(t)
	routes := map[string]bool{}
	for _, r := range wholeServer(t).routes() {
		routes[r.name()] = true
		operation, ok := d.Paths[r.Pattern][strings.ToLower(r.Method)]
		if !ok {
			t.Errorf("openapi.json lacks %s", r.name())
			continue
		}
		if open := operation.Security != nil; open != r.Open {
			t.Errorf("%s: openapi.json says open: %v", r.name(), open)
		}
		for _, part := range strings.Split(r.Pattern, "/") {
			name, isParameter := strings.CutPrefix(part, "{")
			name = strings.TrimSuffix(name, "}")
			if isParameter && !slices.ContainsFunc(operation.Parameters, func(p struct{ Name, In string }) bool { return p.Name == name && p.In == "path" }) {
				t.Errorf("%s: openapi.json lacks the parameter %s", r.name(), name)
			}
		}
	}
	for path, methods := range d.Paths {
		for method := range methods {
			if name := strings.ToUpper(method) + " " + path; !routes[name] {
				t.Errorf("openapi.json has %s, which no route is for", name)
			}
		}
	}
}

// TestDocumentHasEachField compares the schemas that are written by hand with what is read, and with problems.
func TestDocumentHasEachField(t *testing.T) {
	d := readDocument(t)
	names := request.FieldNames()
	want := map[string][]string{
		"Message": names.Request, "Recipient": names.Recipient, "Attachment": names.Attachment,
		"Problem": {"type", "title", "status", "detail", "faults", "code", "messages", "id", "recipients"},
	}
	for schema, fields := range want {
		got := slices.Sorted(maps.Keys(d.Components.Schemas[schema].Properties))
		slices.Sort(fields)
		if !slices.Equal(got, fields) {
			t.Errorf("schema %s has the fields %v, want %v", schema, got, fields)
		}
	}
	var parameters []string
	for _, p := range d.Paths["/v1/messages"]["post"].Parameters {
		if p.In == "query" {
			parameters = append(parameters, p.Name)
		}
	}
	if slices.Sort(parameters); !slices.Equal(parameters, names.Parameters) {
		t.Errorf("POST /v1/messages has the parameters %v, want %v", parameters, names.Parameters)
	}
}

// TestOptionalFieldsMayBeNull: null means that a field is not given, and clients generated from the document may send it.
func TestOptionalFieldsMayBeNull(t *testing.T) {
	type object struct {
		Required   []string
		Properties map[string]json.RawMessage
	}
	var d struct {
		Paths map[string]map[string]struct {
			RequestBody struct {
				Content map[string]struct{ Schema object }
			}
		}
		Components struct{ Schemas map[string]object }
	}
	if err := json.Unmarshal(openAPI, &d); err != nil {
		t.Fatal(err)
	}
	objects := map[string]object{}
	for path, methods := range d.Paths {
		for _, operation := range methods {
			objects[path] = operation.RequestBody.Content["application/json"].Schema
		}
	}
	for _, name := range []string{"Message", "Recipient", "Attachment"} {
		objects[name] = d.Components.Schemas[name]
	}
	for place, o := range objects {
		for name, schema := range o.Properties {
			if !slices.Contains(o.Required, name) && !strings.Contains(string(schema), `"null"`) {
				t.Errorf("%s: the optional field %s can't be null", place, name)
			}
		}
	}
}

// TestExamplesOfTheDocumentRun sends each of them.
func TestExamplesOfTheDocumentRun(t *testing.T) {
	s := wholeServer(t)
	ran := 0
	send := func(method, path, mediaType string, example []byte) {
		query := ""
		if mediaType != "application/json" {
			var text string
			if err := json.Unmarshal(example, &text); err != nil {
				t.Fatal(err)
			}
			example, query = []byte(text), "?from=shop@acme.example&to=ann@example.com"
		}
		ran++
		w := ask(s, method, path+query, "good", strings.NewReader(string(example)), "Content-Type", mediaType)
		if w.Code != http.StatusAccepted && w.Code != http.StatusOK {
			t.Errorf("%s %s: %s is answered %d %s", method, path, example, w.Code, w.Body)
		}
	}
	for path, methods := range readDocument(t).Paths {
		for method, operation := range methods {
			for mediaType, c := range operation.RequestBody.Content {
				if c.Example != nil {
					send(strings.ToUpper(method), path, mediaType, c.Example)
				}
				for _, e := range c.Examples {
					send(strings.ToUpper(method), path, mediaType, e.Value)
				}
			}
		}
	}
	if ran < 7 {
		t.Errorf("%d examples, too few", ran)
	}
}

func TestDocumentIsServed(t *testing.T) {
	w := ask(wholeServer(t), "GET", "/openapi.json", "", nil)
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" || w.Body.String() != string(openAPI) {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	if d := readDocument(t); !strings.HasPrefix(d.OpenAPI, "3.1.") {
		t.Errorf("the version is %s", d.OpenAPI)
	}
}
