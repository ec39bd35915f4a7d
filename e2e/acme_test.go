package e2e

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"
)

// TestCertificatesByACME has Pebble, Let's Encrypt's test server, give the relay a certificate, by each of
// the two ways to prove that the name is ours.
func TestCertificatesByACME(t *testing.T) {
	for _, challenge := range []string{"tls", "http"} {
		t.Run(challenge, func(t *testing.T) { certificateByACME(t, challenge) })
	}
}

func certificateByACME(t *testing.T, challenge string) {
	pebble, openssl := need(t, "pebble")[0], need(t, "openssl")[0]
	dir := scratch(t)
	cert, key := dir+"/cert.pem", dir+"/key.pem"
	runClient(t, "", openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
		"-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert)
	t.Setenv("SSL_CERT_FILE", cert)
	t.Setenv("PEBBLE_VA_NOSLEEP", "1")
	api, manage := commonPort(t, "127.0.0.1"), commonPort(t, "127.0.0.1")
	questions, smtps := commonPort(t, "127.0.0.1"), commonPort(t, "127.0.0.1")
	other := commonPort(t, "127.0.0.1") // where nobody answers
	ports := map[string]string{"http": other, "tls": other}
	ports[challenge] = questions
	writeFile(t, dir+"/pebble.json", fmt.Sprintf(`{"pebble": {"listenAddress": "127.0.0.1:%s", "managementListenAddress": "127.0.0.1:%s", "certificate": %q, "privateKey": %q,
		"httpPort": %s, "tlsPort": %s, "retryAfter": {"authz": 1, "order": 1}, "profiles": {"default": {"description": "any", "validityPeriod": 7776000}}}}`,
		api, manage, cert, key, ports["http"], ports["tls"]))
	upstream, _ := nsd(t, "mta1 A 127.0.0.1\n")
	start(t, "pebble", pebble, "-config", dir+"/pebble.json", "-dnsserver", upstream)
	eventually(t, patience, func() error {
		c, err := net.Dial("tcp", "127.0.0.1:"+api)
		if err == nil {
			c.Close()
		}
		return err
	})
	r := newRelay(t, upstream, "25", fmt.Sprintf(`
acme {
  names        = ["mta1.example"]
  directory    = "https://127.0.0.1:%s/dir"
  %s_address = "127.0.0.1:%s"
}
listener "smtps" {
  address = "127.0.0.1:%s"
  tls {
    acme     = true
    implicit = true
  }
}`, api, challenge, questions, smtps))
	r.start(t)
	var names []string
	eventually(t, patience, func() error {
		c, err := tls.DialWithDialer(&net.Dialer{Timeout: time.Second}, "tcp", "127.0.0.1:"+smtps, &tls.Config{ServerName: "mta1.example", InsecureSkipVerify: true})
		if err != nil {
			return err
		}
		defer c.Close()
		leaf := c.ConnectionState().PeerCertificates[0]
		if names = leaf.DNSNames; len(names) != 1 || names[0] != "mta1.example" || leaf.Issuer.CommonName == leaf.Subject.CommonName {
			return fmt.Errorf("the certificate is for %v, from %s", names, leaf.Issuer)
		}
		return nil
	})
	if info, err := os.Stat(r.dir + "/data/acme"); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder of the keys: %v", errors.Join(err, fmt.Errorf("%v", info)))
	}
}
