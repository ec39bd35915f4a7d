package exported

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"strings"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/legible"
)

// Reader reads an archive, one message at a time. It needs memory for the JSON of one message, MaxJSON at most.
type Reader struct {
	// Keys takes the keys of a file, before Next returns a message that comes after it. Its error ends the reading.
	// Nil: keys are only checked.
	Keys func([]Key) error

	tar     *tar.Reader
	name    string // of what is read: a file or "standard input"
	sum     Summary
	content *Content
	ended   bool
}

// NewReader begins to read. name is that of the archive, for errors.
func NewReader(r io.Reader, name string) *Reader { return &Reader{tar: tar.NewReader(r), name: name} }

// keys reads files of keys, and returns the header of the file that follows.
func (r *Reader) keys() (*tar.Header, error) {
	for {
		h, err := r.next()
		if err != nil || !strings.HasPrefix(h.Name, keysPrefix) {
			return h, err
		}
		var f keysFile
		if err := r.decode(h, &f); err != nil {
			return nil, err
		}
		for i := range f.Keys {
			if _, err := f.Keys[i].check(); err != nil {
				return nil, wrong(r.place(h.Name), again, "keys[%d].%v", i, err)
			}
		}
		r.sum.Keys += len(f.Keys)
		if r.Keys != nil {
			if err := r.Keys(f.Keys); err != nil {
				return nil, err
			}
		}
	}
}

// Next returns the next message, whose content must be read to its end before the next call. The error is io.EOF after
// the last one, when the archive is whole; an *Error has what is wrong with it.
func (r *Reader) Next() (*Message, *Content, error) {
	if r.ended {
		return nil, nil, io.EOF
	}
	if c := r.content; c != nil {
		if _, err := io.Copy(io.Discard, c); err != nil {
			return nil, nil, err
		}
	}
	h, err := r.keys()
	if err != nil {
		return nil, nil, err
	}
	place := r.place(h.Name)
	id, ok := strings.CutSuffix(h.Name, ".json")
	if h.Name == SummaryName {
		return nil, nil, r.end(h)
	}
	if !ok {
		return nil, nil, wrong(place, again, "its .json is missing")
	}
	m := new(Message)
	if err := r.decode(h, m); err != nil {
		return nil, nil, err
	}
	if m.ID != id {
		return nil, nil, wrong(place, "archives of queued mail are made by 'mta queue export'",
			"it has the id %q", m.ID)
	}
	if h, err = r.next(); err != nil {
		return nil, nil, err
	}
	if h.Name != id+".eml" {
		return nil, nil, wrong(place, again, "it is followed by %q instead of %s.eml", h.Name, id)
	}
	if h.Size != m.Size {
		return nil, nil,
			wrong(r.place(h.Name), again, "it has %d octets, but its .json gives its size as %d", h.Size, m.Size)
	}
	r.sum.count(m)
	r.content = &Content{r: r, place: r.place(h.Name), left: h.Size, want: m.SHA256, sum: sha256.New()}
	return m, r.content, nil
}

// Summary is the end of the archive, once Next has returned io.EOF; before, it has the counts so far.
func (r *Reader) Summary() Summary { return r.sum }

// place names a file for errors. Anybody can have chosen its name.
func (r *Reader) place(file string) string { return r.name + ": " + legible.Line(file, 100) }

// next reads the header of a file and checks its name.
func (r *Reader) next() (*tar.Header, error) {
	h, err := r.tar.Next()
	short := errors.Is(err, io.ErrUnexpectedEOF)
	if errors.Is(err, io.EOF) || short && r.sum.Messages > 0 {
		return nil, wrong(r.name, again, "it ends after %d messages, without %s", r.sum.Messages, SummaryName)
	}
	if errors.Is(err, tar.ErrHeader) || short {
		return nil, wrong(r.name, "give an archive that 'mta queue export' has written",
			"after %d messages: not a tar archive, or a damaged one", r.sum.Messages)
	}
	if err != nil {
		return nil, err
	}
	base, suffix, _ := strings.Cut(h.Name, ".")
	id, err := envelope.ParseID(base)
	named := err == nil && id.String() == base && (suffix == "json" || suffix == "eml") || h.Name == SummaryName ||
		strings.HasPrefix(base, keysPrefix) && suffix == "json"
	_, sparse := h.PAXRecords["GNU.sparse.realsize"] // a few octets that are read as many
	_, sparser := h.PAXRecords["GNU.sparse.size"]
	if !named || h.Typeflag != tar.TypeReg || sparse || sparser {
		return nil, wrong(r.place(h.Name), "archives of queued mail are made by 'mta queue export', and have "+
			keysPrefix+"N.json, ID.json, ID.eml and "+SummaryName+" only", "not a file of an export")
	}
	return h, nil
}

