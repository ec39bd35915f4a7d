package mta

import (
	"bytes"
	"fmt"
	"net/smtp"
	"os"
	"path/filepath"
	"testing"
	"time"

	"example.org/mta/internal/testca"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/listen"
)

// What the log has of a connection is what was negotiated, each fact in a field of its own.
func TestDeliveryRecordsTheConnection(t *testing.T) {
	ca := testca.New(t)
	w := newWorld(t, sink.Config{TLS: servedBy(t, ca), Auth: func(u, p string) bool { return u == "robin" && p == "secret" }}, fmt.Sprintf(`
		defaults { smtp_port = PORT }
		domain "box.example" {
			route    = ["smtp://mx.box.example:PORT"]
			tls_ca   = %q
			username = "robin"
			password = "secret"
		}`, ca.File(t)))
	w.send("ann@client.example", "Subject: plain\r\n\r\nplain\r\n", "bob@box.example")
	rec := w.await("bob@box.example", "Delivery")
	if want := (accounting.TLS{Version: "TLSv1.3", Cipher: "TLS_AES_128_GCM_SHA256", Trust: accounting.Verified, By: "PKIX", Certificate: "mx.box.example"}); rec.TLS != want {
		t.Errorf("TLS %+v, want %+v", rec.TLS, want)
	}
	if rec.DeliveryProtocol != "UTF8SMTPSA" { // net/smtp asks for SMTPUTF8 where it can
		t.Errorf("delivery_protocol %q, want UTF8SMTPSA", rec.DeliveryProtocol)
	}
	if !rec.Local.Addr().IsLoopback() || rec.Local.Port() == 0 {
		t.Errorf("source_address %v", rec.Local)
	}
	if p := rec.Phases; p.Handshake == 0 || p.Reply == 0 {
		t.Errorf("attempt_time %+v", p)
	}
	if rec.Queued <= 0 || rec.Queued > rec.Time.Sub(rec.Created) {
		t.Errorf("queue_time %v of a message that took %v", rec.Queued, rec.Time.Sub(rec.Created))
	}
}

// The campaign and the metadata that a message brings by SMTP are in each of its records, also after a restart, and
// do not go out; and so are the header fields that the operator wants, which do.
func TestMetadataComesBack(t *testing.T) {
	w := newWorld(t, sink.Config{Refusals: []sink.Refusal{sink.UnknownUsers("nobody")}, Greylist: time.Second}, `defaults {
		smtp_port = PORT
		retry_interval = "1s"
	}
	accounting { headers = ["Subject"] }`)
	w.send("ann@client.example", "Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\nX-MTA-Campaign: spring\r\nX-MTA-Meta: order=17\r\nX-MTA-Meta: customer=Jane Doe\r\n"+letter, "bob@box.example", "nobody@box.example")
	w.await("bob@box.example", "TransientFailure")
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	w.start()
	for recipient, kinds := range map[string][]string{"bob@box.example": {"Reception", "TransientFailure", "Delivery"}, "nobody@box.example": {"Reception", "Bounce"}} {
		for _, kind := range kinds {
			if rec := w.await(recipient, kind); rec.Campaign != "spring" || string(rec.Meta) != `{"order":"17","customer":"Jane Doe"}` || string(rec.Headers) != `{"Subject":"Grüße"}` {
				t.Errorf("%s of %s: campaign %q, meta %s, headers %s", kind, recipient, rec.Campaign, rec.Meta, rec.Headers)
			}
		}
	}
	for _, m := range w.arrived(1) {
		if bytes.Contains(m.Content, []byte("X-MTA-")) || !bytes.Contains(m.Content, []byte("Subject: =?utf-8?q?")) {
			t.Errorf("arrived:\n%s", m.Content)
		}
	}
}

// A kill can come between the Receptions of a message's recipients. The next start writes those that are missing, and
// none again; the start after it writes nothing.
func TestATornReceptionIsCompleted(t *testing.T) {
	w := newWorld(t, sink.Config{}, "defaults { smtp_port = 1 } # nobody listens there\n")
	to := []string{"bob@box.example", "eve@box.example", "joe@box.example"}
	for range 2 { // the one before the last is whole
		if err := smtp.SendMail(w.listeners.Addresses(listen.SMTP)[0], nil, "a@client.example", to, []byte(letter)); err != nil {
			t.Fatal(err)
		}
	}
	w.await("joe@box.example", "TransientFailure")
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(w.cfg.Accounting.Path, "mta-*.jsonl"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	content, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	var kept []byte
	receptions := 0
	for line := range bytes.Lines(content) {
		if bytes.HasPrefix(line, []byte(`{"type":"Reception"`)) {
			if receptions++; receptions <= 4 { // three of the first message, one of the second
				kept = append(kept, line...)
			}
		}
	}
	if err := os.WriteFile(files[0], kept, 0o640); err != nil || receptions != 6 {
		t.Fatal(receptions, err)
	}
	if err := os.Remove(files[0][:len(files[0])-len("jsonl")] + "idx"); err != nil { // a kill leaves none of the newest file
		t.Fatal(err)
	}
	for range 2 {
		w.start()
		if err := w.stop(); err != nil {
			t.Fatal(err)
		}
		content, err = os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		for _, address := range to {
			n := 0
			for line := range bytes.Lines(content) {
				if bytes.HasPrefix(line, []byte(`{"type":"Reception"`)) && bytes.Contains(line, []byte(address)) {
					n++
				}
			}
			if n != 2 {
				t.Errorf("%s has %d Receptions, want 2", address, n)
			}
		}
	}
}
