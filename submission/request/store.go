package request

import (
	"container/list"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// Templates has stored templates of each tenant, and remembers what it compiled last. A nil Templates has none.
type Templates struct {
	sources sources
	tenants map[string]*tenant

	mu     sync.Mutex // guards what follows
	recent *list.List // of *remembered, the last used first
	known  map[key]*list.Element
	octets int // of the sources of recent
}

type tenant struct {
	partials partials
	stored   map[string]*Template
	sum      string // of all sources
}

// key is all that a template is made from. A sum would cost more than the comparison.
type key struct{ tenant, subject, text, html, headers string }

type remembered struct {
	key      key
	template *Template
	octets   int
}

// maxRemembered bounds the sources of compiled templates that are kept, in octets. Compiled, a template
// takes a few times its source.
const maxRemembered = 16 << 20

// The files of a template NAME in the folder of its tenant.
const (
	subjectFile = ".subject"
	textFile    = ".text"
	htmlFile    = ".html"
)

// TemplateFiles returns the paths of the files that LoadTemplates reads.
func TemplateFiles(folder string) (files []string, err error) {
	tenants, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	for _, t := range tenants {
		if strings.HasPrefix(t.Name(), ".") {
			continue
		}
		entries, err := os.ReadDir(filepath.Join(folder, t.Name()))
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if !ignored(e.Name()) {
				files = append(files, filepath.Join(folder, t.Name(), e.Name()))
			}
		}
	}
	return files, nil
}

// ignored reports whether a file in the folder of a tenant is an editor's, or a volume's of Kubernetes.
func ignored(name string) bool { return strings.HasPrefix(name, ".") || strings.HasSuffix(name, "~") }

// sources are the texts of files, by their paths in a folder of templates: TENANT/NAME.html.
type sources map[string]string

// readSources reads the files of a folder; "": none. The error names what is no file of a template.
func readSources(folder string) (sources, error) {
	all := sources{}
	if folder == "" {
		return all, nil
	}
	paths, err := TemplateFiles(folder)
	if err != nil {
		return nil, fmt.Errorf("reading the templates: %w", err)
	}
	var faults []error
	for _, path := range paths {
		file := filepath.Base(filepath.Dir(path)) + "/" + filepath.Base(path)
		if _, _, _, is := cutFile(file); !is {
			err = fmt.Errorf("%s: the files of a template are NAME.subject, NAME.text and NAME.html", path)
		} else if !utf8.ValidString(file) {
			err = fmt.Errorf("%s: the name of a template is not in UTF-8", path)
		} else {
			all[file], err = readSource(path)
		}
		faults = append(faults, err)
	}
	return all, errors.Join(faults...)
}

// cutFile takes apart what is the path of a template's file.
func cutFile(file string) (tenant, name, suffix string, is bool) {
	tenant, name, is = strings.Cut(file, "/")
	suffix = filepath.Ext(name)
	name = strings.TrimSuffix(name, suffix)
	is = is && tenant != "" && name != "" && !strings.Contains(name, "/") &&
		(suffix == subjectFile || suffix == textFile || suffix == htmlFile)
	return tenant, name, suffix, is
}

// fault is what is wrong with a file.
type fault struct{ file, detail string }

// templates compiles the sources. A template with a fault is as it was before, if it was.
func (of sources) templates(before *Templates) (*Templates, []fault) {
	s := &Templates{sources: of, tenants: map[string]*tenant{}, recent: list.New(), known: map[key]*list.Element{}}
	mails := map[string]map[string]*Mail{}
	for file, source := range of {
		owner, name, suffix, _ := cutFile(file)
		if s.tenants[owner] == nil {
			t := &tenant{partials: partials{map[string]string{}, map[string]string{}}, stored: map[string]*Template{}}
			s.tenants[owner], mails[owner] = t, map[string]*Mail{}
		}
		t, m := s.tenants[owner], mails[owner][name]
		if m == nil {
			m = &Mail{}
			mails[owner][name] = m
		}
		switch suffix {
		case subjectFile:
			m.Subject = strings.TrimRight(source, "\r\n")
		case textFile:
			if m.Text = source; source != "" {
				t.partials.text[name] = source
			}
		case htmlFile:
			if m.HTML = source; source != "" {
				t.partials.html[name] = source
			}
		}
	}
	var faults []fault
	for owner, t := range s.tenants {
		sum := sha256.New()
		for _, name := range slices.Sorted(maps.Keys(mails[owner])) {
			m := mails[owner][name]
			fmt.Fprintf(sum, "%q %q %q %q\n", name, m.Subject, m.Text, m.HTML)
			compiled, faulty := compile(*m, t.partials)
			for _, f := range faulty {
				faults = append(faults, fault{owner + "/" + name + "." + strings.TrimPrefix(f.Pointer, "/"), f.Detail})
			}
			if compiled == nil {
				compiled, _ = before.Stored(owner, name)
			}
			if compiled != nil {
				t.stored[name] = compiled
			}
		}
		t.sum = hex.EncodeToString(sum.Sum(nil)[:6])
	}
	slices.SortFunc(faults, func(a, b fault) int { return strings.Compare(a.file, b.file) })
	return s, faults
}

