// Command manual writes the reference of the settings in docs/configuration.md, below its mark, from package config:
// the text of a setting is the comment of its field, that of a block the comment of the field that has it or of its
// type. 'make generate' runs it.
package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	"example.org/mta/internal/settings"
	"example.org/mta/mta/config"
)

// mark ends what people write in the page.
const mark = "<!-- Below: made by 'make generate' from the comments in mta/config. -->\n"

const page = "docs/configuration.md"

func main() {
	old, text, err := generate(".")
	if err == nil && !bytes.Equal(old, text) {
		err = os.WriteFile(page, text, 0o644)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// generate returns the page as it is, and as it should be, of the source tree at root.
func generate(root string) (old, text []byte, err error) {
	old, err = os.ReadFile(filepath.Join(root, page))
	if err != nil {
		return nil, nil, err
	}
	head, _, found := bytes.Cut(old, []byte(mark))
	if !found {
		return nil, nil, fmt.Errorf("%s has no line %q", page, mark)
	}
	m := &manual{comments: make(map[string]string), reference: config.Reference(), written: make(map[string]string)}
	if err := m.read(filepath.Join(root, "mta", "config", "*.go")); err != nil {
		return nil, nil, err
	}
	m.out.Write(head)
	m.out.WriteString(mark)
	m.block("", "## The top of the file", "", reflect.TypeFor[config.Config]())
	return old, m.out.Bytes(), m.missing
}

type manual struct {
	comments  map[string]string // by type, and by type and field as "Listener.Tier"
	reference map[string]config.BlockReference
	written   map[string]string // the link to the block that has a list of settings, the line of one, or a comment
	out       bytes.Buffer
	missing   error // the first setting without a text
}

// read takes the comments of the structs in Go files.
func (m *manual) read(pattern string) error {
	files, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	for _, path := range files {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		for _, d := range f.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok || decl.Tok != token.TYPE {
				continue
			}
			spec := decl.Specs[0].(*ast.TypeSpec)
			s, ok := spec.Type.(*ast.StructType)
			if !ok {
				continue
			}
			// The first paragraph is for readers of the code.
			_, m.comments[spec.Name.Name], _ = strings.Cut(decl.Doc.Text(), "\n\n")
			for _, field := range s.Fields.List {
				for _, name := range field.Names {
					m.comments[spec.Name.Name+"."+name.Name] = field.Doc.Text()
				}
			}
		}
	}
	return nil
}

// block writes a block, then the blocks in it.
func (m *manual) block(key, heading, comment string, t reflect.Type) {
	comment = cmp.Or(comment, m.comments[t.Name()])
	prose, examples := split(comment)
	fmt.Fprintf(&m.out, "\n%s\n", heading)
	if at := m.written[comment]; at != "" && comment != "" {
		prose, examples = "As in "+at+".", ""
	}
	m.written[comment] = link(heading)
	if prose != "" {
		fmt.Fprintf(&m.out, "\n%s\n", prose)
	}
	texts, inner := make(map[string]string), []reflect.StructField{}
	m.fields(t, texts, &inner)
	m.settings(key, heading, texts)
	delete(m.reference, key)
	if examples != "" {
		fmt.Fprintf(&m.out, "\n```hcl\n%s```\n", examples)
	}
	for _, f := range inner {
		name, _, _ := strings.Cut(f.Tag.Get("conf"), ",")
		inside := name
		if key != "" && taken(name) {
			inside = key + "." + name
		}
		if _, ok := m.reference[inside]; !ok {
			continue // written already, within another block
		}
		of, level := f.Type, "##"
		if of.Kind() == reflect.Slice {
			of = of.Elem().Elem()
		}
		if key != "" {
			level = "###"
		}
		m.block(inside, fmt.Sprintf("%s `%s%s`", level, inside, label(of)), m.comments[f.Name], of)
	}
}

// taken reports whether a block at the top of the file has the name.
func taken(name string) bool {
	for f := range settings.Fields(reflect.ValueOf(new(config.Config)).Elem()) {
		if f.Name == name {
			return true
		}
	}
	return false
}

// fields collects the texts of the settings of a struct, and the fields with inner blocks; their names become
// those of the comments.
func (m *manual) fields(t reflect.Type, texts map[string]string, inner *[]reflect.StructField) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, option, _ := strings.Cut(f.Tag.Get("conf"), ",")
		comment := t.Name() + "." + f.Name
		switch {
		case option == "inline":
			m.fields(f.Type, texts, inner)
		case option == "block":
			f.Name = comment
			*inner = append(*inner, f)
		case name != "":
			texts[name] = m.comments[comment]
		}
	}
}

// label is the label of a block in its heading.
func label(t reflect.Type) string {
	for i := range t.NumField() {
		if f := t.Field(i); f.Tag.Get("conf") == ",label" {
			return fmt.Sprintf(" %q", strings.ToLower(f.Name))
		}
	}
	return ""
}

// settings lists a block's settings, or names the block that has the same. A long text of an earlier block is not
// repeated.
func (m *manual) settings(key, heading string, texts map[string]string) {
	link := link(heading)
	list, shown := "\n", ""
	for _, s := range m.reference[key].Settings {
		row := m.setting(key, s, texts[s.Name])
		list += row
		if at := m.written[row]; at != "" && len(row) > 110 {
			row = fmt.Sprintf("- `%s`: as in %s\n", s.Name, at)
		}
		m.written[row] = link
		shown += row
	}
	if at := m.written[list]; at != "" {
		fmt.Fprintf(&m.out, "\nThe settings are those of %s.\n", at)
	} else if shown != "" {
		m.written[list] = link
		fmt.Fprintf(&m.out, "\n%s", shown)
	}
}

// link is one to the block with a heading.
func link(heading string) string {
	title := strings.Trim(heading, "# ")
	return fmt.Sprintf("[%s](#%s)", title, strings.ReplaceAll(punctuation.ReplaceAllString(title, ""), " ", "-"))
}

// punctuation is what an anchor of a heading lacks.
var punctuation = regexp.MustCompile("[`\".]")

// setting is the line of a setting, with its default and the R of one that takes a restart. A default that is not a
// value stands in the last sentence of the comment.
func (m *manual) setting(block string, s config.SettingReference, comment string) string {
	text := strings.Join(strings.Fields(comment), " ")
	byDefault := ""
	if before, after, found := strings.Cut(text, "Default: "); found {
		text, byDefault = strings.TrimSpace(before), strings.TrimSuffix(after, ".")
	}
	if s.Default != "" {
		byDefault = "`" + s.Default + "`"
	}
	if text == "" && m.missing == nil {
		m.missing = fmt.Errorf("the field of %s in block %q has no comment", s.Name, block)
	}
	if byDefault != "" {
		byDefault = " (" + byDefault + ")"
	}
	restart := ""
	if s.Restart {
		restart = " **R**"
	}
	return fmt.Sprintf("- `%s`%s%s: %s\n", s.Name, byDefault, restart, strings.TrimSuffix(text, "."))
}

// split returns the paragraphs of a comment, each on one line, and its indented examples.
func split(comment string) (prose, examples string) {
	var paragraphs []string
	for _, p := range strings.Split(strings.TrimRight(comment, "\n"), "\n\n") {
		if strings.HasPrefix(p, "\t") {
			for line := range strings.Lines(p + "\n") {
				examples += strings.TrimPrefix(line, "\t")
			}
		} else if p != "" {
			paragraphs = append(paragraphs, strings.Join(strings.Fields(p), " "))
		}
	}
	return strings.Join(paragraphs, "\n\n"), examples
}
