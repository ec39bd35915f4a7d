package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
)

// server is a mail server that keeps what it gets for its domain in files. Postfix, Exim and
// OpenSMTPD refuse recipients whose local part begins with "refused".
type server struct {
	name   string
	domain string
	addr   string // IP address; the port is common to all
	inbox  string // a maildir, or a folder with a file for each message
	log    string // of Postfix
	config string // the folder of Postfix's configuration
	utf8   bool   // offers SMTPUTF8
	quoted bool   // takes quoted local parts, as RFC 5321 demands
}

// postfix runs a Postfix that takes mail for every domain and delivers it to a maildir.
func postfix(t *testing.T, addr, port string) *server {
	t.Helper()
	s, _ := postfixWith(t, addr, port, "")
	return s
}

// postfixWith adds lines to main.cf, where the last of several that set the same counts. It
// gives the master process too.
func postfixWith(t *testing.T, addr, port, settings string) (*server, *process) {
	t.Helper()
	return postfixBehind(t, "", addr, port, settings)
}

// postfixBehind has a file of its own for /etc/resolv.conf, if one is named.
func postfixBehind(t *testing.T, resolvConf, addr, port, settings string) (*server, *process) {
	t.Helper()
	return postfixWithServices(t, resolvConf, addr, port, settings, "")
}

// postfixWithServices adds lines to master.cf, too.
func postfixWithServices(t *testing.T, resolvConf, addr, port, settings, services string) (*server, *process) {
	t.Helper()
	needRoot(t)
	master := need(t, "master", "postfix")[0]
	dir := scratch(t)
	s := &server{name: "postfix", domain: "postfix.example", addr: addr, inbox: dir + "/mail/inbox", log: dir + "/log", config: dir + "/etc", utf8: true, quoted: true}
	uid, gid := idsOf(t, "postfix")
	for _, d := range []string{"spool", "data", "mail"} {
		mkdir(t, filepath.Join(dir, d), uid, gid)
	}
	chown(t, dir+"/spool", 0, 0)
	// inet_interfaces knows no other addresses of 127/8 than 127.0.0.1; master.cf does.
	writeFile(t, dir+"/etc/main.cf", lastOfEach(fmt.Sprintf(`compatibility_level = 3.6
myhostname = mx.postfix.example
queue_directory = %[1]s/spool
data_directory = %[1]s/data
maillog_file = %[1]s/log
maillog_file_prefixes = /tmp
command_directory = /usr/sbin
daemon_directory = /usr/lib/postfix/sbin
mail_owner = postfix
setgid_group = postdrop
inet_interfaces = 127.0.0.1
mydestination =
alias_maps =
mynetworks = 127.0.0.0/8
virtual_mailbox_domains = static:any
virtual_mailbox_base = %[1]s/mail
virtual_mailbox_maps = static:inbox/
virtual_mailbox_limit = 0
virtual_uid_maps = static:%[2]d
virtual_gid_maps = static:%[3]d
virtual_destination_concurrency_limit = 10
message_size_limit = 100000000
smtpd_recipient_limit = 2000
smtputf8_enable = yes
smtpd_recipient_restrictions = check_recipient_access regexp:{{ /^refused/ 550 5.1.1 no such user }}, permit_mynetworks, reject
%[4]s`, dir, uid, gid, settings)))
	writeFile(t, dir+"/etc/master.cf", fmt.Sprintf(`%s:%s inet n - n - - smtpd
pickup unix n - n 60 1 pickup
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
tlsmgr unix - - n 1000? 1 tlsmgr
tlsproxy unix - - n - 0 tlsproxy
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
verify unix - - n - 1 verify
showq unix n - n - - showq
flush unix n - n 1000? 0 flush
proxymap unix - - n - - proxymap
smtp unix - - n - - smtp
error unix - - n - - error
retry unix - - n - - error
discard unix - - n - - discard
virtual unix - n n - - virtual
anvil unix - - n - 1 anvil
scache unix - - n - 1 scache
postlog unix-dgram n - n - 1 postlogd
%s`, addr, port, services))
	showOnFailure(t, "postfix's log", dir+"/log")
	if out, err := exec.Command("postfix", "-c", dir+"/etc", "check").CombinedOutput(); err != nil {
		t.Fatalf("postfix check: %v\n%s", err, out)
	}
	p := start(t, s.name, resolvingBy(t, resolvConf, master, "-c", dir+"/etc", "-d")...)
	p.listens(t, addr+":"+port)
	return s, p
}

