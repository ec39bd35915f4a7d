package mta

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/mta/lab/sink"
	"example.org/mta/mta/listen"
	"example.org/mta/submission/auth"
)

// userLine makes a line of a users file with the password "secret".
func userLine(t *testing.T, name, attributes string) string {
	t.Helper()
	hash, err := auth.NewHash(auth.Argon2id, "secret")
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s:%s:%s\n", name, hash, attributes)
}

// dialogue sends commands one by one and gives the code of each reply.
func dialogue(t *testing.T, c net.Conn, commands ...string) (codes []int) {
	t.Helper()
	text := textproto.NewConn(struct {
		io.Reader
		io.WriteCloser
	}{bufio.NewReader(c), c})
	if _, _, err := text.ReadResponse(220); err != nil {
		t.Fatal(err)
	}
	for _, command := range commands {
		if err := text.PrintfLine("%s", command); err != nil {
			t.Fatal(err)
		}
		code, _, err := text.ReadResponse(0)
		if err != nil && code == 0 {
			t.Fatal(err)
		}
		codes = append(codes, code)
	}
	return codes
}

// Users of the file relay as their tenants', by password or certificate; a reload takes that away.
func TestUsersRelay(t *testing.T) {
	cert, key, _ := certificateFiles(t, "relay.example")
	clientCert, clientKey, _ := certificateFiles(t, "app.example")
	client, err := tls.LoadX509KeyPair(clientCert, clientKey)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "users")
	text := userLine(t, "ann", "tenant=acme") + fmt.Sprintf("app::tenant=acme certificate=sha256:%x\n", sha256.Sum256(client.Certificate[0]))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	settings := `
		users { file = "` + path + `" }
		tenant "acme" { senders = ["acme.example"] }
		listener "submission" {
			address    = "127.0.0.1:` + freePort(t) + `"
			relay_from = []
			tls {
				certificate = "` + cert + `"
				key         = "` + key + `"
				implicit    = true
				client_certificates = true
			}
			auth { mechanisms = ["PLAIN"] }
		}`
	w := newWorld(t, sink.Config{}, settings)
	connect := func(cfg *tls.Config) net.Conn {
		cfg.InsecureSkipVerify = true
		all := w.listeners.Addresses(listen.SMTP)
		c, err := tls.Dial("tcp", all[len(all)-1], cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	const ehlo, ours, others, to = "EHLO app.example", "MAIL FROM:<a@acme.example>", "MAIL FROM:<a@other.example>", "RCPT TO:<x@box.example>"
	login := "AUTH PLAIN " + base64.StdEncoding.EncodeToString([]byte("\x00ann\x00secret"))
	for name, c := range map[string]struct {
		conn     net.Conn
		commands []string
		want     []int
	}{
		"password":    {connect(&tls.Config{}), []string{ehlo, login, others, ours, to, "QUIT"}, []int{250, 235, 550, 250, 250, 221}},
		"certificate": {connect(&tls.Config{Certificates: []tls.Certificate{client}}), []string{ehlo, others, ours, to, "QUIT"}, []int{250, 550, 250, 250, 221}},
		"stranger":    {connect(&tls.Config{}), []string{ehlo, ours, to, "QUIT"}, []int{250, 250, 530, 221}},
	} {
		if got := dialogue(t, c.conn, c.commands...); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if info, err := os.Stat(filepath.Join(w.cfg.DataDir, "login-secret")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the secret of the logins: %v, %v", info, err)
	}
	w.rewrite("users", strings.Replace(strings.Replace(settings, `auth { mechanisms = ["PLAIN"] }`, "", 1), "client_certificates = true", "", 1))
	if _, err := w.Reload(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := dialogue(t, connect(&tls.Config{Certificates: []tls.Certificate{client}}), ehlo, login, ours, to, "QUIT"); fmt.Sprint(got) != "[250 502 250 550 221]" {
		t.Errorf("after a reload without logins: %v", got)
	}
	if page := w.scrape(); !strings.Contains(page, "mta_logins_total 2") {
		t.Errorf("the metrics have not two logins:\n%s", page)
	}
}
