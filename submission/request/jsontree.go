package request

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// Kind is what a value is.
type Kind uint8

// The kinds of values.
const (
	Null Kind = iota
	Bool
	Number
	String
	Object
	Array
)

// String names the kind with its article, as in "want a string".
func (k Kind) String() string {
	return [...]string{"null", "true or false", "a number", "a string", "an object", "an array"}[k]
}

// Fault is something wrong with a document.
type Fault struct {
	Pointer string `json:"pointer"`          // to the place, a JSON pointer (RFC 6901); "" is the whole document
	Detail  string `json:"detail"`           // what is wrong
	Remedy  string `json:"remedy,omitempty"` // what to send in its place
}

// TreeLimits bound the tree, and so the memory that a document costs beside its own octets: about 150
// octets a value.
type TreeLimits struct {
	Depth  int // levels of objects and arrays
	Values int
	// Opaque reports whether an object or array is one value, whose source alone is kept: an array of
	// octets would else cost 150 times its content. Nil: none is.
	Opaque func(*Node) bool
}

// maxTreeFaults is how many duplicate names are listed.
const maxTreeFaults = 100

// Node is a value of a document. It knows its place as a JSON pointer (RFC 6901), so that each fault that is found with
// it can name the place. It refers to the document's octets, which must not change.
type Node struct {
	Kind  Kind
	Name  string // in an object
	Index int    // in an object or array, from 0
	Len   int    // children

	raw    []byte
	parent *Node
	first  *Node
	last   *Node
	next   *Node
}

// ParseTree reads a document. The root is nil if the document isn't JSON, is deeper or has more values than
// the limits allow: then the last fault gives the reason. Faults beside a root are names that stand twice
// in an object, up to 100 of them; the first of two is in the tree.
func ParseTree(doc []byte, l TreeLimits) (*Node, []Fault) {
	p := parser{doc: doc, limits: l, dec: decoders.Get().(*jsontext.Decoder)}
	p.dec.Reset(bytes.NewBuffer(doc), jsontext.AllowDuplicateNames(true))
	defer p.release()
	root, err := p.value(nil)
	if err == nil {
		if _, err = p.dec.ReadToken(); err == io.EOF {
			return root, p.faults
		}
		if err == nil {
			err = errors.New("there is more data after the end of the document")
		}
	}
	return nil, append(p.faults, p.fault(err))
}

// decoders are for use again.
var decoders = sync.Pool{New: func() any { return new(jsontext.Decoder) }}

type parser struct {
	doc    []byte
	dec    *jsontext.Decoder
	limits TreeLimits
	depth  int
	values int
	free   []Node // nodes are made in blocks
	faults []Fault
}

// release gives the decoder back, without the document.
func (p *parser) release() {
	p.dec.Reset(bytes.NewBuffer(nil), jsontext.AllowDuplicateNames(true))
	decoders.Put(p.dec)
}

// fault describes an error that ends the reading.
func (p *parser) fault(err error) Fault {
	at, pointer, remedy := p.dec.InputOffset(), string(p.dec.StackPointer()), ""
	var s *jsontext.SyntacticError
	if errors.As(err, &s) {
		at, pointer, err = s.ByteOffset, string(s.JSONPointer), s.Err
		remedy = "send one JSON document (RFC 8259), in UTF-8"
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		err, at = errors.New("the document ends early"), int64(len(p.doc))
	}
	before := p.doc[:min(at, int64(len(p.doc)))]
	line, column := 1+bytes.Count(before, []byte("\n")), len(before)-bytes.LastIndexByte(before, '\n')
	return Fault{short(pointer), fmt.Sprintf("line %d, column %d: %v", line, column, err), remedy}
}

// short gives a pointer to a container where the pointer itself is longer than a client can want to read.
func short(pointer string) string {
	for len(pointer) > 512 {
		pointer = pointer[:strings.LastIndexByte(pointer, '/')]
	}
	return pointer
}

// node makes a node below parent.
func (p *parser) node(parent *Node, name string) (*Node, error) {
	if p.values++; p.values > p.limits.Values {
		return nil, fmt.Errorf("the document has more than %d values", p.limits.Values)
	}
	if len(p.free) == 0 {
		p.free = make([]Node, min(max(8, p.values), 1024))
	}
	n := &p.free[0]
	p.free = p.free[1:]
	n.parent, n.Name = parent, name
	if parent != nil {
		n.Index = parent.Len
	}
	return n, nil
}

// value reads the next value with all that is in it.
func (p *parser) value(parent *Node) (*Node, error) {
	n, err := p.node(parent, "")
	if err != nil {
		return nil, err
	}
	return n, p.fill(n)
}

