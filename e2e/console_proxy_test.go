package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"example.org/mta/internal/testca"
)

// fenced gives the blocks of code of a language in a page of the manual.
func fenced(t *testing.T, page, language string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(text), "\n```"+language+"\n")[1:] {
		block, _, _ := strings.Cut(part, "\n```")
		blocks = append(blocks, block)
	}
	return blocks
}

// consoleAt is a relay with a console as the manual has it, and who uses it through a proxy.
type consoleAt struct {
	relay     *relay
	upstream  string
	front     string // where the proxy listens
	cert, key string
	ca        *testca.Authority
}

func newConsoleAt(t *testing.T, block string) *consoleAt {
	t.Helper()
	c := &consoleAt{upstream: "127.0.0.1:" + commonPort(t, "127.0.0.1"), front: "127.0.0.1:" + commonPort(t, "127.0.0.1"), ca: testca.New(t)}
	c.cert, c.key = testca.Files(t, c.ca.Issue(t, []string{"ops.example.com"}))
	users := scratch(t) + "/console-users"
	block = strings.NewReplacer("127.0.0.1:8026", c.upstream, "/etc/mta/console-users", users).Replace(block)
	c.relay = newRelay(t, "127.0.0.1:53", "25", block)
	for name, role := range map[string]string{"ann": "operator", "vera": "viewer"} {
		add := exec.Command(binary, "console", "user", "add", name, "--role", role, "--config", c.relay.config)
		add.Stdin = strings.NewReader("open sesame\n")
		if out, err := add.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	c.relay.start(t)
	connects(t, c.upstream)
	return c
}

// browser gives a client that knows ops.example.com as the proxy, and connects from another address than it.
func (c *consoleAt) browser(t *testing.T) *http.Client {
	t.Helper()
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 30, 0, 9)}}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: c.ca.Pool()},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return from.DialContext(ctx, network, c.front)
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Jar: jar, Transport: transport}
}

func (c *consoleAt) url(path string) string {
	return "https://ops.example.com:" + c.front[strings.LastIndexByte(c.front, ':')+1:] + path
}

// page asks for a page and gives where it ended and what it says.
func (c *consoleAt) page(t *testing.T, b *http.Client, path string, header ...string) (at, text string) {
	t.Helper()
	r, err := http.NewRequest("GET", c.url(path), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	a, err := b.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	all, _ := io.ReadAll(a.Body)
	return a.Request.URL.Path, fmt.Sprint(a.StatusCode, " ", string(all))
}

// TestConsoleBehindProxies runs what the manual says of nginx and Caddy: with a prefix, TLS at the proxy, and the
// client's address, which no client can forge.
func TestConsoleBehindProxies(t *testing.T) {
	parallel(t)
	const manual = "../docs/console.md"
	block := fenced(t, manual, "hcl")[2]
	for name, run := range map[string]func(*consoleAt){
		"nginx": func(c *consoleAt) {
			nginxWith(t, c.front, c.cert, c.key, "", strings.ReplaceAll(fenced(t, manual, "nginx")[0], "127.0.0.1:8026", c.upstream))
		},
		"caddy": func(c *consoleAt) {
			site := fmt.Sprintf("%s {\n\tbind 127.0.0.1\n\ttls %s %s", c.url(""), c.cert, c.key)
			caddyWith(t, c.front, strings.NewReplacer("ops.example.com {", site, "127.0.0.1:8026", c.upstream).Replace(fenced(t, manual, "caddy")[0])+"\n")
		},
	} {
		c := newConsoleAt(t, block)
		run(c)
		b := c.browser(t)
		if at, text := c.page(t, b, "/mta/", "X-Remote-User", "ann"); at != "/mta/login" {
			t.Fatalf("%s: without a session at %s:\n%s", name, at, text)
		}
		a, err := b.PostForm(c.url("/mta/login"), url.Values{"user": {"ann"}, "password": {"open sesame"}})
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		if at, text := c.page(t, b, "/mta/"); at != "/mta/" || !strings.Contains(text, "ann, operator") {
			t.Errorf("%s: at %s:\n%s", name, at, text)
		}
		home, _ := url.Parse(c.url("/mta/"))
		if kept := b.Jar.Cookies(home); len(kept) != 1 || kept[0].Name != "__Host-mta-console" {
			t.Errorf("%s: cookies: %v", name, kept)
		}
		forged := c.browser(t)
		if a, err := forged.PostForm(c.url("/mta/login"), url.Values{"user": {"eve"}, "password": {"guess"}}); err == nil {
			a.Body.Close()
		}
		log, err := os.ReadFile(c.relay.log)
		if err != nil || !strings.Contains(string(log), "address=127.30.0.9") {
			t.Errorf("%s: the relay's log lacks the client's address: %v\n%s", name, err, log)
		}
	}
}

// TestConsoleSignsOnAtTheProxy: nginx checks the password, and the users file gives the role. A client names nobody.
func TestConsoleSignsOnAtTheProxy(t *testing.T) {
	parallel(t)
	const manual = "../docs/console.md"
	c := newConsoleAt(t, fenced(t, manual, "hcl")[3])
	passwords := scratch(t) + "/htpasswd"
	writeFile(t, passwords, "ann:{PLAIN}of nginx\neve:{PLAIN}of nginx\n")
	nginxWith(t, c.front, c.cert, c.key, "", strings.NewReplacer("127.0.0.1:8026", c.upstream, "/etc/nginx/htpasswd", passwords).Replace(fenced(t, manual, "nginx")[1]))
	b := c.browser(t)
	ask := func(user string, header ...string) (at, text string) {
		r, _ := http.NewRequest("GET", "/", nil)
		r.SetBasicAuth(user, "of nginx")
		return c.page(t, b, "/mta/", append(header, "Authorization", r.Header.Get("Authorization"))...)
	}
	if _, text := c.page(t, b, "/mta/", "X-Remote-User", "ann"); !strings.HasPrefix(text, "401") {
		t.Errorf("without a password of nginx: %s", text)
	}
	if at, text := ask("ann"); at != "/mta/" || !strings.Contains(text, "ann, operator") {
		t.Errorf("at %s:\n%s", at, text)
	}
	if at, text := ask("eve", "X-Remote-User", "ann"); at != "/mta/login" || !strings.HasPrefix(text, "403") || strings.Contains(text, "ann, operator") {
		t.Errorf("without a role, at %s:\n%s", at, text)
	}
	direct, err := http.NewRequest("GET", "http://"+c.upstream+"/mta/", nil)
	if err != nil {
		t.Fatal(err)
	}
	direct.Host = "ops.example.com"
	direct.Header.Set("X-Remote-User", "ann")
	past := &http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 30, 0, 9)}}).DialContext}}
	defer past.CloseIdleConnections()
	a, err := past.Do(direct)
	if err != nil {
		t.Fatal(err)
	}
	a.Body.Close()
	if a.Request.URL.Path != "/mta/login" {
		t.Errorf("past the proxy, from another address: %s at %s", a.Status, a.Request.URL.Path)
	}
}
