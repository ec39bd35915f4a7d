package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestFail2banFindsAttackers has swaks attack a relay from an address for each attack, and holds the filter of
// contrib/fail2ban against the log, in both formats: it finds each attacker, and nobody in the log of good traffic.
func TestFail2banFindsAttackers(t *testing.T) {
	parallel(t)
	need(t, "fail2ban-regex", "swaks")
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) { attack(t, format) })
	}
}

func attack(t *testing.T, format string) {
	const network = "127.71.0.0/16" // strangers; 127.0.0.0/8 may relay otherwise
	port, api := commonPort(t, "127.0.0.1"), commonPort(t, "127.0.0.1")
	f := newFieldWith(t, "", guarded(t, format, port, api), smtpSink)
	addSenders(t, f.relay)

	// Good traffic comes first: from a network that may relay, and from a user elsewhere.
	server := f.servers[0]
	for i := range 5 {
		id := fmt.Sprintf("good-%d", i)
		args := []string{"--local-interface", "127.0.0.5"}
		if i%2 == 1 {
			args = []string{"--local-interface", "127.71.0.9", "--auth", "PLAIN", "--auth-user", "ann@acme.example", "--auth-password", "secret"}
		}
		swaks(t, true, port, append(args, "--from", "ann@acme.example", "--to", "user@"+server.domain, "--data", unixText(letter{name: "hello", body: "Hello\r\n"}.content(id)))...)
		server.wait(t, id, patience)
	}
	// A mistake of a client that may relay is none of fail2ban's business.
	swaks(t, false, port, "--local-interface", "127.0.0.5", "--from", "ann@acme.example", "--to", "nobody@@", "--quit-after", "RCPT")
	blameless(t, port, api)
	good := strings.Count(logOf(t, f.relay), "\n")

	attackers := map[string]string{"127.71.0.1": "relay", "127.71.0.2": "login", "127.71.0.3": "protocol", "127.71.0.4": "connections", "127.71.0.5": "login"}
	swaks(t, false, port, "--local-interface", "127.71.0.1", "--from", "a@spam.example", "--to", "victim@elsewhere.example")
	swaks(t, false, port, "--local-interface", "127.71.0.2", "--auth", "PLAIN", "--auth-user", "ann@acme.example", "--auth-password", "guess", "--from", "a@spam.example", "--to", "b@c.example")
	swaks(t, false, port, "--local-interface", "127.71.0.3", "--helo", "x\r\nGET / HTTP/1.1\r\nHost: x", "--protocol", "SMTP", "--from", "a@spam.example", "--to", "b@c.example")
	garbage(t, from("127.71.0.3"), port)
	for range 2 {
		held, err := from("127.71.0.4").Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			t.Fatal(err)
		}
		defer held.Close()
		if _, err := held.Read(make([]byte, 3)); err != nil {
			t.Fatal(err)
		}
	}
	swaks(t, false, port, "--local-interface", "127.71.0.4", "--from", "a@spam.example", "--to", "b@c.example")
	guessKey(t, from("127.71.0.5"), api)

	reason := regexp.MustCompile(`refused client"[ ,]"?address"?[=:]"?([0-9.]+)"?[ ,]"?reason"?[=:]"?(\w+)`)
	log := ""
	eventually(t, patience, func() error {
		log = logOf(t, f.relay)
		found := make(map[string]string)
		for _, m := range reason.FindAllStringSubmatch(log, -1) {
			found[m[1]] = m[2]
		}
		if fmt.Sprint(found) != fmt.Sprint(attackers) {
			return fmt.Errorf("the log has the attackers %v, want %v, of %s", found, attackers, network)
		}
		return nil
	})
	lines := strings.SplitAfter(log, "\n")
	refusals := len(reason.FindAllString(log, -1))
	fail2ban(t, strings.Join(lines[:good], ""), 0)
	fail2ban(t, log, refusals)
	// The journal has its own beginning, and no time and level of ours.
	journal := regexp.MustCompile(`(?m)^time=\S+ level=\S+ `).ReplaceAllString(log, "Nov 23 03:00:00 mx1 mta[4711]: ")
	fail2ban(t, journal, refusals)
}

