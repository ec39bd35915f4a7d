package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// field is a relay, a name server, and the mail servers around it.
type field struct {
	relay   *relay
	zone    *process // the name server that knows "example"
	servers []*server
	port    string // of all the servers
}

// runServer starts a mail server on an address and port.
type runServer func(t *testing.T, addr, port string) *server

// newField starts the servers, NSD with an MX for each, and the relay.
func newField(t *testing.T, run ...runServer) *field { return newFieldWith(t, "", "", run...) }

// newFieldWith adds records to the zone "example" and lines to the relay's configuration.
func newFieldWith(t *testing.T, records, config string, run ...runServer) *field {
	t.Helper()
	return newFieldBehind(t, func(_ *testing.T, upstream string) string { return upstream }, records, config, run...)
}

// newFieldBehind has the relay ask the name server that resolver starts before NSD.
func newFieldBehind(t *testing.T, resolver func(t *testing.T, upstream string) string, records, config string, run ...runServer) *field {
	t.Helper()
	addrs := addresses(len(run))
	f := &field{port: commonPort(t, addrs...)}
	var zone strings.Builder
	for i, r := range run {
		s := r(t, addrs[i], f.port)
		name := strings.TrimSuffix(s.domain, ".example")
		fmt.Fprintf(&zone, "%[1]s MX 10 mx.%[1]s\nmx.%[1]s A %[2]s\n", name, s.addr)
		f.servers = append(f.servers, s)
	}
	upstream, p := nsd(t, zone.String()+records)
	f.zone = p
	f.relay = newRelay(t, resolver(t, upstream), f.port, config+takingAll)
	f.relay.start(t)
	return f
}

// addresses gives loopback addresses for n servers.
func addresses(n int) []string {
	var addrs []string
	for i := range n {
		addrs = append(addrs, fmt.Sprintf("127.20.0.%d", i+1))
	}
	return addrs
}

// reportTo waits for a report about the address in s's inbox.
func (f *field) reportTo(t *testing.T, s *server, about string) stored {
	t.Helper()
	var report stored
	eventually(t, patience, func() error {
		for _, m := range s.messages(t) {
			if strings.HasPrefix(m.field("Content-Type"), "multipart/report") && strings.Contains(string(m.body), about) {
				report = m
				return nil
			}
		}
		return fmt.Errorf("%s has got no report about %s", s.name, about)
	})
	return report
}

// wantReport demands a report from the null sender whose text has all the parts.
func wantReport(t *testing.T, report stored, parts ...string) {
	t.Helper()
	if from := report.field("Return-Path"); from != "<>" && from != "" {
		t.Errorf("the report is from %s, want the null sender", from)
	}
	for _, p := range parts {
		if !strings.Contains(string(report.body), p) {
			t.Errorf("the report doesn't say %q:\n%s", p, report.body)
		}
	}
}
