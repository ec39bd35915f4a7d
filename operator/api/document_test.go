package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
)

var update = flag.Bool("update", false, "write openapi.json")

// TestDocumentIsMadeFromTheCode: openapi.json is what the table of operations, their types and the comments of these
// give. 'make generate' writes it.
func TestDocumentIsMadeFromTheCode(t *testing.T) {
	d := generator{t: t, comments: map[string]string{}, schemas: map[string]any{}}
	for _, dir := range []string{".", "../audit", "../../warmup", "../../delivery/tlspolicy/tlsrpt"} {
		d.readComments(dir)
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

// object is one of JSON.
type object = map[string]any

// generator makes the document.
type generator struct {
	t        *testing.T
	comments map[string]string // by "Type" and "Type.Field", with the path of the package in front
	schemas  object
}

// readComments reads the comments of a package's types.
func (d *generator) readComments(dir string) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		d.t.Fatal(err)
	}
	path := reflect.TypeFor[Site]().PkgPath()
	if dir != "." {
		path = filepath.Join(path, dir)
	}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			d.t.Fatal(err)
		}
		for _, decl := range f.Decls {
			g, ok := decl.(*ast.GenDecl)
			if !ok || g.Tok != token.TYPE {
				continue
			}
			for _, spec := range g.Specs {
				spec := spec.(*ast.TypeSpec)
				d.comments[path+"."+spec.Name.Name] = oneLine(cmp.Or(spec.Doc.Text(), g.Doc.Text()))
				if s, ok := spec.Type.(*ast.StructType); ok {
					for _, field := range s.Fields.List {
						for _, name := range field.Names {
							d.comments[path+"."+spec.Name.Name+"."+name.Name] = oneLine(field.Doc.Text() + " " + field.Comment.Text())
						}
					}
				}
			}
		}
	}
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// about is the comment of a type, without its name, or of its field.
func (d *generator) about(typ reflect.Type, field string) string {
	name := typ.PkgPath() + "." + typ.Name()
	if field != "" {
		return d.comments[name+"."+field]
	}
	text := strings.TrimSuffix(d.comments[name], ".")
	for _, verb := range []string{" is ", " are ", " "} {
		if rest, ok := strings.CutPrefix(text, typ.Name()+verb); ok {
			return rest
		}
	}
	return text
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
	d.schema(reflect.TypeFor[Error]())
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
			"schemas":   d.schemas,
			"responses": object{"Error": object{"description": "why not", "content": content("application/json", ref("Error"))}},
			"parameters": object{"reason": object{
				"name": reasonHeader, "in": "header", "schema": object{"type": "string"},
				"description": "why, for the audit log: percent-encoded UTF-8, 500 octets at most",
			}},
		},
	}
}

func ref(name string) object { return object{"$ref": "#/components/schemas/" + name} }

func content(media string, schema object) object { return object{media: object{"schema": schema}} }

// pathHelp is about the names in paths.
var pathHelp = map[string]string{
	"messages": "of the message", "inbound": "of the mail", "streams": "of the stream", "mta-sts": "of recipients",
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
		out["requestBody"] = object{"required": true, "content": content(o.takes, object{"type": "string", "format": "binary"})}
	case o.method == "POST":
		schema := d.schema(o.request)
		bare := []reflect.Type{reflect.TypeFor[Intent](), reflect.TypeFor[FinishUpgrade](), reflect.TypeFor[StageChoice]()}
		own := !slices.Contains(bare, o.request)
		out["requestBody"] = object{"required": own, "content": content("application/json", schema)}
	}
	if o.method == "GET" || o.takes != "" {
		for _, p := range Params(reflect.New(o.request).Interface()) {
			params = append(params, object{"name": p.Name, "in": "query", "description": plainHelp(p.Help), "schema": d.parameter(p)})
		}
	}
	if o.method == "POST" && o.action != "" {
		answers["409"] = failed
	}
	if o.method == "POST" && (o.action != "" || o.name == opBeginFileChange.name) {
		params = append(params, object{"$ref": "#/components/parameters/reason"})
	}
	if params != nil {
		out["parameters"] = params
	}
	return out
}

