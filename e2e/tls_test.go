package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"example.org/mta/internal/testca"
)

// TestReceiversOverTLS sends by each level of protection to servers that have certificates of our own
// authority, one of which takes mail from clients with such a certificate only.
func TestReceiversOverTLS(t *testing.T) {
	parallel(t)
	ca := testca.New(t)
	caFile := ca.File(t)
	ours, ourKey := certificateFor(t, ca, "relay.example", "root")
	strict := func(t *testing.T, addr, port string) *server {
		certificate, key := certificateFor(t, ca, "mx.postfix.example", "root")
		s, _ := postfixWith(t, addr, port, fmt.Sprintf(`smtpd_tls_security_level = encrypt
smtpd_tls_cert_file = %s
smtpd_tls_key_file = %s
smtpd_tls_CAfile = %s
smtpd_tls_req_ccert = yes
smtpd_tls_received_header = yes
smtpd_tls_session_cache_database = btree:${data_directory}/smtpd_scache
`, certificate, key, caFile))
		return s
	}
	eximTLS := func(t *testing.T, addr, port string) *server {
		certificate, key := certificateFor(t, ca, "mx.exim.example", "Debian-exim")
		return eximWith(t, addr, port, fmt.Sprintf("tls_advertise_hosts = *\ntls_certificate = %s\ntls_privatekey = %s\n", certificate, key))
	}
	f := newFieldWith(t, "", fmt.Sprintf(`
domain "*.example" {
  tls             = "verified"
  tls_ca          = "%s"
  tls_certificate = "%s"
  tls_key         = "%s"
}`, caFile, ours, ourKey), strict, eximTLS)
	for _, s := range f.servers {
		content := letter{name: s.name, body: "x\r\n"}.content("tls-" + s.name)
		f.python(t, "sender@client.example", []string{"user@" + s.domain}, content)
		if err := arrived(content, s.wait(t, "tls-"+s.name, patience)); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
	}
	f.relay.drained(t, patience)
	for _, record := range deliveries(t, f.relay.dir) {
		if !strings.Contains(record, `"tls_verified_by":"PKIX"`) || !strings.Contains(record, `"tls_certificate":"mx.`) {
			t.Errorf("a record has %s", record)
		}
	}
}

// TestACertificateOfAStrangerDefersVerifiedMail is a receiver with another authority's certificate: verified mail
// waits, and other mail goes.
func TestACertificateOfAStrangerDefersVerifiedMail(t *testing.T) {
	parallel(t)
	stranger := func(t *testing.T, addr, port string) *server {
		certificate, key := certificateFor(t, testca.New(t), "mx.postfix.example", "root")
		s, _ := postfixWith(t, addr, port, fmt.Sprintf("smtpd_tls_security_level = may\nsmtpd_tls_cert_file = %s\nsmtpd_tls_key_file = %s\n", certificate, key))
		return s
	}
	f := newFieldWith(t, "easy MX 10 mx.postfix\n", fmt.Sprintf(`
domain "postfix.example" {
  tls    = "verified"
  tls_ca = "%s"
}`, testca.New(t).File(t)), stranger)
	mail := func(id, domain string) string {
		content := letter{name: id, body: "x\r\n"}.content(id)
		f.python(t, "sender@client.example", []string{id + "@" + domain}, content)
		return content
	}
	mail("waits", "postfix.example")
	eventually(t, patience, func() error {
		text, err := f.relay.reply("waits@postfix.example")
		if err == nil && !strings.Contains(text, "certificate") {
			err = fmt.Errorf("the last reply is %q", text)
		}
		return err
	})
	content := mail("goes", "easy.example")
	if err := arrived(content, f.servers[0].wait(t, "goes", patience)); err != nil {
		t.Error(err)
	}
	if n := len(f.servers[0].messages(t)); n != 1 {
		t.Errorf("the receiver has %d messages, want 1", n)
	}
}

// certificateFor makes one in files of which the key is a user's alone.
func certificateFor(t *testing.T, ca *testca.Authority, name, owner string) (certificate, key string) {
	t.Helper()
	dir := scratch(t)
	certificate, key = dir+"/cert.pem", dir+"/key.pem"
	issued, secret := testca.Files(t, ca.Issue(t, []string{name}))
	for from, to := range map[string]string{issued: certificate, secret: key} {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, to, string(b))
	}
	if err := os.Chmod(key, 0o600); err != nil {
		t.Fatal(err)
	}
	uid, gid := idsOf(t, owner)
	chown(t, key, uid, gid)
	return certificate, key
}

// deliveries gives the accounting records of deliveries.
func deliveries(t *testing.T, dir string) (all []string) {
	t.Helper()
	for _, line := range logLines(t, dir+"/data/log") {
		if strings.Contains(line, `"type":"Delivery"`) {
			all = append(all, line)
		}
	}
	if len(all) == 0 {
		t.Error("there is no record of a delivery")
	}
	return all
}
