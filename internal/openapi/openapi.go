// Package openapi describes Go types as schemas of OpenAPI 3.1. Names and bounds come from their tags, descriptions
// from their comments. It serves the tests that write and compare the documents of the relay's two APIs.
package openapi

import (
	"cmp"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Object is one of JSON.
type Object = map[string]any

// Ref refers to a schema of the document.
func Ref(name string) Object { return Object{"$ref": "#/components/schemas/" + name} }

// Content is a body of one media type.
func Content(media string, schema Object) Object { return Object{media: Object{"schema": schema}} }

// Schemas are the schemas of a document.
type Schemas struct {
	Made Object                    // by their names
	Name func(reflect.Type) string // nil: the names of types are those of schemas
	// Special gives the schemas of types that are not as usual; nil for the others.
	Special func(reflect.Type) Object
	// Optional reports whether a field without omitempty may be absent from requests; nil: none may.
	Optional func(t reflect.Type, name string) bool

	comments map[string]string // by type, and by type and field, with the path of the package in front
}

// ReadComments reads the comments of a package's types.
func (s *Schemas) ReadComments(path, dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return err
	}
	if s.comments == nil {
		s.comments = make(map[string]string)
	}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		for _, decl := range f.Decls {
			g, ok := decl.(*ast.GenDecl)
			if !ok || g.Tok != token.TYPE {
				continue
			}
			for _, spec := range g.Specs {
				spec := spec.(*ast.TypeSpec)
				name := path + "." + spec.Name.Name
				s.comments[name] = oneLine(cmp.Or(spec.Doc.Text(), g.Doc.Text()))
				if body, ok := spec.Type.(*ast.StructType); ok {
					for _, field := range body.Fields.List {
						for _, n := range field.Names {
							s.comments[name+"."+n.Name] = oneLine(field.Doc.Text() + " " + field.Comment.Text())
						}
					}
				}
			}
		}
	}
	return nil
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// About is the comment of a type, without its name, or of its field.
func (s *Schemas) About(t reflect.Type, field string) string {
	name := t.PkgPath() + "." + t.Name()
	if field != "" {
		return s.comments[name+"."+field]
	}
	text := strings.TrimSuffix(s.comments[name], ".")
	for _, verb := range []string{" is ", " are ", " "} {
		if rest, ok := strings.CutPrefix(text, t.Name()+verb); ok {
			return rest
		}
	}
	return text
}

var placeholder = regexp.MustCompile(`<([a-z, ]+)>`)

// PlainHelp is the text of a help tag without the marks of placeholders.
func PlainHelp(help string) string { return placeholder.ReplaceAllString(help, "$1") }

// Of is the schema of a type. That of a struct stands among those that were made, under its name.
func (s *Schemas) Of(t reflect.Type) Object {
	if s.Special != nil {
		if o := s.Special(t); o != nil {
			return o
		}
	}
	switch t {
	case reflect.TypeFor[time.Time]():
		return Object{"type": "string", "format": "date-time"}
	case reflect.TypeFor[json.RawMessage]():
		return Object{"type": "object"}
	case reflect.TypeFor[[]byte]():
		return Object{"type": "string", "contentEncoding": "base64"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.Of(t.Elem())
	case reflect.Bool:
		return Object{"type": "boolean"}
	case reflect.Float64:
		return Object{"type": "number"}
	case reflect.Slice:
		return Object{"type": "array", "items": s.Of(t.Elem())}
	case reflect.Map:
		if t.Elem().Kind() == reflect.Interface {
			return Object{"type": "object"}
		}
		return Object{"type": "object", "additionalProperties": s.Of(t.Elem())}
	case reflect.Struct:
		if t.PkgPath() == "net/netip" {
			return Object{"type": "string"}
		}
		return s.ofStruct(t)
	case reflect.String:
		return Object{"type": "string"}
	}
	return Object{"type": "integer"}
}

// ofStruct describes a struct, once.
func (s *Schemas) ofStruct(t reflect.Type) Object {
	name := t.Name()
	if s.Name != nil {
		name = s.Name(t)
	}
	if s.Made[name] == nil {
		properties, required := Object{}, []string{}
		whole := Object{"type": "object", "description": s.About(t, ""), "properties": properties}
		s.Made[name] = whole
		s.properties(t, properties, &required)
		if len(required) > 0 {
			whole["required"] = required
		}
	}
	return Ref(name)
}

func (s *Schemas) properties(t reflect.Type, properties Object, required *[]string) {
	for f := range t.Fields() {
		name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			s.properties(f.Type, properties, required)
		case name != "" && name != "-" && f.IsExported():
			properties[name] = s.property(t, f)
			if option == "" && (s.Optional == nil || !s.Optional(t, name)) {
				*required = append(*required, name)
			}
		}
	}
}

func (s *Schemas) property(t reflect.Type, f reflect.StructField) Object {
	p := s.Of(f.Type)
	if about := cmp.Or(s.About(t, f.Name), PlainHelp(f.Tag.Get("help"))); about != "" {
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
