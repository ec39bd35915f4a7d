package e2e

import (
	"fmt"
	"net"
	"net/smtp"
	"os"
	"strings"
	"testing"
)

// TestRealMilters has rspamd scan mail and OpenDKIM sign it, each by its own implementation of the protocol: what
// arrives has the fields of the one and a good signature of the other, without a field of the application; spam is
// refused in rspamd's words, and a milter that is away lets mail pass where it may.
func TestRealMilters(t *testing.T) {
	parallel(t)
	programs := need(t, "opendkim", "rspamd")
	records, keys := dkimKeys(t, "client.example", "rsa")
	dir := scratch(t)
	f := newFieldWith(t, records, fmt.Sprintf(`
milter "scan" { address = "unix:%[1]s/rspamd.sock" }
milter "sign" { address = "unix:%[1]s/opendkim.sock" }
milter "away" {
  address  = "unix:%[1]s/away.sock"
  on_error = "accept"
}
`, dir), postfix)

	key := strings.Split(keys["rsa"], `"`)[3]
	writeFile(t, dir+"/opendkim.conf", fmt.Sprintf("Domain client.example\nSelector rsa\nKeyFile %s\nRequireSafeKeys no\nMode s\n"+
		"Canonicalization relaxed/simple\nSyslog no\nSocket local:%s/opendkim.sock\n", key, dir))
	start(t, "opendkim", programs[0], "-f", "-x", dir+"/opendkim.conf")
	writeFile(t, dir+"/tld.dat", "example\n")
	writeFile(t, dir+"/rspamd.conf", fmt.Sprintf(`options {
  filters = "";
  pidfile = "%[1]s/pid";
  tempdir = "%[1]s";
  url_tld = "%[1]s/tld.dat";
  control_socket = "%[1]s/control mode=0600";
  dns { nameserver = ["%[2]s"]; }
}
logging { type = "console"; level = "notice"; color = false; }
lua = "/usr/share/rspamd/rules/rspamd.lua";
modules { path = "/usr/share/rspamd/plugins/"; }
actions { reject = 1000; }
milter_headers { use = ["x-spamd-result"]; skip_local = false; }
worker "rspamd_proxy" {
  bind_socket = "%[1]s/rspamd.sock mode=0666";
  milter = yes;
  count = 1;
  upstream "local" { default = yes; self_scan = yes; }
}
`, dir, f.relay.nameServer))
	start(t, "rspamd", programs[1], "-i", "-f", "-c", dir+"/rspamd.conf")
	for _, name := range []string{"opendkim", "rspamd"} {
		eventually(t, patience, func() error {
			c, err := net.Dial("unix", dir+"/"+name+".sock")
			if err == nil {
				c.Close()
			}
			return err
		})
	}

	content := letter{name: "scanned", body: "x \t y\r\n\r\n"}.content("scanned")
	to := "user@" + f.servers[0].domain
	f.python(t, "sender@client.example", []string{to}, content)
	m := f.servers[0].wait(t, "scanned", patience)
	if !strings.Contains(string(m.head), "X-Spamd-Result") {
		t.Errorf("no field of rspamd:\n%s", m.head)
	}
	if err := verifies(t, m, f.relay.nameServer, 0); err != nil {
		t.Errorf("OpenDKIM's signature: %v\n%s", err, m.head)
	}

	spam := letter{name: "spam", body: "XJS*C4JDBQADN1.NSBN3*2IDNEN*GTUBE-STANDARD-ANTI-UBE-TEST-EMAIL*C.34X\r\n"}.content("spam")
	if err := smtp.SendMail(f.relay.addr, nil, "sender@client.example", []string{to}, []byte(spam)); err == nil ||
		!strings.Contains(err.Error(), "Gtube pattern") {
		t.Errorf("spam: %v", err)
	}
	if out := f.relay.mta(t, "log", "--type", "Rejection"); !strings.Contains(out, "Gtube pattern") {
		t.Errorf("the log has no word of it:\n%s", out)
	}
	log, err := os.ReadFile(f.relay.process.log)
	if err != nil || strings.Count(string(log), "a milter fails") != 1 {
		t.Errorf("%v: the log should name the milter that is away, once:\n%s", err, log)
	}
}
