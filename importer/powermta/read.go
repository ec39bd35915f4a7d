// Package powermta reads a configuration of PowerMTA and makes a draft of mta.conf of it.
//
// The way through it: read.go and lines.go make a tree of directives out of the file and those that it includes,
// convert.go visits them in their order, and a file for each subject carries them over. What a queue, that is a domain
// of a virtual MTA, may do is collected first (limits.go) and written at the end, since several scopes speak of it. It
// starts no goroutines and keeps no state.
package powermta

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"example.org/mta/importer"
)

// Bounds of what is read: a configuration of ten thousand virtual MTAs is far below them.
const (
	maxFiles      = 1000
	maxOctets     = 32 << 20 // of all files together
	maxLine       = 64 << 10
	maxDirectives = 500_000
	maxIncludes   = 32 // files that include one another
	maxScopes     = 16 // inside one another
	maxDomains    = 50_000
)

// directive is a line of the configuration, or a scope with the lines in it.
type directive struct {
	importer.Origin
	name  string // in lower case
	value string
	scope bool
	inner []*directive
}

// fault is an error in a directive. What refers to something that is not there is a dangling one.
func (d *directive) fault(format string, args ...any) error {
	return &importer.Fault{File: d.File, Line: d.Line, What: fmt.Sprintf(format, args...)}
}

// dangling is a reference to what is defined nowhere.
type dangling struct{ error }

// faults gathers those of all directives.
type faults struct {
	importer.Faults
	// incomplete: a definition has a fault, or a file is missing, so that references may dangle for that reason alone.
	incomplete bool
	broken     map[*directive]bool // those with a fault: one is enough
}

// take notes the fault of a directive, if there is one. It reports whether there is none.
func (fs *faults) take(d *directive, err error) bool {
	if err == nil {
		return true
	}
	if ref, ok := err.(dangling); ok {
		if err = ref.error; fs.incomplete {
			return false
		}
	}
	if fault, ok := err.(*importer.Fault); ok && !fs.broken[d] {
		fs.broken[d] = true
		fs.Add(fault)
	}
	return false
}

// takeDefinition is take for what others refer to.
func (fs *faults) takeDefinition(d *directive, err error) {
	fs.incomplete = fs.incomplete || err != nil
	fs.take(d, err)
}

// Read makes a draft of the configuration at path. What is wrong in it is an *importer.FaultList; the error is a
// *fs.PathError if it can't be read at all.
func Read(path string) (*importer.Draft, error) {
	return ReadFrom(path, func(path string) (io.ReadCloser, error) { return os.Open(path) }, filepath.Glob)
}

// ReadFrom is Read with the files that open gives, and glob finds.
func ReadFrom(path string, open func(path string) (io.ReadCloser, error),
	glob func(pattern string) ([]string, error)) (*importer.Draft, error) {
	r := &reader{open: open, glob: glob, faults: &faults{broken: make(map[*directive]bool)}}
	first := &directive{Origin: importer.Origin{File: path}}
	err := r.file(path, first)
	if unreadable := (*fs.PathError)(nil); errors.As(err, &unreadable) {
		return nil, err
	}
	if !r.faults.take(first, err) {
		return nil, r.faults.Err() // there is too much to read, or nothing
	}
	draft := convert(path, r.top.inner, r.faults)
	if err := r.faults.Err(); err != nil {
		return nil, err
	}
	return draft, nil
}

// reader makes the tree of directives.
type reader struct {
	open               func(path string) (io.ReadCloser, error)
	glob               func(pattern string) ([]string, error)
	faults             *faults
	top                directive
	scopes             []*directive // that are open, the innermost last
	including          []string     // the files that are being read
	files, octets, all int
}

// file reads one file into the tree; by is the directive that includes it, without a line for the first. An error ends
// the reading; faults after which it can go on are taken.
func (r *reader) file(path string, by *directive) error {
	include := ""
	if by.Line > 0 {
		include = "include: "
	}
	for _, p := range r.including {
		if filepath.Clean(p) == filepath.Clean(path) {
			r.faults.takeDefinition(by,
				by.fault("%s%s includes itself, by way of %s: remove one of the lines", include, path,
					strings.Join(r.including, ", ")))
			return nil
		}
	}
	if r.files++; r.files > maxFiles || len(r.including) >= maxIncludes {
		return by.fault("%smore than %d files, or %d inside one another: put them together", include,
			maxFiles, maxIncludes)
	}
	text, err := r.text(path)
	if err != nil && by.Line == 0 {
		return err
	}
	if err != nil {
		r.faults.takeDefinition(by, by.fault("include: %s", importer.Unreadable(err)))
		return nil
	}
	if r.octets += len(text); r.octets > maxOctets {
		return by.fault("%sthe files have more than %d octets together: import a part of them", include, maxOctets)
	}
	r.faults.Reads(path)
	r.including = append(r.including, path)
	defer func() { r.including = r.including[:len(r.including)-1] }()
	depth := len(r.scopes)
	if err := r.lines(path, text, depth); err != nil {
		return err
	}
	r.close(depth)
	return nil
}

