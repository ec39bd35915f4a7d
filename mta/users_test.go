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
	"net/netip"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/mta/lab/sink"
	"example.org/mta/mta/listen"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/api"
	"example.org/mta/submission/auth"
	"example.org/mta/submission/shared"
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

// TestUsersOfACluster: those that other nodes have told of log in, at the console too, whose file is the same; commands
// change them without a restart; and what was removed is not valid, whatever the file has. TestAClusterKnows in e2e has
// them come from another node.
func TestUsersOfACluster(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(path, []byte(userLine(t, "ann", "tenant=acme role=viewer")), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, sink.Config{}, `users { file = "`+path+`" }
		tenant "acme" { }
		console {
			address = "127.0.0.1:`+freePort(t)+`"
			users   = "`+path+`"
		}
		listener "submission" {
			address    = "127.0.0.1:`+freePort(t)+`"
			relay_from = []
			auth {
				mechanisms        = ["PLAIN"]
				clear_on_loopback = true
			}
		}`)
	sc := shared.Config{Path: w.cfg.Cluster.SharedPath("user"), Now: time.Now, Note: func([]string) (func(), error) {
		return func() {}, nil
	}}
	shared, err := shared.Open(sc, auth.UserEntries)
	if err != nil {
		t.Fatal(err)
	}
	hash := func(password string) string {
		h, err := auth.NewHash(auth.Argon2id, password)
		if err != nil {
			t.Fatal(err)
		}
		return h.String()
	}
	secret, err := auth.ParseHash(hash("secret"))
	if err != nil {
		t.Fatal(err)
	}
	told := auth.File{Path: filepath.Join(t.TempDir(), "none"), Users: shared}
	if err := told.ChangeUsers("add", []string{"eve", "gone"}, auth.User{Tenant: "acme", Role: "admin", Hash: secret}); err != nil {
		t.Fatal(err)
	}
	w.restart(Options{})
	login := func(user, password string, want int) {
		t.Helper()
		all := w.listeners.Addresses(listen.SMTP)
		c, err := net.Dial("tcp", all[len(all)-1])
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		plain := base64.StdEncoding.EncodeToString([]byte("\x00" + user + "\x00" + password))
		if got := dialogue(t, c, "EHLO app.example", "AUTH PLAIN "+plain); got[1] != want {
			t.Errorf("%s with %q: %d, want %d", user, password, got[1], want)
		}
	}
	console := func(user, password string, in bool) {
		t.Helper()
		id, err := (wiring.ConsoleLogins{Users: w.console.logins.Load, Now: w.now}).Login(t.Context(),
			netip.MustParseAddr("192.0.2.1"), user, password)
		if (err == nil) != in {
			t.Errorf("%s at the console: %+v, %v; want %v", user, id, err, in)
		}
	}
	client := api.NewClient(w.cfg.Control.Socket)
	defer client.Close()
	change := func(op api.Op[api.UserChange, api.Effect], o api.UserChange) {
		t.Helper()
		if done, err := op.Call(t.Context(), client, o); err != nil || done.Count != 1 {
			t.Errorf("%+v: %+v, %v", o, done, err)
		}
	}
	login("ann", "secret", 235)
	login("eve", "secret", 235)
	login("gone", "secret", 235)
	console("eve", "secret", true)
	other := hash("other")
	change(api.OpChangeUsers, api.UserChange{Action: "password", Names: []string{"eve"}, Hash: other})
	change(api.OpChangeConsoleUsers, api.UserChange{Action: "remove", Names: []string{"gone"}})
	change(api.OpChangeUsers, api.UserChange{Action: "remove", Names: []string{"ann"}})
	login("eve", "other", 235)
	login("eve", "secret", 535)
	login("gone", "secret", 535)
	login("ann", "secret", 535)
	console("eve", "other", true)
	console("ann", "secret", false)
	if text, err := os.ReadFile(path); err != nil || len(text) > 0 {
		t.Errorf("the file has %s, %v", text, err)
	}
	line := userLine(t, "ann", "tenant=acme")
	if err := os.WriteFile(path, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	login("ann", "secret", 535)
	change(api.OpChangeUsers, api.UserChange{Action: "add", Names: []string{"ann"}, Hash: hash("new"), Role: "viewer"})
	login("ann", "new", 235)
	console("ann", "new", true)
	record, err := api.OpActions.Call(t.Context(), client, api.ActionQuery{Action: "user password", Limit: 10})
	if err != nil || len(record.Actions) != 1 || record.Actions[0].Subject != "names=eve" {
		t.Errorf("on record are %+v, %v", record.Actions, err)
	}
	if strings.Contains(w.book.String(), other[40:]) {
		t.Errorf("a hash is in the log:\n%s", w.book.String())
	}
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
