package moving

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/cluster/link"
	"example.org/mta/internal/bubble"
	"example.org/mta/internal/smallfile"
)

// slow is a queue that takes what it is sent when it may; it has nothing that leaves.
type slow struct {
	Mail
	may   chan bool
	took  []string
	stays []Part
}

func (s *slow) Take(_ context.Context, _ string, archive io.Reader, look bool) ([]Taken, []Declined, error) {
	text, err := io.ReadAll(archive)
	if look {
		return []Taken{{Part: Part{ID: strings.Join(s.took, "+")}}}, nil, err
	}
	<-s.may
	s.took = append(s.took, string(text))
	return nil, nil, err
}

func (s *slow) Stay(p []Part) { s.stays = append(s.stays, p...) }

func newMover(t *testing.T, mail Mail, log io.Writer) *Mover {
	t.Helper()
	m, err := Open(Config{Node: 2, Name: "two", Path: filepath.Join(t.TempDir(), "moving"), Mail: mail,
		Nodes: func() []Node { return nil }, May: func() bool { return true }, Drains: func() bool { return false },
		Refuses: func() string { return "" }, Now: time.Now, Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestAnAnswerHolds: who asks what was taken gets the answer when nothing more is taken of what it sent before.
func TestAnAnswerHolds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		mail := &slow{may: make(chan bool)}
		m := newMover(t, mail, io.Discard)
		from := uint16(2)
		talk := func() net.Conn {
			here, there := net.Pipe()
			from++ // of which one adopts the mail of the other
			go m.Serve(t.Context(), from, there)
			return here
		}
		text := func(w io.Writer) error { _, err := w.Write([]byte("first")); return err }
		first, lost := talk(), make(chan error)
		go func() { _, err := ask(first, request{verbTake, "one", 1}, time.Hour, text); lost <- err }()
		synctest.Wait()
		second := talk()
		answered := make(chan answer)
		go func() {
			a, err := ask(second, request{verbLook, "one", 1}, time.Hour, text)
			if err != nil {
				t.Error(err)
			}
			answered <- a
		}()
		if time.Sleep(time.Second); <-lost == nil {
			t.Error("the first talk has an answer")
		}
		select {
		case a := <-answered:
			t.Errorf("answered meanwhile: %+v", a)
		default:
		}
		mail.may <- true
		if a := <-answered; len(a.Taken) != 1 || a.Taken[0].ID != "first" {
			t.Errorf("%+v", a)
		}
		second.Close()
	})
}

// TestBadTalks: what no node sends ends the talk, and what was cut off is not whole.
func TestBadTalks(t *testing.T) {
	frame := func(q request) []byte {
		var b bytes.Buffer
		link.Write(&b, q)
		return b.Bytes()
	}
	take := frame(request{verbTake, "one", 1})
	offer := frame(request{verbOffer, "one", 1})
	chunk := func(head uint32, text string) string {
		return string(binary.BigEndian.AppendUint32(take[:len(take):len(take)], head)) + text
	}
	for want, sent := range map[string]string{
		"it asks for":                                   string(frame(request{Verb: "lend"})),
		"it is about the mail of two nodes":             string(offer) + string(frame(request{Verb: verbOffer, Of: 3})),
		"a chunk has 4294967294 octets (at most 65536)": chunk(1<<32-2, ""),
		"the sender could not go on":                    chunk(broken, ""),
		"unexpected EOF":                                chunk(10, "half"),
	} {
		bubble.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			mail := &slow{may: make(chan bool, 1)}
			mail.may <- true
			m := newMover(t, mail, &log)
			here, there := net.Pipe()
			done := make(chan bool)
			go func() { m.Serve(t.Context(), 1, there); there.Close(); close(done) }()
			here.SetDeadline(time.Now().Add(time.Minute))
			if rest, talks := strings.CutPrefix(sent, string(offer)); talks {
				sent = rest
				here.Write(offer)
				if err := link.Read(here, new(answer)); err != nil {
					t.Error(err)
				}
			}
			here.Write([]byte(sent))
			if want == "unexpected EOF" {
				here.Close()
			}
			if n, err := here.Read(make([]byte, 1)); n != 0 || err == nil {
				t.Errorf("%s: an answer", want)
			}
			if <-done; !strings.Contains(log.String(), want) {
				t.Errorf("the log has %q, want %q", log.String(), want)
			}
		})
	}
}

// TestAnAnswerAboutOthers is refused: nothing goes by it.
func TestAnAnswerAboutOthers(t *testing.T) {
	parts := []Part{{"a", []int{0, 1, 2}}, {"b", []int{7}}}
	if _, _, err := divide(parts, []Taken{{Part: Part{ID: "c", Recipients: []int{0}}}}); err == nil || !strings.Contains(err.Error(), `message "c", which was not sent`) {
		t.Error(err)
	}
	taken, rest, err := divide(parts, []Taken{{Part: Part{"a", []int{1, 2, 3}}, To: "two"}})
	if err != nil || len(taken) != 1 || len(taken[0].Recipients) != 2 || taken[0].To != "two" || len(rest) != 2 || rest[0].Recipients[0] != 0 {
		t.Errorf("%+v, %+v, %v", taken, rest, err)
	}
}