// text gives what is in a file, and no more than what may still be read.
func (r *reader) text(path string) (string, error) {
	f, err := r.open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, int64(maxOctets-r.octets)+1))
	return string(text), err
}

// close ends the scopes inside the one at depth, which nothing else has.
func (r *reader) close(depth int) {
	for _, d := range r.scopes[depth:] {
		r.faults.takeDefinition(d, d.fault("<%s> is never closed: write </%[1]s>", d.name))
	}
	r.scopes = r.scopes[:depth]
}

// include reads the file that a directive names, or the files, in the order of their names.
func (r *reader) include(d *directive) error {
	path := unquote(d.value)
	missing := func(format string, args ...any) error {
		r.faults.takeDefinition(d, d.fault(format, args...))
		return nil
	}
	if path == "" {
		return missing("include names no file: write one, or remove the line")
	}
	if scheme, _, ok := strings.Cut(path, "://"); ok {
		return missing("include: no file is fetched by %s: save it, and name the copy", short(scheme))
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(d.File), path)
	}
	if !strings.ContainsAny(path, "*?[") {
		return r.file(path, d)
	}
	all, err := r.glob(path)
	if err != nil {
		return missing("include: %s: %v: correct the pattern", short(path), err)
	}
	if len(all) == 0 {
		return missing("include: no file matches %s: remove the line if there is none", short(path))
	}
	slices.Sort(all)
	for _, one := range all {
		if err := r.file(one, d); err != nil {
			return err
		}
	}
	return nil
}

// innermost is the scope that a directive stands in.
func (r *reader) innermost() *directive {
	if n := len(r.scopes); n > 0 {
		return r.scopes[n-1]
	}
	return &r.top
}

// add takes a complete line.
func (r *reader) add(d *directive, depth int) error {
	if r.all++; r.all > maxDirectives {
		return d.fault("more than %d directives: import a part of them", maxDirectives)
	}
	text := d.value
	switch {
	case strings.HasPrefix(text, "</"):
		r.end(d, strings.ToLower(strings.TrimSpace(strings.TrimSuffix(text[2:], ">"))), depth)
		return nil
	case strings.HasPrefix(text, "<"):
		inside, ok := strings.CutSuffix(text, ">")
		d.name, d.value = cutWord(inside[1:])
		if !ok || d.name == "" {
			r.faults.takeDefinition(d, d.fault("%s is not a scope: write it as <name value>", short(text)))
		}
		if d.name == "" {
			return nil
		}
		if i := slices.IndexFunc(r.scopes[depth:], func(s *directive) bool { return s.name == d.name }); i >= 0 {
			r.close(depth + i) // no scope stands in one of its kind: the other should have ended
		}
		if d.scope = true; len(r.scopes) == maxScopes {
			return d.fault("more than %d scopes inside one another: close those that have ended", maxScopes)
		}
		in := r.innermost()
		in.inner = append(in.inner, d)
		r.scopes = append(r.scopes, d)
		return nil
	}
	if !pattern(text) {
		d.name, d.value = cutWord(text)
	}
	if d.name == "include" {
		return r.include(d)
	}
	in := r.innermost()
	in.inner = append(in.inner, d)
	return nil
}

// end closes the scope of that name, and with it those inside, whose ends are missing.
func (r *reader) end(d *directive, name string, depth int) {
	if len(r.scopes) == depth {
		r.faults.takeDefinition(d,
			d.fault("</%s> closes nothing: remove it, or write <%[1]s ...> before it", importer.Short(name)))
		return
	}
	open := len(r.scopes) - 1
	if in := r.scopes[open]; in.name != name {
		r.faults.takeDefinition(d,
			d.fault("</%s> closes <%s> of line %d: write </%[2]s> before it", importer.Short(name), in.name, in.Line))
		for i := open; i >= depth; i-- {
			if r.scopes[i].name == name {
				open = i
				break
			}
		}
	}
	r.scopes = r.scopes[:open]
}

// pattern reports whether a line begins with a regular expression, as those of bounce-category-patterns do.
func pattern(line string) bool { return strings.HasPrefix(line, "/") }

func cutWord(s string) (word, rest string) {
	s = strings.TrimSpace(s)
	i := strings.IndexAny(s, " \t")
	if i < 0 {
		return strings.ToLower(s), ""
	}
	return strings.ToLower(s[:i]), strings.TrimSpace(s[i:])
}

func unquote(s string) string {
	if n := len(s); n > 1 && s[0] == '"' && s[n-1] == '"' {
		return s[1 : n-1]
	}
	return s
}

// short is for what messages quote.
func short(s string) string { return fmt.Sprintf("%q", importer.Short(s)) }
