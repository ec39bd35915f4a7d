package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/smtp"
	"net/textproto"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/emersion/go-msgauth/dkim"

	"example.org/mta/internal/testca"
	"example.org/mta/lab/sink"
	"example.org/mta/operator/api"
	"example.org/mta/queue/store"
)

// The versions that the test builds.
const (
	packagesBefore = "0.1.0~e2e1"
	packagesAfter  = "0.1.0~e2e2"
)

// buildPackages makes the packages of a program as a version, in a folder of that name in dir.
func buildPackages(t *testing.T, dir, formats, version, program string) {
	t.Helper()
	stripped := filepath.Join(scratch(t), "mta")
	runClient(t, "", need(t, "strip")[0], "-o", stripped, program)
	cmd := exec.Command("../contrib/packages/build", filepath.Join(dir, version), version)
	cmd.Env = append(os.Environ(), "BINARY="+stripped, "ARCHES="+runtime.GOARCH, "FORMATS="+formats)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the packages: %v\n%s", err, lastLines(string(out), 40))
	}
}

// machine is a Debian on which a stranger installs the packages, with the world's mail exchangers around it.
type machine struct {
	*tree
	names  *sink.Zone
	got    *sink.Recorder // what the mail exchangers took
	next   atomic.Int64   // numbers the messages of the load
	newest int            // the newest format of the queue, which the version before does not read
	queued []string       // the ids of the messages that wait until the end
}

// TestDebianPackages follows docs/install.md on a Debian that systemd has booted, by the page's own commands, and
// then does to it what operators do. MTA_PACKAGES is the number of messages that are queued when the relay is
// upgraded, 10000 unless it is set.
func TestDebianPackages(t *testing.T) {
	t.Parallel() // it takes longest, and much of it is waiting
	m := &machine{tree: boot(t), got: sink.NewRecorder(sink.Contents, 0)}
	packages := scratch(t)
	before, newest := programBefore(t, packagesBefore, nil)
	m.newest = newest
	for version, program := range map[string]string{packagesBefore: before, packagesAfter: binary} {
		buildPackages(t, packages, "deb", version, program)
		m.sh(t, "mkdir -p /srv/"+version)
		for _, name := range []string{"mta_" + version + "_" + runtime.GOARCH + ".deb", "mta-sendmail_" + version + "_all.deb"} {
			runClient(t, "", "cp", filepath.Join(packages, version, name), m.path("/srv/"+version+"/"))
		}
	}
	m.sh(t, "cp /srv/"+packagesBefore+"/*.deb /root/")
	m.names = m.serveNames(t, `
		example.org.     300 IN MX 10 mx.example.org.
		mx.example.org.  300 IN A 192.0.2.25
		later.example.   300 IN MX 10 mx.later.example.
		mx.later.example. 300 IN A 192.0.2.26
		paused.example.  300 IN MX 10 mx.later.example.
	`)
	m.serveMail(t, "192.0.2.25", m.got)
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"install", m.install},
		{"first mail", m.firstMail},
		{"restore", m.restore},
		{"beside Postfix", m.besidePostfix},
		{"socket activation", m.socketActivation},
		{"in Postfix's place", m.inPlaceOfPostfix},
		{"upgrade", m.upgrade},
		{"an upgrade that must fail", m.failingUpgrade},
		{"downgrade", m.downgrade},
		{"downgrade after the end of the upgrade", m.refusedDowngrade},
		{"remove and purge", m.removeAndPurge},
	} {
		began := time.Now()
		if !t.Run(step.name, step.do) {
			t.Log(m.try("systemctl status --no-pager -l mta.service mta.socket; journalctl -n 40 --no-pager -u mta.service"))
			return
		}
		t.Logf("%s took %v", step.name, time.Since(began).Round(time.Second))
	}
}

const installPage = "../docs/install.md"

