package mta

import (
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"example.org/mta/lab/sink"
	"example.org/mta/mta/accounting"
)

// TestDANEInTheMiddle has an attacker between the relay and a host whose TLSA records the relay can see, or is
// kept from seeing: nothing leaves in clear text, nor to the attacker.
func TestDANEInTheMiddle(t *testing.T) {
	own, _, err := sink.SelfSigned("mx.box.example")
	if err != nil {
		t.Fatal(err)
	}
	swapped, _, err := sink.SelfSigned("mx.box.example")
	if err != nil {
		t.Fatal(err)
	}
	leaf := func(c *tls.Config) []byte { return c.Certificates[0].Certificate[0] }
	fits := fmt.Sprintf("3 0 1 %x", sha256.Sum256(leaf(own)))
	drop := sink.DNSFault{Drop: true, Types: []uint16{dns.TypeTLSA}}
	for _, tc := range []struct {
		name    string
		host    *tls.Config
		records string // "" for none
		fault   sink.DNSFault
		want    string // the end of the record's words, or "DANE" or "" for what vouches for a delivery
	}{
		{"nobody", own, fits, sink.DNSFault{}, "DANE"},
		{"STARTTLS is stripped", nil, fits, sink.DNSFault{}, "TLS is required and the host does not offer it"},
		{"the certificate is swapped", swapped, fits, sink.DNSFault{}, "matches no TLSA record"},
		{"TLSA queries are dropped", own, fits, drop, "no answer in time"},
		{"TLSA queries are dropped, STARTTLS is stripped", nil, fits, drop, "no answer in time"},
		{"TLSA queries fail", own, fits, sink.DNSFault{Rcode: dns.RcodeServerFailure, Types: []uint16{dns.TypeTLSA}}, "SERVFAIL"},
		{"STARTTLS is stripped, unusable records", nil, "0 0 1 " + fmt.Sprintf("%x", sha256.Sum256(nil)), sink.DNSFault{}, "TLS is required and the host does not offer it"},
		{"no records: clear text is what there is", nil, "", sink.DNSFault{}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, sink.Config{TLS: tc.host}, `
				defaults { smtp_port = PORT }
				tls_reports { from = "tls-reports@client.example" }`)
			w.publish(tc.records, tc.fault)
			w.send("ann@client.example", letter, "bob@box.example")
			if tc.want == "" || tc.want == "DANE" {
				if rec := w.await("bob@box.example", string(accounting.Delivery)); rec.TLS.By != tc.want {
					t.Errorf("delivered, verified by %q, want %q", rec.TLS.By, tc.want)
				}
				if days, _ := w.tls.Reports.Days("box.example", "", 1); len(days) != 1 || tc.want == "DANE" && days[0].Policies[0].MX != tc.records {
					t.Errorf("counted %+v, want the records %q", days, tc.records)
				}
				return
			}
			rec := w.await("bob@box.example", string(accounting.TransientFailure))
			if !strings.Contains(rec.Response.Text, tc.want) || rec.Response.Code != 451 || rec.Response.Enhanced[1] != 7 {
				t.Errorf("deferred with %v, want a 451 4.7.x with %q", rec.Response, tc.want)
			}
			if n := w.recorder.Tally().Deliveries; n != 0 {
				t.Errorf("%d messages have left", n)
			}
		})
	}
}

// publish has a validating resolver see TLSA records of box.example's host.
func (w *world) publish(records string, fault sink.DNSFault) {
	w.t.Helper()
	at := "_" + w.port + "._tcp.mx.box.example"
	if records != "" {
		if err := w.zone.Add(at + " TLSA " + records); err != nil {
			w.t.Fatal(err)
		}
	}
	fault.Secure = true
	w.zone.Fault(at, fault)
	for _, name := range []string{"box.example", "mx.box.example"} {
		w.zone.Fault(name, sink.DNSFault{Secure: true})
	}
}

func TestExplainNamesHostsWithTLSARecords(t *testing.T) {
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	w.publish("3 0 1 "+fmt.Sprintf("%x", sha256.Sum256(nil)), sink.DNSFault{})
	want := "DANE: the certificate of mx.box.example must match its TLSA records"
	if got := w.explainDomain("box.example").TLSPolicies; len(got) != 1 || got[0] != want {
		t.Errorf("%q, want %q", got, want)
	}
}
