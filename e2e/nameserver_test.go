package e2e

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// nsd runs NSD, the authoritative name server of NLnet Labs, with one zone "example", and gives
// its address. What is not under example is refused by it.
func nsd(t *testing.T, records string) (string, *process) {
	t.Helper()
	return nsdWith(t, "example", map[string]string{"example": zoneHead("example") + records})
}

// zoneHead is what every zone begins with.
func zoneHead(zone string) string {
	return "$ORIGIN " + zone + `.
$TTL 5
@ SOA ns host 1 3600 600 86400 1
@ NS ns
ns A 127.0.0.1
`
}

// nsdWith serves several zones, by their names, and waits for one of them.
func nsdWith(t *testing.T, first string, zones map[string]string) (string, *process) {
	t.Helper()
	program := need(t, "nsd")[0]
	dir := scratch(t)
	port := commonPort(t, "127.0.0.1")
	var list strings.Builder
	for name, text := range zones {
		writeFile(t, dir+"/"+name+".zone", text)
		fmt.Fprintf(&list, "zone:\n  name: %[1]s\n  zonefile: %[1]s.zone\n", name)
	}
	writeFile(t, dir+"/nsd.conf", fmt.Sprintf(`server:
  ip-address: 127.0.0.1@%[2]s
  server-count: 1
  username: ""
  chroot: ""
  zonesdir: "%[1]s"
  database: ""
  pidfile: "%[1]s/pid"
  xfrdfile: "%[1]s/xfrd"
  xfrdir: "%[1]s"
  zonelistfile: "%[1]s/zonelist"
  rrl-ratelimit: 0
remote-control:
  control-enable: no
%[3]s`, dir, port, list.String()))
	p := start(t, "nsd", program, "-d", "-c", dir+"/nsd.conf")
	addr := net.JoinHostPort("127.0.0.1", port)
	answers(t, p, addr, first)
	return addr, p
}

// unbound runs Unbound, the recursive name server of NLnet Labs, which gets all under "example" from
// the name server at upstream, and gives its address. broken.example has a trust anchor and no signatures.
func unbound(t *testing.T, upstream string) string {
	t.Helper()
	return unboundWith(t, `server:
  trust-anchor: "broken.example. DS 12345 8 2 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
`+stub("example", upstream), "127.0.0.1", commonPort(t, "127.0.0.1"), "example")
}

// stub has Unbound get all under a zone from one name server.
func stub(zone, server string) string {
	return fmt.Sprintf("stub-zone:\n  name: %q\n  stub-addr: %s\n", zone, strings.Replace(server, ":", "@", 1))
}

// unboundWith runs an Unbound that validates, listens at an address and port, and has further lines in its
// configuration. It is waited for until it knows a zone.
func unboundWith(t *testing.T, config, host, port, zone string) string {
	t.Helper()
	program := need(t, "unbound")[0]
	dir := scratch(t)
	writeFile(t, dir+"/unbound.conf", fmt.Sprintf(`server:
  directory: "%[1]s"
  chroot: ""
  username: ""
  pidfile: ""
  use-syslog: no
  interface: %[2]s@%[3]s
  num-threads: 1
  do-ip6: no
  do-not-query-localhost: no
  module-config: "validator iterator"
  ede: yes
  infra-host-ttl: 1
remote-control:
  control-enable: no
%[4]s`, dir, host, port, config))
	p := start(t, "unbound", program, "-d", "-c", dir+"/unbound.conf")
	addr := net.JoinHostPort(host, port)
	answers(t, p, addr, zone)
	return addr
}

// answers waits until a name server knows a zone.
func answers(t *testing.T, p *process, addr, zone string) {
	t.Helper()
	client := dns.Client{Timeout: 200 * time.Millisecond}
	eventually(t, patience, func() error {
		if p.ended() {
			t.Fatalf("%s has ended:\n%s", p.name, tail(p.log))
		}
		answer, _, err := client.Exchange(new(dns.Msg).SetQuestion(zone+".", dns.TypeSOA), addr)
		if err == nil && len(answer.Answer) == 0 {
			err = fmt.Errorf("%s: %s", p.name, dns.RcodeToString[answer.Rcode])
		}
		return err
	})
}
