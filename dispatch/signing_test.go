package dispatch

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/internal/envelope"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
)

// newTestSigning gives a signing with content of its own and no delivery.
func newTestSigning(t *testing.T, body func(envelope.ID) (io.ReadCloser, error)) (*signing, *wiring.Policy) {
	t.Helper()
	cfg, err := config.Parse([]byte(dkimBlock("client.example", "")), "test.conf", nil)
	if err != nil {
		t.Fatal(err)
	}
	return newSigning(body, time.Now, slog.New(slog.DiscardHandler)), wiring.New(cfg)
}

// Jobs of one message share its signature.
func TestOneSignatureForAllJobs(t *testing.T) {
	gate := make(chan struct{})
	reads := 0
	s, pol := newTestSigning(t, func(envelope.ID) (io.ReadCloser, error) {
		reads++
		<-gate
		return io.NopCloser(strings.NewReader("From: ann@client.example\r\n\r\nx\r\n")), nil
	})
	m := &envelope.Message{ID: 7}
	var jobs sync.WaitGroup
	jobs.Add(3)
	var all [3][]byte
	for i := range all {
		s.sign(pol, m, top{}, func(sig *signature) { all[i] = sig.fields; jobs.Done() })
	}
	if !s.has(7) {
		t.Error("nobody knows that the message is being signed")
	}
	close(gate)
	jobs.Wait()
	s.wait()
	if reads != 1 || len(all[0]) == 0 || string(all[0]) != string(all[1]) || string(all[1]) != string(all[2]) {
		t.Errorf("read %d times: %q", reads, all)
	}
	if s.has(7) {
		t.Error("it is signed, and said to be still being signed")
	}
	_, other := newTestSigning(t, s.body)
	s.sign(other, m, top{}, func(*signature) {})
	s.wait()
	if reads != 2 {
		t.Errorf("after a reload the message was read %d times, want 2", reads)
	}
}

// gatedBodies is a queue that gives contents when it is opened.
type gatedBodies struct {
	*stage
	content string
	open    chan struct{}
	reads   atomic.Int64
}

func (q *gatedBodies) Body(envelope.ID) (io.ReadCloser, error) {
	q.reads.Add(1)
	<-q.open
	return io.NopCloser(strings.NewReader(q.content)), nil
}

// What is being signed has its room already: nothing is signed that then has to wait in the queue. What can't
// be signed gives the room back.
func TestNothingIsSignedThatHasNoRoom(t *testing.T) {
	for name, x := range map[string]struct {
		from       string
		jobs, room int
	}{
		"signed":     {"From: ann@client.example\r\n\r\nx\r\n", 1, 0},
		"not signed": {"From: a@client.example\r\nFrom: b@client.example\r\n\r\nx\r\n", 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			pol := parsePolicy(t, dkimBlock("client.example", `senders = ["*"]`))
			s.Policy = func() *wiring.Policy { return pol }
			q := &gatedBodies{stage: s, content: x.from, open: make(chan struct{})}
			s.Dispatcher.Queue, s.signing.body = q, q.Body
			s.room = 1
			s.handle(s.lease(1, 0, "a@x.example"))
			s.handle(s.lease(2, 0, "b@x.example"))
			s.want(t, "park 2 [0] mx.x.example from default")
			close(q.open)
			if err := s.signing.wait(); err != nil {
				t.Fatal(err)
			}
			if n := q.reads.Load(); n != 1 || len(s.jobs) != x.jobs || s.room != x.room {
				t.Errorf("%d read, %d jobs, room for %d", n, len(s.jobs), s.room)
			}
		})
	}
}

// A content that can't be read is for delivery to report, as any other; it is read again the next time.
func TestContentThatCannotBeSigned(t *testing.T) {
	damaged := errors.New("damaged")
	s, pol := newTestSigning(t, func(envelope.ID) (io.ReadCloser, error) { return nil, damaged })
	var got []error
	for range 2 {
		s.sign(pol, &envelope.Message{ID: 7}, top{}, func(sig *signature) {
			job := &delivery.Job{Message: &envelope.Message{}}
			sig.addTo(job)
			_, err := job.Body()
			got = append(got, err, sig.refused)
		})
		s.wait()
	}
	if fmt.Sprint(got) != "[damaged <nil> damaged <nil>]" || len(s.recent) > 0 {
		t.Errorf("%v, %d kept", got, len(s.recent))
	}
}

// Memory for signatures has an end.
func TestSignaturesAreForgotten(t *testing.T) {
	s, pol := newTestSigning(t, func(envelope.ID) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader("From: ann@client.example\r\n\r\nx\r\n")), nil
	})
	for id := range envelope.ID(3 * maxRecent) {
		s.sign(pol, &envelope.Message{ID: id}, top{}, func(*signature) {})
		s.wait()
	}
	if n := len(s.recent) + len(s.older); n > 2*maxRecent {
		t.Errorf("%d signatures are kept", n)
	}
}