// fill reads the next value into n.
func (p *parser) fill(n *Node) error {
	switch k := p.dec.PeekKind(); k {
	case '{', '[':
		if n.Kind = Array; k == '{' {
			n.Kind = Object
		}
		if p.limits.Opaque != nil && p.limits.Opaque(n) {
			break
		}
		if p.depth++; p.depth > p.limits.Depth {
			return fmt.Errorf("objects and arrays are nested deeper than %d levels", p.limits.Depth)
		}
		if _, err := p.dec.ReadToken(); err != nil {
			return err
		}
		start := p.dec.InputOffset() - 1
		members := p.elements
		if k == '{' {
			members = p.members
		}
		if err := members(n); err != nil {
			return err
		}
		if _, err := p.dec.ReadToken(); err != nil { // } or ]
			return err
		}
		n.raw = p.doc[start:p.dec.InputOffset()]
		p.depth--
		return nil
	case 'n':
		n.Kind = Null
	case 't', 'f':
		n.Kind = Bool
	case '0':
		n.Kind = Number
	case '"':
		n.Kind = String
	}
	v, err := p.dec.ReadValue()
	if err != nil {
		return err
	}
	end := p.dec.InputOffset()
	n.raw = p.doc[end-int64(len(v)) : end]
	return nil
}

func (p *parser) elements(n *Node) error {
	for p.more(']') {
		child, err := p.value(n)
		if err != nil {
			return err
		}
		n.add(child)
	}
	return nil
}

// more reports whether the container goes on. At a syntax error it does, so that the error is met.
func (p *parser) more(end jsontext.Kind) bool { return p.dec.PeekKind() != end }

func (p *parser) members(n *Node) error {
	var seen seenNames
	for p.more('}') {
		token, err := p.dec.ReadToken()
		if err != nil {
			return err
		}
		child, err := p.node(n, token.String())
		if err != nil {
			return err
		}
		if err := p.fill(child); err != nil {
			return err
		}
		if seen.has(n, child.Name) {
			if len(p.faults) < maxTreeFaults {
				p.faults = append(p.faults,
					Fault{child.Pointer(), "the name appears twice in the object", "send it once"})
			}
			continue
		}
		n.add(child)
	}
	return nil
}

// names finds a name that an object has already.
type seenNames map[string]bool

// has reports whether n has a member of this name.
func (s *seenNames) has(n *Node, name string) bool {
	if n.Len < 16 {
		for c := n.first; c != nil; c = c.next {
			if c.Name == name {
				return true
			}
		}
		return false
	}
	if *s == nil {
		*s = make(seenNames)
		for c := n.first; c != nil; c = c.next {
			(*s)[c.Name] = true
		}
	}
	twice := (*s)[name]
	(*s)[name] = true
	return twice
}

func (n *Node) add(child *Node) {
	n.Len++
	if n.last == nil {
		n.first = child
	} else {
		n.last.next = child
	}
	n.last = child
}

// All gives the children in the document's order.
func (n *Node) All() iter.Seq[*Node] {
	return func(yield func(*Node) bool) {
		for c := n.first; c != nil; c = c.next {
			if !yield(c) {
				return
			}
		}
	}
}

// Get gives the member of an object, nil if there is none.
func (n *Node) Get(name string) *Node {
	for c := n.first; c != nil; c = c.next {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// Raw is the value as it stands in the document.
func (n *Node) Raw() []byte { return n.raw }

// Text is a string's value; a number, true, false and null as they stand in the document. An object or
// array has none.
func (n *Node) Text() string {
	switch n.Kind {
	case Object, Array:
		return ""
	case String:
		if bytes.IndexByte(n.raw, '\\') < 0 {
			return string(n.raw[1 : len(n.raw)-1])
		}
		scratch := scratches.Get().(*[scratchSize]byte)
		defer scratches.Put(scratch)
		text, _ := jsontext.AppendUnquote(scratch[:0], n.raw) // the decoder has checked it
		return string(text)
	}
	return string(n.raw)
}

const scratchSize = 4 << 10

// scratches have room for a string that is being unescaped; a longer one gets its own.
var scratches = sync.Pool{New: func() any { return new([scratchSize]byte) }}

// True reports whether the value is true.
func (n *Node) True() bool { return n.Kind == Bool && n.raw[0] == 't' }

// Any gives the value as package encoding/json does, numbers as json.Number.
func (n *Node) Any() any {
	switch n.Kind {
	case Bool:
		return n.True()
	case Number:
		return json.Number(n.raw)
	case String:
		return n.Text()
	case Array:
		all := make([]any, 0, n.Len)
		for c := range n.All() {
			all = append(all, c.Any())
		}
		return all
	case Object:
		return n.Map()
	}
	return nil
}

// Map gives an object as package encoding/json does, numbers as json.Number.
func (n *Node) Map() map[string]any {
	m := make(map[string]any, n.Len)
	for c := range n.All() {
		m[c.Name] = c.Any()
	}
	return m
}

// escaper writes a name as a token of a pointer (RFC 6901, 3).
var escaper = strings.NewReplacer("~", "~0", "/", "~1")

// Pointer names the value's place. A place whose name is very long is named by the object that it is in.
func (n *Node) Pointer() string {
	if n.parent == nil {
		return ""
	}
	token := n.Name
	if n.parent.Kind == Array {
		token = strconv.Itoa(n.Index)
	}
	if len(token) > 256 {
		return n.parent.Pointer()
	}
	return short(n.parent.Pointer() + "/" + escaper.Replace(token))
}