// decode reads a JSON file strictly, and its version first.
func (r *Reader) decode(h *tar.Header, v any) error {
	place := r.place(h.Name)
	if h.Size > MaxJSON {
		return wrong(place, "archives of queued mail are made by 'mta queue export'",
			"it has %d octets; the limit is %d", h.Size, MaxJSON)
	}
	text, err := io.ReadAll(r.tar)
	if err != nil {
		return r.cut(place, err)
	}
	if sum := h.PAXRecords[sumRecord]; sum != "" && sum != sumOf(text) {
		return wrong(place, again, "it has changed: its sum differs")
	}
	var stated struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(text, &stated); err != nil {
		return wrong(place, again, "reading JSON: %v", err)
	}
	if stated.Version != Version {
		return wrong(place, "import it with the version of mta that has exported it, or export it with this one",
			"the format has version %d, and this program reads %d", stated.Version, Version)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return wrong(place, again, "reading JSON: %v", err)
	}
	return nil
}

func (r *Reader) cut(place string, err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return wrong(place, again, "the archive ends within it")
	}
	return err
}

// end compares the counts of the summary with what was read.
func (r *Reader) end(h *tar.Header) error {
	var s Summary
	if err := r.decode(h, &s); err != nil {
		return err
	}
	if s.Messages != r.sum.Messages || s.Recipients != r.sum.Recipients {
		return wrong(r.place(h.Name), again, "it counts %d messages with %d recipients, but the archive has %d with %d",
			s.Messages, s.Recipients, r.sum.Messages, r.sum.Recipients)
	}
	if _, err := r.tar.Next(); !errors.Is(err, io.EOF) {
		return wrong(r.place(h.Name), "import archives one by one", "the archive continues after it")
	}
	s.Keys = r.sum.Keys
	r.sum, r.ended = s, true
	return io.EOF
}

// Content is that of a message. It ends with io.EOF only if its sum is that of what was written.
type Content struct {
	r     *Reader
	place string
	left  int64
	want  string
	sum   hash.Hash
	check checker
	err   error
}

// Read implements io.Reader.
func (c *Content) Read(p []byte) (n int, err error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err = c.r.tar.Read(p)
	c.sum.Write(p[:n])
	c.check.pass(p[:n])
	c.left -= int64(n)
	switch {
	case errors.Is(err, io.EOF) && c.left > 0:
		err = c.r.cut(c.place, io.ErrUnexpectedEOF)
	case errors.Is(err, io.EOF) && hex.EncodeToString(c.sum.Sum(nil)) != c.want:
		err = wrong(c.place, again, "its content has changed: the sum in its .json differs")
	case errors.Is(err, io.EOF):
	case err != nil:
		err = c.r.cut(c.place, err)
	}
	c.err = err
	return n, err
}

// Wrong returns, once all was read, why no relay would have queued the content; "" if one would.
func (c *Content) Wrong() string { return c.check.wrong() }

// checker looks for what a relay does not queue: a content with a CR or LF that stands alone could smuggle a message.
type checker struct {
	crs, lfs, pairs int
	nul             bool
	last            byte // 0: nothing has come
}

var crlf = []byte("\r\n")

func (k *checker) pass(p []byte) {
	if len(p) == 0 {
		return
	}
	k.nul = k.nul || bytes.IndexByte(p, 0) >= 0
	k.crs, k.lfs, k.pairs = k.crs+bytes.Count(p, crlf[:1]), k.lfs+bytes.Count(p, crlf[1:]), k.pairs+bytes.Count(p, crlf)
	if k.last == '\r' && p[0] == '\n' {
		k.pairs++
	}
	k.last = p[len(p)-1]
}

func (k *checker) wrong() string {
	switch {
	case k.nul:
		return "it has a NUL octet"
	case k.crs != k.pairs || k.lfs != k.pairs:
		return "it has a CR or LF that stands alone"
	case k.last != 0 && k.last != '\n':
		return "its last line has no end"
	}
	return ""
}
