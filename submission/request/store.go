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
)

// Templates has the stored templates of each tenant, as they were in the files when it was loaded, and
// remembers what it compiled last. A nil Templates has none.
type Templates struct {
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

// LoadTemplates reads the templates below a folder: a folder for each tenant, with NAME.subject, NAME.text and
// NAME.html, of which one is enough. The error names each file with a fault. Without a folder ("") there
// are none, and the store compiles what comes with requests.
func LoadTemplates(folder string) (*Templates, error) {
	s := &Templates{tenants: map[string]*tenant{}, recent: list.New(), known: map[key]*list.Element{}}
	if folder == "" {
		return s, nil
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("reading the templates: %w", err)
	}
	var faults []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		t, err := loadTenant(filepath.Join(folder, e.Name()))
		faults = append(faults, err)
		s.tenants[e.Name()] = t
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return s, nil
}

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

func loadTenant(folder string) (*tenant, error) {
	mails, err := readMails(folder)
	if err != nil {
		return nil, err
	}
	t := &tenant{partials: partials{map[string]string{}, map[string]string{}}, stored: map[string]*Template{}}
	for name, m := range mails {
		if m.Text != "" {
			t.partials.text[name] = m.Text
		}
		if m.HTML != "" {
			t.partials.html[name] = m.HTML
		}
	}
	var faults []error
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(mails)) {
		m := mails[name]
		fmt.Fprintf(sum, "%q %q %q %q\n", name, m.Subject, m.Text, m.HTML)
		compiled, faulty := compile(*m, t.partials)
		for _, f := range faulty {
			file := filepath.Join(folder, name+"."+strings.TrimPrefix(f.Pointer, "/"))
			faults = append(faults, fmt.Errorf("%s: %s", file, f.Detail))
		}
		t.stored[name] = compiled
	}
	t.sum = hex.EncodeToString(sum.Sum(nil)[:6])
	slices.SortFunc(faults, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return t, errors.Join(faults...)
}

// readMails reads the sources in the folder of a tenant.
func readMails(folder string) (map[string]*Mail, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("reading the templates of a tenant: %w", err)
	}
	mails := map[string]*Mail{}
	for _, e := range entries {
		if ignored(e.Name()) {
			continue
		}
		path := filepath.Join(folder, e.Name())
		suffix := filepath.Ext(e.Name())
		name := strings.TrimSuffix(e.Name(), suffix)
		if name == "" || suffix != subjectFile && suffix != textFile && suffix != htmlFile {
			return nil, fmt.Errorf("%s: the files of a template are NAME.subject, NAME.text and NAME.html", path)
		}
		source, err := readSource(path)
		if err != nil {
			return nil, err
		}
		if mails[name] == nil {
			mails[name] = &Mail{}
		}
		switch m := mails[name]; suffix {
		case subjectFile:
			m.Subject = strings.TrimRight(source, "\r\n")
		case textFile:
			m.Text = source
		case htmlFile:
			m.HTML = source
		}
	}
	return mails, nil
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