// guarded configures a listener at port and an API, which only users and the network 127.0.0.0/16 may use.
func guarded(t *testing.T, format, port, api string) string {
	t.Helper()
	dir := scratch(t)
	return fmt.Sprintf(`
log { format = %q }
users {
  file   = %q
  scheme = "scram-sha-256"
}
keys { file = %q }
tenant "acme" { senders = ["acme.example"] }
tenant "small" {
  senders             = ["small.example"]
  max_submission_rate = "1/h"
}
listener "public" {
  address                    = "127.0.0.1:%s"
  relay_from                 = ["127.0.0.0/16"]
  max_connections_per_client = 2
  auth {
    mechanisms        = ["PLAIN"]
    clear_on_loopback = true
  }
}
api "web" { address = "127.0.0.1:%s" }
`, format, dir+"/users", dir+"/keys", port, api)
}

// addSenders adds the users of a guarded relay, and returns a key of its API.
func addSenders(t *testing.T, r *relay) (key string) {
	t.Helper()
	runClient(t, "secret\n", binary, "user", "add", "ann@acme.example", "--tenant", "acme", "--config", r.config)
	runClient(t, "secret\n", binary, "user", "add", "sam@small.example", "--tenant", "small", "--config", r.config)
	return newKey(t, r)
}

// from connects from an address of loopback.
func from(client string) *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(client)}, Timeout: patience}
}

