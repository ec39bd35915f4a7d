package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"net/smtp"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/lab/sink"
)

// importWorld is the hosts to which a Postfix and the relay that was imported from it send the same mail.
type importWorld struct {
	port  string
	took  *sink.Recorder
	mu    sync.Mutex
	slow  map[uint64]bool // connections to the slow host with a transaction under way
	peak  int             // of these
	hosts map[string]string
}

// The hosts: by their name the address. Those whose mail may be encrypted have TLS.
var importHosts = []string{"mx", "hub", "partner", "senders", "slow"}

func newImportWorld(t *testing.T) *importWorld {
	w := &importWorld{took: sink.NewRecorder(sink.Contents, 0), slow: make(map[uint64]bool), hosts: make(map[string]string)}
	var addrs []string
	for i, name := range importHosts {
		w.hosts[name] = fmt.Sprintf("127.24.0.%d", i+1)
		addrs = append(addrs, w.hosts[name])
	}
	w.port = commonPort(t, addrs...)
	tls, _, err := sink.SelfSigned("mx.example")
	if err != nil {
		t.Fatal(err)
	}
	for name, addr := range w.hosts {
		cfg := sink.Config{Hostname: name, TLS: tls, Recorder: w.took}
		if name == "slow" {
			cfg.Latency, cfg.Hook = 20*time.Millisecond, w.watch
		}
		mailHost(t, net.JoinHostPort(addr, w.port), cfg)
	}
	return w
}

// watch counts the transactions under way at the slow host.
func (w *importWorld) watch(c sink.Command) sink.Answer {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch c.Phase {
	case sink.Mail:
		w.slow[c.Connection] = true
	case sink.End:
		delete(w.slow, c.Connection)
	}
	w.peak = max(w.peak, len(w.slow))
	return sink.Answer{}
}

// The mail: 500 messages from three senders to 40 domains.
const (
	importMessages = 500
	importDomains  = 40
)

func importSender(i int) string {
	return "ann@" + [...]string{"plain.example", "plain.example", "plain.example", "brand.example", "hub.example"}[i%5]
}

