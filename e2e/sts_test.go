package e2e

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"example.org/mta/internal/testca"
)

// webAt serves what is given by host name over HTTPS, on port 443 of a loopback address, as MTA-STS has it.
func webAt(t *testing.T, addr string, cert *tls.Certificate, text func(host string) string) {
	t.Helper()
	l, err := net.Listen("tcp", addr+":443")
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Server{
		ErrorLog:  log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{*cert}},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			_, _ = io.WriteString(w, text(r.Host))
		}),
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = web.ServeTLS(l, "", "")
	}()
	t.Cleanup(func() {
		web.Close()
		<-ended
	})
}

// TestMTASTSWithPostfix sends to a Postfix with a certificate: a domain whose policy names it gets its mail over
// verified TLS; one whose policy names another host gets nothing, until the policy is mended and looked up.
func TestMTASTSWithPostfix(t *testing.T) {
	needRoot(t) // for port 443
	ca := testca.New(t)
	t.Setenv("SSL_CERT_FILE", ca.File(t)) // the relay inherits it
	secured := func(t *testing.T, addr, port string) *server {
		certificate, key := testca.Files(t, ca.Issue(t, []string{"mx.postfix.example"}))
		s, _ := postfixWith(t, addr, port, fmt.Sprintf("smtpd_tls_security_level = may\nsmtpd_tls_cert_file = %s\nsmtpd_tls_key_file = %s\n", certificate, key))
		return s
	}
	const addr = "127.0.0.93"
	var mended atomic.Bool
	webAt(t, addr, ca.Issue(t, []string{"mta-sts.good.example", "mta-sts.bad.example"}), func(host string) string {
		mx := "mx.postfix.example"
		if host == "mta-sts.bad.example" && !mended.Load() {
			mx = "mx.elsewhere.example"
		}
		return "version: STSv1\r\nmode: enforce\r\nmx: " + mx + "\r\nmax_age: 86400\r\n"
	})
	f := newFieldWith(t, fmt.Sprintf(`good MX 10 mx.postfix
bad MX 10 mx.postfix
_mta-sts.good TXT "v=STSv1; id=1"
_mta-sts.bad TXT "v=STSv1; " "id=1;"
mta-sts.good A %[1]s
mta-sts.bad A %[1]s
`, addr), `domain "bad.example" { host_retry_interval = "1s" }`, secured)
	post := func(id, domain string) string {
		content := letter{name: id, body: "x\r\n"}.content(id)
		f.python(t, "sender@client.example", []string{id + "@" + domain}, content)
		return content
	}
	content := post("named", "good.example")
	if err := arrived(content, f.servers[0].wait(t, "named", patience)); err != nil {
		t.Error(err)
	}
	content = post("unnamed", "bad.example")
	eventually(t, patience, func() error {
		text, err := f.relay.reply("unnamed@bad.example")
		if err == nil && !strings.Contains(text, "the MTA-STS policy of bad.example does not name the host") {
			err = fmt.Errorf("the last reply is %q", text)
		}
		return err
	})
	if n := len(f.servers[0].messages(t)); n != 1 {
		t.Errorf("Postfix has %d messages, want 1", n)
	}
	mended.Store(true)
	if shown := f.relay.as(t, "mta", "", "tls", "policy", "bad.example"); !strings.Contains(shown, "mx.postfix.example") {
		t.Errorf("the policy is\n%s", shown)
	}
	if err := arrived(content, f.servers[0].wait(t, "unnamed", patience)); err != nil {
		t.Error(err)
	}
	if shown := f.relay.as(t, "mta", "", "explain", "good.example"); !strings.Contains(shown, "verified by STS") {
		t.Errorf("mta explain good.example:\n%s", shown)
	}
}