// blameless is what a relay sees besides mail that succeeds: none of it may have an address blocked.
func blameless(t *testing.T, port, api string) {
	t.Helper()
	const ann, sam = "ann@acme.example", "sam@small.example"
	clients := 0 // each has an address: how many connections one may have is tried below
	for kind, lines := range map[string][]string{
		"a load balancer's check":         nil,
		"a probe":                         {"QUIT"},
		"a probe with EHLO":               {"EHLO probe.example", "NOOP", "QUIT"},
		"STARTTLS that is not offered":    {"EHLO app.example", "STARTTLS", "QUIT"},
		"a hang-up after the login":       {"EHLO app.example", plainLogin(ann)},
		"a hang-up within the content":    {"EHLO app.example", plainLogin(ann), "MAIL FROM:<" + ann + ">", "RCPT TO:<a@b.example>", "DATA", "Subject: cut"},
		"typing errors":                   {"EHLO app.example", plainLogin(ann), "FOO", "MAIL FROM:<" + ann + ">", "RCPT TO:<a@@b.example>", "RCPT TO:<a>", "QUIT"},
		"somebody else's sender":          {"EHLO app.example", plainLogin(ann), "MAIL FROM:<a@other.example>", "QUIT"},
		"a second thought about a login":  {"EHLO app.example", "AUTH PLAIN", "*", plainLogin(ann), "QUIT"},
		"many errors of a user":           append([]string{"EHLO app.example", plainLogin(ann)}, slices.Repeat([]string{"FOO"}, 25)...),
		"a user who keeps the connection": append([]string{"EHLO app.example", plainLogin(ann)}, slices.Repeat([]string{"NOOP"}, 110)...),
		"the first mail within a quota":   {"EHLO app.example", plainLogin(sam), "MAIL FROM:<" + sam + ">", "RCPT TO:<a@b.example>", "DATA", "Subject: x\r\n\r\n.", "QUIT"},
		"mail beyond a quota":             {"EHLO app.example", plainLogin(sam), "MAIL FROM:<" + sam + ">", "RCPT TO:<a@b.example>", "DATA", "Subject: x\r\n\r\n.", "QUIT"},
	} {
		clients++
		if said := converse(t, from(fmt.Sprintf("127.71.1.%d", clients)), port, lines...); !strings.HasPrefix(said, "220 ") {
			t.Errorf("%s: %q", kind, said)
		}
	}
	pipelined := "MAIL FROM:<" + ann + ">\r\nRCPT TO:<a@b.example>\r\nRCPT TO:<oops>\r\nRSET\r\nNOOP\r\nQUIT"
	office := from("127.71.2.1") // behind a NAT, from where a user logs in, and another program has too many connections
	if said := converse(t, office, port, "EHLO app.example", plainLogin(ann), pipelined); !strings.Contains(said, "235 ") {
		t.Errorf("pipelining: %q", said)
	}
	for last := ""; !strings.HasPrefix(last, "421 "); {
		conn, err := office.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if last = said(t, conn); last == "" {
			t.Fatal("no greeting")
		}
	}
	other := from("127.71.2.2") // here a program forgets to log in
	for _, lines := range [][]string{{plainLogin(sam)}, {"MAIL FROM:<" + ann + ">", "RCPT TO:<a@b.example>"}} {
		if said := converse(t, other, port, append([]string{"EHLO app.example"}, lines...)...); !strings.Contains(said, "235 ") && !strings.Contains(said, "530 ") {
			t.Errorf("%q: %q", lines, said)
		}
	}

	client := &http.Client{Transport: &http.Transport{DialContext: from("127.71.2.4").DialContext}, Timeout: patience}
	defer client.CloseIdleConnections()
	for _, path := range []string{"/", "/healthz", "/v1/messages", "/favicon.ico"} {
		resp, err := client.Get("http://127.0.0.1:" + api + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
}

// plainLogin is the command that logs a user in.
func plainLogin(user string) string {
	return "AUTH PLAIN " + base64.StdEncoding.EncodeToString([]byte("\x00"+user+"\x00secret"))
}

// converse says lines to the relay, each after the reply to the one before, hangs up, and returns what was said.
func converse(t *testing.T, d *net.Dialer, port string, lines ...string) string {
	t.Helper()
	conn, err := d.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	all := said(t, conn)
	for _, line := range lines {
		if _, err := io.WriteString(conn, line+"\r\n"); err != nil || line == "Subject: cut" {
			break // the relay has ended the session; or it waits for the rest
		}
		all += said(t, conn)
	}
	return all
}

// said reads what comes up to the end of a reply, or of the connection.
func said(t *testing.T, conn net.Conn) string {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	all, b := "", make([]byte, 4096)
	for {
		n, err := conn.Read(b)
		all += string(b[:n])
		if last := all[strings.LastIndex(strings.TrimRight(all, "\r\n"), "\n")+1:]; err != nil || len(last) > 4 && last[3] == ' ' && strings.HasSuffix(last, "\n") {
			return all
		}
	}
}

func logOf(t *testing.T, r *relay) string {
	t.Helper()
	text, err := os.ReadFile(r.process.log)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// swaks sends from the address of --local-interface.
func swaks(t *testing.T, succeeds bool, port string, args ...string) {
	t.Helper()
	args = append([]string{"--server", "127.0.0.1", "--port", port, "--timeout", "60"}, args...)
	out, err := exec.Command(need(t, "swaks")[0], args...).CombinedOutput()
	if (err == nil) != succeeds {
		t.Errorf("swaks %v: %v\n%s", args, err, lastLines(string(out), 20))
	}
}

// garbage speaks something else than SMTP.
func garbage(t *testing.T, d *net.Dialer, port string) {
	t.Helper()
	conn, err := d.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := conn.Write([]byte("\x16\x03\x01garbage\r\n")); err != nil {
		t.Fatal(err)
	}
	for b := make([]byte, 512); err == nil; {
		_, err = conn.Read(b)
	}
}

// guessKey asks the API with a key that does not exist.
func guessKey(t *testing.T, d *net.Dialer, port string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DialContext: d.DialContext}, Timeout: patience}
	defer client.CloseIdleConnections()
	req, err := http.NewRequest("POST", "http://127.0.0.1:"+port+"/v1/messages", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer mta_guess")
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		problem := map[string]any{}
		_ = json.NewDecoder(resp.Body).Decode(&problem)
		t.Errorf("a guessed key: %d %v", resp.StatusCode, problem)
	}
}

// fail2ban holds the filter against a log, in which it must find so many failures.
func fail2ban(t *testing.T, log string, want int) {
	t.Helper()
	path := filepath.Join(scratch(t), "log")
	writeFile(t, path, log)
	out, err := exec.Command(need(t, "fail2ban-regex")[0], path, "../contrib/fail2ban/filter.conf").CombinedOutput()
	if !strings.Contains(string(out), fmt.Sprintf("Failregex: %d total", want)) {
		t.Errorf("%v: fail2ban does not find the %d failures:\n%s", err, want, lastLines(string(out), 40))
	}
	t.Logf("fail2ban-regex: %s", regexp.MustCompile(`(?m)^Lines: .*`).Find(out))
}
