// Package importer writes a configuration of the relay from that of another mail server: the packages
// below it read, and this one has the draft of mta.conf in which every line names its origin, the
// notes on all that has no exact counterpart, and the list of faults. It knows the text of the file and nothing of the
// relay; the caller checks the result. It starts no goroutines.
package importer

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
)

// Origin is the place of a directive in the configuration that is imported.
type Origin struct {
	File string
	Line int // from 1; 0 for what stands in no file, such as a default
	// Directive is the directive as it was written, on one line and without secrets.
	Directive string
}

// String gives "FILE:LINE directive".
func (o Origin) String() string {
	if o.Line == 0 {
		return plain(o.File+": "+o.Directive, maxDirective)
	}
	return strings.TrimRight(fmt.Sprintf("%s:%d %s", plain(o.File, 0), o.Line, plain(o.Directive, maxDirective)), " ")
}

// maxDirective is how many octets of a directive comments and notes repeat.
const maxDirective = 120

// plain makes a comment's text of one line, without control characters; of most octets unless that is 0.
func plain(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || 0x80 <= r && r < 0xa0 || r == 0x2028 || r == 0x2029 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if most > 0 && len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

// Short gives what messages repeat of a text in the configuration that is imported.
func Short(s string) string {
	const most = 60
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

// Draft is a mta.conf that is being written. It is not safe for use by several goroutines.
type Draft struct {
	*Block // the top of the file

	// Secrets are values by the name of the environment variable that stands in their place.
	Secrets map[string]string
	// WithSecrets writes the values themselves.
	WithSecrets bool

	notes   []Note
	noted   map[Note]bool  // those in notes
	carried map[place]bool // directives that are in the draft
}

type place struct {
	file string
	line int
	text string
}

// New begins a draft. The lines of title are the comment at its top.
func New(title string) *Draft {
	d := &Draft{Secrets: make(map[string]string), noted: make(map[Note]bool), carried: make(map[place]bool)}
	d.Block = &Block{draft: d, blocks: make(map[string]*Block)}
	d.Comment(title)
	return d
}

// Block is a block of the draft, or its top.
type Block struct {
	draft   *Draft
	kind    string
	labels  []string
	origins []Origin
	from    map[Origin]bool // those in origins
	items   []item          // in the order of the file
	blocks  map[string]*Block
}

// item is a setting, a block or a comment.
type item struct {
	name    string // of a setting
	value   cty.Value
	env     string // the variable that has a secret value
	origin  Origin
	block   *Block
	comment string
}

// Inner gives the block of that kind and with these labels inside b, and makes it where there is none.
func (b *Block) Inner(kind string, labels ...string) *Block {
	if in := b.Find(kind, labels...); in != nil {
		return in
	}
	return b.Add(kind, labels...)
}

// Find gives the first block of that kind and with these labels inside b, nil if there is none.
func (b *Block) Find(kind string, labels ...string) *Block { return b.blocks[blockKey(kind, labels)] }

// Labels are those of the block.
func (b *Block) Labels() []string { return b.labels }

func blockKey(kind string, labels []string) string { return fmt.Sprintf("%s %q", kind, labels) }

// Add makes one more block, even where there is another of that kind, as for the stages of a plan.
func (b *Block) Add(kind string, labels ...string) *Block {
	in := &Block{draft: b.draft, kind: kind, labels: labels, from: make(map[Origin]bool),
		blocks: make(map[string]*Block)}
	b.items = append(b.items, item{block: in})
	if key := blockKey(kind, labels); b.blocks[key] == nil {
		b.blocks[key] = in
	}
	return in
}

// From writes above the block which directive it comes from, and counts that as carried. A block can have several.
func (b *Block) From(o Origin) *Block {
	b.draft.count(o)
	if !b.from[o] {
		b.from[o] = true
		b.origins = append(b.origins, o)
	}
	return b
}

var notInVariable = regexp.MustCompile(`[^A-Z0-9]+`)

// SetSecret gives a setting a secret value. The draft has env("VARIABLE") in its place, and Secrets has the value,
// unless WithSecrets is set. The variable's name is made of the setting's and of what the secret is for.
func (b *Block) SetSecret(name, purpose, value string, o Origin) {
	base := strings.Trim(notInVariable.ReplaceAllString(strings.ToUpper(name+"_"+purpose), "_"), "_")
	variable := base
	for i := 2; ; i++ {
		if taken, ok := b.draft.Secrets[variable]; !ok || taken == value {
			break
		}
		variable = fmt.Sprintf("%s_%d", base, i)
	}
	b.draft.Secrets[variable] = value
	b.Set(name, value, o)
	i := slices.IndexFunc(b.items, func(it item) bool { return it.name == name })
	b.items[i].env = variable
}

// Set gives a setting its value: a string, bool, int, float64, []string, []int or map[string]float64. An
// earlier value is replaced. The origin stands beside it and is counted as carried; the zero Origin means none.
func (b *Block) Set(name string, value any, o Origin) {
	it := item{name: name, value: toCty(value), origin: o}
	if o != (Origin{}) {
		b.draft.count(o)
	}
	for i := range b.items {
		if b.items[i].name == it.name {
			b.items[i] = it
			return
		}
	}
	b.items = append(b.items, it)
}

// Has reports whether the block has the setting.
func (b *Block) Has(name string) bool {
	return slices.ContainsFunc(b.items, func(it item) bool { return it.name == name })
}

// Comment writes a comment at this place of the block. Its lines may end in \n.
func (b *Block) Comment(text string) {
	for line := range strings.Lines(text) {
		b.items = append(b.items, item{comment: "# " + plain(strings.TrimRight(line, "\r\n"), 0)})
	}
}

// Noted records that a directive was carried, though not to the letter, and writes the reason as a comment at
// this place.
func (b *Block) Noted(o Origin, reason string) {
	b.draft.count(o)
	b.note(Note{o.File, o.Line, o.Directive, reason, false, false})
}

// Lost records that a directive has no counterpart and writes it, with the reason, as a comment at this place.
// protects: it limits or protects something, so the result is not to be used unseen.
func (b *Block) Lost(o Origin, reason string, protects bool) {
	b.note(Note{o.File, o.Line, o.Directive, reason, protects, true})
}

func (b *Block) note(n Note) {
	n.Directive, n.Reason = plain(n.Directive, maxDirective), plain(n.Reason, 0)
	if b.draft.noted[n] {
		return // of a macro, or of a directive in several blocks of the draft
	}
	b.draft.noted[n] = true
	b.draft.notes = append(b.draft.notes, n)
	o, what := Origin{n.File, n.Line, n.Directive}, "not carried"
	if !n.Lost {
		what = "note"
	}
	if n.Protects {
		what += ", and it protects"
	}
	b.Comment(fmt.Sprintf("%s: %s: %s", o, what, n.Reason))
}

// Carried counts a directive that is in the draft by its effect on others, as a macro is.
func (d *Draft) Carried(o Origin) { d.count(o) }

func (d *Draft) count(o Origin) {
	if o.Line == 0 {
		return
	}
	d.carried[place{o.File, o.Line, o.Directive}] = true
}

// Bytes gives the text of the file. Equal drafts give equal texts.
func (d *Draft) Bytes() []byte {
	var out bytes.Buffer
	d.write(&out)
	return hclwrite.Format(out.Bytes())
}

// write writes what is inside a block.
func (b *Block) write(out *bytes.Buffer) {
	top := b.kind == ""
	for i, it := range b.items {
		switch {
		case it.block != nil:
			if i > 0 && (top || b.items[i-1].block == nil) {
				out.WriteByte('\n')
			}
			it.block.writeWhole(out)
		case it.comment != "":
			if top && i > 0 && b.items[i-1].comment == "" {
				out.WriteByte('\n')
			}
			fmt.Fprintf(out, "%s\n", strings.TrimRight(it.comment, " "))
		default:
			if top && i > 0 && b.items[i-1].name == "" {
				out.WriteByte('\n')
			}
			it.writeSetting(b.draft, out)
		}
	}
}

func (b *Block) writeWhole(out *bytes.Buffer) {
	for _, o := range b.origins {
		fmt.Fprintf(out, "# %s\n", o)
	}
	out.WriteString(b.kind)
	for _, l := range b.labels {
		fmt.Fprintf(out, " %s", hclwrite.TokensForValue(cty.StringVal(l)).Bytes())
	}
	out.WriteString(" {\n")
	b.write(out)
	out.WriteString("}\n")
}

func (it *item) writeSetting(d *Draft, out *bytes.Buffer) {
	if it.env != "" && !d.WithSecrets {
		fmt.Fprintf(out, "%s = env(%q)", it.name, it.env)
	} else {
		fmt.Fprintf(out, "%s = %s", it.name, hclwrite.TokensForValue(it.value).Bytes())
	}
	if it.origin != (Origin{}) {
		fmt.Fprintf(out, " # %s", it.origin)
	}
	out.WriteByte('\n')
}

// toCty gives a Go value in HCL's form.
func toCty(value any) cty.Value {
	switch v := value.(type) {
	case string:
		return cty.StringVal(v)
	case bool:
		return cty.BoolVal(v)
	case int:
		return cty.NumberIntVal(int64(v))
	case float64:
		return cty.NumberFloatVal(v)
	case []string:
		return tuple(v)
	case []int:
		return tuple(v)
	case map[string]float64:
		object := make(map[string]cty.Value)
		for _, k := range slices.Sorted(maps.Keys(v)) {
			object[k] = toCty(v[k])
		}
		return cty.ObjectVal(object)
	}
	panic(fmt.Sprintf("importer: a setting can't have a value of type %T", value))
}

func tuple[T any](list []T) cty.Value {
	values := make([]cty.Value, len(list))
	for i, v := range list {
		values[i] = toCty(v)
	}
	return cty.TupleVal(values)
}

// Note is what an operator must know of one directive: the draft has it otherwise, or not at all.
type Note struct {
	File      string `json:"file"`
	Line      int    `json:"line"` // from 1
	Directive string `json:"directive"`
	Reason    string `json:"reason"`
	// Protects: the directive limits or protects something (a rate, an access rule, a suppression).
	Protects bool `json:"protects"`
	// Lost: the draft doesn't have the directive. Otherwise it has it in another form.
	Lost bool `json:"lost"`
}

// Summary counts directives and lists the notes.
type Summary struct {
	Carried  int    `json:"carried"`       // in the draft, without a note
	Noted    int    `json:"carried_noted"` // in the draft, with a note
	Lost     int    `json:"not_carried"`   // not in the draft
	Protects int    `json:"protecting"`    // of those that are not in the draft: they limit or protect something
	Notes    []Note `json:"notes"`         // in the order of the files
}

// Summary gives what became of the directives.
func (d *Draft) Summary() Summary {
	noted, lost, protects := make(map[place]bool), make(map[place]bool), make(map[place]bool)
	for _, n := range d.notes {
		p := place{n.File, n.Line, n.Directive}
		switch {
		case n.Lost && n.Protects:
			protects[p] = true
			fallthrough
		case n.Lost:
			lost[p] = true
		default:
			noted[p] = true
		}
	}
	for p := range lost { // what is lost in part is lost
		delete(noted, p)
	}
	s := Summary{Noted: len(noted), Lost: len(lost), Protects: len(protects), Notes: slices.Clone(d.notes)}
	for p := range d.carried {
		p.text = plain(p.text, maxDirective)
		if !noted[p] && !lost[p] {
			s.Carried++
		}
	}
	first := make(map[string]int) // files stay in the order in which they were read
	for i, n := range s.Notes {
		if _, ok := first[n.File]; !ok {
			first[n.File] = i
		}
	}
	slices.SortStableFunc(s.Notes, func(a, b Note) int {
		return cmp.Or(cmp.Compare(first[a.File], first[b.File]), cmp.Compare(a.Line, b.Line))
	})
	return s
}

// ByName gives each of the names in a key, which stand with spaces between them, the key's value.
func ByName[T any](grouped map[string]T) map[string]T {
	all := make(map[string]T)
	for names, v := range grouped {
		for name := range strings.FieldsSeq(names) {
			all[name] = v
		}
	}
	return all
}