// install goes from nothing to a first delivered message.
func (m *machine) install(t *testing.T) {
	began := time.Now()
	m.sh(t, pageBlocks(t, installPage, "Packages"))
	m.sh(t, pageBlocks(t, installPage, "A first message"))
	m.arrives(t, "someone@example.org", "from mta")
	t.Logf("a first message was delivered after %v", time.Since(began).Round(time.Second))
	m.exposedAtMost(t, 1.5)
	for path, want := range map[string]string{
		"/etc/mta": "2750 root mta", "/etc/mta/mta.conf": "640 root mta", "/var/lib/mta": "751 mta mta", "/var/log/mta": "750 mta mta",
		"/var/lib/mta/maildrop/new": "3733 mta mta", "/var/lib/mta/queue": "700 mta mta",
	} {
		if got := strings.TrimSpace(m.sh(t, "stat -c '%a %U %G' "+path)); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	before := m.pid(t)
	m.sh(t, pageBlocks(t, installPage, "Configuration"))
	m.sh(t, "cp -p /etc/mta/mta.conf /root/mta.conf; echo nonsense = 1 >>/etc/mta/mta.conf")
	if _, err := m.try("systemctl reload mta"); err == nil {
		t.Error("a reload of a wrong configuration succeeds")
	}
	m.sh(t, "cp -p /root/mta.conf /etc/mta/mta.conf; systemctl reload mta")
	if after := m.pid(t); after != before {
		t.Errorf("a reload has started the relay again: %d, then %d", before, after)
	}
	eventually(t, patience, func() error { // it comes every few seconds
		if status := m.sh(t, "systemctl show -P StatusText mta"); !strings.Contains(status, "queued") {
			return fmt.Errorf("the status line is %q", status)
		}
		return nil
	})
}

// firstMail goes through docs/first-mail.md by the page's own commands, in their order, and publishes what 'mta init'
// prints, until a message that a user has submitted leaves signed and counts for the warm-up.
func (m *machine) firstMail(t *testing.T) {
	const page = "../docs/first-mail.md"
	m.letsEncrypt(t)
	m.sh(t, "cp -p /etc/mta/mta.conf /root/mta.conf")
	publish := func(records string) {
		if err := m.names.Add(records); err != nil {
			t.Fatal(err)
		}
	}
	out := m.sh(t, pageBlocks(t, page, "1. A configuration"))
	_, records, _ := strings.Cut(out, "Publish these records")
	_, records, _ = strings.Cut(records, "\n\n")
	records, _, _ = strings.Cut(records, "\n\nThen")
	publish(records)
	words := func(line string) string { return strings.Join(strings.Fields(line), " ") }
	for _, section := range []string{"2. A name for the address: A and PTR", "3. Who may send: SPF", "5. A policy for unauthenticated mail: DMARC"} {
		for line := range strings.Lines(pageCode(t, page, section, "")[0]) {
			if !strings.Contains(records, words(line)) {
				t.Errorf("'mta init' does not print %q of the page:\n%s", words(line), records)
			}
		}
	}
	publish(pageCode(t, page, "6. A way back for bounces: MX", "")[0] + "gmail.com. IN MX 10 mx.example.org.")
	restart, check, _ := strings.Cut(pageBlocks(t, page, "7. Start"), "\n")
	m.sh(t, restart)
	eventually(t, patience, func() error { // the certificate takes some seconds
		_, err := m.try(check + "openssl s_client -starttls smtp -connect mta1.acme.example:587 -verify_return_error </dev/null")
		return err
	})
	password := regexp.MustCompile(`The password of app, .*: (\S+)`).FindStringSubmatch(out)
	if password == nil {
		t.Fatalf("no password in\n%s", out)
	}
	m.sh(t, strings.ReplaceAll(pageBlocks(t, page, "8. A first message"), "--user app ", "--user app:"+password[1]+" "))
	m.arrives(t, "you@gmail.com", "d=acme.example")
	for _, message := range m.got.Messages() {
		if strings.Contains(string(message.Content), "d=acme.example") {
			m.signed(t, message.Content)
		}
	}
	eventually(t, patience, func() error {
		var plans api.WarmupList
		if err := json.Unmarshal([]byte(m.sh(t, "mta warmup list --json")), &plans); err != nil || len(plans.Warmups) != 1 || plans.Warmups[0].SentDay != 1 {
			return fmt.Errorf("the warm-up has not counted the message: %v, %+v", err, plans)
		}
		return nil
	})
	m.sh(t, "cp -p /root/mta.conf /etc/mta/mta.conf; rm -r /etc/mta/dkim /etc/mta/users /etc/mta/mta.conf.package; ip link del world; systemctl restart mta")
}

// signed verifies the DKIM signature of a message by the names that the tree has.
func (m *machine) signed(t *testing.T, content []byte) {
	t.Helper()
	names := net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return m.dial("127.0.0.1:53") }}
	found, err := dkim.VerifyWithOptions(bytes.NewReader(content), &dkim.VerifyOptions{
		LookupTXT: func(name string) ([]string, error) { return names.LookupTXT(t.Context(), name) }})
	if err != nil || len(found) != 1 || found[0].Err != nil || found[0].Domain != "acme.example" {
		t.Errorf("the signature: %v, %+v\n%s", err, found, content)
	}
}

