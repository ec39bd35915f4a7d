package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"example.org/mta/mta/accounting"
	"example.org/mta/operator/api"
)

// bouncing is a mail server that accepts mail for everybody at its domain, and then bounces what is for unknown@,
// full@, huge@ and loop@. Its bounces find their way by the DNS, to port 25.
type bouncing struct {
	name string
	run  func(t *testing.T, resolvConf, addr, port string)
	// classes are those of its bounces, by local part.
	classes map[string]string
}

var bouncers = []bouncing{
	{"postfix", bouncingPostfix, map[string]string{"unknown": "InvalidRecipient", "full": "QuotaIssues", "huge": "MessageTooLarge", "loop": "RoutingErrors"}},
	// Exim keeps to itself why it could not deliver the last two.
	{"exim", bouncingExim, map[string]string{"unknown": "InvalidRecipient", "full": "QuotaIssues", "huge": "Uncategorized", "loop": "Uncategorized"}},
	{"opensmtpd", bouncingOpenSMTPD, map[string]string{"unknown": "InvalidRecipient", "full": "QuotaIssues"}},
	{"courier", bouncingCourier, map[string]string{"unknown": "InvalidRecipient", "full": "QuotaIssues", "huge": "MessageTooLarge", "loop": "RoutingErrors"}},
	{"sendmail", bouncingSendmail, map[string]string{"unknown": "InvalidRecipient", "huge": "MessageTooLarge"}},
}

func (b bouncing) domain() string { return b.name + ".example" }

// bounceField is a relay that takes reports, and its surroundings.
type bounceField struct {
	relay *relay
	in    string // where strangers bring mail, port 25
	// resolvConf leads to a name server that knows who takes mail for bounces.example.
	resolvConf string
	port       string
}

// newBounceField starts name servers for the domains, and the relay.
func newBounceField(t *testing.T, addrs map[string]string) *bounceField {
	t.Helper()
	f := &bounceField{in: ownAddress(t, 22, "25"), resolvConf: scratch(t) + "/resolv.conf"}
	var all []string
	zone := "bounces MX 10 mx.bounces\nmx.bounces A " + f.in + "\n"
	for domain, addr := range addrs {
		name := strings.TrimSuffix(domain, ".example")
		zone += fmt.Sprintf("%[1]s MX 10 mx.%[1]s\nmx.%[1]s A %[2]s\n", name, addr)
		all = append(all, addr)
	}
	slices.Sort(all)
	f.port = commonPort(t, all...)
	upstream, _ := nsd(t, zone)
	nameServer := ownAddress(t, 21, "53")
	unboundWith(t, stub("example", upstream), nameServer, "53", "example")
	writeFile(t, f.resolvConf, "nameserver "+nameServer+"\noptions timeout:1 attempts:2\n") // names elsewhere have no answer
	f.relay = newRelay(t, upstream, f.port, fmt.Sprintf(`
suppression { feed = true }
tenant "acme" {
  networks    = ["127.0.0.0/8"]
  return_path = "bounces.example"
}
listener "mx" {
  address    = "%s:25"
  relay_from = []
  inbound { domains = ["bounces.example"] }
}
`, f.in))
	f.relay.start(t)
	f.relay.listens(t, f.in+":25")
	return f
}

// recorded waits for the record of a late bounce to a recipient.
func (f *bounceField) recorded(t *testing.T, recipient string) (rec *accounting.Record) {
	t.Helper()
	found := errors.New("found")
	eventually(t, patience, func() error {
		q := accounting.Query{Types: []accounting.Type{accounting.OOB}, Recipient: recipient}
		err := accounting.Read(context.Background(), f.relay.dir+"/data/log", q, func(line []byte) (err error) {
			if rec, err = accounting.Parse(line); err != nil {
				return err
			}
			return found
		}, nil)
		if errors.Is(err, found) {
			return nil
		}
		return fmt.Errorf("there is no record of a bounce to %s: %v", recipient, err)
	})
	return rec
}

