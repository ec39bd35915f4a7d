package postfix_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"example.org/mta/importer"
	"example.org/mta/importer/postfix"
	"example.org/mta/mta/config"
)

var update = flag.Bool("update", false, "write the golden files")

// TestGolden imports each folder of testdata, compares with its mta.conf and summary, and has the result checked.
func TestGolden(t *testing.T) {
	folders, err := filepath.Glob("testdata/*/main.cf")
	if err != nil || len(folders) < 10 {
		t.Fatalf("%d configurations, %v", len(folders), err)
	}
	for _, main := range folders {
		dir := filepath.Dir(main)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			got, err := postfix.Import(dir)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, dir+"/mta.conf", got.Bytes())
			golden(t, dir+"/notes", notes(got))
			for name, secret := range got.Secrets {
				t.Setenv(name, secret)
				if strings.Contains(string(got.Bytes())+string(notes(got)), secret) {
					t.Errorf("the secret of %s stands in the result", name)
				}
			}
			if _, err := config.Parse(got.Bytes(), "mta.conf", os.Getenv); err != nil {
				t.Errorf("the result is refused:\n%v", err)
			}
			again, err := postfix.Import(dir)
			if err != nil || string(again.Bytes()) != string(got.Bytes()) {
				t.Errorf("a second import gives another result, %v", err)
			}
		})
	}
}

func notes(r *importer.Draft) []byte {
	var out strings.Builder
	s := r.Summary()
	fmt.Fprintf(&out, "carried %d, with a note %d, not carried %d, protecting %d\n", s.Carried, s.Noted, s.Lost, s.Protects)
	for _, n := range s.Notes {
		fmt.Fprintf(&out, "%s:%d lost=%v protects=%v %s: %s\n", n.File, n.Line, n.Lost, n.Protects, n.Directive, n.Reason)
	}
	return []byte(out.String())
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || string(want) != string(got) {
		t.Errorf("%s differs (%v); got:\n%s", path, err, got)
	}
}

const master = "smtp unix - - n - - smtp\nsmtp inet n - n - - smtpd\nslow unix - - n - - smtp -o smtp_bind_address=192.0.2.1\n"

