package e2e

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/testca"
)

// proxy is an HTTP proxy that ends TLS in front of the relay.
type proxy struct {
	name string
	addr string
	ca   *testca.Authority
}

// runProxy starts a proxy on addr in front of upstream.
type runProxy func(t *testing.T, addr, upstream, certificate, key string)

func nginx(t *testing.T, addr, upstream, certificate, key string) {
	t.Helper()
	nginxWith(t, addr, certificate, key, "upstream relay { server "+upstream+"; keepalive 1; }", `location / {
      proxy_pass http://relay;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_set_header X-Forwarded-Proto $scheme;
    }`)
}

// nginxWith starts nginx with a server that has TLS and some locations.
func nginxWith(t *testing.T, addr, certificate, key, upstreams, locations string) {
	t.Helper()
	needRoot(t)
	dir := scratch(t)
	writeFile(t, dir+"/nginx.conf", fmt.Sprintf(`daemon off;
user root;
worker_processes 1;
pid %[1]s/pid;
error_log stderr info;
events { worker_connections 200; }
http {
  access_log off;
  client_max_body_size 60m;
  client_body_temp_path %[1]s/body;
  proxy_temp_path %[1]s/proxy;
  fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi;
  scgi_temp_path %[1]s/scgi;
  ignore_invalid_headers off;
  %[6]s
  server {
    listen %[2]s ssl;
    ssl_certificate %[3]s;
    ssl_certificate_key %[4]s;
    %[5]s
  }
}
`, dir, addr, certificate, key, locations, upstreams))
	start(t, "nginx", need(t, "nginx")[0], "-c", dir+"/nginx.conf", "-p", dir)
	connects(t, addr)
}

func caddy(t *testing.T, addr, upstream, certificate, key string) {
	t.Helper()
	caddyWith(t, addr, fmt.Sprintf("https://%s {\n\ttls %s %s\n\treverse_proxy %s\n}\n", addr, certificate, key, upstream))
}

// caddyWith starts Caddy with a site.
func caddyWith(t *testing.T, addr, site string) {
	t.Helper()
	dir := scratch(t)
	writeFile(t, dir+"/Caddyfile", fmt.Sprintf("{\n\tadmin off\n\tauto_https off\n\tstorage file_system %s\n}\n%s", dir, site))
	start(t, "caddy", need(t, "env")[0], "HOME="+dir, need(t, "caddy")[0], "run", "--config", dir+"/Caddyfile", "--adapter", "caddyfile")
	connects(t, addr)
}

// connects waits until somebody listens who doesn't speak first.
func connects(t *testing.T, addr string) {
	t.Helper()
	eventually(t, patience, func() error {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			conn.Close()
		}
		return err
	})
}

// behind starts a proxy in front of the field's relay.
func (f *webField) behind(t *testing.T, name string, run runProxy) proxy {
	t.Helper()
	p := proxy{name: name, addr: "127.0.0.1:" + commonPort(t, "127.0.0.1"), ca: testca.New(t)}
	certificate, key := testca.Files(t, p.ca.Issue(t, []string{"127.0.0.1", "localhost"}))
	run(t, p.addr, strings.TrimPrefix(f.url, "http://"), certificate, key)
	return p
}

var proxies = map[string]runProxy{"nginx": nginx, "caddy": caddy}

// TestProxiesEndTLSInFrontOfTheAPI sends through each proxy: the relay knows the client's address, which no client can
// forge, and that it used TLS.
func TestProxiesEndTLSInFrontOfTheAPI(t *testing.T) {
	parallel(t)
	clients := sdks(t)
	f := newWebField(t, `trusted_proxies = ["127.0.0.1/32"]`, "", postfix)
	s := f.servers[0]
	for name, run := range proxies {
		p := f.behind(t, name, run)
		t.Run(name+" and curl", func(t *testing.T) {
			id := "curl-" + name
			body := fmt.Sprintf(`{"from":"shop@acme.example","to":["a@%s"],"subject":"x","text":"x","headers":{"X-Test-Id":"%s"}}`, s.domain, id)
			out := runClient(t, body, need(t, "curl")[0], "-sS", "--interface", "127.30.0.9", "--cacert", p.ca.File(t), "--data-binary", "@-",
				"-H", "Authorization: Bearer "+f.key, "-H", "Content-Type: application/json", "-H", "X-Forwarded-For: 203.0.113.7", "-H", "X-Forwarded-Proto: http",
				"https://"+p.addr+"/v1/messages")
			if !strings.Contains(out, `"accepted"`) {
				t.Fatalf("curl got %s", out)
			}
			got := s.letter(t, id)
			head := string(got.head)
			if !strings.Contains(head, "127.30.0.9") || strings.Contains(head, "203.0.113.7") {
				t.Errorf("the client's address is wrong:\n%s", head)
			}
			if !strings.Contains(head, "with HTTPS") {
				t.Errorf("the message came by HTTPS:\n%s", head)
			}
		})
		for _, c := range clients {
			t.Run(name+" and "+c.name, func(t *testing.T) {
				id := strings.ReplaceAll(name+"-"+c.name, " ", "-")
				ca := p.ca.File(t)
				c.env = append([]string{"REQUESTS_CA_BUNDLE=" + ca, "SSL_CERT_FILE=" + ca, "NODE_EXTRA_CA_CERTS=" + ca}, c.env...)
				l := webLetters("a@"+s.domain, "c@"+s.domain)["picture"].tagged(id)
				job := f.job("send", &l)
				job.URL = "https://" + p.addr
				if r := c.do(t, job); r.Error != "" {
					t.Fatalf("%s: %s", r.Error, r.Shown)
				}
				l.same(t, read(t, s.letter(t, id)))
			})
		}
	}
}

