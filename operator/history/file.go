package history

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"example.org/mta/internal/format"
	"example.org/mta/internal/smallfile"
)

// The file has the figures of the last 14 days and 12 hours: lines of JSON, compressed with gzip, whose checksum shows
// a file that is torn or damaged. A header comes first, then the subjects, then their number. Earlier versions wrote,
// and read, the days only.
const (
	fileFormat  = "mta history"
	fileVersion = 1

	maxLine = 1 << 20 // octets; a subject has some 100,000
	maxName = 1024    // octets
)

// Format is what this program knows of the file's formats. A format is the version in the file's header.
var Format = format.Store{Name: "history of figures", Reads: fileVersion, Writes: fileVersion, Unstated: fileVersion}

type fileHeader struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Step    int64  `json:"step"`                 // the last one, of 10 min, counted from 1970
	Hours   int64  `json:"hours_step,omitempty"` // likewise, of 30 s
}

type fileSubject struct {
	Kind    string            `json:"kind,omitempty"`
	Name    string            `json:"name"`
	Busy    float64           `json:"busy"`    // its rank
	Figures map[string][]byte `json:"figures"` // by name: the value of each step, the oldest first, 16 bits each
	Hours   map[string][]byte `json:"hours,omitempty"`

	Subjects *int `json:"subjects,omitempty"` // in the last line, in the place of all else: how many there were
}

// errFormat is a file that is whole, and written by another version of this program.
var errFormat = errors.New("its format is not understood")

// Save writes the file.
func (h *History) Save() error {
	if h.Path == "" {
		return nil
	}
	return smallfile.Replace(h.Path, 0o640, h.encode)
}

// encode writes all subjects. Others may take samples meanwhile: each subject is locked by itself.
func (h *History) encode(w io.Writer) error {
	zip, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	out := json.NewEncoder(zip)
	h.mu.RLock()
	heads := h.heads
	h.mu.RUnlock()
	if err := out.Encode(fileHeader{fileFormat, fileVersion, heads[Days], heads[Hours]}); err != nil {
		return err
	}
	n := 0
	for k := range kinds {
		for _, name := range h.Names(Kind(k)) {
			if s, ok := h.filed(Kind(k), name, heads); ok {
				n++
				err = errors.Join(err, out.Encode(s))
			}
		}
	}
	return errors.Join(err, out.Encode(fileSubject{Subjects: &n}), zip.Close())
}

// filed gives a subject as it is in the file.
func (h *History) filed(k Kind, name string, heads [numSpans]int64) (f fileSubject, ok bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	s := h.rings[k][name]
	if s == nil {
		return f, false
	}
	f = fileSubject{Kind: k.String(), Name: name, Busy: h.ranks[k].busy[name] / h.ranks[k].weight}
	f.Figures = h.octets(s, figuresOf[k], Days, heads[Days])
	f.Hours = h.octets(s, figuresOf[k], Hours, heads[Hours])
	return f, true
}

// octets gives the values of a subject's figures over a span, up to a step, of those of which any is known.
func (h *History) octets(s *subject, list []Figure, span Span, head int64) map[string][]byte {
	n := int64(span.Values())
	// A newer step than head has an older one's place.
	first, last := max(head-n+1, h.heads[span]-n+1, 1), min(head, h.heads[span])
	all := make(map[string][]byte, len(list))
	for step := first; step <= last; step++ {
		for i, v := range s.spans[span].at(step, len(list)) {
			if v == unknown {
				continue
			}
			name := list[i].String()
			octets := all[name]
			if octets == nil {
				octets = bytes.Repeat([]byte{0xff}, int(2*n)) // unknown
				all[name] = octets
			}
			binary.LittleEndian.PutUint16(octets[2*(step-head+n-1):], uint16(v))
		}
	}
	return all
}

// load reads the file. One that can't be used is set aside, and the history begins empty: it is not a reason to keep
// mail waiting.
func (h *History) load() {
	f, err := os.Open(h.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		if err = h.decode(f); errors.Is(err, errFormat) {
			err = cmp.Or(checked(f), err) // damage can look like another version
		}
		f.Close()
	}
	if err == nil {
		return
	}
	h.reset()
	why := "damaged"
	if errors.Is(err, errFormat) {
		why = "unknown"
	}
	aside := fmt.Sprintf("%s.%s-%s", h.Path, why, h.Now().UTC().Format("20060102T150405"))
	if moved := os.Rename(h.Path, aside); moved != nil {
		h.Log.Error("the history of figures can't be read, and begins empty", "file", h.Path, "error", err,
			"setting it aside", moved)
		return
	}
	h.Log.Error("the history of figures can't be read, and begins empty; its file was set aside", "file",
		aside, "error", err)
}