// lastOfEach drops settings that a later line overrides. Postfix warns of each, postlogd too, which waits for itself for
// ever when the warnings don't fit into its socket.
func lastOfEach(main string) string {
	lines := strings.SplitAfter(main, "\n")
	last := make(map[string]int)
	for i, l := range lines {
		if name, _, ok := strings.Cut(l, " ="); ok {
			last[name] = i
		}
	}
	var out strings.Builder
	for i, l := range lines {
		if name, _, ok := strings.Cut(l, " ="); !ok || last[name] == i {
			out.WriteString(l)
		}
	}
	return out.String()
}

// resolvingBy has a command find a file in the place of /etc/resolv.conf, if one is named.
func resolvingBy(t *testing.T, resolvConf string, command ...string) []string {
	t.Helper()
	if resolvConf == "" {
		return command
	}
	return append([]string{need(t, "unshare")[0], "-m", "sh", "-c", `mount --bind "$0" /etc/resolv.conf && exec "$@"`, resolvConf}, command...)
}

// exim runs an Exim that does the same. It was unpacked, not installed.
func exim(t *testing.T, addr, port string) *server {
	t.Helper()
	return eximWith(t, addr, port, "tls_advertise_hosts =\n")
}

// eximWith has settings for TLS.
func eximWith(t *testing.T, addr, port, tls string) *server {
	t.Helper()
	dir := runExim(t, "", addr, port, tls+`smtputf8_advertise_hosts = *
message_size_limit = 100M
recipients_max = 2000
smtp_accept_max = 100
smtp_accept_queue_per_connection = 0
queue_run_max = 20
begin acl
rcpt:
  deny local_parts = ^refused
       message = 5.1.1 no such user
  accept
begin routers
local:
  driver = accept
  transport = inbox
begin transports
inbox:
  driver = appendfile
  directory = DIR/mail/inbox
  maildir_format
  create_directory
  batch_max = 1
  user = Debian-exim
  group = Debian-exim
  envelope_to_add
`)
	return &server{name: "exim", domain: "exim.example", addr: addr, inbox: dir + "/mail/inbox", utf8: true, quoted: true}
}

// runExim runs an Exim and gives its folder. The settings go on with the sections that follow them, the ACL rcpt among
// them; DIR, ADDRESS and PORT stand for the folder and where it listens. Exim has another /etc/resolv.conf, if one is named.
func runExim(t *testing.T, resolvConf, addr, port, settings string) (dir string) {
	t.Helper()
	needRoot(t)
	program := need(t, cacheDir()+"/exim/usr/sbin/exim4")[0]
	dir = scratch(t)
	uid, gid := idsOf(t, "Debian-exim")
	for _, d := range []string{"spool", "log", "mail"} {
		mkdir(t, filepath.Join(dir, d), uid, gid)
	}
	writeFile(t, dir+"/exim.conf", strings.NewReplacer("PROGRAM", program, "DIR", dir, "ADDRESS", addr, "PORT", port).Replace(`exim_path = PROGRAM
deliver_drop_privilege = true
primary_hostname = mx.exim.example
spool_directory = DIR/spool
log_file_path = DIR/log/%slog
pid_file_path = DIR/spool/pid
never_users =
keep_environment =
local_interfaces = ADDRESS
daemon_smtp_ports = PORT
host_lookup =
rfc1413_query_timeout = 0s
check_spool_space = 0
check_log_space = 0
acl_smtp_rcpt = rcpt
acl_smtp_data = accept
`+settings))
	p := start(t, "exim", resolvingBy(t, resolvConf, program, "-C", dir+"/exim.conf", "-bdf", "-q1s")...)
	showOnFailure(t, "exim's log", dir+"/log/mainlog")
	p.listens(t, addr+":"+port)
	return dir
}

