package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/smtp"
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

	"example.org/mta/internal/sink"
)

// The versions that the test builds, of the same program.
const (
	packagesBefore = "0.1.0~e2e1"
	packagesAfter  = "0.1.0~e2e2"
)

// buildPackages makes the packages of this tree's program, each version in a folder of its own in dir.
func buildPackages(t *testing.T, dir, formats string, versions ...string) {
	t.Helper()
	stripped := filepath.Join(scratch(t), "mta")
	runClient(t, "", need(t, "strip")[0], "-o", stripped, binary)
	for _, version := range versions {
		cmd := exec.Command("../contrib/packages/build", filepath.Join(dir, version), version)
		cmd.Env = append(os.Environ(), "BINARY="+stripped, "ARCHES="+runtime.GOARCH, "FORMATS="+formats, "PACKAGE_VERSION="+version)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("building the packages: %v\n%s", err, lastLines(string(out), 40))
		}
	}
}

// machine is a Debian on which a stranger installs the packages, with the world's mail exchangers around it.
type machine struct {
	*tree
	got  *sink.Recorder // what the mail exchangers took
	next atomic.Int64   // numbers the messages of the load
}

// TestDebianPackages follows docs/install.md on a Debian that systemd has booted, by the page's own commands, and
// then does to it what operators do. MTA_PACKAGES is the number of recipients that are queued when the relay is
// upgraded; 10000 is the full size.
func TestDebianPackages(t *testing.T) {
	t.Parallel()
	m := &machine{tree: boot(t), got: sink.NewRecorder(sink.Contents, 0)}
	packages := scratch(t)
	buildPackages(t, packages, "deb", packagesBefore, packagesAfter)
	for _, version := range []string{packagesBefore, packagesAfter} {
		m.sh(t, "mkdir -p /srv/"+version)
		for _, name := range []string{"mta_" + version + "_" + runtime.GOARCH + ".deb", "mta-sendmail_" + version + "_all.deb"} {
			runClient(t, "", "cp", filepath.Join(packages, version, name), m.path("/srv/"+version+"/"))
		}
	}
	m.sh(t, "cp /srv/"+packagesBefore+"/*.deb /root/")
	m.serveNames(t, `
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
		{"beside Postfix", m.besidePostfix},
		{"socket activation", m.socketActivation},
		{"in Postfix's place", m.inPlaceOfPostfix},
		{"upgrade", m.upgrade},
		{"an upgrade that must fail", m.failingUpgrade},
		{"downgrade", m.downgrade},
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
	for _, addr := range []string{"127.0.0.1:25", "127.0.0.1:2525"} {
		eventually(t, patience, func() error {
			conn, err := m.dial(addr)
			if err != nil {
				return err
			}
			return conn.Close()
		})
	}
	m.sh(t, "dpkg -s mta >/dev/null; systemctl is-active mta")
}

// inPlaceOfPostfix makes the relay the mail server of the machine.
func (m *machine) inPlaceOfPostfix(t *testing.T) {
	m.sh(t, pageBlocks(t, installPage, "Beside another mail server, or in its place"))
	m.arrives(t, "someone@example.org", "from sendmail")
	if out, err := m.try("systemctl is-active postfix"); err == nil {
		t.Errorf("Postfix still runs: %s", out)
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
	load := m.load(t, 8)
	for range 3 {
		time.Sleep(500 * time.Millisecond) // of load
		m.sh(t, "systemctl restart mta.service")
	}
	accepted, failed := load()
	if len(accepted) < 10 {
		t.Errorf("only %d messages were accepted", len(accepted))
	}
	for _, err := range failed {
		t.Errorf("a client got no connection: %v", err)
	}
	m.allArrive(t, accepted)
	t.Logf("three restarts, %d messages accepted", len(accepted))
}

// load submits messages over ever new connections until the end is asked for, which gives the ids of those that were
// accepted, and the connections that were refused.
func (m *machine) load(t *testing.T, clients int) (end func() (accepted []string, refused []error)) {
	var (
		mu       sync.Mutex // guards accepted and refused
		accepted []string
		refused  []error
		running  sync.WaitGroup
		stop     = make(chan struct{})
	)
	for range clients {
		running.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				id := fmt.Sprintf("load-%d", m.next.Add(1))
				err := m.submit(id, "someone@example.org", "")
				mu.Lock()
				switch refusal := (*net.OpError)(nil); {
				case err == nil:
					accepted = append(accepted, id)
				case errors.As(err, &refusal) && refusal.Op == "dial":
					refused = append(refused, err)
				}
				mu.Unlock()
			}
		})
	}
	return func() ([]string, []error) {
		close(stop)
		running.Wait()
		return accepted, refused
	}
}

// submit hands the relay a message.
func (m *machine) submit(id, recipient, header string) error {
	conn, err := m.dial("127.0.0.1:2525")
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	c, err := smtp.NewClient(conn, "127.0.0.1")
	if err != nil {
		return err
	}
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

// allArrive waits until each of these messages has been delivered, and sees to it that none came twice.
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

// states counts the queue by the state of recipients.
func (m *machine) states(t *testing.T) (total int64, states map[string]int64) {
	t.Helper()
	var status struct {
		Queue  struct{ Queued int64 }
		States map[string]int64
	}
	if err := json.Unmarshal([]byte(m.sh(t, "mta status --json")), &status); err != nil {
		t.Fatal(err)
	}
	return status.Queue.Queued, status.States
}

// fill queues recipients in every state that lasts: deferred, scheduled, held and waiting for an operator.
func (m *machine) fill(t *testing.T, n int) (ids []string) {
	t.Helper()
	m.sh(t, "mta pause domain paused.example")
	var (
		running sync.WaitGroup
		failed  = make(chan error, 8)
		next    atomic.Int64
	)
	for range cap(failed) {
		running.Go(func() {
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
				if err := m.submit(fmt.Sprintf("queued-%d", i), to, header); err != nil {
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
		ids = append(ids, fmt.Sprintf("queued-%d", i+1))
	}
	return ids
}

// upgrade installs the next version while the queue is full and clients submit.
func (m *machine) upgrade(t *testing.T) {
	n := 120
	if text := os.Getenv("MTA_PACKAGES"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	m.fill(t, n)
	total, states := m.states(t)
	t.Logf("queued: %d, %v", total, states)
	if total < int64(n) {
		t.Fatalf("%d are queued, want at least %d", total, n)
	}
	before, load := m.pid(t), m.load(t, 4)
	m.sh(t, "apt-get install -y /srv/"+packagesAfter+"/*.deb")
	accepted, refused := load()
	if after := m.pid(t); after == before {
		t.Error("the upgrade has not restarted the relay")
	}
	for _, err := range refused {
		t.Errorf("a client got no connection: %v", err)
	}
	m.allArrive(t, accepted)
	m.keeps(t, total)
}

// keeps sees to it that the queue has what it had.
func (m *machine) keeps(t *testing.T, total int64) {
	t.Helper()
	eventually(t, patience, func() error {
		if now, states := m.states(t); now != total {
			return fmt.Errorf("%d are queued, %v, and it were %d", now, states, total)
		}
		return nil
	})
}

// failingUpgrade installs a version that can't run with the configuration, then one that doesn't read the data: each
// time the one before goes on.
func (m *machine) failingUpgrade(t *testing.T) {
	total, _ := m.states(t)
	for _, fault := range []struct{ name, make, mend, want string }{
		{"configuration", "echo nonsense = 1 >>/etc/mta/mta.conf", "cp -p /root/mta.conf /etc/mta/mta.conf", "nonsense"},
		{"format", `cp -p /var/lib/mta/queue/format /root/format; sed -i -E 's/("format": *)[0-9]+/\199/' /var/lib/mta/queue/format`,
			"cp -p /root/format /var/lib/mta/queue/format", "has format 99"},
	} {
		before, during := m.pid(t), "during-"+fault.name
		m.sh(t, fault.make)
		out, err := m.try("apt-get install -y --reinstall -o Dpkg::Options::=--force-confold /srv/" + packagesAfter + "/mta_*.deb")
		if err == nil || !strings.Contains(err.Error(), "THE UPGRADE HAS STOPPED") || !strings.Contains(err.Error(), fault.want) {
			t.Errorf("%s: the upgrade should fail and print %q: %v\n%s", fault.name, fault.want, err, out)
		}
		if after := m.pid(t); after != before {
			t.Errorf("%s: the relay was restarted: %d, then %d", fault.name, before, after)
		}
		if err := m.submit(during, "someone@example.org", ""); err != nil {
			t.Errorf("%s: the old program takes no mail: %v", fault.name, err)
		}
		m.allArrive(t, []string{during})
		m.sh(t, fault.mend+"; dpkg --configure mta")
		if after := m.pid(t); after == before {
			t.Errorf("%s: the upgrade has not restarted the relay after the correction", fault.name)
		}
		m.keeps(t, total)
	}
}

// downgrade puts the version before back.
func (m *machine) downgrade(t *testing.T) {
	total, _ := m.states(t)
	m.sh(t, "apt-get install -y --allow-downgrades /srv/"+packagesBefore+"/*.deb")
	m.keeps(t, total)
}

// removeAndPurge loses no mail, and leaves nothing when there is none.
func (m *machine) removeAndPurge(t *testing.T) {
	total, _ := m.states(t)
	m.sh(t, "rm -f /etc/systemd/system/mta.service.d/socket-activation.conf")
	m.sh(t, pageBlocks(t, installPage, "Removal"))
	if out, err := m.try("pgrep -x mta"); err == nil {
		t.Errorf("the relay still runs: %s", out)
	}
	m.sh(t, "apt-get install -y /srv/"+packagesAfter+"/mta_*.deb")
	m.keeps(t, total)

	if out := m.sh(t, "apt-get purge -y mta 2>&1"); !strings.Contains(out, "NOT DELETED: /var/lib/mta") {
		t.Errorf("a purge with mail prints:\n%s", lastLines(out, 10))
	}
	m.sh(t, "test -d /var/lib/mta/queue; test ! -e /etc/mta")
	m.sh(t, "apt-get install -y /srv/"+packagesAfter+"/mta_*.deb")
	m.keeps(t, total)
	m.serveMail(t, "192.0.2.26", m.got)
	m.sh(t, "mta queue release --all; mta queue remove --recipient someone@paused.example; mta sites resume mx.later.example || true; mta queue retry --all --scheduled || mta queue retry --all")
	m.keeps(t, 0)

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
	t.Parallel()
	needRoot(t)
	lintian, rpm := need(t, "lintian")[0], need(t, "rpm")[0]
	dir := scratch(t)
	buildPackages(t, dir, "deb rpm", packagesAfter)
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