// TestTheFile: a damaged one, or one of a later version, is refused, and one that can't be written has mail stay.
func TestTheFile(t *testing.T) {
	var log bytes.Buffer
	mail := new(slow)
	m := newMover(t, mail, &log)
	p := &pending{To: 1, Parts: []Part{{"a", []int{0}}}}
	if err := m.hold(p); err != nil {
		t.Fatal(err)
	}
	if all, err := read(m.cfg.Path); err != nil || len(all) != 1 || all[0].Parts[0].ID != "a" {
		t.Errorf("%+v, %v", all, err)
	}
	text, err := os.ReadFile(m.cfg.Path)
	if err != nil {
		t.Fatal(err)
	}
	later, err := smallfile.Marshal(&file{Version: 2})
	if err != nil {
		t.Fatal(err)
	}
	for want, text := range map[string][]byte{"its format has version 2": later, "moving: ": text[:len(text)/2]} {
		if err := os.WriteFile(m.cfg.Path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(m.cfg); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "if you move it away") {
			t.Errorf("%v; want %q in %s", err, want, text)
		}
	}
	m.drop(p)
	m.cfg.Path = filepath.Join(t.TempDir(), "none", "moving")
	if err := m.hold(p); err == nil || m.Status().Waiting != 0 || !strings.Contains(log.String(), "can't be written down") {
		t.Errorf("%v, %+v, %s", err, m.Status(), log.String())
	}
}

// many has messages that leave one by one. It takes a second for each that comes.
type many struct {
	Mail
	left int
}

func (m *many) Keys(io.Writer) error { return nil }
func (m *many) Requested() int       { return 0 }
func (m *many) Moved([]Taken) error  { return nil }

func (m *many) Leave(_ context.Context, _ func(string) uint64, each func(Batch, uint64) error) (int, error) {
	for ; m.left > 0; m.left-- {
		if err := each(single(fmt.Sprint(m.left)), 0); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

func (m *many) Take(_ context.Context, _ string, archive io.Reader, _ bool) ([]Taken, []Declined, error) {
	id, err := io.ReadAll(archive)
	time.Sleep(time.Second)
	return []Taken{{Part: Part{string(id), []int{0}}}}, nil, err
}

// single is a batch of one message, by its id.
type single string

func (s single) Parts() []Part           { return []Part{{string(s), []int{0}}} }
func (s single) Going(string) error      { return nil }
func (s single) Write(w io.Writer) error { _, err := io.WriteString(w, string(s)); return err }

// TestANodeThatComesBack gets mail of a pass that began without it.
func TestANodeThatComesBack(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m, began := newMover(t, &many{left: 100}, io.Discard), time.Now()
		m.cfg.Nodes = func() []Node { return []Node{{Number: 3}, {Number: 4}} }
		m.cfg.Drains = func() bool { return true }
		others := map[uint16]*Mover{3: newMover(t, &many{}, io.Discard), 4: newMover(t, &many{}, io.Discard)}
		m.cfg.Open = func(_ context.Context, node uint16, _ link.Purpose) (net.Conn, error) {
			if node == 4 && time.Since(began) < 20*time.Second {
				return nil, errors.New("it starts")
			}
			here, there := net.Pipe()
			go others[node].Serve(t.Context(), 2, there)
			return here, nil
		}
		m.Drain()
		m.pass(t.Context())
		s := m.Status()
		if took := time.Since(began); s.Messages != 100 || len(s.Nodes) != 2 || s.Nodes[1].Messages < 35 || took > 66*time.Second {
			t.Errorf("%+v after %v", s, took)
		}
	})
}

// ends is a queue of a node that ends while it takes mail.
type ends struct {
	many
	end func()
}

func (e *ends) Take(ctx context.Context, _ string, archive io.Reader, _ bool) ([]Taken, []Declined, error) {
	if id, _ := io.ReadAll(archive); len(id) > 0 { // no keys
		e.end()
	}
	return nil, nil, nil
}

// TestAGoodbyeToAConnectionThatHasEnded: the process ends while a node has a batch, and the node ends, too.
func TestAGoodbyeToAConnectionThatHasEnded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := newMover(t, &many{left: 1}, io.Discard)
		m.cfg.Nodes = func() []Node { return []Node{{Number: 3}} }
		m.cfg.Drains = func() bool { return true }
		ctx, cancel := context.WithCancel(t.Context())
		var ended atomic.Bool
		m.cfg.Open = func(context.Context, uint16, link.Purpose) (net.Conn, error) {
			here, there := net.Pipe()
			go newMover(t, &ends{end: func() {
				cancel()
				time.Sleep(goodbye / 2)
				there.Close()
				ended.Store(true)
			}}, io.Discard).Serve(context.WithoutCancel(ctx), 2, there)
			return here, nil
		}
		m.Drain()
		m.pass(ctx)
		time.Sleep(goodbye)
		if !ended.Load() {
			t.Errorf("no batch is sent: %+v", m.Status())
		}
	})
}
