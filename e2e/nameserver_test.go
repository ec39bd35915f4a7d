package e2e

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// nsd runs NSD, the authoritative name server of NLnet Labs, with one zone "example", and gives
// its address. What is not under example is refused by it.
func nsd(t *testing.T, records string) (string, *process) {
	t.Helper()
	program := need(t, "nsd")[0]
	dir := scratch(t)
	port := commonPort(t, "127.0.0.1")
	writeFile(t, dir+"/example.zone", `$ORIGIN example.
$TTL 5
@ SOA ns host 1 3600 600 86400 1
@ NS ns
ns A 127.0.0.1
`+records)
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
zone:
  name: example
  zonefile: example.zone
`, dir, port))
	p := start(t, "nsd", program, "-d", "-c", dir+"/nsd.conf")
	addr := net.JoinHostPort("127.0.0.1", port)
	answers(t, p, addr)
	return addr, p
}

// unbound runs Unbound, the recursive name server of NLnet Labs, which gets all under "example" from
// the name server at upstream, and gives its address. broken.example has a trust anchor and no signatures.
func unbound(t *testing.T, upstream string) string {
	t.Helper()
	program := need(t, "unbound")[0]
	dir := scratch(t)
	host, port, err := net.SplitHostPort(upstream)
	if err != nil {
		t.Fatal(err)
	}
	own := commonPort(t, "127.0.0.1")
	writeFile(t, dir+"/unbound.conf", fmt.Sprintf(`server:
  directory: "%[1]s"
  chroot: ""
  username: ""
  pidfile: ""
  use-syslog: no
  interface: 127.0.0.1@%[2]s
  num-threads: 1
  do-ip6: no
  do-not-query-localhost: no
  module-config: "validator iterator"
  trust-anchor: "broken.example. DS 12345 8 2 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
  ede: yes
  infra-host-ttl: 1
remote-control:
  control-enable: no
stub-zone:
  name: "example"
  stub-addr: %[3]s@%[4]s
`, dir, own, host, port))
	p := start(t, "unbound", program, "-d", "-c", dir+"/unbound.conf")
	addr := net.JoinHostPort("127.0.0.1", own)
	answers(t, p, addr)
	return addr
}

// answers waits until a name server knows the zone "example".
func answers(t *testing.T, p *process, addr string) {
	t.Helper()
	client := dns.Client{Timeout: 200 * time.Millisecond}
	eventually(t, patience, func() error {
		if p.ended() {
			t.Fatalf("%s has ended:\n%s", p.name, tail(p.log))
		}
		answer, _, err := client.Exchange(new(dns.Msg).SetQuestion("example.", dns.TypeSOA), addr)
		if err == nil && len(answer.Answer) == 0 {
			err = fmt.Errorf("%s: %s", p.name, dns.RcodeToString[answer.Rcode])
		}
		return err
	})
}
