package mta

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"example.org/mta/internal/testca"
)

// attack is what a man in the middle does to SMTP.
type attack string

const (
	passes       attack = ""                    // nothing
	stripsEHLO   attack = "STARTTLS stripped"   // takes STARTTLS out of the reply to EHLO
	refuses      attack = "STARTTLS refused"    // answers STARTTLS himself
	breaks       attack = "handshake broken"    // sends what is no TLS
	swaps        attack = "certificate swapped" // shows a certificate of his, and reads along
	closes       attack = "connection closed"   // after STARTTLS
	answersEarly attack = "injected reply"      // sends a reply in clear text behind the one to STARTTLS
)

// middleman is a man in the middle between the relay and an SMTP server on loopback.
type middleman struct {
	net.Listener
	cert *tls.Certificate

	mu     sync.Mutex // guards the rest
	server string     // address
	does   attack
	heard  strings.Builder // what came to him readable
}

func newMiddleman(t *testing.T) *middleman {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &middleman{Listener: l, cert: testca.New(t).Issue(t, []string{"mx.box.example"})}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { m.serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		running.Wait()
	})
	return m
}

func (m *middleman) port() string {
	_, port, _ := net.SplitHostPort(m.Addr().String())
	return port
}

// stand puts him in front of a server.
func (m *middleman) stand(server string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.server = server
}

// begin begins an attack, or ends it.
func (m *middleman) begin(a attack) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.does = a
	m.heard.Reset()
}

// readable is what he could read since begin.
func (m *middleman) readable() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.heard.String()
}

func (m *middleman) note(line string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heard.WriteString(line)
}

func (m *middleman) serve(client net.Conn) {
	defer client.Close()
	m.mu.Lock()
	address, does := m.server, m.does
	m.mu.Unlock()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	if does == passes {
		both(client, client, server, server)
		return
	}
	replies := bufio.NewReader(server)
	if line, err := replies.ReadString('\n'); err != nil || !send(client, line) {
		return
	}
	commands := bufio.NewReader(client)
	for {
		line, err := commands.ReadString('\n')
		if err != nil {
			return
		}
		m.note(line)
		if strings.HasPrefix(line, "STARTTLS") && does != stripsEHLO {
			if m.startTLS(does, client, server, replies) {
				continue
			}
			return
		}
		if !send(server, line) {
			return
		}
		if strings.HasPrefix(line, "MAIL") { // commands and content follow without waiting for replies
			both(client, io.TeeReader(commands, noting{m}), server, replies)
			return
		}
		if !m.answer(does, client, replies) {
			return
		}
	}
}

// answer passes a reply on.
func (m *middleman) answer(does attack, client net.Conn, replies *bufio.Reader) bool {
	for {
		line, err := replies.ReadString('\n')
		if err != nil {
			return false
		}
		if does == stripsEHLO {
			line = strings.Replace(line, "STARTTLS", "XXXXXXXA", 1)
		}
		if !send(client, line) {
			return false
		}
		if len(line) < 4 || line[3] != '-' {
			return true
		}
	}
}

// startTLS answers STARTTLS. It reports whether the session goes on in clear text.
func (m *middleman) startTLS(does attack, client, server net.Conn, replies *bufio.Reader) bool {
	switch does {
	case refuses:
		return send(client, "454 4.7.0 TLS not available\r\n")
	case breaks:
		send(client, "220 2.0.0 go ahead\r\n250 this is not TLS at all, and long enough to be seen as such\r\n")
	case closes:
		send(client, "220 2.0.0 go ahead\r\n")
	case answersEarly:
		send(client, "220 2.0.0 go ahead\r\n250-mx.box.example\r\n250 8BITMIME\r\n")
		fallthrough
	case swaps:
		if does == swaps {
			send(client, "220 2.0.0 go ahead\r\n")
		}
		secured := tls.Server(client, &tls.Config{Certificates: []tls.Certificate{*m.cert}})
		if secured.Handshake() == nil {
			both(secured, io.TeeReader(secured, noting{m}), server, replies)
		}
	}
	return false
}

type noting struct{ m *middleman }

func (n noting) Write(p []byte) (int, error) {
	n.m.note(string(p))
	return len(p), nil
}

func send(to io.Writer, text string) bool {
	_, err := io.WriteString(to, text)
	return err == nil
}

// both copies in both directions until one ends.
func both(client net.Conn, fromClient io.Reader, server net.Conn, fromServer io.Reader) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(client, fromServer)
		client.Close()
	}()
	_, _ = io.Copy(server, fromClient)
	server.Close()
	<-done
}