// suppressed reports whether a recipient is on the suppression list, by a report.
func (f *bounceField) suppressed(t *testing.T, recipient string) bool {
	t.Helper()
	c := api.NewClient(f.relay.dir + "/data/control.sock")
	defer c.Close()
	tenant := "acme"
	l, err := api.OpCheckSuppressed.Call(context.Background(), c, api.SuppressedAddresses{Addresses: []string{recipient}, Tenant: &tenant})
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(l.Suppressions, func(s api.Suppression) bool { return s.Source == "report" })
}

// TestLateBouncesOfRealServers: mail that a server accepts and then can't deliver comes back to its return path, through
// the DNS, and ends in a record with the right recipient and class; who does not exist is suppressed.
func TestLateBouncesOfRealServers(t *testing.T) {
	t.Parallel() // most of it is waiting
	addrs := make(map[string]string)
	for i, b := range bouncers {
		addrs[b.domain()] = fmt.Sprintf("127.20.7.%d", i+1)
	}
	f := newBounceField(t, addrs)
	for _, b := range bouncers {
		t.Run(b.name, func(t *testing.T) {
			b.run(t, f.resolvConf, addrs[b.domain()], f.port)
			content := letter{name: "late " + b.name, body: strings.Repeat("a line of a letter\r\n", 50)}.content("late-" + b.name)
			for local := range b.classes {
				python(t, f.relay.addr, "news@client.example", []string{local + "@" + b.domain()}, content)
			}
			for local, class := range b.classes {
				recipient := local + "@" + b.domain()
				rec := f.recorded(t, recipient)
				if rec.Class != class || rec.MatchedBy != accounting.ByToken || rec.Sender != "news@client.example" || rec.Tenant != "acme" || rec.ID == 0 {
					t.Errorf("%s: class %s, want %s: %+v", recipient, rec.Class, class, rec)
				}
				if !rec.Response.Permanent() {
					t.Errorf("%s: %v is no permanent failure", recipient, rec.Response)
				}
				t.Logf("%s: %s: %v", recipient, rec.Class, rec.Response)
				// The suppression follows the record.
				eventually(t, patience, func() error {
					if got, want := f.suppressed(t, recipient), class == "InvalidRecipient"; got != want {
						return fmt.Errorf("%s: suppressed %v, want %v", recipient, got, want)
					}
					return nil
				})
			}
			if b.name == "exim" {
				t.Run("vacation", f.vacation)
			}
		})
	}
	if list := runClient(t, "", binary, "bounce", "list", "--config", f.relay.config); strings.Contains(list, "bounces.example") {
		t.Errorf("some were not understood:\n%s", list)
	}
}

// vacation: the reply of a recipient who is away, by Dovecot's Sieve at Exim, comes to the return path, too. It is
// counted, and has no other consequence.
func (f *bounceField) vacation(t *testing.T) {
	if _, err := os.Stat(lda); err != nil {
		cannot(t, err.Error())
	}
	content := strings.ReplaceAll("From: news@client.example\nTo: away@exim.example\nSubject: to one who is away\nMessage-ID: <away@client.example>\n\nx\n", "\n", "\r\n")
	python(t, f.relay.addr, "news@client.example", []string{"away@exim.example"}, content)
	metrics := regexp.MustCompile(`answering monitoring" address=(\S+)`).FindStringSubmatch(readFile(t, f.relay.log))
	if metrics == nil {
		t.Fatal("the relay doesn't say where its metrics are")
	}
	const want = `mta_inbound_mail_total{kind="auto-reply",outcome="ignored"} 1`
	eventually(t, patience, func() error {
		if text := runClient(t, "", "curl", "-s", "http://"+metrics[1]+"/metrics"); !strings.Contains(text, want) {
			return fmt.Errorf("the metrics lack %s", want)
		}
		return nil
	})
	if f.suppressed(t, "away@exim.example") {
		t.Error("who is away is suppressed")
	}
}

// lda is what delivers to a mailbox by Sieve's rules.
const lda = "/usr/lib/dovecot/dovecot-lda"

