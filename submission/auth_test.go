package submission

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/xdg-go/scram"
	"golang.org/x/crypto/bcrypt"

	"example.org/mta/submission/auth"
	"example.org/mta/submission/intake"
)

// secretHashes gives two hashes of "secret": each takes longer than most tests.
var secretHashes = sync.OnceValues(func() (bcrypted, scrammed string) {
	b, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	if err != nil {
		panic(err)
	}
	scram, err := auth.NewHash(auth.SchemeSCRAM, "secret")
	if err != nil {
		panic(err)
	}
	return string(b), scram.String()
})

// usersFile has ann and bob of tenant acme, whose passwords are "secret", and carl, of nobody.
func usersFile(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "users")
	hash, scramHash := secretHashes()
	text := fmt.Sprintf("ann:%s:tenant=acme senders=acme.example\nbob:%s:tenant=acme\ncarl:%s\n", hash, scramHash, hash)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// authConfig is a listener's where nobody may relay by its address.
func authConfig(t testing.TB) Config {
	t.Helper()
	return Config{Intake: intake.Config{TenantOf: func(name string) (intake.Tenant, bool) {
		acme := auth.Senders{"acme.example", "news@b.example"}
		return intake.Tenant{Tier: 2, Senders: acme}, name == "acme"
	}}, RelayFrom: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}, Auth: auth.New(auth.Config{File: usersFile(t)}), TLS: testTLS(), Mechanisms: []string{auth.SCRAMPlus, auth.SCRAM, auth.Plain, auth.LoginName}}
}

