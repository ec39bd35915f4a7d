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
func nsd(t *testing.T, records string) string {
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
	client := dns.Client{Timeout: 200 * time.Millisecond}
	eventually(t, patience, func() error {
		if p.ended() {
			t.Fatalf("nsd has ended:\n%s", tail(p.log))
		}
		_, _, err := client.Exchange(new(dns.Msg).SetQuestion("example.", dns.TypeSOA), addr)
		return err
	})
	return addr
}