func bouncingPostfix(t *testing.T, resolvConf, addr, port string) {
	postfixBehind(t, resolvConf, addr, port, fmt.Sprintf(`inet_protocols = ipv4
virtual_mailbox_domains = postfix.example
virtual_mailbox_maps = regexp:{{ /^user@/ inbox/ }}
smtpd_reject_unlisted_recipient = no
transport_maps = inline:{ { full@postfix.example = error:5.2.2 mailbox is full } { huge@postfix.example = error:5.3.4 message is too large for this mailbox } { loop@postfix.example = smtp:[%s]:%s } }
`, addr, port))
}

func bouncingExim(t *testing.T, resolvConf, addr, port string) {
	dir := runExim(t, resolvConf, addr, port, `tls_advertise_hosts =
received_headers_max = 8
begin acl
rcpt:
  accept
begin routers
away:
  driver = dnslookup
  domains = ! exim.example
  transport = away
  self = send
  no_more
unknown:
  driver = redirect
  local_parts = unknown
  data = :fail: no such user here
  allow_fail
full:
  driver = accept
  local_parts = full
  transport = full
huge:
  driver = accept
  local_parts = huge
  transport = huge
loop:
  driver = manualroute
  local_parts = loop
  transport = again
  route_list = * ADDRESS
  self = send
vacation:
  driver = accept
  local_parts = away
  transport = vacation
begin transports
away:
  driver = smtp
  interface = ADDRESS
vacation:
  driver = pipe
  command = /bin/sh DIR/lda
  user = Debian-exim
  group = Debian-exim
  home_directory = DIR/mail
  environment = HOME=DIR/mail
  log_output
again:
  driver = smtp
  port = PORT
  allow_localhost
full:
  driver = appendfile
  directory = DIR/mail/full
  maildir_format
  create_directory
  quota = 10
  user = Debian-exim
  group = Debian-exim
huge:
  driver = appendfile
  directory = DIR/mail/huge
  maildir_format
  create_directory
  message_size_limit = 100
  user = Debian-exim
  group = Debian-exim
begin retry
* quota
* * F,1h,1s
`)
	writeFile(t, dir+"/dovecot.conf", fmt.Sprintf(`mail_location = maildir:%[1]s/mail/away
postmaster_address = postmaster@exim.example
submission_host = %[2]s:%[3]s
base_dir = %[1]s/spool
state_dir = %[1]s/spool
stats_writer_socket_path =
log_path = %[1]s/log/dovecot
protocol lda {
  mail_plugins = sieve
}
plugin {
  sieve = file:%[1]s/mail/vacation.sieve
}
`, dir, addr, port))
	// Exim gives addresses to no command line, and the sender in the environment.
	writeFile(t, dir+"/lda", "exec "+lda+" -c "+dir+`/dovecot.conf -f "$SENDER" -a away@exim.example`)
	writeFile(t, dir+"/mail/vacation.sieve", "require \"vacation\";\nvacation \"I am away until Monday.\";\n")
	showOnFailure(t, "dovecot's log", dir+"/log/dovecot")
}

func bouncingOpenSMTPD(t *testing.T, resolvConf, addr, port string) {
	needRoot(t)
	root := cacheDir() + "/opensmtpd"
	unshare := need(t, "unshare", root+"/usr/sbin/smtpd")[0]
	dir := scratch(t)
	writeFile(t, dir+"/smtpd.conf", fmt.Sprintf(`listen on %s port %s hostname mx.opensmtpd.example
table users { "@" = "nobody" }
action "unknown" mda "echo no such user; exit 67" virtual <users>
action "full" mda "echo mailbox is full; exit 73" virtual <users>
action "away" relay
match from any for rcpt-to "unknown@opensmtpd.example" action "unknown"
match from any for rcpt-to "full@opensmtpd.example" action "full"
match from local for any action "away"
`, addr, port))
	mkdir(t, dir+"/spool", 0, 0)
	writeFile(t, dir+"/run", fmt.Sprintf(`set -e
mkdir -p /usr/libexec/opensmtpd /var/spool/smtpd /var/lib/opensmtpd/empty
mount --make-rprivate /
mount --bind %[1]s/usr/libexec/opensmtpd /usr/libexec/opensmtpd
mount --bind %[2]s/spool /var/spool/smtpd
mount --bind %[3]s /etc/resolv.conf
mount -t tmpfs -o mode=755 tmpfs /run
chmod 711 /var/spool/smtpd
exec %[1]s/usr/sbin/smtpd -d -f %[2]s/smtpd.conf
`, root, dir, resolvConf))
	p := start(t, "opensmtpd", unshare, "-m", "sh", dir+"/run")
	p.listens(t, addr+":"+port)
	showOnFailure(t, "opensmtpd's log", p.log)
}

