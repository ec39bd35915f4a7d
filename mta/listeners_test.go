package mta

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mta/internal/sink"
)

// certificateFiles writes a new certificate and its key to files, and gives who trusts it.
func certificateFiles(t *testing.T, name string) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	cfg, pool, err := sink.SelfSigned(name)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(cfg.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	write := func(kind string, content []byte) string {
		path := filepath.Join(t.TempDir(), "file.pem")
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("CERTIFICATE", cfg.Certificates[0].Certificate[0]), write("PRIVATE KEY", secret), pool
}

func TestListenerWithTLSFromTheStart(t *testing.T) {
	cert, key, pool := certificateFiles(t, "relay.example")
	w := newWorld(t, sink.Config{}, `listener "smtps" {
		address = "127.0.0.1:0"
		tls {
			certificate = "`+cert+`"
			key         = "`+key+`"
			implicit    = true
		}
	}`)
	c, err := tls.Dial("tcp", w.listeners.addresses()[1], &tls.Config{RootCAs: pool, ServerName: "relay.example"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := converse(t, c, "EHLO client.example\r\nQUIT\r\n"); !strings.HasPrefix(got, "220 ") || strings.Contains(got, "STARTTLS") {
		t.Errorf("over TLS the relay says\n%s", got)
	}
}

func TestGreetDelay(t *testing.T) {
	w := newWorld(t, sink.Config{}, `listener "public" {
		address     = "127.0.0.1:0"
		greet_delay = "1m"
	}`)
	c, err := net.Dial("tcp", w.listeners.addresses()[1])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := converse(t, c, "EHLO client.example\r\n"); !strings.HasPrefix(got, "554 5.5.1 ") {
		t.Errorf("who talks before the greeting hears\n%s", got)
	}
}

// converse says something and gives all that the relay answers before it closes.
func converse(t *testing.T, c net.Conn, say string) string {
	t.Helper()
	c.SetDeadline(time.Now().Add(limit))
	if _, err := c.Write([]byte(say)); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for in := bufio.NewReader(c); ; {
		line, err := in.ReadString('\n')
		all.WriteString(line)
		if err != nil {
			return all.String()
		}
	}
}