// smuggled gives requests within whose body, for some reader, another one begins.
func smuggled(host, key, domain string) map[string]string {
	head := "POST /v1/messages HTTP/1.1\r\nHost: " + host + "\r\nAuthorization: Bearer " + key + "\r\nContent-Type: application/json\r\n"
	inner := fmt.Sprintf(`{"from":"shop@acme.example","to":["x@%s"],"subject":"x","text":"x","headers":{"X-Test-Id":"smuggled"}}`, domain)
	second := head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(inner), inner)
	end := "0\r\n\r\n" + second
	length := func(n int) string { return fmt.Sprintf("Content-Length: %d\r\n", n) }
	chunk := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(second), second)
	all := map[string]string{
		"both, the length longer":   head + length(len(end)) + "Transfer-Encoding: chunked\r\n\r\n" + end,
		"both, the length shorter":  head + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk,
		"two lengths":               head + "Content-Length: 0\r\n" + length(len(second)) + "\r\n" + second,
		"a list of lengths":         head + fmt.Sprintf("Content-Length: 0, %d\r\n\r\n%s", len(second), second),
		"a length with a sign":      head + fmt.Sprintf("Content-Length: +%d\r\n\r\n%s", len(second), second),
		"a length in hex":           head + fmt.Sprintf("Content-Length: 0x%x\r\n\r\n%s", len(second), second),
		"a length with a space":     head + fmt.Sprintf("Content-Length : %d\r\n\r\n%s", len(second), second),
		"a length in a fold":        head + fmt.Sprintf("X-A: b\r\n Content-Length: %d\r\nContent-Length: 0\r\n\r\n%s", len(second), second),
		"HTTP/1.0 and chunks":       strings.Replace(head, "HTTP/1.1", "HTTP/1.0", 1) + length(len(end)) + "Transfer-Encoding: chunked\r\n\r\n" + end,
		"chunk with an extension":   head + "Transfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("1;a=\"\n%x\"\r\nx\r\n", len(second)) + end,
		"chunk size with LF":        head + "Transfer-Encoding: chunked\r\n\r\n1\nx\r\n" + end,
		"chunk size too long":       head + "Transfer-Encoding: chunked\r\n\r\n10000000000000001\r\nx\r\n" + end,
		"chunk size of sign and 0x": head + "Transfer-Encoding: chunked\r\n\r\n-0x1\r\nx\r\n" + end,
		"a bare CR in the header":   head + "X-A: b\rContent-Length: 0\r\n" + length(len(second)) + "\r\n" + second,
		"GET with a body":           strings.Replace(head, "POST", "GET", 1) + length(len(second)) + "\r\n" + second,
	}
	for i, encoding := range []string{"chunked, identity", "identity", "xchunked", "chunked\r\nTransfer-Encoding: x", "\x0bchunked", "chunked\x00", "\"chunked\"", "chunked, chunked", "CHUNKED", ""} {
		all[fmt.Sprintf("encoding %d", i)] = head + length(len(end)) + "Transfer-Encoding: " + encoding + "\r\n\r\n" + end
	}
	for i, name := range []string{"Transfer-Encoding ", " Transfer-Encoding", "Transfer-Encoding\t", "Transfer_Encoding", "X: y\nTransfer-Encoding"} {
		all[fmt.Sprintf("field name %d", i)] = head + length(len(end)) + name + ": chunked\r\n\r\n" + end
	}
	return all
}

// TestNoRequestIsSmuggledBehindAProxy sends such requests through each proxy, and after each a good one on the
// proxy's kept connection to the relay, which must get its own answer. What the proxy passed on as one request is
// one for the relay: each message that arrives was answered.
func TestNoRequestIsSmuggledBehindAProxy(t *testing.T) {
	parallel(t)
	f := newWebField(t, `trusted_proxies = ["127.0.0.1/32"]`, "", smtpSink)
	s := f.servers[0]
	good, answered := 0, 0
	for name, run := range proxies {
		p := f.behind(t, name, run)
		for shape, request := range smuggled(p.addr, f.key, s.domain) {
			answers := p.raw(t, request)
			good++
			to := fmt.Sprintf("good%d@%s", good, s.domain)
			body := fmt.Sprintf(`{"from":"shop@acme.example","to":["%s"],"subject":"x","text":"x"}`, to)
			answer := p.raw(t, fmt.Sprintf("POST /v1/messages HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", p.addr, f.key, len(body), body))
			if !strings.HasPrefix(answer, "HTTP/1.1 202") || !strings.Contains(answer, to) {
				t.Errorf("%s, %s: after\n%s\na good request got\n%s", name, shape, answers, answer)
			}
			n := strings.Count(answers, "HTTP/1.1 202")
			answered += n
			t.Logf("%s, %s: %d accepted of %d answers", name, shape, n, strings.Count(answers, "HTTP/1."))
		}
	}
	f.relay.drained(t, patience)
	if n := s.copies(t, "smuggled"); n != answered {
		t.Errorf("%d messages from within others have arrived, %d were answered", n, answered)
	}
	if n := len(s.messages(t)); n != good+answered {
		t.Errorf("%d messages have arrived, want %d", n, good+answered)
	}
}

// raw sends octets over TLS and gives what comes back within a moment.
func (p proxy) raw(t *testing.T, request string) string {
	t.Helper()
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", p.addr, &tls.Config{RootCAs: p.ca.Pool(), ServerName: "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(request)); err != nil {
		return ""
	}
	var answers strings.Builder
	b := make([]byte, 64<<10)
	for wait := 10 * time.Second; ; wait = 200 * time.Millisecond { // more answers on the same connection come soon
		conn.SetReadDeadline(time.Now().Add(wait))
		n, err := conn.Read(b)
		answers.Write(b[:n])
		if err != nil {
			return answers.String()
		}
	}
}
