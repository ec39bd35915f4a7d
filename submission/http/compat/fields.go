package compat

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"example.org/mta/internal/legible"
	"example.org/mta/submission/request"
)

// use is what becomes of a field of another service's request.
type use uint8

const (
	done    use = iota // it has the effect that it has there
	ignored            // the message is sent without it, and X-MTA-Ignored names it
	refused            // the request is refused: without it, something else than asked would be sent
)

func (u use) String() string { return [...]string{"done", "ignored", "refused"}[u] }

// kind is what a field's value must be.
type kind uint8

const (
	text     kind = iota
	number        // a whole number
	flag          // true or false
	object        // with the fields in field.in; with none, of any content
	objects       // an array of such objects
	texts         // an array of strings
	textList      // a string, or an array of strings
	content       // base64, or an array of octets
)

func (k kind) String() string {
	return [...]string{
		"a string", "a whole number", "true or false", "an object", "an array of objects", "an array of strings",
		"a string, or an array of strings", "base64 in a string, or an array of octets",
	}[k]
}

// field is a row of a service's table: the manual has the same rows, and a test compares the two.
type field struct {
	name   string
	kind   kind
	use    use
	remedy string // of a refused field: what to do in its place
	// active reports whether the value asks for anything: one that doesn't is done by doing nothing. Nil:
	// it always does.
	active func(*request.Node) bool
	in     []field
}

// enabled is for settings that ask for something only if "enable" is true.
func enabled(n *request.Node) bool {
	e := n.Get("enable")
	return e != nil && e.Kind == request.Bool && e.True()
}

// filled is for values that ask for nothing when they are empty.
func filled(n *request.Node) bool {
	switch n.Kind {
	case request.Bool:
		return n.True()
	case request.Object, request.Array:
		return n.Len > 0
	}
	return n.Text() != ""
}

// reader checks a document against a table, and collects what is wrong with it.
type reader struct {
	faults  []request.Fault
	ignored []string // the names of the fields, each once
}

// limits bound a document. A message with the most recipients has a few thousand values.
var limits = request.TreeLimits{Depth: 32, Values: 200_000, Opaque: octetArray}

// octetArray reports whether a value is the content of an attachment as an array of octets.
func octetArray(n *request.Node) bool {
	return n.Kind == request.Array && n.Name == "content" && attachmentContent.MatchString(n.Pointer())
}

var attachmentContent = regexp.MustCompile(`^(/[0-9]+)?/attachments/[0-9]+/content$`)

// most is how many faults are listed.
const most = 100

func (r *reader) fault(pointer, detail, remedy string) {
	if len(r.faults) < most {
		r.faults = append(r.faults, request.Fault{Pointer: pointer, Detail: detail, Remedy: remedy})
	}
}

func (r *reader) ignore(path string) {
	if !slices.Contains(r.ignored, path) {
		r.ignored = append(r.ignored, path)
	}
}

// object checks the members of an object. path is its name with those that it is in, and a dot.
func (r *reader) object(n *request.Node, fields []field, path string) {
	for m := range n.All() {
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == m.Name })
		switch {
		case i < 0:
			r.unknown(m, fields)
		case m.Kind != request.Null: // SDKs send null for what was not set
			r.field(m, &fields[i], path+m.Name)
		}
	}
}

func (r *reader) unknown(m *request.Node, fields []field) {
	if len(r.faults) >= most { // the search for a similar name takes its time
		return
	}
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	remedy := "leave it out"
	if guess := legible.Nearest(m.Name, names); guess != "" {
		remedy = fmt.Sprintf("did you mean %q?", guess)
	}
	r.fault(m.Pointer(), "there is no such field", remedy)
}

func (r *reader) field(n *request.Node, f *field, path string) {
	if !f.kind.fits(n) {
		r.fault(n.Pointer(), "want "+f.kind.String()+", not "+n.Kind.String(), "")
		return
	}
	if f.active == nil || f.active(n) {
		switch f.use {
		case ignored:
			r.ignore(path)
			return
		case refused:
			r.fault(n.Pointer(), "the relay does not support this, and sends nothing other than what was asked",
				f.remedy)
			return
		}
	}
	switch {
	case len(f.in) == 0:
	case f.kind == object:
		r.object(n, f.in, path+".")
	case f.kind == objects:
		for o := range n.All() {
			r.object(o, f.in, path+".")
		}
	}
}

func (k kind) fits(n *request.Node) bool {
	each := func(k request.Kind) bool {
		for e := range n.All() {
			if e.Kind != k {
				return false
			}
		}
		return n.Kind == request.Array
	}
	switch k {
	case text:
		return n.Kind == request.String
	case number:
		return n.Kind == request.Number && strings.Trim(n.Text(), "0123456789") == ""
	case flag:
		return n.Kind == request.Bool
	case object:
		return n.Kind == request.Object
	case objects:
		return each(request.Object)
	case texts:
		return each(request.String)
	case textList:
		return n.Kind == request.String || each(request.String)
	case content:
		return n.Kind == request.String || n.Kind == request.Array
	}
	return false
}

// at gives what stands at a path of names, nil if there is nothing or null.
func at(n *request.Node, path ...string) *request.Node {
	for _, name := range path {
		if n == nil || n.Kind != request.Object {
			return nil
		}
		n = n.Get(name)
	}
	if n == nil || n.Kind == request.Null {
		return nil
	}
	return n
}

// textAt is the string at a path, "" if there is none.
func textAt(n *request.Node, path ...string) string {
	if n = at(n, path...); n == nil {
		return ""
	}
	return n.Text()
}

// each gives the elements of the array at a path; a string is an array of one.
func each(n *request.Node, path ...string) (all []*request.Node) {
	switch n = at(n, path...); {
	case n == nil:
	case n.Kind != request.Array:
		all = append(all, n)
	default:
		all = slices.Collect(n.All())
	}
	return all
}