// withAuth is withRelay for a listener with users.
func withAuth(t *testing.T, cfg Config, f func(t *testing.T, r *relay)) {
	t.Helper()
	withRelay(t, cfg, func(t *testing.T, r *relay) {
		defer cfg.Auth.Close() // its timer is of the bubble
		f(t, r)
	})
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// secured connects, puts TLS on, and says EHLO.
func (r *relay) secured(addr string) *peer {
	r.t.Helper()
	p := r.dial(addr)
	p.expect("220")
	p.cmd("EHLO app.example.org", "250")
	p = p.startTLS()
	p.cmd("EHLO app.example.org", "250")
	return p
}

// The replies of RFC 4954, step by step.
func TestAuthReplies(t *testing.T) {
	withAuth(t, authConfig(t), func(t *testing.T, r *relay) {
		p := r.dial("192.0.2.1")
		p.expect("220")
		p.cmd("AUTH PLAIN", "503 5.5.1 EHLO first")
		if got := p.cmd("EHLO app.example.org", "250"); strings.Contains(got, "AUTH") {
			t.Errorf("AUTH is offered in clear: %q", got)
		}
		p.cmd("AUTH PLAIN "+b64("\x00ann\x00secret"), "538 5.7.11")
		p = p.startTLS()
		p.cmd("AUTH PLAIN", "503 5.5.1 EHLO first") // the state is as before any EHLO
		p.cmd("HELO app.example.org", "250")
		p.cmd("AUTH PLAIN", "503 5.5.1 EHLO first")
		if got := p.cmd("EHLO app.example.org", "250"); !strings.Contains(got, "250-AUTH SCRAM-SHA-256-PLUS SCRAM-SHA-256 PLAIN LOGIN\r\n") {
			t.Errorf("EHLO: %q", got)
		}
		for _, step := range []struct{ send, want string }{
			{"AUTH", "501 5.5.4"},
			{"AUTH CRAM-MD5", "504 5.5.4"},
			{"AUTH EXTERNAL =", "504 5.5.4"},
			{"AUTH PLAIN *", "501 5.5.2"},
			{"AUTH PLAIN =AAA", "501 5.5.2"},
			{"AUTH PLAIN AAA=BBB", "501 5.5.2"},
			{"AUTH PLAIN AAA", "501 5.5.2"},
			{"AUTH PLAIN", "334 \r\n"},
			{"*", "501 5.7.0 login cancelled"},
			{"auth login", "334 VXNlcm5hbWU6\r\n"},
			{b64("ann"), "334 UGFzc3dvcmQ6\r\n"},
			{"*", "501 5.7.0"},
			{"MAIL FROM:<a@acme.example>", "250"},
			{"AUTH PLAIN", "503 5.5.1 no login within"},
			{"RCPT TO:<b@example.net>", "530 5.7.0"},
			{"RSET", "250"},
			{"AUTH PLAIN", "334 \r\n"},
			{strings.Repeat("A", 12288-2), "501 5.5.2"}, // not a malformed line, but a malformed response
			{"AUTH PLAIN", "334 \r\n"},
			{strings.Repeat("A", 12288-1), "500 5.5.6"},
			{"NOOP", "250"},
			{"AUTH PLAIN " + b64("\x00ann\x00secret"), "235 2.7.0 logged in\r\n"},
			{"AUTH PLAIN " + b64("\x00ann\x00secret"), "503 5.5.1 already"},
			{"EHLO app.example.org", "250"},
			{"MAIL FROM:<a@acme.example> AUTH=<>", "250"},
			{"RCPT TO:<b@example.net>", "250"},
			{"QUIT", "221"},
		} {
			p.cmd(step.send, step.want)
		}
	})
}

// A user who has logged in may relay as a tenant's, and as the senders that both have.
func TestUsersRelayWithinTheirSenders(t *testing.T) {
	withAuth(t, authConfig(t), func(t *testing.T, r *relay) {
		for user, senders := range map[string]map[string]string{
			"ann":  {"x@acme.example": "250", "news@b.example": "550 5.7.1", "x@c.example": "550 5.7.1 you may not send as x@c.example", "": "250"},
			"bob":  {"x@acme.example": "250", "news@b.example": "250", "other@b.example": "550 5.7.1", "x@sub.acme.example": "550 5.7.1"},
			"carl": {"x@c.example": "250"},
		} {
			p := r.secured("192.0.2.1")
			p.cmd("AUTH PLAIN "+b64("\x00"+user+"\x00secret"), "235")
			for sender, want := range senders {
				p.cmd("MAIL FROM:<"+sender+">", want)
				p.cmd("RSET", "250")
			}
		}
		p := r.secured("192.0.2.1")
		p.cmd("AUTH LOGIN "+b64("ann"), "334 UGFzc3dvcmQ6")
		p.cmd(b64("secret"), "235")
		p.cmd("MAIL FROM:<a@acme.example>", "250")
		p.cmd("RCPT TO:<b@example.net>", "250")
		p.cmd("DATA", "354")
		p.send("Subject: x\r\n\r\nhi\r\n.\r\n")
		p.expect("250")
		m := r.store.one(t)
		if m.User != "ann" || m.Tenant != "acme" || m.Tier != 2 || m.Protocol != "ESMTPSA" || !strings.Contains(m.content, " with ESMTPSA ") {
			t.Errorf("stored %+v\n%s", m.Message, m.content)
		}
		if strings.Contains(m.content, "ann") {
			t.Errorf("the message shows who has logged in:\n%s", m.content)
		}
	})
}

// Nobody relays who has not logged in or is not in relay_from, whatever else a listener offers.
func TestStrangersDoNotRelayWhereAuthIsOffered(t *testing.T) {
	for _, required := range []bool{false, true} {
		cfg := authConfig(t)
		cfg.AuthRequired = required
		withAuth(t, cfg, func(t *testing.T, r *relay) {
			p := r.secured("192.0.2.1")
			p.send("AUTH PLAIN " + b64("\x00ann\x00wrong") + "\r\n")
			time.Sleep(5 * time.Second)
			p.expect("535 5.7.8")
			if required {
				p.cmd("MAIL FROM:<a@acme.example>", "530 5.7.0")
			} else {
				p.cmd("MAIL FROM:<a@acme.example>", "250")
				p.cmd("RCPT TO:<b@example.net>", "530 5.7.0")
			}
			ours := r.dial("203.0.113.1") // in relay_from
			ours.expect("220")
			ours.cmd("EHLO app.example.org", "250")
			if required {
				ours.cmd("MAIL FROM:<a@acme.example>", "530 5.7.0")
			} else {
				ours.envelope()
			}
		})
	}
}

// STARTTLS forgets a login that was made in clear on this machine.
func TestStartTLSForgetsTheLogin(t *testing.T) {
	cfg := authConfig(t)
	cfg.ClearOnLoopback = true
	withAuth(t, cfg, func(t *testing.T, r *relay) {
		p := r.dial("127.0.0.1")
		p.expect("220")
		if got := p.cmd("EHLO app.example.org", "250"); !strings.Contains(got, "250-AUTH SCRAM-SHA-256 PLAIN LOGIN\r\n") {
			t.Errorf("EHLO: %q", got)
		}
		p.cmd("AUTH PLAIN "+b64("\x00carl\x00secret"), "235")
		p.envelope()
		p.cmd("RSET", "250")
		p = p.startTLS()
		p.cmd("EHLO app.example.org", "250")
		p.cmd("MAIL FROM:<a@acme.example>", "250")
		p.cmd("RCPT TO:<b@example.net>", "530")
		p.cmd("RSET", "250")
		p.cmd("AUTH PLAIN "+b64("\x00carl\x00secret"), "235")
		p.envelope()

		far := r.dial("192.0.2.1")
		far.expect("220")
		if got := far.cmd("EHLO app.example.org", "250"); strings.Contains(got, "AUTH") {
			t.Errorf("AUTH is offered in clear beyond this machine: %q", got)
		}
	})
}

// A user who was removed can't go on in an open session.
func TestRemovedUsersAreLoggedOut(t *testing.T) {
	cfg := authConfig(t)
	path := usersFile(t)
	cfg.Auth = auth.New(auth.Config{File: path})
	withAuth(t, cfg, func(t *testing.T, r *relay) {
		p := r.secured("192.0.2.1")
		p.cmd("AUTH PLAIN "+b64("\x00bob\x00secret"), "235")
		p.cmd("MAIL FROM:<a@acme.example>", "250")
		p.cmd("RSET", "250")
		time.Sleep(2 * time.Second) // bob's hash is made anew meanwhile: that ends no session
		p.cmd("MAIL FROM:<a@acme.example>", "250")
		p.cmd("RSET", "250")
		if err := auth.UpdateUsers(path, func(t *auth.UserTable) error { t.Remove("bob"); return nil }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		p.cmd("MAIL FROM:<a@acme.example>", "421 4.7.0 your login is no longer valid")
		p.mustBeClosed()
	})
}

// After three failures the connection ends; the wrong user and the wrong password get one reply.
func TestFailedLoginsEndTheConnection(t *testing.T) {
	withAuth(t, authConfig(t), func(t *testing.T, r *relay) {
		p := r.secured("192.0.2.1")
		var got []string
		for _, response := range []string{"\x00ann\x00wrong", "\x00nobody\x00secret", "ann\x00bob\x00secret"} {
			began := time.Now()
			p.send("AUTH PLAIN " + b64(response) + "\r\n")
			time.Sleep(999 * time.Millisecond)
			if early := p.got(); early != "" {
				t.Errorf("answered after %v: %q", time.Since(began), early)
			}
			time.Sleep(2 * time.Millisecond)
			first, _, _ := strings.Cut(p.got(), "\r\n")
			got = append(got, first)
		}
		want := "535 5.7.8 user name or password is wrong"
		if !slices.Equal(got, []string{want, want, want}) {
			t.Errorf("got %q", got)
		}
		p.mustBeClosed()
	})
}

// What is said in an exchange is shown to nobody.
func TestExchangesAreMasked(t *testing.T) {
	l := &listeningIn{on: true}
	cfg := authConfig(t)
	cfg.Watcher, cfg.ClearOnLoopback = l, true
	withAuth(t, cfg, func(t *testing.T, r *relay) {
		p := r.dial("127.0.0.1")
		p.expect("220")
		p.cmd("EHLO app.example.org", "250")
		p.cmd("AUTH LOGIN "+b64("ann"), "334")
		p.cmd(b64("secret"), "235")
		p.cmd("QUIT", "221")
		got := strings.Join(l.said, "\n")
		for _, secret := range []string{b64("ann"), b64("secret"), "UGFzc3dvcmQ6"} {
			if strings.Contains(got, secret) {
				t.Errorf("%s is shown in\n%s", secret, got)
			}
		}
		if !strings.Contains(got, "< AUTH LOGIN ***\n127.0.0.1 > 334 ***\n127.0.0.1 < ***\n127.0.0.1 > 235") {
			t.Errorf("shown\n%s", got)
		}
	})
}

// SCRAM over a socket, with and without channel binding, by xdg-go's client.
func TestScram(t *testing.T) {
	cfg := authConfig(t)
	cfg.Intake.Store, cfg.ImplicitTLS = new(memStore), true
	defer cfg.Auth.Close()
	_, addr := onLoopback(t, cfg)
	for _, c := range []struct {
		name, mechanism, password string
		bind                      func(*tls.ConnectionState) scram.ChannelBinding
		want                      string
	}{
		{"plain hash", auth.SCRAM, "secret", nil, "235"},
		{"wrong password", auth.SCRAM, "wrong", nil, "535"},
		{"channel binding", auth.SCRAMPlus, "secret", func(s *tls.ConnectionState) scram.ChannelBinding {
			b, _ := scram.NewTLSExporterBinding(s)
			return b
		}, "235"},
		{"another channel's binding", auth.SCRAMPlus, "secret", func(*tls.ConnectionState) scram.ChannelBinding {
			return scram.ChannelBinding{Type: scram.ChannelBindingTLSExporter, Data: make([]byte, 32)}
		}, "535"},
		{"no binding where it must be", auth.SCRAMPlus, "secret", nil, "535"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(time.Minute))
			client, err := scram.SHA256.NewClient("bob", c.password, "")
			if err != nil {
				t.Fatal(err)
			}
			conv := client.NewConversation()
			if c.bind != nil {
				state := conn.ConnectionState()
				conv = client.NewConversationWithChannelBinding(c.bind(&state))
			}
			if got := scramLogin(t, conn, c.mechanism, conv); !strings.HasPrefix(got, c.want) {
				t.Errorf("got %q, want %s", got, c.want)
			}
			if c.want == "235" && !conv.Valid() {
				t.Error("the server has not shown that it knows the password")
			}
		})
	}
}

