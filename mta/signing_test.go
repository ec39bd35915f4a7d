package mta

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
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
func newTestSigning(t *testing.T, body func(envelope.ID) (io.ReadCloser, error), refill func(delivery.Flow)) (*signing, *wiring.Policy) {
	t.Helper()
	cfg, err := config.Parse([]byte(dkimBlock("client.example", "")), "test.conf", nil)
	if err != nil {
		t.Fatal(err)
	}
	return newSigning(body, time.Now, refill, slog.New(slog.DiscardHandler)), wiring.New(cfg)
}

// Jobs of one message share its signature, and what is being signed takes room of its flow.
func TestOneSignatureForAllJobs(t *testing.T) {
	gate, refilled := make(chan struct{}), make(chan delivery.Flow, 1)
	reads := 0
	s, pol := newTestSigning(t, func(envelope.ID) (io.ReadCloser, error) {
		reads++
		<-gate
		return io.NopCloser(strings.NewReader("From: ann@client.example\r\n\r\nx\r\n")), nil
	}, func(f delivery.Flow) { refilled <- f })
	m, f := &envelope.Message{ID: 7}, delivery.Flow{Site: "a"}
	var jobs sync.WaitGroup
	jobs.Add(3)
	var all [3][]byte
	for i := range all {
		s.sign(pol, m, f, func(sig *signature) { all[i] = sig.fields; jobs.Done() })
	}
	if !s.has(7) {
		t.Error("nobody knows that the message is being signed")
	}
	if n := s.room(f, 5); n != 2 {
		t.Errorf("room for %d more, want 2", n)
	}
	if n := s.room(f, 3); n != 0 {
		t.Errorf("room for %d more, want 0", n)
	}
	close(gate)
	jobs.Wait()
	if got := <-refilled; got != f {
		t.Errorf("%v is refilled", got)
	}
	s.wait()
	if reads != 1 || len(all[0]) == 0 || string(all[0]) != string(all[1]) || string(all[1]) != string(all[2]) {
		t.Errorf("read %d times: %q", reads, all)
	}
	if n := s.room(f, 5); n != 5 || s.has(7) {
		t.Errorf("room for %d, want 5", n)
	}
	_, other := newTestSigning(t, s.body, nil)
	s.sign(other, m, f, func(*signature) {})
	s.wait()
	if reads != 2 {
		t.Errorf("after a reload the message was read %d times, want 2", reads)
	}
}

// A content that can't be read is for delivery to report, as any other; it is read again the next time.
func TestContentThatCannotBeSigned(t *testing.T) {
	damaged := errors.New("damaged")
	s, pol := newTestSigning(t, func(envelope.ID) (io.ReadCloser, error) { return nil, damaged }, nil)
	var got []error
	for range 2 {
		s.sign(pol, &envelope.Message{ID: 7}, delivery.Flow{}, func(sig *signature) {
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
	}, nil)
	for id := range envelope.ID(3 * maxRecent) {
		s.sign(pol, &envelope.Message{ID: id}, delivery.Flow{}, func(*signature) {})
		s.wait()
	}
	if n := len(s.recent) + len(s.older); n > 2*maxRecent {
		t.Errorf("%d signatures are kept", n)
	}
}