var placeholder = regexp.MustCompile(`<([a-z, ]+)>`)

func plainHelp(help string) string { return placeholder.ReplaceAllString(help, "$1") }

// answer describes the answer to an operation.
func (d *generator) answer(o *operation) string {
	if text := d.about(o.answer, ""); text != "" {
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
		return content("application/json", d.schema(o.answer))
	case "application/json":
		return content(o.media, object{"type": "object"})
	case "application/x-ndjson":
		if o.answer == reflect.TypeFor[TraceLine]() {
			return content(o.media, d.schema(o.answer))
		}
	case "message/rfc822", "application/x-tar":
		text["format"] = "binary"
	}
	whole := content(o.media, text)
	if o.answer.Kind() != reflect.Interface {
		whole["application/json"] = object{"schema": d.schema(o.answer)}
	}
	return whole
}

func (d *generator) parameter(p Param) object {
	schema := d.plain(p.value.Type())
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

// plain is the schema of a type. That of a struct stands among the others, under its name.
func (d *generator) plain(t reflect.Type) object {
	switch t {
	case reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case reflect.TypeFor[json.RawMessage]():
		return object{"type": "object"}
	case reflect.TypeFor[State]():
		about := "the state of a recipient"
		for _, s := range envelope.States {
			about += "; " + string(s.State) + ": " + s.Meaning
		}
		d.schemas["State"] = object{"type": "string", "enum": States, "description": about}
		return ref("State")
	case reflect.TypeFor[Age]():
		d.schemas["Age"] = object{"type": "string", "pattern": "^([0-9]+[wdhms])+$", "description": "a duration: 90s, 15m, 2h30m, 3d, 1w"}
		return ref("Age")
	case reflect.TypeFor[Figure]():
		return object{"type": []string{"number", "null"}}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return d.plain(t.Elem())
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Slice:
		return object{"type": "array", "items": d.plain(t.Elem())}
	case reflect.Map:
		if t.Elem().Kind() == reflect.Interface {
			return object{"type": "object"}
		}
		return object{"type": "object", "additionalProperties": d.plain(t.Elem())}
	case reflect.Struct:
		if t.PkgPath() == "net/netip" {
			return object{"type": "string"}
		}
		return d.schema(t)
	case reflect.String:
		if words := wordsOf[t]; words != nil {
			return object{"type": "string", "enum": words}
		}
		return object{"type": "string"}
	}
	return object{"type": "integer"}
}

// schema describes a struct, once.
func (d *generator) schema(t reflect.Type) object {
	if t.Kind() != reflect.Struct {
		return d.plain(t)
	}
	name := schemaName(t)
	if d.schemas[name] != nil {
		return ref(name)
	}
	properties, required := object{}, []string{}
	whole := object{"type": "object", "description": d.about(t, ""), "properties": properties}
	d.schemas[name] = whole
	d.properties(t, properties, &required)
	if len(required) > 0 {
		whole["required"] = required
	}
	return ref(name)
}

func (d *generator) properties(t reflect.Type, properties object, required *[]string) {
	for f := range t.Fields() {
		name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			d.properties(f.Type, properties, required)
		case name != "" && name != "-" && f.IsExported():
			properties[name] = d.property(t, f)
			if option == "" && !(t == reflect.TypeFor[Change]() && name == "filter") {
				*required = append(*required, name)
			}
		}
	}
}

func (d *generator) property(t reflect.Type, f reflect.StructField) object {
	p := d.plain(f.Type)
	if about := cmp.Or(d.about(t, f.Name), plainHelp(f.Tag.Get("help"))); about != "" {
		p["description"] = about
	}
	if words := f.Tag.Get("words"); words != "" {
		p["enum"] = strings.Split(words, ",")
	}
	for tag, key := range map[string]string{"min": "minimum", "max": "maximum", "default": "default"} {
		text := f.Tag.Get(tag)
		if n, err := strconv.Atoi(text); err == nil {
			p[key] = n
		} else if text != "" && f.Tag.Get("q") == "" {
			p[key] = text
		}
	}
	return p
}