// opensmtpd runs an OpenSMTPD that delivers to a maildir. It knows neither PIPELINING nor
// SMTPUTF8, and no quoted local parts with blanks. It was unpacked, not installed, and has its folders by a mount namespace of its own,
// since their paths are compiled in.
func opensmtpd(t *testing.T, addr, port string) *server {
	t.Helper()
	needRoot(t)
	root := cacheDir() + "/opensmtpd"
	unshare := need(t, "unshare", root+"/usr/sbin/smtpd")[0]
	dir := scratch(t)
	s := &server{name: "opensmtpd", domain: "opensmtpd.example", addr: addr, inbox: dir + "/mail/inbox"}
	uid, gid := idsOf(t, "nobody")
	mkdir(t, dir+"/mail", uid, gid)
	mkdir(t, dir+"/spool", 0, 0)
	if err := os.Chmod(dir+"/spool", 0o711); err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir+"/smtpd.conf", fmt.Sprintf(`listen on %s port %s hostname mx.opensmtpd.example
smtp max-message-size 100M
smtp limit max-rcpt 2000
table users { "@" = "nobody" }
action "inbox" maildir "%s" virtual <users>
match from any for rcpt-to regex "^refused" reject
match from any for domain "%s" action "inbox"
`, addr, port, s.inbox, s.domain))
	writeFile(t, dir+"/run", fmt.Sprintf(`set -e
mkdir -p /usr/libexec/opensmtpd /var/spool/smtpd /var/lib/opensmtpd/empty
mount --make-rprivate /
mount --bind %[1]s/usr/libexec/opensmtpd /usr/libexec/opensmtpd
mount --bind %[2]s/spool /var/spool/smtpd
mount -t tmpfs -o mode=755 tmpfs /run
exec %[1]s/usr/sbin/smtpd -d -f %[2]s/smtpd.conf
`, root, dir))
	p := start(t, s.name, unshare, "-m", "sh", dir+"/run")
	p.listens(t, addr+":"+port)
	return s
}

// smtpSink runs Postfix's smtp-sink, which writes each message to a file.
func smtpSink(t *testing.T, addr, port string) *server {
	t.Helper()
	needRoot(t)
	program := need(t, "smtp-sink")[0]
	dir := scratch(t)
	s := &server{name: "smtp-sink", domain: "smtp-sink.example", addr: addr, inbox: dir + "/dump"}
	uid, gid := idsOf(t, "postfix")
	mkdir(t, s.inbox, uid, gid)
	p := start(t, s.name, program, "-u", "postfix", "-c", "-d", s.inbox+"/m.", addr+":"+port, "128")
	p.listens(t, addr+":"+port)
	return s
}

func idsOf(t *testing.T, name string) (uid, gid int) {
	t.Helper()
	u, err := user.Lookup(name)
	if err != nil {
		cannot(t, err.Error())
	}
	if _, err := fmt.Sscan(u.Uid+" "+u.Gid, &uid, &gid); err != nil {
		t.Fatal(err)
	}
	return uid, gid
}

func mkdir(t *testing.T, path string, uid, gid int) {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	chown(t, path, uid, gid)
}

func chown(t *testing.T, path string, uid, gid int) {
	t.Helper()
	if err := os.Chown(path, uid, gid); err != nil {
		t.Fatal(err)
	}
}

func showOnFailure(t *testing.T, what, path string) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of %s:\n%s", what, tail(path))
		}
	})
}