func TestFaultsNameFileAndLine(t *testing.T) {
	for _, c := range []struct{ main, master, want string }{
		{"a = $b\nb = $c\nc = ${a}\nmyhostname = $a", master, "main.cf:1: $a refers to itself: a -> b -> c -> a: write one"},
		{"x = 1\nminimal_backoff_time = 5x", master, `main.cf:2: minimal_backoff_time: "5x" is not a time`},
		{"\n\ntransport_maps = hash:/etc/postfix/none", master, "main.cf:3: transport_maps: "},
		{"mynetworks = 10.0.0.1/8", master, `main.cf:1: mynetworks: "10.0.0.1/8" has bits beyond its mask: write 10.0.0.0/8`},
		{"mynetworks = 10.0.0.0/8 # the office", master, "main.cf:1: mynetworks: # begins a comment at the start of a line only"},
		{"relayhost = [a", master, `main.cf:1: "[a" has no ]`},
		{"relayhost = a:none", master, `main.cf:1: port "none"`},
		{"default_transport = gone", master, `main.cf:1: master.cf has no transport "gone"`},
		{"transport_maps = inline:{a.example=gone:}", master, `main.cf:1: master.cf has no transport "gone"`},
		{"smtp_tls_security_level = mya", master, `main.cf:1: "mya" is not a security level`},
		{"myhostname = ${a", master, `main.cf:1: "${a" has no closing }`},
		{"relayhost = !", master, `main.cf:1: "!" is not a host`},
		{"myhostname = a b", master, `main.cf:1: myhostname: "a b" is not a host name`},
		{"nonsense", master, `main.cf:1: this is not "name = value"`},
		{"a = b", master + "short unix -", "master.cf:4: an entry needs eight fields"},
		{"default_destination_concurrency_limit = many", master, `main.cf:1: smtp_destination_concurrency_limit: "many" is not a whole number`},
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{"main.cf": c.main, "master.cf": c.master} {
			if err := os.WriteFile(dir+"/"+name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := postfix.Import(dir); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q gives %v, want %s", c.main, err, c.want)
		}
	}
}

// TestAllFaultsAtOnce: all faults are reported, in the order of the files, and none that merely follows from another.
func TestAllFaultsAtOnce(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"main.cf": `nonsense
myhostname = $a
a = $b
b = ${a}
smtp_helo_name = $myhostname
mydomain = ${c
smtpd_banner = $mydomain ESMTP
minimal_backoff_time = 5x
default_transport = gone:[a
default_destination_concurrency_limit = many
mynetworks = 10.0.0.1/8, 300.0.0.1, /etc/postfix/networks
transport_maps = hash:/etc/postfix/none, hash:/etc/postfix/transport
smtp_tls_security_level = mya
smtp_sasl_auth_enable = maybe
`,
		"master.cf": "smtp unix - - n - - smtp\nslow unix - -\nother unix - - n - - smtp -o smtp_bind_address=x\nsmtp:x inet n - n - - smtpd\n",
		"transport": "a.example other:\nb.example\nc.example slow:\nd.example smtp:[x\n",
		"networks":  "10.1.0.1/16\n",
	} {
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err := postfix.Import(dir)
	list := (*importer.FaultList)(nil)
	if !errors.As(err, &list) {
		t.Fatalf("%T: %v", err, err)
	}
	var got []string
	for _, f := range list.First {
		got = append(got, strings.ReplaceAll(f.Error(), dir, "DIR"))
	}
	want := []string{
		"main.cf:1: this is not \"name = value\"",
		"main.cf:3: $a refers to itself: a -> b -> a",
		"main.cf:6: \"${c\" has no closing }",
		"main.cf:8: minimal_backoff_time: \"5x\" is not a time",
		"main.cf:9: \"[a\" has no ]",
		"main.cf:10: smtp_destination_concurrency_limit: \"many\" is not a whole number",
		"main.cf:11: mynetworks: \"10.0.0.1/8\" has bits beyond its mask",
		"main.cf:11: mynetworks: \"300.0.0.1\" is not a network",
		"main.cf:12: transport_maps: DIR/none does not exist",
		"main.cf:13: \"mya\" is not a security level",
		"main.cf:14: smtp_sasl_auth_enable: \"maybe\" is neither yes nor no",
		"master.cf:2: an entry needs eight fields",
		"master.cf:3: smtp_bind_address: \"x\" is not an address",
		"master.cf:4: port \"x\"",
		"networks:1: mynetworks: \"10.1.0.1/16\" has bits beyond its mask",
		"transport:2: the entry has a key and no value",
		"transport:4: \"[x\" has no ]",
	}
	ok := len(got) == len(want)
	for i := 0; ok && i < len(want); i++ {
		ok = strings.HasPrefix(got[i], want[i])
	}
	if !ok {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// imported imports a main.cf and a master.cf.
func imported(t *testing.T, main, master string) *importer.Draft {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"main.cf": main, "master.cf": master} {
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d, err := postfix.Import(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := config.Parse(d.Bytes(), "mta.conf", func(name string) string { return d.Secrets[name] }); err != nil {
		t.Errorf("%v in\n%s", err, d.Bytes())
	}
	return d
}

// TestPasswordsInMainCF: passwords of tables that stand in main.cf or master.cf are in no line of the result.
func TestPasswordsInMainCF(t *testing.T) {
	const relay = "compatibility_level = 3.6\nrelayhost = [a.example]:587\nsmtp_sasl_auth_enable = yes\n"
	for _, c := range []struct{ main, master string }{
		{relay + "smtp_sasl_password_maps = static:joe:geheim", master},
		{relay + "smtp_sasl_password_maps = inline:{[a.example]:587=joe:geheim}", master},
		{relay + "smtp_sasl_password_maps = pipemap:{inline:{a=joe:geheim},regexp:/x}", master},
		{relay, "smtp unix - - n - - smtp -o smtp_sasl_password_maps=static:joe:geheim\n"},
		{relay + "ldaptable_bind_pw = geheim", master},
	} {
		d := imported(t, c.main, c.master)
		if text := string(d.Bytes()) + string(notes(d)); strings.Contains(text, "geheim") {
			t.Errorf("%s: the password shows in\n%s", c.main, text)
		}
	}
	d := imported(t, relay+"smtp_sasl_password_maps = static:joe:geheim", master)
	if d.Secrets["PASSWORD"] != "geheim" {
		t.Errorf("secrets: %v", d.Secrets)
	}
	for _, bad := range []string{"inline:{geheim}", "inline:geheim", "pipemap:geheim"} {
		dir := t.TempDir()
		for name, text := range map[string]string{"main.cf": relay + "smtp_sasl_password_maps = " + bad, "master.cf": master} {
			if err := os.WriteFile(dir+"/"+name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := postfix.Import(dir); err == nil || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestNobodyMayMoreThanBefore: who can't relay in Postfix can't do so here, and limits that are raised protect no more.
func TestNobodyMayMoreThanBefore(t *testing.T) {
	const logins = "compatibility_level = 3.6\nmynetworks = 10.0.0.0/8\nsmtpd_tls_security_level = may\nsmtpd_tls_cert_file = /c\nsmtpd_sasl_auth_enable = yes\n"
	const networks = "compatibility_level = 3.6\nmynetworks = 10.0.0.0/8\n"
	for _, c := range []struct {
		main, master, want string
		protects           int
	}{
		{networks, "", `relay_from                 = ["10.0.0.0/8"]`, 0},
		{"mynetworks = 10.0.0.0/8", "", "Write into main.cf what 'postconf compatibility_level' prints", 0},
		{networks + "smtpd_client_restrictions = permit_sasl_authenticated, reject", "", "relay_from                 = []", 0},
		{networks + "smtpd_client_restrictions = permit_mynetworks, reject", "", `relay_from                 = ["10.0.0.0/8"]`, 0},
		{logins + "smtpd_client_restrictions = permit_mynetworks, reject", "", "users from outside mynetworks may not relay: the listener has no logins", 0},
		{logins + "smtpd_helo_restrictions = permit_mynetworks, reject", "", "has no logins", 0},
		{logins + "smtpd_sender_restrictions = permit_mynetworks, reject", "", "has no logins", 0},
		{logins + "smtpd_recipient_restrictions = permit_mynetworks, reject_unauth_destination", "", "has no logins", 0},
		{logins + "smtpd_data_restrictions = permit_mynetworks, defer", "", "has no logins", 0},
		{logins + "smtpd_end_of_data_restrictions = permit_mynetworks, reject", "", "has no logins", 0},
		{logins + "smtpd_relay_restrictions = permit_mynetworks, reject", "", "has no logins", 0},
		{logins + "smtpd_delay_reject = no\nsmtpd_client_restrictions = permit_mynetworks, permit_sasl_authenticated, reject", "", "has no logins", 0},
		{logins + "smtpd_client_restrictions = Permit_MyNetworks, REJECT", "", "has no logins", 0},
		{networks + "smtpd_client_restrictions = PERMIT_MYNETWORKS, REJECT", "", `relay_from                 = ["10.0.0.0/8"]`, 0},
		{logins + "smtpd_client_restrictions = permit_sasl_authenticated, permit_mynetworks, reject", "", "mechanisms = [", 0},
		{logins + "smtpd_client_restrictions = permit, reject", "", "mechanisms = [", 0},
		{logins + "smtpd_client_restrictions = permit_mynetworks, reject\nsmtpd_relay_restrictions = permit_sasl_authenticated, reject", "", "users may relay from mynetworks only", 0},
		{networks + "smtpd_restriction_classes = insiders\nsmtpd_recipient_restrictions = insiders", "", "insiders has no counterpart", 2},
		{"compatibility_level = 3.6\nmynetworks = localhost, 10.0.0.0/8, .acme.example", "", `relay_from                 = ["10.0.0.0/8"]`, 0},
		{"compatibility_level = 3.6\nmynetworks = localhost, 10.0.0.0/8", "", "localhost is a name", 0},
		{"compatibility_level = 3.6\nmynetworks = !out.acme.example, 10.0.0.0/8", "", "!out.acme.example is not excluded", 1},
		{networks + "smtpd_client_restrictions = warn_if_reject reject", "", `relay_from                 = ["10.0.0.0/8"]`, 0},
		{networks + "smtpd_recipient_restrictions = permit_sasl_authenticated, reject", "", "relay_from                 = []", 0},
		{networks + "smtpd_relay_restrictions = reject_unauth_destination, permit_mynetworks", "", "relay_from                 = []", 0},
		{networks, "587 inet n - n - - smtpd -o mynetworks=192.0.2.0/24\n", `relay_from                 = ["192.0.2.0/24"]`, 0},
		{networks + "smtpd_recipient_limit = 20", "", "a message may have 100 recipients, at least", 1},
		{networks + "smtpd_recipient_limit = 2000000", "", "max_recipients             = 1000000", 0},
		{networks + "message_size_limit = 2000000000", "", "1073741824B", 0},
		{networks + "message_size_limit = 0", "", "1073741824B", 0},
		{networks + "maximal_queue_lifetime = 10s", "", `max_age                  = "1m"`, 0},
		{networks + "transport_maps = inline:{a..b=slow:}", "", "the key is not a domain", 1},
		{"compatibility_level = 3.6\nmynetworks = !10.0.0.0/9, 10.0.0.0/8", "", `relay_from                 = ["10.128.0.0/9"]`, 0},
		{"compatibility_level = 3.6\nmynetworks = 10.0.0.0/9, !10.0.0.0/8, 10.0.0.0/8", "", `relay_from                 = ["10.0.0.0/9"]`, 0},
		{"compatibility_level = 3.6\nmynetworks = !203.0.113.1, 0.0.0.0/0, ::1", "", `relay_from                 = ["::1/128"]`, 1},
		{networks, "26 inet n - n - 1 postscreen -o postscreen_upstream_proxy_protocol=haproxy\n", "clients are known by the address of the proxy", 1},
		{networks, "26 inet n - n - 1 smtpd -o smtpd_upstream_proxy_protocol=haproxy\n", `relay_from                 = []`, 1},
		{networks + "postscreen_upstream_proxy_protocol = haproxy", "", "clients are known by the address of the proxy", 1},
		{networks, "26 inet n - n - 1 postscreen\nsmtpd pass - - n - 7 smtpd\n", "max_connections            = 7", 0},
		{networks, "10025 inet n - n - - smtpd -o content_filter= -o smtpd_milters=\n", `relay_from                 = ["10.0.0.0/8"]`, 0},
		{networks, "cleanup unix n - n - 0 cleanup -o header_checks=pcre:/x\n", "rules for headers are not carried", 1},
		{networks + "parent_domain_matches_subdomains = debug_peer_list, transport_maps", "", "is the domain alone here", 1},
		{networks + "parent_domain_matches_subdomains = debug_peer_list,smtpd_access_maps", "", "presets = false", 0},
		{networks, "pickup unix n - n 60 1 pickup -o content_filter=scan:\n", "content filters are out of scope", 1},
		{networks + "smtpd_milters = inet:localhost:8891, unix:opendkim/sock\nmilter_default_action = accept", "",
			`milter "opendkim-sock" {`, 0},
		{networks + "smtpd_milters = unix:opendkim/sock", "", `address = "unix:/var/spool/postfix/opendkim/sock"`, 0},
		{networks + "smtpd_milters = inet:a:1", "587 inet n - n - - smtpd -o smtpd_milters=\n", `listeners = ["smtp"]`, 0},
		{networks + "smtpd_milters = {inet:a:1, default_action=accept}", "", "settings of its own", 1},
		{networks + "non_smtpd_milters = inet:a:1", "", "mail of sendmail goes to the first listener", 1},
		{networks, "587 inet n - n - - smtpd -o smtpd_tls_req_ccert=yes -o smtpd_tls_security_level=may -o smtpd_tls_cert_file=/c\n", "smtpd_tls_req_ccert=yes: not carried, and it protects: a certificate", 1},
		{networks + "minimal_backoff_time = 2h\nmaximal_backoff_time = 1h", "", `max_retry_interval       = "2h"`, 0},
	} {
		d := imported(t, c.main, master+c.master)
		if text := string(d.Bytes()); !strings.Contains(text, c.want) || d.Summary().Protects != c.protects {
			t.Errorf("%s%s: %d that protect, want %d, and %s in\n%s", c.main, c.master, d.Summary().Protects, c.protects, c.want, text)
		}
	}
}

// TestLimitsOfDestinationsAreTheQueueManagers: -o of a transport does not change them, -o of the queue manager does.
func TestLimitsOfDestinationsAreTheQueueManagers(t *testing.T) {
	const main = "compatibility_level = 3.6\ntransport_maps = inline:{a.example=slow:}\nslow_destination_concurrency_limit = 2\nslow_destination_rate_delay = 0\n"
	d := imported(t, main, "smtp unix - - n - - smtp\nslow unix - - n - - smtp -o slow_destination_concurrency_limit=50 -o slow_destination_rate_delay=60s\nqmgr unix n - n 300 1 qmgr -o default_destination_concurrency_limit=3 -o maximal_queue_lifetime=1d\n")
	for _, want := range []string{"  connection_limit = 2 ", "  connection_limit         = 3 ", `  max_age                  = "1d"`, "slow_destination_rate_delay=60s: not carried: it has no effect in Postfix"} {
		if !strings.Contains(string(d.Bytes()), want) {
			t.Errorf("no %q in\n%s", want, d.Bytes())
		}
	}
	if strings.Contains(string(d.Bytes()), "max_message_rate") {
		t.Errorf("a rate that Postfix does not have:\n%s", d.Bytes())
	}
}

// TestFamiliesOfATransport: mail leaves from no address that its transport could not use.
func TestFamiliesOfATransport(t *testing.T) {
	const main = "compatibility_level = 3.6\ntransport_maps = inline:{a.example=four:}\n"
	d := imported(t, main, "smtp unix - - n - - smtp\nfour unix - - n - - smtp -o inet_protocols=ipv4 -o smtp_bind_address=192.0.2.1 -o smtp_bind_address6=2001:db8::1\n")
	if text := string(d.Bytes()); strings.Contains(text, "2001:db8::1\"") || strings.Contains(text, "the other family") || d.Summary().Protects != 0 {
		t.Errorf("a source of another family:\n%s", text)
	}
	d = imported(t, main, "smtp unix - - n - - smtp\nfour unix - - n - - smtp -o inet_protocols=ipv4\n")
	if text := string(d.Bytes()); !strings.Contains(text, "inet_protocols=ipv4: not carried, and it protects: a source without an address") {
		t.Errorf("no note in\n%s", text)
	}
}

// TestATableIsAFile: the import does not wait for what a FIFO may bring.
func TestATableIsAFile(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"main.cf": "transport_maps = hash:/etc/postfix/t", "master.cf": master} {
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(dir+"/t", 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := postfix.Import(dir); err == nil || !strings.Contains(err.Error(), "main.cf:1: transport_maps: ") {
		t.Error(err)
	}
}

// TestTablesAreBounded: a table of too many entries ends the import.
func TestTablesAreBounded(t *testing.T) {
	dir := t.TempDir()
	var table strings.Builder
	for i := range 200_001 {
		fmt.Fprintf(&table, "d%d.example slow:\n", i)
	}
	for name, text := range map[string]string{"main.cf": "transport_maps = hash:/etc/postfix/t", "master.cf": master, "t": table.String()} {
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := postfix.Import(dir); err == nil || !strings.Contains(err.Error(), "t:200001: the tables have more than 200000 entries") {
		t.Error(err)
	}
}

// FuzzImport: whatever the files have, an import ends, and what it writes is read by the relay's own reader of files
// or complained of with its place.
func FuzzImport(f *testing.F) {
	f.Add("myhostname = a.example\nrelayhost = [b.example]:587\ntransport_maps = inline:{x.example=slow:}", master)
	f.Add("mynetworks = ${a?{10.0.0.0/8}:{!10.0.0.0/8}} cidr:{}\nsmtp_tls_policy_maps = static:may\na = $$b", master)
	f.Add("transport_maps = randmap:{smtp:, slow:}\nslow_destination_rate_delay = 7s", master)
	f.Fuzz(func(t *testing.T, main, master string) {
		dir := t.TempDir()
		if strings.Contains(main, "/") {
			main = strings.ReplaceAll(main, ":/", ":") // no files of this machine
		}
		for name, text := range map[string]string{"main.cf": main, "master.cf": master} {
			if err := os.WriteFile(dir+"/"+name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := postfix.Import(dir)
		if err != nil {
			if list := (*importer.FaultList)(nil); !errors.As(err, &list) || len(list.First) == 0 {
				t.Errorf("%T without a place: %v", err, err)
			}
			return
		}
		_, err = config.Parse(got.Bytes(), "mta.conf", func(string) string { return "x" })
		if err != nil && !strings.Contains(err.Error(), "mail would loop") {
			t.Errorf("%q, %q give\n%s\n%v", main, master, got.Bytes(), err)
		}
	})
}

// TestChainFiles: each key has the certificates that follow it, in its file or in the next ones.
func TestChainFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, parts ...string) string {
		path, text := filepath.Join(dir, name), ""
		for _, p := range parts {
			text += "-----BEGIN " + p + "-----\n-----END " + p + "-----\n"
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const key, certificate = "PRIVATE KEY", "CERTIFICATE"
	a, b, c := write("a", key), write("b", certificate, certificate), write("c", certificate)
	both, next := write("both", key, certificate), write("next", "EC "+key)
	pair := func(certificates, keys string) string {
		return fmt.Sprintf("certificate = [%s] ", certificates) + "|" + fmt.Sprintf("key         = [%s] ", keys)
	}
	quoted := func(all ...string) string { return `"` + strings.Join(all, `", "`) + `"` }
	for files, want := range map[string]string{
		a + " " + b:                             pair(quoted(b), quoted(a)),
		both:                                    pair(quoted(both), quoted(both)),
		a + ", " + b + ", " + next + ", " + c:   pair(quoted(b, c), quoted(a, next)),
		both + " " + next + " " + b:             pair(quoted(both, b), quoted(both, next)),
		a + " " + b + " " + c:                   "continues the chain of " + b + ": append it",
		b + " " + both:                          b + " has no key before it",
		a:                                       a + " has no certificate after it",
		"/gone/privkey.pem /gone/fullchain.pem": pair(quoted("/gone/fullchain.pem"), quoted("/gone/privkey.pem")) + "|in /gone/privkey.pem, /gone/fullchain.pem can't be read here: which file has which is a guess",
		"/gone/key.pem":                         pair(quoted("/gone/key.pem"), quoted("/gone/key.pem")),
		"/gone/rsa.pem /gone/ec.pem":            pair(quoted("/gone/rsa.pem", "/gone/ec.pem"), quoted("/gone/rsa.pem", "/gone/ec.pem")),
	} {
		text := string(imported(t, "smtpd_tls_security_level = may\nsmtpd_tls_chain_files = "+files, master).Bytes())
		for _, w := range strings.Split(want, "|") {
			if !strings.Contains(text, w) {
				t.Errorf("%s: no %s in\n%s", files, w, text)
			}
		}
	}
}
