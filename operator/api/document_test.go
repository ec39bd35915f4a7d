package api

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/openapi"
)

var update = flag.Bool("update", false, "write openapi.json")

// TestDocumentIsMadeFromTheCode: openapi.json is what the table of operations, their types and the comments of these
// give. 'make generate' writes it.
func TestDocumentIsMadeFromTheCode(t *testing.T) {
	d := generator{&openapi.Schemas{Made: object{}, Name: schemaName, Special: special, Optional: func(t reflect.Type, name string) bool {
		return t == reflect.TypeFor[Change]() && name == "filter"
	}}}
	for _, dir := range []string{".", "../audit", "../../warmup", "../../delivery/tlspolicy/tlsrpt"} {
		if err := d.ReadComments(filepath.Join(reflect.TypeFor[Site]().PkgPath(), dir), dir); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(d.document()); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("openapi.json", b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if !bytes.Equal(b.Bytes(), openAPI) {
		t.Error("openapi.json is not what the code says: make generate")
	}
}

type object = openapi.Object

// generator makes the document.
type generator struct{ *openapi.Schemas }

// special are the types whose schemas are not as usual.
func special(t reflect.Type) object {
	switch t {
	case reflect.TypeFor[Figure]():
		return object{"type": []string{"number", "null"}}
	case reflect.TypeFor[State](), reflect.TypeFor[Age]():
		return openapi.Ref(t.Name())
	}
	if words := wordsOf[t]; words != nil {
		return object{"type": "string", "enum": words}
	}
	return nil
}

func (d *generator) document() object {
	paths := object{}
	for _, o := range operations {
		methods, _ := paths[o.path].(object)
		if methods == nil {
			methods = object{}
			paths[o.path] = methods
		}
		methods[strings.ToLower(o.method)] = d.operation(o)
	}
	d.Of(reflect.TypeFor[Error]())
	about := "the state of a recipient"
	for _, s := range envelope.States {
		about += "; " + string(s.State) + ": " + s.Meaning
	}
	d.Made["State"] = object{"type": "string", "enum": States, "description": about}
	d.Made["Age"] = object{"type": "string", "pattern": "^([0-9]+[wdhms])+$", "description": "a duration: 90s, 15m, 2h30m, 3d, 1w"}
	return object{
		"openapi": "3.1.0",
		"info": object{
			"title": "mta control API", "version": "1", "description": "What an operator asks of a running relay: HTTP and JSON on a " +
				"unix socket. Unknown parameters and fields are refused. Fields may be added to answers.",
		},
		"servers": []object{{
			"url":         "http://relay",
			"description": "on the unix socket: curl --unix-socket mta-data/control.sock http://relay/v1/status",
		}},
		"paths": paths,
		"components": object{
			"schemas":   d.Made,
			"responses": object{"Error": object{"description": "why not", "content": openapi.Content("application/json", openapi.Ref("Error"))}},
			"parameters": object{"reason": object{
				"name": reasonHeader, "in": "header", "schema": object{"type": "string"},
				"description": "why, for the audit log: percent-encoded UTF-8, 500 octets at most",
			}, "node": object{
				"name": nodeHeader, "in": "header", "schema": object{"type": "integer", "minimum": 1, "maximum": 1023},
				"description": "the number of the cluster's node that answers, in 5 s at most, or the answer is 502; absent: this relay. " +
					"/v1/log takes it with order=newest and order=following alone",
			}},
		},
	}
}

// pathHelp is about the names in paths.
var pathHelp = map[string]string{
	"messages": "of the message", "inbound": "of the mail", "streams": "of the stream", "pools": "of the pool", "mta-sts": "of recipients",
	"warmup": "of the source, or its IP", "sites": "the name of a site, or a domain that it serves",
}

var inPath = regexp.MustCompile(`^/v1/([a-z-]+).*\{([a-z]+)\}`)

func (d *generator) operation(o *operation) object {
	var params []object
	if m := inPath.FindStringSubmatch(o.path); m != nil {
		schema := object{"type": "string"}
		if m[2] == "id" {
			schema["minLength"], schema["maxLength"] = 13, 13
		}
		params = append(params, object{"name": m[2], "in": "path", "required": true, "description": pathHelp[m[1]], "schema": schema})
	}
	failed := object{"$ref": "#/components/responses/Error"}
	answers := object{"200": object{"description": d.answer(o), "content": d.content(o)}, "default": failed}
	out := object{"operationId": o.name, "summary": o.help, "responses": answers}
	switch {
	case o.takes != "":
		out["requestBody"] = object{"required": true, "content": openapi.Content(o.takes, object{"type": "string", "format": "binary"})}
	case o.method == "POST":
		schema := d.Of(o.request)
		bare := []reflect.Type{reflect.TypeFor[Intent](), reflect.TypeFor[FinishUpgrade](), reflect.TypeFor[StageChoice]()}
		own := !slices.Contains(bare, o.request)
		out["requestBody"] = object{"required": own, "content": openapi.Content("application/json", schema)}
	}
	if o.method == "GET" || o.takes != "" {
		for _, p := range Params(reflect.New(o.request).Interface()) {
			params = append(params, object{"name": p.Name, "in": "query", "description": openapi.PlainHelp(p.Help), "schema": d.parameter(p)})
		}
	}
	if o.method == "POST" && o.action != "" {
		answers["409"] = failed
	}
	if o.method == "POST" && (o.action != "" || o.name == OpBeginFileChange.name) {
		params = append(params, object{"$ref": "#/components/parameters/reason"})
	}
	if o.travels() {
		params = append(params, object{"$ref": "#/components/parameters/node"})
	}
	if params != nil {
		out["parameters"] = params
	}
	return out
}

// answer describes the answer to an operation.
func (d *generator) answer(o *operation) string {
	if text := d.About(o.answer, ""); text != "" {
		return text
	}
	return map[string]string{
		"message/rfc822": "the content", "text/plain": "as a file that loads", "application/json": "OpenAPI",
		"application/x-tar": "a tar archive, at whose end is the file that lists it; without that it is not whole",
	}[o.media]
}

func (d *generator) content(o *operation) object {
	text := object{"type": "string"}
	switch o.media {
	case "":
		return openapi.Content("application/json", d.Of(o.answer))
	case "application/json":
		return openapi.Content(o.media, object{"type": "object"})
	case "application/x-ndjson":
		if o.answer == reflect.TypeFor[TraceLine]() {
			return openapi.Content(o.media, d.Of(o.answer))
		}
	case "message/rfc822", "application/x-tar":
		text["format"] = "binary"
	}
	whole := openapi.Content(o.media, text)
	if o.answer.Kind() != reflect.Interface {
		whole["application/json"] = object{"schema": d.Of(o.answer)}
	}
	return whole
}

func (d *generator) parameter(p Param) object {
	schema := d.Of(p.value.Type())
	least, most := p.bounds()
	switch {
	case p.IsFlag():
		schema["default"] = false
	case p.IsList():
		schema = object{"type": "string"}
	case p.value.Kind() == reflect.Int:
		schema["minimum"] = least
		if p.Tag.Get("max") != "" {
			schema["maximum"] = most
		}
		if n, err := strconv.Atoi(p.Default); err == nil {
			schema["default"] = n
		}
		return schema
	}
	if schema["$ref"] == nil && len(p.Words) > 0 {
		schema["enum"] = p.Words
	}
	if p.Default != "" {
		schema["default"] = p.Default
	}
	return schema
}
