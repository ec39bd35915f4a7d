package e2e

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// authority is Pebble, Let's Encrypt's test server.
type authority struct {
	*process
	directory string   // its URL
	questions string   // the port at 127.0.0.1 where it asks who has a name
	trusted   []string // has a relay trust it, in its environment
}

// newAuthority starts one that asks the name server at dns, and has names proved by one challenge: "tls" or "http".
func newAuthority(t *testing.T, dns, challenge string) *authority {
	pebble, openssl := need(t, "pebble")[0], need(t, "openssl")[0]
	dir := scratch(t)
	cert, key := dir+"/cert.pem", dir+"/key.pem"
	runClient(t, "", openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
		"-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert)
	api, manage := commonPort(t, "127.0.0.1"), commonPort(t, "127.0.0.1")
	a := &authority{directory: "https://127.0.0.1:" + api + "/dir", questions: commonPort(t, "127.0.0.1"),
		trusted: []string{"SSL_CERT_FILE=" + cert}}
	other := commonPort(t, "127.0.0.1") // where nobody answers
	ports := map[string]string{"http": other, "tls": other}
	ports[challenge] = a.questions
	writeFile(t, dir+"/pebble.json", fmt.Sprintf(`{"pebble": {"listenAddress": "127.0.0.1:%s", "managementListenAddress": "127.0.0.1:%s", "certificate": %q, "privateKey": %q,
		"httpPort": %s, "tlsPort": %s, "retryAfter": {"authz": 1, "order": 1}, "profiles": {"default": {"description": "any", "validityPeriod": 7776000}}}}`,
		api, manage, cert, key, ports["http"], ports["tls"]))
	a.process = start(t, "pebble", "env", "PEBBLE_VA_NOSLEEP=1", pebble, "-config", dir+"/pebble.json", "-dnsserver", dns)
	eventually(t, patience, func() error {
		c, err := net.Dial("tcp", "127.0.0.1:"+api)
		if err == nil {
			c.Close()
		}
		return err
	})
	return a
}

// serves waits until a relay has a certificate from an authority for a name, and returns its serial number.
func serves(t *testing.T, address, name string) (serial string) {
	t.Helper()
	eventually(t, patience, func() error {
		c, err := tls.DialWithDialer(&net.Dialer{Timeout: time.Second}, "tcp", address,
			&tls.Config{ServerName: name, InsecureSkipVerify: true})
		if err != nil {
			return err
		}
		defer c.Close()
		leaf := c.ConnectionState().PeerCertificates[0]
		if len(leaf.DNSNames) != 1 || leaf.DNSNames[0] != name || leaf.Issuer.CommonName == leaf.Subject.CommonName {
			return fmt.Errorf("the certificate is for %v, from %s", leaf.DNSNames, leaf.Issuer)
		}
		serial = leaf.SerialNumber.String()
		return nil
	})
	return serial
}

// byACME is configuration of a relay that gets certificates of an authority for its names, and serves them at TLS.
const byACME = `
acme {
  names        = [NAMES]
  directory    = "DIRECTORY"
  http_address = "HTTP"
}
listener "smtps" {
  address = "TLS"
  tls {
    acme     = true
    implicit = true
  }
}
`

// TestACertificateByACME is proved by TLS.
func TestACertificateByACME(t *testing.T) {
	parallel(t)
	upstream, _ := nsd(t, "mta1 A 127.0.0.1\n")
	a, smtps := newAuthority(t, upstream, "tls"), freeAddress(t)
	r := newRelay(t, upstream, "25", strings.NewReplacer("NAMES", `"mta1.example"`, "DIRECTORY", a.directory, "TLS", smtps,
		"http_address", "tls_address", "HTTP", "127.0.0.1:"+a.questions).Replace(byACME))
	r.env = a.trusted
	r.start(t)
	serves(t, smtps, "mta1.example")
	if info, err := os.Stat(r.dir + "/data/acme"); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder of the keys: %v", errors.Join(err, fmt.Errorf("%v", info)))
	}
}

// TestAClusterOrdersACertificate once, by HTTP: the node that orders waits until the one runs that the authority asks. A
// node that joins later gets it from them, and has it over a restart without the database.
func TestAClusterOrdersACertificate(t *testing.T) {
	parallel(t)
	primary, standby := newPair(t)
	primary.schema(t)
	upstream, _ := nsd(t, "mta A 127.0.0.1\n")
	a := newAuthority(t, upstream, "http")
	relays := newMembers(t, []*database{primary, standby}, upstream, "25", strings.NewReplacer("NAMES", `"mta.example"`,
		"DIRECTORY", a.directory, "TLS", "WEB", "HTTP", "INBOUND").Replace(byACME), 3, a.trusted...)
	orders, asked, late := relays[0], relays[1], relays[2]
	writeFile(t, asked.config, strings.Replace(readFile(t, asked.config), asked.inbound, "127.0.0.1:"+a.questions, 1))
	orders.start(t)
	eventually(t, patience, func() error {
		if text := readFile(t, a.log); !strings.Contains(text, " set INVALID by ") {
			return errors.New("no order has failed")
		}
		return nil
	})
	asked.start(t)
	serial := serves(t, orders.web, "mta.example")
	late.start(t)
	late.same(t, asked.same(t, serial))
	if n := strings.Count(readFile(t, a.log), "Issued certificate"); n != 1 {
		t.Errorf("%d certificates are issued", n)
	}
	primary.end()
	a.kill()
	late.kill()
	late.start(t)
	late.same(t, serial)
}

// same fails the test when a relay serves another certificate than that of a serial number, which it returns.
func (r *relay) same(t *testing.T, serial string) string {
	t.Helper()
	if got := serves(t, r.web, "mta.example"); got != serial {
		t.Errorf("a relay serves the certificate %s, another one %s", got, serial)
	}
	return serial
}