// submit sends the mail to a server, each message with an id that begins with a word.
func (w *importWorld) submit(t *testing.T, addr, word string) {
	t.Helper()
	c, err := smtp.Dial(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := range importMessages {
		err := c.Mail(importSender(i))
		if err == nil {
			err = c.Rcpt(fmt.Sprintf("bob@d%02d.example", i/5%importDomains))
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := c.Data()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(data, "X-Mta-Test-Id: %s-%d\r\nSubject: import\r\n\r\nx\r\n", word, i)
		if err := data.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_ = c.Quit()
}

// ways waits for all messages with a word in their ids, and returns the way of each: host, source, name in EHLO, TLS. The
// sources of the pool are one, since each server chooses at random.
func (w *importWorld) ways(t *testing.T, word string) map[string]string {
	t.Helper()
	ways := make(map[string]string)
	eventually(t, patience, func() error {
		for _, m := range w.took.Messages() {
			if id, ok := strings.CutPrefix(m.ID, word+"-"); ok {
				source, helo := m.Client.Addr(), m.Helo
				if netip.MustParsePrefix("127.25.0.0/28").Contains(source) && helo == fmt.Sprintf("out%d.example", source.As4()[3]) {
					helo = "that of the pool"
					source = netip.Addr{}
				}
				ways[id] = fmt.Sprintf("%s from %v as %s, TLS %v", m.Server, source, helo, m.TLS)
			}
		}
		if len(ways) < importMessages {
			return fmt.Errorf("%d of %d messages have arrived", len(ways), importMessages)
		}
		return nil
	})
	return ways
}

// sources counts the messages with a word in their ids from each source of the pool.
func (w *importWorld) sources(word string) map[netip.Addr]int {
	n := make(map[netip.Addr]int)
	for _, m := range w.took.Messages() {
		if a := m.Client.Addr(); strings.HasPrefix(m.ID, word+"-") && netip.MustParsePrefix("127.25.0.0/28").Contains(a) {
			n[a]++
		}
	}
	return n
}

func (w *importWorld) takePeak() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.peak
	w.peak = 0
	return n
}

// TestImportedFromPostfix: a Postfix and the relay whose configuration was imported from it send the same mail to the same
// hosts, from the same sources, with the same TLS and within the same limits.
func TestImportedFromPostfix(t *testing.T) {
	parallel(t)
	needRoot(t)
	w := newImportWorld(t)
	var zone strings.Builder
	for i := range importDomains {
		host := "mx"
		if i == 10 {
			host = "slow"
		}
		fmt.Fprintf(&zone, "d%02[1]d MX 10 mx.d%02[1]d\nmx.d%02[1]d A %[2]s\n", i, w.hosts[host])
	}
	upstream, _ := nsd(t, zone.String())
	nameServer := ownAddress(t, 21, "53")
	unboundWith(t, stub("example", upstream), nameServer, "53", "example")
	dir := scratch(t)
	resolvConf := dir + "/resolv.conf"
	writeFile(t, resolvConf, "nameserver "+nameServer+"\n")
	addr := ownAddress(t, 26, w.port)
	old, process := w.postfix(t, dir, resolvConf, addr)

	w.submit(t, net.JoinHostPort(addr, w.port), "old")
	want, wantPeak, wantPool := w.ways(t, "old"), w.takePeak(), w.sources("old")
	process.stop(patience)

	config := dir + "/mta.conf"
	if out, err := exec.Command(binary, "import", "postfix", old.config, "--out", config, "--accept").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	forTests := strings.Replace(string(text), "router {\n", "router {\n  allow_loopback = true\n", 1)
	writeFile(t, config, fmt.Sprintf("%s\ndata_dir = %q\nhttp { address = \"\" }\nresolver { servers = [%q] }\n", forTests, dir+"/data", nameServer))
	r := &relay{addr: net.JoinHostPort(addr, w.port), dir: dir, config: config, nameServer: nameServer}
	r.start(t)
	w.submit(t, r.addr, "new")
	got, gotPeak, gotPool := w.ways(t, "new"), w.takePeak(), w.sources("new")

	differ := 0
	for id, way := range want {
		if got[id] != way {
			if differ++; differ <= 5 {
				t.Errorf("message %s: Postfix %s; the relay %s", id, way, got[id])
			}
		}
	}
	if wantPeak > 2 || gotPeak > 2 || gotPeak == 0 {
		t.Errorf("transactions at a time at the slow host: %d of Postfix, %d of the relay; the limit is 2", wantPeak, gotPeak)
	}
	if len(wantPool) != 3 || len(gotPool) != 3 {
		t.Errorf("messages by source: Postfix %v, the relay %v; want three sources", wantPool, gotPool)
	}
	t.Logf("%d messages, %d differ; at the slow host %d and %d at a time; sources %v and %v", len(want), differ, wantPeak, gotPeak, wantPool, gotPool)
}

// postfix runs the Postfix.
func (w *importWorld) postfix(t *testing.T, dir, resolvConf, addr string) (*server, *process) {
	t.Helper()
	var transports strings.Builder
	fmt.Fprintf(&transports, "d10.example slow:\nd11.example slow:\n.sub.example slow:\n")
	for i := 20; i < 25; i++ {
		fmt.Fprintf(&transports, "d%d.example :[%s]:%s\n", i, w.hosts["partner"], w.port)
	}
	for i := 25; i < 40; i++ {
		fmt.Fprintf(&transports, "d%d.example smtp:\n", i)
	}
	writeFile(t, dir+"/transport", transports.String())
	var pooled strings.Builder
	for i := range 10 {
		fmt.Fprintf(&pooled, "d%02d.example pool\n", i)
	}
	writeFile(t, dir+"/pooled", pooled.String())
	writeFile(t, dir+"/tls", "d25.example encrypt\nd26.example encrypt protocols=>=TLSv1.3\nd30.example none\nd31.example none\n")
	settings := fmt.Sprintf(`myhostname = relay.example
inet_protocols = ipv4
virtual_mailbox_domains =
virtual_mailbox_maps =
smtpd_recipient_restrictions = permit_mynetworks, reject
smtpd_client_connection_count_limit = 0
smtpd_peername_lookup = no
smtp_tcp_port = %[1]s
smtp_tls_security_level = may
smtp_tls_policy_maps = texthash:%[2]s/tls
relayhost = [%[3]s]:%[1]s
transport_maps = texthash:%[2]s/transport, pipemap:{texthash:%[2]s/pooled, randmap:{out1:, out2:, out3:}}
sender_dependent_relayhost_maps = inline:{@hub.example=[%[4]s]:%[1]s}
sender_dependent_default_transport_maps = inline:{@brand.example=brand:}
slow_destination_concurrency_limit = 2
`, w.port, dir, w.hosts["hub"], w.hosts["senders"])
	var services strings.Builder
	for i := 1; i <= 3; i++ {
		fmt.Fprintf(&services, "out%[1]d unix - - n - - smtp\n  -o smtp_bind_address=127.25.0.%[1]d -o smtp_helo_name=out%[1]d.example\n", i)
	}
	services.WriteString("slow unix - - n - - smtp -o smtp_bind_address=127.25.0.20\nbrand unix - - n - - smtp\n  -o { smtp_bind_address = 127.25.0.21 } -o smtp_helo_name=brand.example\n")
	return postfixWithServices(t, resolvConf, addr, w.port, settings, services.String())
}
