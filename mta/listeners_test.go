package mta

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/smtp"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/lab/sink"
	"example.org/mta/mta/listen"
	"example.org/mta/operator/api"
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
	c, err := tls.Dial("tcp", w.listeners.Addresses(listen.SMTP)[1], &tls.Config{RootCAs: pool, ServerName: "relay.example"})
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
	c, err := net.Dial("tcp", w.listeners.Addresses(listen.SMTP)[1])
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

// portsGiven counts the ports that freePort has returned.
var portsGiven atomic.Int64

// freePort returns a port of 127.0.0.1 that nobody listens on, another one at each call. It lies below those that the
// kernel gives to clients and to listeners at port 0, one of which could take it before the relay does.
func freePort(t *testing.T) string {
	t.Helper()
	const first, last = 10000, 32000
	for range last - first {
		port := strconv.Itoa(first + (os.Getpid()*100+int(portsGiven.Add(1)))%(last-first))
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return ""
}

// Listeners and addresses come, move and go by a reload. Sessions with those that go end well: an
// open transaction may end, an idle client hears 421.
func TestListenersComeAndGoByReload(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	a, b, c := freePort(t), freePort(t), freePort(t)
	listen := func(blocks ...string) string {
		return strings.Join(blocks, "\n") + "\ndefaults { smtp_port = " + w.port + " }"
	}
	block := func(name, more string, addresses ...string) string {
		return fmt.Sprintf("listener %q {\n address = [\"%s\"]\n %s\n}", name, strings.Join(addresses, `", "`), more)
	}
	reload := func(name, text string) error {
		w.rewrite(name, text)
		_, err := w.Reload(context.Background())
		return err
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(reload("two", listen(block("one", "", "127.0.0.1:"+a), block("two", "", "127.0.0.1:"+b))))
	dial := func(port string) *smtp.Client {
		t.Helper()
		s, err := smtp.Dial("127.0.0.1:" + port)
		must(err)
		t.Cleanup(func() { s.Close() })
		must(s.Hello("client.example"))
		return s
	}
	send := func(s *smtp.Client, to string) {
		t.Helper()
		d, err := s.Data()
		must(err)
		fmt.Fprint(d, letter)
		must(d.Close())
	}
	idle, open, stays := dial(b), dial(b), dial(a)
	must(errors.Join(open.Mail("ann@client.example"), open.Rcpt("bob@box.example")))

	// Two goes, its address is three's; one gets a further address; nobody on one notices.
	must(reload("three", listen(block("one", "", "127.0.0.1:"+a, "127.0.0.1:"+c), block("three", "max_recipients = 100", "127.0.0.1:"+b))))
	must(errors.Join(stays.Mail("ann@client.example"), stays.Reset()))
	sessions := func() (under []api.Connection) {
		l, err := w.api.OpenConnections.Connections(t.Context(), api.ConnectionFilter{Listener: "two", Paging: api.Paging{Limit: 10}})
		must(err)
		return l.Connections
	}
	w.until("the idle session with the listener that is gone has ended", func() bool { return len(sessions()) == 1 })
	content, err := open.Data()
	must(err)
	closing := api.CloseConnections{IDs: []string{sessions()[0].ID}}
	if done, err := w.api.OpenConnections.CloseConnections(t.Context(), closing); err != nil || done.Connections != 1 {
		t.Errorf("closing the other one: %+v, %v", done, err)
	}
	fmt.Fprint(content, letter)
	must(content.Close())
	w.until("all sessions with it have ended", func() bool {
		return len(sessions()) == 0 && len(w.listeners.WithSessions()) == len(w.inForce().Listeners)
	})
	w.arrived(1)
	if err := idle.Noop(); err == nil || !strings.Contains(err.Error(), "421") {
		t.Errorf("an idle client of the listener that is gone: %v", err)
	}
	for i, port := range []string{a, b, c} {
		s := dial(port)
		must(errors.Join(s.Mail("ann@client.example"), s.Rcpt("bob@box.example")))
		send(s, "bob@box.example")
		w.arrived(int64(2 + i))
	}
	if got := strings.Join(w.Status().SMTP, " "); got != fmt.Sprintf("127.0.0.1:%s 127.0.0.1:%s 127.0.0.1:%s", a, c, b) {
		t.Errorf("status has %s", got)
	}

	// An address that can't be had: nothing changes.
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	defer taken.Close()
	if err := reload("bad", listen(block("one", "", taken.Addr().String()))); err == nil {
		t.Error("an address that is taken was had")
	}
	must(dial(c).Noop())

	// All addresses of a port in place of one, and back.
	must(reload("wide", listen(block("one", "", ":"+a))))
	must(dial(a).Noop())
	if _, err := net.Dial("tcp", "127.0.0.1:"+c); err == nil {
		t.Error("an address that is gone still takes connections")
	}
	if err := reload("both", listen(block("one", "", "127.0.0.1:"+a, taken.Addr().String()))); err == nil {
		t.Error("an address that is taken was had")
	}
	must(dial(a).Noop()) // what had to make room is back
	must(reload("narrow", listen(block("one", "", "127.0.0.1:"+a))))
	must(dial(a).Noop())

	// A listener that went can come again as it was.
	must(reload("again", listen(block("one", "", "127.0.0.1:"+a), block("two", "", "127.0.0.1:"+b))))
	must(dial(b).Noop())
}
