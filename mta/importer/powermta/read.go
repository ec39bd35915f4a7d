// Package powermta reads a configuration of PowerMTA and makes a draft of mta.conf of it.
//
// The way through it: read.go and lines.go make a tree of directives out of the file and those that it includes,
// convert.go visits them in their order, and a file for each subject carries them over. What a queue, that is a domain
// of a virtual MTA, may do is collected first (limits.go) and written at the end, since several scopes speak of it. It
// starts no goroutines and keeps no state.
package powermta

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"example.org/mta/mta/importer"
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

// Fault is an error in the configuration that is read.
type Fault struct {
	File string
	Line int // from 1
	What string
}

func (f *Fault) Error() string { return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.What) }

func (d *directive) fault(format string, args ...any) error {
	return &Fault{d.File, d.Line, fmt.Sprintf(format, args...)}
}

// Read makes a draft of the configuration at path. What is wrong in it is a *Fault.
func Read(path string) (*importer.Draft, error) {
	return ReadFrom(path, func(path string) (io.ReadCloser, error) { return os.Open(path) }, filepath.Glob)
}

// ReadFrom is Read with the files that open gives, and glob finds.
func ReadFrom(path string, open func(path string) (io.ReadCloser, error), glob func(pattern string) ([]string, error)) (*importer.Draft, error) {
	r := &reader{open: open, glob: glob}
	if err := r.file(path, nil); err != nil {
		return nil, err
	}
	return convert(path, r.top.inner)
}

// reader makes the tree of directives.
type reader struct {
	open               func(path string) (io.ReadCloser, error)
	glob               func(pattern string) ([]string, error)
	top                directive
	scopes             []*directive // that are open, the innermost last
	including          []string     // the files that are being read
	files, octets, all int
}

// file reads one file into the tree; by is the directive that includes it, nil for the first.
func (r *reader) file(path string, by *directive) error {
	complain := func(format string, args ...any) error {
		if by == nil {
			return fmt.Errorf("%s: %s", path, fmt.Sprintf(format, args...))
		}
		return by.fault("include: "+format, args...)
	}
	for _, p := range r.including {
		if filepath.Clean(p) == filepath.Clean(path) {
			return complain("%s includes itself, by way of %s", path, strings.Join(r.including, ", "))
		}
	}
	if r.files++; r.files > maxFiles || len(r.including) >= maxIncludes {
		return complain("more than %d files, or %d inside one another", maxFiles, maxIncludes)
	}
	f, err := r.open(path)
	if err != nil {
		return complain("%v", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, int64(maxOctets-r.octets)+1))
	if err != nil {
		return complain("%v", err)
	}
	if r.octets += len(text); r.octets > maxOctets {
		return complain("the files have more than %d octets together", maxOctets)
	}
	r.including = append(r.including, path)
	defer func() { r.including = r.including[:len(r.including)-1] }()
	depth := len(r.scopes)
	if err := r.lines(path, string(text), depth); err != nil {
		return err
	}
	if len(r.scopes) > depth {
		return r.scopes[len(r.scopes)-1].fault("<%s> is never closed: write </%[1]s>", r.scopes[len(r.scopes)-1].name)
	}
	return nil
}

// include reads the file that a directive names, or the files, in the order of their names.
func (r *reader) include(d *directive) error {
	path := unquote(d.value)
	if scheme, _, ok := strings.Cut(path, "://"); ok {
		return d.fault("include: no file is fetched by %s: save it, and name the copy", short(scheme))
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(d.File), path)
	}
	if !strings.ContainsAny(path, "*?[") {
		return r.file(path, d)
	}
	all, err := r.glob(path)
	if err != nil {
		return d.fault("include: %s: %v", short(path), err)
	}
	if len(all) == 0 {
		return d.fault("include: no file matches %s: remove the line if there is none", short(path))
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
		return d.fault("more than %d directives", maxDirectives)
	}
	text := d.value
	switch {
	case strings.HasPrefix(text, "</"):
		name := strings.ToLower(strings.TrimSpace(strings.TrimSuffix(text[2:], ">")))
		if len(r.scopes) == depth {
			return d.fault("</%s> closes nothing", importer.Short(name))
		}
		if open := r.innermost(); open.name != name {
			return d.fault("</%s> closes <%s> of line %d", importer.Short(name), open.name, open.Line)
		}
		r.scopes = r.scopes[:len(r.scopes)-1]
		return nil
	case strings.HasPrefix(text, "<"):
		inside, ok := strings.CutSuffix(text, ">")
		d.name, d.value = cutWord(inside[1:])
		if !ok || d.name == "" {
			return d.fault("%s is not a scope: write it as <name value>", short(text))
		}
		if d.scope = true; len(r.scopes) == maxScopes {
			return d.fault("more than %d scopes inside one another", maxScopes)
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
		if d.value == "" {
			return d.fault("include names no file")
		}
		return r.include(d)
	}
	in := r.innermost()
	in.inner = append(in.inner, d)
	return nil
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