// letsEncrypt gives the tree the address 192.0.2.10 on a link to another machine, where Pebble answers as Let's Encrypt,
// and has the tree trust it.
func (m *machine) letsEncrypt(t *testing.T) {
	pebble, nsenter := need(t, "pebble")[0], need(t, "nsenter")[0]
	world := start(t, "world", "unshare", "--net", "sleep", "infinity").cmd.Process.Pid
	network := func(pid int) string {
		link, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
		return link
	}
	eventually(t, patience, func() error {
		if network(world) == network(os.Getpid()) {
			return errors.New("no network yet")
		}
		return nil
	})
	ip := func(pid int, words string) {
		runClient(t, "", append([]string{nsenter, "-t", strconv.Itoa(pid), "-n", "ip"}, strings.Fields(words)...)...)
	}
	ip(m.init, fmt.Sprintf("link add world type veth peer name mta netns %d", world))
	ip(m.init, "address add 192.0.2.10/24 dev world")
	ip(m.init, "link set world up")
	ip(world, "address add 192.0.2.40/24 dev mta")
	ip(world, "link set mta up")
	ip(world, "link set lo up")
	authority := testca.New(t)
	cert := authority.Issue(t, []string{"acme-v02.api.letsencrypt.org", "localhost"})
	certFile, keyFile := testca.Files(t, cert)
	config := filepath.Join(scratch(t), "pebble.json")
	writeFile(t, config, fmt.Sprintf(`{"pebble": {"listenAddress": "127.0.0.1:14000", "managementListenAddress": "127.0.0.1:15000", "certificate": %q, "privateKey": %q,
		"httpPort": 80, "tlsPort": 443, "retryAfter": {"authz": 1, "order": 1}, "profiles": {"default": {"description": "any", "validityPeriod": 7776000}}}}`, certFile, keyFile))
	if err := m.names.Add("acme-v02.api.letsencrypt.org. 300 IN A 192.0.2.40"); err != nil {
		t.Fatal(err)
	}
	names, web := sink.NewDNS(m.names), net.Listener(nil)
	if err := inNetwork(world, func() (err error) {
		if _, err = names.Listen("127.0.0.1:53"); err == nil {
			web, err = net.Listen("tcp", "192.0.2.40:443")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { names.Close() })
	start(t, "pebble", "env", "PEBBLE_VA_NOSLEEP=1", nsenter, "-t", strconv.Itoa(world), "-n", pebble, "-config", config, "-dnsserver", "127.0.0.1:53")
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: authority.Pool(), ServerName: "localhost"},
		DialContext: func(_ context.Context, _, addr string) (conn net.Conn, err error) {
			err = inNetwork(world, func() error { conn, err = net.Dial("tcp", addr); return err })
			return conn, err
		}}
	server := &http.Server{Handler: &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "https", "127.0.0.1:14000", r.In.Host
		if r.In.URL.Path == "/directory" { // Let's Encrypt's
			r.Out.URL.Path = "/dir" // Pebble's
		}
	}}, TLSConfig: &tls.Config{Certificates: []tls.Certificate{*cert}}}
	go server.ServeTLS(web, "", "")
	t.Cleanup(func() { server.Close() })
	var issuer []byte
	eventually(t, patience, func() error {
		answer, err := (&http.Client{Transport: transport}).Get("https://127.0.0.1:15000/roots/0")
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		issuer, err = io.ReadAll(answer.Body)
		return err
	})
	m.sh(t, "cat >>/etc/ssl/certs/ca-certificates.crt <<'END'\n"+readFile(t, authority.File(t))+string(issuer)+"\nEND")
}

// restore puts a backup in the place of the data, by the page's own commands. The sandbox forbids the relay to make the
// maildrop, so the unit has to.
func (m *machine) restore(t *testing.T) {
	m.sh(t, "mta backup /srv/backup/mta-today")
	m.sh(t, pageBlocks(t, "../docs/backup.md", "Restore"))
	if got := strings.TrimSpace(m.sh(t, "stat -c '%a %U %G' /var/lib/mta/maildrop/new")); got != "3733 mta mta" {
		t.Errorf("after a restore the maildrop is %s", got)
	}
	m.sh(t, "rm -r /var/lib/mta.before /srv/backup")
}

// arrives waits until a mail exchanger has taken a message for somebody, with these words in it.
func (m *machine) arrives(t *testing.T, recipient, words string) {
	t.Helper()
	eventually(t, patience, func() error {
		for _, message := range m.got.Messages() {
			if strings.Contains(strings.Join(message.Recipients, " "), recipient) && strings.Contains(string(message.Content), words) {
				return nil
			}
		}
		return fmt.Errorf("no message with %q for %s", words, recipient)
	})
}