// checked returns an error if the checksum of a file is not that of its content.
func checked(f io.ReadSeeker) error {
	_, err := f.Seek(0, io.SeekStart)
	if err != nil {
		return err
	}
	zip, err := gzip.NewReader(bufio.NewReader(f))
	if err == nil {
		_, err = io.Copy(io.Discard, zip)
	}
	return err
}

// reset empties it.
func (h *History) reset() {
	h.heads = [numSpans]int64{}
	for k := range h.rings {
		h.rings[k], h.ranks[k] = make(map[string]*subject), newRanking()
		h.add(Kind(k), mainName(Kind(k)))
	}
}

// decode reads a file into an empty History. After an error it is not empty.
func (h *History) decode(r io.Reader) error {
	zip, err := gzip.NewReader(bufio.NewReader(r))
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(zip)
	lines.Buffer(nil, maxLine)
	var header fileHeader
	if err := nextLine(lines, &header); err != nil {
		return err
	}
	if header.Format != fileFormat || header.Version != fileVersion {
		return fmt.Errorf("%w: format %q, version %d; this relay writes %q, version %d", errFormat, header.Format,
			header.Version, fileFormat, fileVersion)
	}
	for span, step := range map[Span]int64{Days: header.Step, Hours: header.Hours} {
		if now := stepOf(span, h.Now()); step < 0 || step > now+int64(24*time.Hour*365*100/span.Step()) {
			return fmt.Errorf("its last step, %d, is not valid: the present one is %d", step, now)
		}
		h.heads[span] = step
	}
	for n := 0; ; n++ {
		var s fileSubject
		if err := nextLine(lines, &s); err != nil {
			return err
		}
		if s.Subjects != nil {
			return ended(lines, *s.Subjects, n)
		}
		if err := h.take(&s); err != nil {
			return fmt.Errorf("line %d: %w", n+2, err)
		}
	}
}

func nextLine(lines *bufio.Scanner, v any) error {
	if !lines.Scan() {
		if lines.Err() != nil {
			return lines.Err()
		}
		return io.ErrUnexpectedEOF
	}
	return json.Unmarshal(lines.Bytes(), v)
}

// ended checks that nothing follows, and the checksum with it.
func ended(lines *bufio.Scanner, said, read int) error {
	switch {
	case lines.Scan():
		return errors.New("lines follow after the last one")
	case lines.Err() != nil:
		return lines.Err()
	case said != read:
		return fmt.Errorf("it has %d subjects, and %d were written", read, said)
	}
	return nil
}

// take adds a subject of the file.
func (h *History) take(f *fileSubject) error {
	index := slices.Index(kindNames[:], f.Kind)
	if index < 0 {
		return fmt.Errorf("%w: subjects of the kind %.20q", errFormat, f.Kind)
	}
	k := Kind(index)
	s := h.rings[k][f.Name]
	switch {
	case s == nil && (k == Relay || f.Name == "" || len(f.Name) > maxName):
		return fmt.Errorf("there is no %s %.20q", k, f.Name)
	case s == nil && len(h.ranks[k].chosen) >= most[k]:
		return fmt.Errorf("more than %d of the kind %q", most[k], f.Kind)
	case s == nil:
		s = h.add(k, f.Name)
		h.ranks[k].chosen[f.Name], h.ranks[k].busy[f.Name] = true, max(f.Busy, 0)
	}
	err := h.fill(s, figuresOf[k], Days, f.Figures)
	if err == nil {
		err = h.fill(s, figuresOf[k], Hours, f.Hours)
	}
	if err != nil {
		return fmt.Errorf("%s %.20q: %w", k, f.Name, err)
	}
	return nil
}

// fill is the inverse of octets.
func (h *History) fill(s *subject, list []Figure, span Span, all map[string][]byte) error {
	n := span.Values()
	for name, octets := range all {
		i := slices.IndexFunc(list, func(x Figure) bool { return x.String() == name })
		if i < 0 {
			return fmt.Errorf("%w: the figure %.20q", errFormat, name)
		}
		if len(octets) != 2*n {
			return fmt.Errorf("%s has %d octets, want %d", name, len(octets), 2*n)
		}
		for j := range n {
			v := half(binary.LittleEndian.Uint16(octets[2*j:]))
			if step := h.heads[span] - int64(n-1-j); step >= 0 && v != unknown {
				s.spans[span].place(step, len(list))[i] = v
			}
		}
	}
	return nil
}
