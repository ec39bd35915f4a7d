package mta

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/emersion/go-msgauth/dkim"

	"example.org/mta/delivery"
	own "example.org/mta/internal/dkim"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/sink"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
)

const dkimKey = "nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=" // RFC 8463, A.2

// signedBy lists the domains whose signatures of a message are good, in their order.
func signedBy(t *testing.T, content []byte) (domains []string) {
	t.Helper()
	signer, err := own.ParseKey([]byte(dkimKey))
	if err != nil {
		t.Fatal(err)
	}
	key, err := own.NewKey("any.example", "s", signer)
	if err != nil {
		t.Fatal(err)
	}
	found, err := dkim.VerifyWithOptions(bytes.NewReader(content), &dkim.VerifyOptions{
		LookupTXT: func(string) ([]string, error) { return []string{key.Record()}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range found {
		if v.Err != nil {
			t.Errorf("signature of %s: %v\n%s", v.Domain, v.Err, content)
		}
		domains = append(domains, v.Domain)
	}
	return domains
}

func dkimBlock(domain, more string) string {
	return fmt.Sprintf("dkim %q {\n domain = %q\n %s\n key \"s\" { private_key = %q }\n}\n", domain, domain, more, dkimKey)
}

func TestMailLeavesSigned(t *testing.T) {
	for name, provider := range map[string]sink.Config{"BDAT": {}, "DATA": {Without: sink.Chunking}} {
		t.Run(name, func(t *testing.T) {
			provider.Refusals = []sink.Refusal{sink.UnknownUsers("nobody")}
			w := newWorld(t, provider, `defaults { smtp_port = PORT }`+"\n"+
				dkimBlock("client.example", "")+dkimBlock("esp.example", `senders = ["*"]`)+dkimBlock("relay.example", ""))
			w.send("ann@client.example", "From: Ann <ann@Client.Example>\r\nSubject: two  words\r\n\r\n.dots\r\n \r\n\r\n", "bob@box.example", "nobody@box.example")
			w.send("eve@else.example", "From: eve@else.example\r\n\r\nx\r\n", "bob@box.example")
			for _, m := range w.arrived(3) {
				want := "client.example esp.example"
				switch m.Sender {
				case "":
					want = "relay.example esp.example" // a report is mail of ours
				case "eve@else.example":
					want = "esp.example"
				}
				if got := strings.Join(signedBy(t, m.Content), " "); got != want {
					t.Errorf("mail from %q is signed by %s, want %s", m.Sender, got, want)
				}
			}
			if n := w.dispatcher.signing.counts.Signed.Load(); n != 3 {
				t.Errorf("%d messages were signed, want 3", n)
			}
		})
	}
}

// A later attempt carries a signature of that day, and a reload brings other keys.
func TestRetriesAreSigned(t *testing.T) {
	w := newWorld(t, sink.Config{Greylist: 100 * time.Millisecond}, `defaults {
			smtp_port = PORT
			retry_interval = "1s"
		}`+"\n"+dkimBlock("client.example", ""))
	w.send("ann@client.example", "From: ann@client.example\r\n\r\nx\r\n", "bob@box.example")
	for _, m := range w.arrived(1) {
		if got := signedBy(t, m.Content); len(got) != 1 {
			t.Errorf("signed by %v", got)
		}
	}
}

func TestMailThatCannotBeSigned(t *testing.T) {
	const twoAuthors = "From: a@client.example\r\nFrom: b@client.example\r\n\r\nx\r\n"
	t.Run("waits", func(t *testing.T) {
		w := newWorld(t, sink.Config{}, "defaults { smtp_port = PORT }\n"+dkimBlock("esp.example", `senders = ["*"]`))
		w.send("ann@client.example", twoAuthors, "bob@box.example")
		rec := w.await("bob@box.example", "TransientFailure")
		if !strings.Contains(fmt.Sprint(rec), "two From fields") {
			t.Errorf("the record is %+v", rec)
		}
		if w.dispatcher.signing.counts.Failed.Load() == 0 || !strings.Contains(w.book.String(), "mail can't be signed") {
			t.Error("neither metrics nor log have it")
		}
	})
	t.Run("goes out", func(t *testing.T) {
		w := newWorld(t, sink.Config{}, "defaults { smtp_port = PORT }\n"+dkimBlock("esp.example", `senders = ["*"]
			on_failure = "send"`))
		w.send("ann@client.example", twoAuthors, "bob@box.example")
		for _, m := range w.arrived(1) {
			if bytes.Contains(m.Content, []byte("DKIM-Signature")) {
				t.Errorf("arrived:\n%s", m.Content)
			}
		}
	})
}

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
		s.sign(pol, m, func(sig *signature) { all[i] = sig.fields; jobs.Done() })
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
	s.sign(other, m, func(*signature) {})
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
			s.policy = func() *wiring.Policy { return pol }
			q := &gatedBodies{stage: s, content: x.from, open: make(chan struct{})}
			s.dispatcher.queue, s.signing.body = q, q.Body
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
		s.sign(pol, &envelope.Message{ID: 7}, func(sig *signature) {
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
		s.sign(pol, &envelope.Message{ID: id}, func(*signature) {})
		s.wait()
	}
	if n := len(s.recent) + len(s.older); n > 2*maxRecent {
		t.Errorf("%d signatures are kept", n)
	}
}