func bouncingSendmail(t *testing.T, resolvConf, addr, port string) {
	needRoot(t)
	root := cacheDir() + "/sendmail/usr"
	programs := need(t, "unshare", "m4", root+"/libexec/sendmail/sendmail")
	dir := scratch(t)
	// It says what it refuses by its exit status (sysexits.h).
	writeFile(t, dir+"/deliver", "cat >/dev/null; test $1 != unknown || exit 67\n")
	quoted := regexp.MustCompile(`<([^<> ]*)>`) // as m4 has it
	macros := fmt.Sprintf(`divert(0)dnl
OSTYPE(<linux>)dnl
define(<confDOMAIN_NAME>, <mx.sendmail.example>)dnl
define(<confREFUSE_LA>, <1000>)dnl
define(<confQUEUE_LA>, <1000>)dnl
define(<confPID_FILE>, <%[1]s/pid>)dnl
define(<QUEUE_DIR>, <%[1]s/queue>)dnl
define(<STATUS_FILE>, <%[1]s/status>)dnl
define(<confDEF_USER_ID>, <65534:65534>)dnl
define(<ALIAS_FILE>, <>)dnl
define(<confTO_IDENT>, <0>)dnl
define(<LOCAL_MAILER_PATH>, </bin/sh>)dnl
define(<LOCAL_MAILER_ARGS>, `+"`sh %[1]s/deliver $u'"+`)dnl
FEATURE(<nocanonify>)dnl
FEATURE(<accept_unresolvable_domains>)dnl
FEATURE(<no_default_msa>)dnl
DAEMON_OPTIONS(<Addr=%[2]s,Port=%[3]s,Name=MTA>)dnl
LOCAL_DOMAIN(<sendmail.example>)dnl
MAILER(<local>)dnl
MAILER(<smtp>)dnl
MAILER_DEFINITIONS
Mhuge, P=/bin/sh, F=lsDFMqSPn9, S=EnvFromL/HdrFromL, R=EnvToL/HdrToL, M=100, T=DNS/RFC822/X-Unix, A=sh %[1]s/deliver $u
LOCAL_RULE_0
R huge < @ sendmail.example. >	$#huge $: huge
`, dir, addr, port)
	writeFile(t, dir+"/sendmail.mc", quoted.ReplaceAllString(macros, "`$1'"))
	cf := runClient(t, "", programs[1], "-D_CF_DIR_="+root+"/share/sendmail/cf/", root+"/share/sendmail/cf/m4/cf.m4", dir+"/sendmail.mc")
	// With fewer flags sendmail asks for no account of the recipient.
	cf = regexp.MustCompile(`(?m)^(Mlocal,.*F=)[^,]*`).ReplaceAllString(cf, "${1}lsDFMqSPn9")
	writeFile(t, dir+"/sendmail.cf", cf)
	writeFile(t, dir+"/hosts", "127.0.0.1 localhost\n"+addr+" mx.sendmail.example\n")
	mkdir(t, dir+"/queue", 0, 0)
	if err := os.Chmod(dir+"/queue", 0o700); err != nil {
		t.Fatal(err)
	}
	// Without a host name that it can look up, it sleeps for a minute.
	writeFile(t, dir+"/run", fmt.Sprintf(`set -e
hostname mx.sendmail.example
mount --bind %[1]s/hosts /etc/hosts
mount --bind %[2]s /etc/resolv.conf
exec %[3]s -C %[1]s/sendmail.cf -bD -q1s -X %[1]s/trace
`, dir, resolvConf, programs[2]))
	showOnFailure(t, "sendmail's conversations", dir+"/trace")
	p := start(t, "sendmail", programs[0], "-m", "-u", "sh", dir+"/run")
	p.listens(t, addr+":"+port)
}
