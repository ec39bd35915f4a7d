package exported

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// SummaryName is the name of the last file of an archive.
const SummaryName = "export.json"

// MaxJSON is the largest JSON file in an archive, in octets: that of 65,535 recipients fits.
const MaxJSON = 32 << 20

// ErrTooLarge is the error of a message whose JSON would be larger than MaxJSON.
var ErrTooLarge = fmt.Errorf("its envelope takes more than %d octets as JSON", MaxJSON)

// atOnce is the largest content that is read once, and kept meanwhile.
const atOnce = 1 << 20

// Writer writes an archive.
type Writer struct {
	tar  *tar.Writer
	sum  Summary
	keys int // files of them
}

// NewWriter begins an archive. s says where it comes from; its counts are the writer's.
func NewWriter(w io.Writer, s Summary) *Writer {
	s.Version, s.Messages, s.Recipients, s.Unheld = Version, 0, 0, 0
	return &Writer{tar: tar.NewWriter(w), sum: s}
}

// Add writes a message, with the size and the sum of its content, which open returns each time that it is called. The
// content is read once before the first octet is written: after an error until then written is false, and the archive
// is as it was.
func (w *Writer) Add(m *Message, open func() (io.ReadCloser, error)) (written bool, err error) {
	m.Version, m.Node = Version, w.sum.Node
	content, err := summed(m, open)
	if err != nil {
		return false, err
	}
	defer content.Close()
	return w.message(m, content)
}

// Copy writes a message as another archive has it.
func (w *Writer) Copy(m *Message, content io.Reader) error {
	_, err := w.message(m, content)
	return err
}

func (w *Writer) message(m *Message, content io.Reader) (written bool, err error) {
	text, err := encode(m)
	if err != nil {
		return false, err
	}
	if err := w.json(m.ID+".json", text); err != nil {
		return true, err
	}
	if err := w.file(m.ID+".eml", content, m.Size, nil); err != nil {
		return true, err
	}
	w.sum.count(m)
	return true, nil
}

func (s *Summary) count(m *Message) {
	s.Messages++
	s.Recipients += len(m.Recipients)
	for i := range m.Recipients {
		if !m.Recipients[i].Held {
			s.Unheld++
		}
	}
}

// Close ends the archive: without its end it is refused. left has what was left out.
func (w *Writer) Close(left Summary) error {
	s := w.sum
	s.InDelivery, s.Ending, s.Unreadable = left.InDelivery, left.Ending, left.Unreadable
	text, err := encode(&s)
	if err != nil {
		return err
	}
	if err := w.json(SummaryName, text); err != nil {
		return err
	}
	return w.tar.Close()
}

// sumRecord is the PAX record of a JSON file with the SHA-256 of its octets. Earlier versions neither write it nor mind
// it.
const sumRecord = "MTA.sha256"

func (w *Writer) json(name string, text []byte) error {
	return w.file(name, bytes.NewReader(text), int64(len(text)), map[string]string{sumRecord: sumOf(text)})
}

func sumOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

func (w *Writer) file(name string, from io.Reader, size int64, records map[string]string) error {
	h := &tar.Header{Name: name, Mode: 0o600, Size: size, ModTime: w.sum.At.Truncate(time.Second), PAXRecords: records}
	if err := w.tar.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.Copy(w.tar, from)
	if err == nil && n < size {
		err = fmt.Errorf("%s ends after %d octets of %d", name, n, size)
	}
	return err
}

// encode leaves < and > as they are.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	if b.Len() > MaxJSON {
		return nil, ErrTooLarge
	}
	return b.Bytes(), nil
}

// summed reads a content, notes its size and sum in m, and returns it from its beginning.
func summed(m *Message, open func() (io.ReadCloser, error)) (io.ReadCloser, error) {
	from, err := open()
	if err != nil {
		return nil, err
	}
	defer from.Close()
	sum := sha256.New()
	var kept bytes.Buffer
	n, err := io.Copy(io.MultiWriter(sum, &kept), io.LimitReader(from, atOnce))
	if err == nil && n == atOnce {
		kept.Reset()
		var more int64
		more, err = io.Copy(sum, from)
		n += more
	}
	if err != nil {
		return nil, err
	}
	m.Size, m.SHA256 = n, hex.EncodeToString(sum.Sum(nil))
	if n < atOnce {
		return io.NopCloser(&kept), nil
	}
	return open()
}
