package request

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"example.org/mta/submission/shared"
)

// Chunk is a part of a template's file: the changes that the nodes of a cluster exchange are small.
type Chunk struct {
	id   ChunkID
	of   int    // chunks
	sum  string // of the whole file
	text string
}

// ChunkID is which one of which version of a file it is. The first, 0, makes that version the one in force; the others
// go before it.
type ChunkID struct {
	file string
	sum  string // of the whole file; "" for the first
	n    int
}

// maxChunk is in octets. A change may have 16 KiB, encrypted, and in base64 twice.
const maxChunk = 8 << 10

// SharedTemplates are templates that the nodes of a cluster share.
type SharedTemplates = shared.Store[ChunkID, Chunk]

// TemplateEntries are the chunks of templates.
var TemplateEntries = &shared.Entries[ChunkID, Chunk]{
	Kind: "template", What: "templates", File: "folder of templates", Command: "mta template", Newest: true,
	ID:    func(c *Chunk) ChunkID { return c.id },
	Name:  ChunkID.name,
	Parse: parseChunkID,
	Show: func(name string) string {
		id, _ := parseChunkID(name)
		return id.file
	},
	Entry: parseChunk,
	Text:  (*Chunk).line,
	Sort:  func(_, _ []*Chunk) {},
	Change: func(_ shared.Line, c *Chunk, _ bool) shared.Line {
		if c == nil {
			return shared.Line{}
		}
		return shared.Line{Line: c.line()}
	},
}

func (i ChunkID) name() string {
	if i.n == 0 {
		return i.file
	}
	return fmt.Sprintf("%s#%s/%d", i.file, i.sum, i.n)
}

