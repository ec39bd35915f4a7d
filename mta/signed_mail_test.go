package mta

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-msgauth/dkim"

	own "example.org/mta/internal/dkim"
	"example.org/mta/internal/sink"
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
			if n := w.dispatcher.SigningCounts().Signed.Load(); n != 3 {
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
		if w.dispatcher.SigningCounts().Failed.Load() == 0 || !strings.Contains(w.book.String(), "mail can't be signed") {
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