// pid is the relay's process.
func (m *machine) pid(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(m.sh(t, "systemctl show -P MainPID mta.service")))
	if err != nil || n == 0 {
		t.Fatalf("the relay does not run: %d, %v", n, err)
	}
	return n
}

// exposedAtMost judges the sandbox.
func (m *machine) exposedAtMost(t *testing.T, most float64) {
	t.Helper()
	out := m.sh(t, "systemd-analyze security --no-pager mta.service")
	found := regexp.MustCompile(`exposure level for mta.service: ([0-9.]+)`).FindStringSubmatch(out)
	if found == nil {
		t.Fatalf("systemd-analyze prints no level:\n%s", lastLines(out, 3))
	}
	if level, err := strconv.ParseFloat(found[1], 64); err != nil || level > most {
		t.Errorf("the exposure is %s, want at most %v", found[1], most)
	}
}

func (m *machine) besidePostfix(t *testing.T) {
	m.sh(t, "echo postfix postfix/main_mailer_type select Local only | debconf-set-selections; apt-get install -y --no-install-recommends postfix")
	for addr, postfix := range map[string]bool{"127.0.0.1:25": true, "127.0.0.1:2525": false} {
		eventually(t, patience, func() error {
			greeting, err := m.greeting(addr)
			if err == nil && strings.Contains(greeting, "Postfix") != postfix {
				return fmt.Errorf("%s greets with %q", addr, greeting)
			}
			return err
		})
	}
	m.sh(t, "dpkg -S /usr/sbin/sendmail | grep '^postfix:'; systemctl is-active mta")
	if err := m.submit("beside-postfix", "someone@example.org", ""); err != nil {
		t.Fatal(err)
	}
	m.allArrive(t, []string{"beside-postfix"})
}

// greeting is the first line of a server.
func (m *machine) greeting(addr string) (string, error) {
	conn, err := m.dial(addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	return bufio.NewReader(conn).ReadString('\n')
}

// inPlaceOfPostfix makes the relay the mail server of the machine.
func (m *machine) inPlaceOfPostfix(t *testing.T) {
	m.sh(t, pageBlocks(t, installPage, "Beside another mail server, or in its place"))
	m.arrives(t, "someone@example.org", "from sendmail")
	if out, err := m.try("systemctl is-active postfix || test -e /usr/lib/postfix/sbin/master"); err == nil {
		t.Errorf("Postfix is still there: %s", out)
	}
	m.sh(t, `useradd -m alice
		printf 'Subject: a user\n\nfrom alice\n' | su alice -c '/usr/lib/sendmail -f alice@example.com someone@example.org'
		systemctl stop mta.socket mta.service
		printf 'Subject: a user\n\nwhile it was stopped\n' | su alice -c 'sendmail -f alice@example.com someone@example.org'
		systemctl start mta.socket mta.service`)
	m.arrives(t, "someone@example.org", "from alice")
	m.arrives(t, "someone@example.org", "while it was stopped")
	if out := m.sh(t, "newaliases 2>&1"); strings.Count(out, "\n") != 1 {
		t.Errorf("newaliases prints %q", out)
	}
}

// socketActivation restarts the relay under load: every client gets its connection.
func (m *machine) socketActivation(t *testing.T) {
	m.sh(t, pageBlocks(t, installPage, "Socket activation"))
	m.exposedAtMost(t, 1.1)
	load := m.load(8)
	for range 3 {
		load.more(t, 20)
		m.sh(t, "systemctl restart mta.service")
	}
	load.more(t, 20)
	accepted := load.end(t)
	m.allArrive(t, accepted)
	t.Logf("three restarts, %d messages accepted", len(accepted))
}

// load submits messages over ever new connections.
type load struct {
	running sync.WaitGroup
	stop    chan struct{}

	mu       sync.Mutex // guards the rest
	accepted []string
	refused  []error // of clients that got no connection, or no greeting on it
}

func (m *machine) load(clients int) *load {
	l := &load{stop: make(chan struct{})}
	for range clients {
		l.running.Go(func() {
			for {
				select {
				case <-l.stop:
					return
				default:
				}
				id := fmt.Sprintf("load-%d", m.next.Add(1))
				l.note(id, m.submit(id, "someone@example.org", ""))
			}
		})
	}
	return l
}

func (l *load) note(id string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.accepted = append(l.accepted, id)
	case errors.Is(err, errNoGreeting):
		l.refused = append(l.refused, err)
	}
}

// more waits until so many more messages have been accepted.
func (l *load) more(t *testing.T, n int) {
	t.Helper()
	count := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.accepted)
	}
	before := count()
	if err := allCome("accepted messages", n, func() int { return count() - before }); err != nil {
		t.Fatal(err)
	}
}

