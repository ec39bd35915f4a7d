package e2e

import (
	"regexp"
	"strings"
	"testing"
)

// TestProductionExample has 'mta init' write its files, which contrib/examples/production.conf shows, and sends with them:
// a login under TLS, a new source with a plan, a DKIM signature, a receiver. The certificate is from a file: the authority
// of acme is on the Internet.
func TestProductionExample(t *testing.T) {
	parallel(t)
	dir := scratch(t)
	cert, key := dir+"/cert.pem", dir+"/key.pem"
	runClient(t, "", need(t, "openssl")[0], "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
		"-subj", "/CN=relay.example", "-keyout", key, "-out", cert)
	told := runClient(t, "app\n", binary, "init", "--hostname", "relay.example", "--domain", "acme.example", "--address", "192.0.2.2",
		"--warm", "192.0.2.1", "--email", "postmaster@acme.example", "--dir", dir+"/etc")
	password := regexp.MustCompile(`The password of app, .*: (\S+)`).FindStringSubmatch(told)
	if password == nil {
		t.Fatalf("no password in\n%s", told)
	}
	addr := "127.0.0.1:" + commonPort(t, "127.0.0.1")
	written := regexp.MustCompile(`(?ms)^(hostname|postmaster|data_dir) += .*?$|^acme \{.*?^\}$`).ReplaceAllString(readFile(t, dir+"/etc/mta.conf"), "")
	written = strings.NewReplacer("192.0.2.", "127.0.0.", `":587"`, `"`+addr+`"`, "tls { acme = true }",
		"tls {\n    certificate = \""+cert+"\"\n    key         = \""+key+"\"\n  }").Replace(written)
	f := newFieldWith(t, "", written, smtpSink)
	s := f.servers[0]
	runClient(t, letter{name: "hello", body: "Hello\r\n"}.content("production"), need(t, "curl")[0], "-sS", "--ssl-reqd", "-k", "--url", "smtp://"+addr,
		"--user", "app:"+password[1], "--mail-from", "ann@acme.example", "--mail-rcpt", "user@"+s.domain, "-T", "-")
	s.wait(t, "production", patience)
	f.relay.drained(t, patience)
	log := runClient(t, "", binary, "log", "--json", "--type", "Delivery", "--config", f.relay.config)
	if !strings.Contains(log, `"egress_source":"out"`) {
		t.Errorf("the new source did not send: %s", log)
	}
	if plans := runClient(t, "", binary, "warmup", "list", "--config", f.relay.config); !strings.Contains(plans, "standard") {
		t.Errorf("the new source does not warm up:\n%s", plans)
	}
}