// scramLogin goes through an exchange and gives the last reply.
func scramLogin(t *testing.T, conn net.Conn, mechanism string, conv *scram.ClientConversation) string {
	t.Helper()
	in := bufio.NewReader(conn)
	say := func(line string) string {
		fmt.Fprintf(conn, "%s\r\n", line)
		for {
			reply, err := in.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if reply[3] != '-' {
				return reply
			}
		}
	}
	if greeting, err := in.ReadString('\n'); err != nil {
		t.Fatal(greeting, err)
	}
	say("EHLO app.example.org")
	first, err := conv.Step("")
	if err != nil {
		t.Fatal(err)
	}
	reply := say("AUTH " + mechanism + " " + b64(first))
	for strings.HasPrefix(reply, "334 ") {
		challenge, err := base64.StdEncoding.DecodeString(strings.TrimSpace(reply[4:]))
		if err != nil {
			t.Fatal(err)
		}
		response, err := conv.Step(string(challenge))
		if err != nil {
			t.Fatal(err)
		}
		reply = say(b64(response))
	}
	return reply
}

// Shutdown does not wait for those who guess.
func TestShutdownEndsLogins(t *testing.T) {
	withAuth(t, authConfig(t), func(t *testing.T, r *relay) {
		p := r.secured("192.0.2.1")
		p.cmd("AUTH PLAIN", "334 ")
		guess := r.secured("192.0.2.1")
		guess.send("AUTH PLAIN " + b64("\x00ann\x00wrong") + "\r\n")
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		began := time.Now()
		if err := r.srv.Shutdown(ctx); err != nil || time.Since(began) > 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		p.expect("421 4.3.2")
		guess.expect("421 4.3.2")
	})
}