// end gives the ids of the messages that were accepted. Every client must have got its connection.
func (l *load) end(t *testing.T) (accepted []string) {
	t.Helper()
	close(l.stop)
	l.running.Wait()
	for _, err := range l.refused {
		t.Errorf("a client got no connection: %v", err)
	}
	return l.accepted
}

// errNoGreeting is wrapped by the error of a client that was refused the connection, or that the server left without a
// reply.
var errNoGreeting = errors.New("no greeting")

// connect greets the relay.
func (m *machine) connect() (*smtp.Client, error) {
	conn, err := m.dial("127.0.0.1:2525")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoGreeting, err)
	}
	_ = conn.SetDeadline(time.Now().Add(10 * time.Minute))
	c, err := smtp.NewClient(conn, "127.0.0.1") // which closes the connection where it fails
	if reply := (*textproto.Error)(nil); err != nil && !errors.As(err, &reply) {
		return nil, fmt.Errorf("%w: %w", errNoGreeting, err)
	}
	return c, err
}

// send hands the relay a message.
func send(c *smtp.Client, id, recipient, header string) error {
	if err := errors.Join(c.Mail("you@example.com"), c.Rcpt(recipient)); err != nil {
		return err
	}
	w, err := c.Data()
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "Message-ID: <%s@example.com>\r\nFrom: you@example.com\r\n%sSubject: load\r\n\r\nload\r\n", id, header); err != nil {
		return err
	}
	return w.Close()
}

// submit hands the relay a message over a connection of its own.
func (m *machine) submit(id, recipient, header string) error {
	c, err := m.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	return send(c, id, recipient, header)
}

// allArrive waits until each of these messages has been delivered.
func (m *machine) allArrive(t *testing.T, ids []string) {
	t.Helper()
	eventually(t, patience, func() error {
		came := make(map[string]bool)
		for _, d := range m.got.Deliveries() {
			came[strings.TrimSuffix(d.ID, "@example.com")] = true
		}
		for _, id := range ids {
			if !came[id] {
				return fmt.Errorf("message %s has not arrived; %d of other messages have", id, len(came))
			}
		}
		return nil
	})
}

// entry is a recipient in the queue, with what an upgrade has to keep of it.
type entry struct {
	state     string // held, scheduled or open: what waits, is tried and is deferred changes by itself
	release   time.Time
	attempts  int
	recipient string
}

// entries lists the queue by message.
func (m *machine) entries(t *testing.T) map[string]entry {
	t.Helper()
	all := make(map[string]entry)
	for line := range strings.Lines(m.sh(t, "mta queue list --limit 0 --json")) {
		var message api.Item
		if err := json.Unmarshal([]byte(line), &message); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		for _, r := range message.Recipients {
			e := entry{state: "open", attempts: r.Attempts, recipient: r.Address}
			switch {
			case r.State == api.StateHeld:
				e.state = "held"
			case r.Scheduled:
				e.state, e.release = "scheduled", r.Next.UTC()
			}
			all[message.ID] = e
		}
	}
	return all
}

// keeps waits until the queue has what it had before, and nothing else, each message as it was.
func (m *machine) keeps(t *testing.T, before map[string]entry) {
	t.Helper()
	eventually(t, patience, func() error {
		now := m.entries(t)
		for id, was := range before {
			is, there := now[id]
			if !there {
				return fmt.Errorf("message %s is lost: it was %+v", id, was)
			}
			if is.attempts < was.attempts {
				return fmt.Errorf("message %s has forgotten its attempts: it is %+v and was %+v", id, is, was)
			}
			if is.attempts = was.attempts; is != was {
				return fmt.Errorf("message %s is %+v and was %+v", id, is, was)
			}
		}
		if len(now) != len(before) {
			return fmt.Errorf("%d messages are queued, and there were %d", len(now), len(before))
		}
		return nil
	})
}