func readSource(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", &fs.PathError{Op: "read", Path: path, Err: errors.New("this is not a file")}
	case info.Size() > maxSource:
		return "", fmt.Errorf("%s: the template is longer than %d octets", path, maxSource)
	}
	source, err := os.ReadFile(path)
	if err == nil && strings.ToValidUTF8(string(source), "") != string(source) {
		err = fmt.Errorf("%s: the template is not in UTF-8", path)
	}
	return string(source), err
}

// source returns the text of a file.
func (s *Templates) source(file string) (string, bool) {
	if s == nil {
		return "", false
	}
	source, is := s.sources[file]
	return source, is
}

// Tenants lists the tenants that have templates, in the order of their names.
func (s *Templates) Tenants() []string { return slices.Sorted(maps.Keys(s.tenants)) }

// Sums are sums of the templates of each tenant.
func (s *Templates) Sums() map[string]string {
	sums := make(map[string]string)
	for name, t := range s.tenants {
		sums[name] = t.sum
	}
	return sums
}

// Names lists the stored templates of a tenant, in the order of their names.
func (s *Templates) Names(tenant string) []string {
	if s.tenants[tenant] == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(s.tenants[tenant].stored))
}

// Stored returns a tenant's stored template, false if it has none of that name.
func (s *Templates) Stored(tenant, name string) (*Template, bool) {
	if s == nil || s.tenants[tenant] == nil {
		return nil, false
	}
	t, ok := s.tenants[tenant].stored[name]
	return t, ok
}

// Compile compiles the templates of a request. Their partials are the tenant's stored templates: text
// for text, HTML for HTML.
func (s *Templates) Compile(tenant string, m Mail) (*Template, Faults) {
	if s == nil {
		return compile(m, partials{})
	}
	k, octets := keyOf(tenant, m)
	if t := s.remembered(k); t != nil {
		return t, nil
	}
	var of partials
	if owner := s.tenants[tenant]; owner != nil {
		of = owner.partials
	}
	t, faults := compile(m, of)
	if faults == nil {
		s.remember(&remembered{key: k, template: t, octets: octets})
	}
	return t, faults
}

func (s *Templates) remembered(k key) *Template {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.known[k]
	if e == nil {
		return nil
	}
	s.recent.MoveToFront(e)
	return e.Value.(*remembered).template
}

func (s *Templates) remember(r *remembered) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[r.key] != nil || r.octets > maxRemembered {
		return
	}
	s.known[r.key] = s.recent.PushFront(r)
	for s.octets += r.octets; s.octets > maxRemembered; {
		oldest := s.recent.Remove(s.recent.Back()).(*remembered)
		delete(s.known, oldest.key)
		s.octets -= oldest.octets
	}
}

// keyOf is the key of mail, and about the memory that its sources take.
func keyOf(tenant string, m Mail) (k key, octets int) {
	var headers strings.Builder
	for _, h := range m.Headers {
		headers.WriteString(strconv.Itoa(len(h.Name)) + ":" + h.Name + strconv.Itoa(len(h.Value)) + ":" + h.Value)
	}
	k = key{tenant: tenant, subject: m.Subject, text: m.Text, html: m.HTML, headers: headers.String()}
	return k, len(tenant) + len(k.subject) + len(k.text) + len(k.html) + len(k.headers) + 256
}