func parseChunkID(name string) (id ChunkID, err error) {
	id.file = name
	if rest, n, is := cutLast(name, "/"); is && strings.Count(name, "/") == 2 {
		if id.file, id.sum, is = cutLast(rest, "#"); is {
			id.n, err = strconv.Atoi(n)
		}
	}
	if _, _, _, is := cutFile(id.file); !is || !utf8.ValidString(name) || err != nil || id.name() != name || id.n < 0 {
		return ChunkID{}, errors.New("its key is not that of a template")
	}
	return id, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

func (c *Chunk) line() string {
	return fmt.Sprintf("%d %s %s", c.of, c.sum, base64.StdEncoding.EncodeToString([]byte(c.text)))
}

func parseChunk(id ChunkID, known shared.Line) (*Chunk, error) {
	c := &Chunk{id: id}
	of, rest, _ := strings.Cut(known.Line, " ")
	sum, text, is := strings.Cut(rest, " ")
	source, err := base64.StdEncoding.DecodeString(text)
	if err == nil {
		c.of, err = strconv.Atoi(of)
	}
	if !is || err != nil || c.of <= id.n || len(source) > maxChunk || id.n > 0 && sum != id.sum {
		return nil, errors.New("it is not a part of a template")
	}
	c.sum, c.text = sum, string(source)
	return c, nil
}

// chunks divides files.
func (of sources) chunks() (all []*Chunk) {
	for _, file := range slices.Sorted(maps.Keys(of)) {
		source := of[file]
		sum, n := sumOf(source), max(1, (len(source)+maxChunk-1)/maxChunk)
		for i := range n {
			id := ChunkID{file, sum, n - 1 - i}
			text := source[id.n*maxChunk : min(len(source), (id.n+1)*maxChunk)]
			if id.n == 0 {
				id.sum = ""
			}
			all = append(all, &Chunk{id, n, sum, text})
		}
	}
	return all
}

func sumOf(source string) string {
	sum := sha256.Sum256([]byte(source))
	return hex.EncodeToString(sum[:12])
}

// joined puts files together, and returns those of which a chunk is missing: they are as they were before. A template
// that was not is left out.
func joined(chunks []*Chunk, before *Templates) (all sources, faults []fault) {
	there := make(map[ChunkID]*Chunk, len(chunks))
	for _, c := range chunks {
		there[c.id] = c
	}
	all, leave := sources{}, make(map[string]bool)
	for _, first := range chunks {
		if first.id.n > 0 {
			continue
		}
		var text strings.Builder
		for c, i := first, 1; c != nil; i++ {
			text.WriteString(c.text)
			c = there[ChunkID{first.id.file, first.sum, i}]
		}
		file := first.id.file
		if source := text.String(); sumOf(source) == first.sum {
			all[file] = source
			continue
		}
		faults = append(faults, fault{file, "a part of it is missing: change the file once more, and reload"})
		tenant, name, _, _ := cutFile(file)
		if was, is := before.source(file); is {
			all[file] = was
		} else if _, is := before.Stored(tenant, name); !is {
			leave[tenant+"/"+name] = true
		}
	}
	maps.DeleteFunc(all, func(file, _ string) bool { return leave[strings.TrimSuffix(file, filepath.Ext(file))] })
	return all, faults
}

// Folder is what a folder of templates has.
type Folder struct {
	path   string
	chunks []*Chunk
}

// ReadFolder reads one; "": none. The error names each file that has a fault now and had none before.
func ReadFolder(path string, of *SharedTemplates) (*Folder, error) {
	f, faulty, err := readFolder(path, of)
	if err != nil {
		return nil, err
	}
	return f, f.refuse(faulty)
}

func (f *Folder) refuse(faulty []fault) error {
	var faults []error
	for _, x := range faulty {
		faults = append(faults, fmt.Errorf("%s: %s", filepath.Join(f.path, x.file), x.detail))
	}
	return errors.Join(faults...)
}

func readFolder(path string, of *SharedTemplates) (f *Folder, faulty []fault, err error) {
	own, err := readSources(path)
	if err != nil {
		return nil, nil, err
	}
	f = &Folder{path, own.chunks()}
	was, _ := joined(of.Over(nil), nil)
	is, _ := joined(of.After(path, f.chunks), nil)
	_, before := was.templates(nil)
	_, all := is.templates(nil)
	for _, x := range all {
		if _, here := own[x.file]; here && (was[x.file] != is[x.file] || !slices.Contains(before, x)) {
			faulty = append(faulty, x)
		}
	}
	return f, faulty, nil
}

// leave has a file be as the cluster has it.
func (f *Folder) leave(file string, of *SharedTemplates) {
	f.chunks = slices.DeleteFunc(f.chunks, func(c *Chunk) bool { return c.id.file == file })
	for _, c := range of.Over(nil) {
		if c.id.file == file {
			f.chunks = append(f.chunks, c)
		}
	}
}

// LoadTemplates reads those that a reload would bring into force, for who only looks: see ReadFolder.
func LoadTemplates(path string, of *SharedTemplates) (*Templates, error) {
	f, err := ReadFolder(path, of)
	if err != nil {
		return nil, err
	}
	all, _ := joined(of.After(path, f.chunks), nil)
	t, _ := all.templates(nil)
	return t, nil
}

// Stored are the templates in force: those of a folder, and over them those of the cluster. It is safe for concurrent
// use.
type Stored struct {
	shared  *SharedTemplates
	log     *slog.Logger
	inForce atomic.Pointer[inForce]
	mu      sync.Mutex // guards what follows
	folder  *Folder
}

type inForce struct {
	*Templates
	faults []fault
	of     *map[ChunkID]*Chunk // of the cluster
}

// OpenStored reads those of a folder, and of a cluster; nil: none. At a node of a cluster it leaves out a file with a
// fault, which may need what another node has made meanwhile.
func OpenStored(path string, of *SharedTemplates, log *slog.Logger) (*Stored, error) {
	f, faulty, err := readFolder(path, of)
	if err == nil && !of.On() {
		err = f.refuse(faulty)
	}
	if err != nil {
		return nil, err
	}
	for _, x := range faulty {
		log.Error("a template of the folder has a fault, and is left out until a reload: the cluster's is in force, "+
			"if it has one", "file", filepath.Join(path, x.file), "error", x.detail)
		f.leave(x.file, of)
	}
	s := &Stored{shared: of, log: log}
	s.Set(f)
	return s, nil
}

// Set brings a folder into force. What has changed in it the cluster takes over.
func (s *Stored) Set(f *Folder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.folder != nil {
		s.upToDate() // a template that breaks now stays as it was
	}
	if f.path != "" {
		s.shared.Take(f.path, f.chunks)
	}
	s.folder = f
	s.compile()
}

// Changes lists what Set would change, and which files of the folder would not be in force.
func (s *Stored) Changes(f *Folder) (all, not []string) {
	is, _ := joined(s.shared.After(f.path, f.chunks), s.templates())
	for _, c := range f.chunks {
		if c.id.n == 0 && sumOf(is[c.id.file]) != c.sum {
			not = append(not, "templates: "+c.id.file+" is not in force: the cluster has another version, or none")
		}
	}
	for _, change := range changed(s.templates().sources, is) {
		all = append(all, "templates: "+change)
	}
	return all, not
}

func changed(was, is sources) (all []string) {
	for file, source := range is {
		if before, there := was[file]; !there {
			all = append(all, file+" is new")
		} else if before != source {
			all = append(all, file+" has changed")
		}
	}
	for file := range was {
		if _, there := is[file]; !there {
			all = append(all, file+" is removed")
		}
	}
	slices.Sort(all)
	return all
}

// compile brings all into force. s.mu is held.
func (s *Stored) compile() {
	next := &inForce{of: s.shared.InForce()}
	was := s.inForce.Load()
	if was == nil {
		was = new(inForce)
	}
	all, missing := joined(s.shared.Over(s.folder.chunks), was.Templates)
	t, faulty := all.templates(was.Templates)
	next.Templates, next.faults = t, append(missing, faulty...)
	for _, f := range next.faults {
		if slices.Contains(was.faults, f) {
			continue
		}
		then := "it is left out, and requests that name it are refused"
		tenant, name, _, _ := cutFile(f.file)
		if _, is := t.Stored(tenant, name); is {
			then = "this relay goes on with the version before until it starts again"
		}
		s.log.Error("a template has a fault: "+then, "file", f.file, "error", f.detail)
	}
	s.inForce.Store(next)
}

// upToDate compiles all if the cluster has others than those in force. s.mu is held.
func (s *Stored) upToDate() {
	was := s.inForce.Load()
	if was.of == s.shared.InForce() {
		return
	}
	s.compile()
	if all := changed(was.sources, s.inForce.Load().sources); len(all) > 0 {
		s.log.Info("another node has changed templates", "count", len(all), "changes", all[:min(len(all), 20)])
	}
}

// templates are those in force. While others are compiled those of before are.
func (s *Stored) templates() *Templates {
	if s.inForce.Load().of != s.shared.InForce() && s.mu.TryLock() {
		s.upToDate()
		s.mu.Unlock()
	}
	return s.inForce.Load().Templates
}

// Sums are sums of the templates of each tenant.
func (s *Stored) Sums() map[string]string { return s.templates().Sums() }

// Stored returns a tenant's stored template, false if it has none of that name.
func (s *Stored) Stored(tenant, name string) (*Template, bool) {
	return s.templates().Stored(tenant, name)
}

// Compile compiles the templates of a tenant's request.
func (s *Stored) Compile(tenant string, m Mail) (*Template, Faults) {
	return s.templates().Compile(tenant, m)
}