// fill queues messages in every state that lasts: deferred, scheduled, held, and waiting for an operator.
func (m *machine) fill(t *testing.T, n int) {
	t.Helper()
	m.sh(t, "mta pause domain paused.example")
	var (
		running sync.WaitGroup
		failed  = make(chan error, 8)
		next    atomic.Int64
	)
	for range cap(failed) {
		running.Go(func() {
			c, err := m.connect()
			if err != nil {
				failed <- err
				return
			}
			defer c.Close()
			for i := int(next.Add(1)); i <= n; i = int(next.Add(1)) {
				to, header := "someone@later.example", ""
				switch i % 4 {
				case 1:
					header = "X-Hold-For: 600000\r\n"
				case 2:
					to = "someone@paused.example"
				case 3:
					to = "held@later.example"
				}
				if err := send(c, fmt.Sprintf("queued-%d", i), to, header); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	running.Wait()
	close(failed)
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	m.sh(t, "mta queue hold --recipient held@later.example --reason test")
	for i := range n {
		m.queued = append(m.queued, fmt.Sprintf("queued-%d", i+1))
	}
	eventually(t, patience, func() error {
		states := make(map[string]int)
		for _, e := range m.entries(t) {
			states[e.state+" "+e.recipient]++
		}
		for _, state := range []string{"open someone@later.example", "scheduled someone@later.example", "open someone@paused.example", "held held@later.example"} {
			if states[state] != n/4 {
				return fmt.Errorf("%d are %s, want %d", states[state], state, n/4)
			}
		}
		return nil
	})
}

// addLater queues another message that waits until the end.
func (m *machine) addLater(t *testing.T, id string) {
	t.Helper()
	if err := m.submit(id, "someone@later.example", ""); err != nil {
		t.Fatal(err)
	}
	m.queued = append(m.queued, id)
}

// runs demands a version of the program.
func (m *machine) runs(t *testing.T, version string) {
	t.Helper()
	var status struct{ Version string }
	if err := json.Unmarshal([]byte(m.sh(t, "mta status --json")), &status); err != nil || status.Version != version {
		t.Fatalf("mta %q runs, want %s (%v)", status.Version, version, err)
	}
}

// programAfter is the version that the program of the later package states.
func programAfter(t *testing.T) string {
	t.Helper()
	var version struct{ Version string }
	if err := json.Unmarshal([]byte(runClient(t, "", binary, "version", "--json")), &version); err != nil {
		t.Fatal(err)
	}
	return version.Version
}

// put has apt install a version of both packages, over whichever is there.
func (m *machine) put(version string) (string, error) {
	return m.try("apt-get install -y --allow-downgrades /srv/" + version + "/*.deb")
}

// upgrade installs the next version while the queue is full and clients submit.
func (m *machine) upgrade(t *testing.T) {
	n := 10_000
	if text := os.Getenv("MTA_PACKAGES"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	m.fill(t, n/4*4)
	m.runs(t, packagesBefore)
	m.sh(t, "cd /srv/"+packagesAfter+"\n"+pageBlocks(t, "../docs/upgrade.md", "With packages"))
	queued, before, load := m.entries(t), m.pid(t), m.load(4)
	load.more(t, 20)
	if _, err := m.put(packagesAfter); err != nil {
		t.Fatal(err)
	}
	load.more(t, 20)
	accepted := load.end(t)
	if after := m.pid(t); after == before {
		t.Error("the upgrade has not restarted the relay")
	}
	m.runs(t, programAfter(t))
	m.allArrive(t, accepted)
	m.keeps(t, queued)
	if out := m.sh(t, "mta upgrade status"); !regexp.MustCompile(fmt.Sprintf(`(?m)^queue +%d +[0-9]+ +%d +%s `, m.newest-1, m.newest, packagesBefore)).MatchString(out) {
		t.Errorf("the upgrade should not be finished:\n%s", out)
	}
}

// failingUpgrade installs a version that can't run with the configuration: the one before goes on. A restart is refused
// until the configuration is corrected.
func (m *machine) failingUpgrade(t *testing.T) {
	queued, before := m.entries(t), m.pid(t)
	m.sh(t, "cp -p /etc/mta/mta.conf /root/mta.conf; echo nonsense = 1 >>/etc/mta/mta.conf")
	out, err := m.try("apt-get install -y --reinstall -o Dpkg::Options::=--force-confold /srv/" + packagesAfter + "/mta_*.deb")
	m.goesOn(t, before, "nonsense", out, err)
	m.refusesToStart(t, `unknown setting "nonsense"`)
	m.sh(t, "cp -p /root/mta.conf /etc/mta/mta.conf; /usr/libexec/mta/relay upgraded again; systemctl is-active mta.service") // as rpm does
	m.sh(t, "dpkg --configure mta")
	m.keeps(t, queued)
}

// goesOn demands that apt has failed with a reason, and that the relay from before runs on, takes and delivers mail.
func (m *machine) goesOn(t *testing.T, before int, want, out string, err error) {
	t.Helper()
	for _, part := range []string{"THE UPGRADE HAS STOPPED", "'dpkg --configure mta'", want} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("apt should fail and print %q: %v\n%s", part, err, out)
		}
	}
	if after := m.pid(t); after != before {
		t.Errorf("the relay was restarted: %d, then %d", before, after)
	}
	during := fmt.Sprintf("during-%d", m.next.Add(1))
	if err := m.submit(during, "someone@example.org", ""); err != nil {
		t.Errorf("the program from before takes no mail: %v", err)
	}
	m.allArrive(t, []string{during})
}

// refusesToStart demands that the program on the disk ends with exit code 78 and one sentence, and that systemd leaves
// it at that.
func (m *machine) refusesToStart(t *testing.T, want string) {
	t.Helper()
	if _, err := m.try("systemctl restart mta.service"); err == nil {
		t.Error("the relay starts")
	}
	is := m.sh(t, "systemctl show -p ActiveState -p SubState -p ExecMainStatus mta.service")
	for _, part := range []string{"ActiveState=failed\n", "SubState=failed\n", "ExecMainStatus=78\n"} {
		if !strings.Contains(is, part) {
			t.Errorf("the service is\n%s, want %s", is, part)
		}
	}
	// The journal is written by another process, which finds no invocation id of one that has ended meanwhile.
	eventually(t, patience, func() error {
		out := m.sh(t, "journalctl -q --no-pager -o cat _PID=$(systemctl show -P ExecMainPID mta.service)")
		if strings.Count(out, want) != 1 {
			return fmt.Errorf("the relay should print one sentence with %q:\n%s", want, out)
		}
		return nil
	})
}

// downgrade puts the version before back, which does not know the newest format.
func (m *machine) downgrade(t *testing.T) {
	m.addLater(t, "by-the-version-after")
	queued := m.entries(t)
	if _, err := m.put(packagesBefore); err != nil {
		t.Fatal(err)
	}
	m.runs(t, packagesBefore)
	m.keeps(t, queued)
}

// refusedDowngrade finishes the upgrade: the version before then refuses the data, and the version after has all of it.
func (m *machine) refusedDowngrade(t *testing.T) {
	m.addLater(t, "by-the-version-before")
	if _, err := m.put(packagesAfter); err != nil {
		t.Fatal(err)
	}
	if out := m.sh(t, "mta upgrade finish"); !strings.Contains(out, fmt.Sprintf("queue: format %d is written from now on", m.newest)) {
		t.Errorf("'mta upgrade finish' prints:\n%s", out)
	}
	m.addLater(t, "in-the-newest-format")
	queued, before := m.entries(t), m.pid(t)
	refusal := fmt.Sprintf("has format %d, and this program, mta %s, reads formats %d to %d: start mta %s, which wrote it, or a later version",
		m.newest, packagesBefore, store.Format.Reads, m.newest-1, programAfter(t))
	out, err := m.put(packagesBefore)
	m.goesOn(t, before, refusal, out, err)
	m.refusesToStart(t, refusal)
	if _, err := m.put(packagesAfter); err != nil {
		t.Fatal(err)
	}
	m.runs(t, programAfter(t))
	m.keeps(t, queued)
}

// removeAndPurge loses no mail, and leaves nothing when there is none.
func (m *machine) removeAndPurge(t *testing.T) {
	queued := m.entries(t)
	m.sh(t, "rm -f /etc/systemd/system/mta.service.d/socket-activation.conf")
	m.sh(t, pageBlocks(t, installPage, "Removal"))
	if out, err := m.try("pgrep -x mta"); err == nil {
		t.Errorf("the relay still runs: %s", out)
	}
	m.sh(t, "test ! -e /usr/bin/mta; test ! -e /usr/sbin/sendmail; test -e /etc/mta/mta.conf")
	m.sh(t, "apt-get install -y /srv/"+packagesAfter+"/mta_*.deb")
	m.keeps(t, queued)

	if out := m.sh(t, "apt-get purge -y mta 2>&1"); !strings.Contains(out, "NOT DELETED: /var/lib/mta") {
		t.Errorf("a purge with mail prints:\n%s", lastLines(out, 10))
	}
	m.sh(t, "test -d /var/lib/mta/queue; test ! -e /etc/mta")
	m.sh(t, "apt-get install -y /srv/"+packagesAfter+"/mta_*.deb")
	m.keeps(t, queued)
	m.serveMail(t, "192.0.2.26", m.got)
	m.sh(t, "mta resume domain paused.example; mta queue retry --all --scheduled --now; mta status --wait drained --timeout 10m")
	m.allArrive(t, m.queued)

	if out := m.sh(t, "apt-get purge -y mta 2>&1"); strings.Contains(out, "NOT DELETED") {
		t.Errorf("a purge without mail prints:\n%s", lastLines(out, 10))
	}
	m.sh(t, "test ! -e /var/lib/mta; test ! -e /etc/mta; test ! -e /var/log/mta; test ! -e /usr/bin/mta")
	if n := m.got.Tally().Duplicates(); n > 0 {
		t.Errorf("%d messages were delivered twice", n)
	}
}

// TestPackagesByTheirTools has lintian judge the Debian packages, and rpm list the others.
func TestPackagesByTheirTools(t *testing.T) {
	parallel(t)
	needRoot(t)
	lintian, rpm := need(t, "lintian")[0], need(t, "rpm")[0]
	dir := scratch(t)
	buildPackages(t, dir, "deb rpm", packagesAfter, binary)
	dir = filepath.Join(dir, packagesAfter)
	debs, _ := filepath.Glob(dir + "/*.deb")
	// A page for each command takes minutes; TestManualPages has mandoc look at them.
	out, _ := exec.Command(lintian, append([]string{"--allow-root", "--tag-display-limit", "0", "-X", "documentation/manual"}, debs...)...).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		// The released program is linked statically; that of the tests is not, and needs libc.
		if strings.HasPrefix(line, "E:") && !strings.Contains(line, "statically-linked-binary") && !strings.Contains(line, "missing-dependency-on-libc") {
			t.Errorf("lintian: %s", line)
		}
	}
	relay, sendmail := one(t, dir+"/mta-0*.rpm"), one(t, dir+"/mta-sendmail-*.rpm")
	for _, file := range []string{relay, sendmail} {
		for _, script := range []string{"PREIN", "POSTIN", "PREUN", "POSTUN"} {
			text := runClient(t, "", rpm, "-qp", "--qf", "%{"+script+"}", file)
			runClient(t, text, "sh", "-n")
		}
	}
	files := runClient(t, "", rpm, "-qp", "--qf", "[%{FILEMODES:perms} %{FILEUSERNAME} %{FILEGROUPNAME} %{FILEFLAGS:fflags} %{FILENAMES}\n]", relay)
	for _, want := range []string{
		"-rw-r----- root mta cn /etc/mta/mta.conf", "drwxr-s--- root mta  /etc/mta", "drwxr-x--x mta mta  /var/lib/mta",
		"-rwxr-xr-x root root  /usr/bin/mta", "-rw-r--r-- root root  /usr/lib/systemd/system/mta.service", "-rw-r--r-- root root cn /etc/logrotate.d/mta",
	} {
		if !strings.Contains(files, want+"\n") {
			t.Errorf("the rpm lacks %q:\n%s", want, files)
		}
	}
	rpmScripts(t, rpm, sendmail, relay)
}

// one gives the file that a pattern names.
func one(t *testing.T, pattern string) string {
	t.Helper()
	files, _ := filepath.Glob(pattern)
	if len(files) != 1 {
		t.Fatalf("%s: %v", pattern, files)
	}
	return files[0]
}

// rpmScripts runs the scripts of the rpm packages in a chroot: the user is made, and sendmail is an alternative.
func rpmScripts(t *testing.T, rpm, sendmail, relay string) {
	lower := filepath.Join(cacheDir(), "tree")
	if _, err := os.Stat(lower); err != nil {
		cannot(t, "there is no tree of Debian for a chroot: "+err.Error())
	}
	dir := scratch(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--propagation", "private", "sh", "-euc", `
		mount -t tmpfs -o mode=755 tmpfs "$2"
		mkdir "$2/up" "$2/work" "$2/root"
		mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/up,workdir=$2/work" "$2/root"
		mount -t proc proc "$2/root/proc"
		ln -s update-alternatives "$2/root/usr/bin/alternatives"
		for package in "$4" "$5"; do "$3" --root "$2/root" --nodeps --ignorearch -i "$package"; done
		chroot "$2/root" sh -euc '
			id mta
			stat -c "%a %U %G %n" /etc/mta /etc/mta/mta.conf /var/lib/mta /var/lib/mta/maildrop/new
			readlink /etc/alternatives/mta /etc/alternatives/mta-mailq
			sendmail --help >/dev/null && mta check'
		"$3" --root "$2/root" --nodeps -e mta-sendmail mta
		chroot "$2/root" sh -euc 'test ! -e /usr/sbin/sendmail; test ! -e /usr/bin/mta; test -d /var/lib/mta'
	`, "rpm", lower, dir, rpm, relay, sendmail)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the scripts of the rpm packages: %v\n%s", err, lastLines(string(out), 40))
	}
	for _, want := range []string{"(mta)", "2750 root mta /etc/mta\n", "640 root mta /etc/mta/mta.conf", "3733 mta mta /var/lib/mta/maildrop/new", "/usr/bin/mta\n/usr/bin/mta\n"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the chroot lacks %q:\n%s", want, out)
		}
	}
}
