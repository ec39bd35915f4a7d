package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestReceiversBelieveTheMail sends signed mail through Postfix and has rspamd judge what arrives: by DKIM
// of either kind of key, by SPF of the address that the mail is said to come from, and by DMARC. 'mta
// check --dns' has said the same before.
func TestReceiversBelieveTheMail(t *testing.T) {
	parallel(t)
	need(t, "rspamd")
	records, keys := dkimKeys(t, "client.example", "ed25519", "rsa")
	records += `relay A 192.0.2.10
relay TXT "v=spf1 a -all"
client TXT "v=spf1 ip4:192.0.2.10 -all"
client MX 10 mx.client
mx.client A 127.0.0.1
_dmarc.client TXT "v=DMARC1; p=reject"
`
	f := newFieldWith(t, records, "dkim \"client\" {\n  domain = \"client.example\"\n"+keys["ed25519"]+keys["rsa"]+"}\n", postfix)
	checksOut(t, f.relay.config)
	judge := rspamd(t, f.relay.nameServer)

	content := letter{name: "believed", body: "x \t y\r\n\r\n", head: "List-Unsubscribe: <https://client.example/u>\r\n"}.content("believed")
	f.python(t, "sender@client.example", []string{"user@" + f.servers[0].domain}, content)
	m := f.servers[0].wait(t, "believed", patience)
	message := string(m.head) + "\r\n" + string(m.body)
	ours, another := "192.0.2.10", "192.0.2.66"
	for _, tc := range []struct {
		what, message, from string
		want                []string
	}{
		{"what arrives", message, ours, []string{"R_DKIM_ALLOW", "R_SPF_ALLOW", "DMARC_POLICY_ALLOW"}},
		{"Ed25519 alone", signedOnly(t, message, "a=ed25519"), ours, []string{"R_DKIM_ALLOW", "R_SPF_ALLOW", "DMARC_POLICY_ALLOW"}},
		{"RSA alone, from elsewhere", signedOnly(t, message, "a=rsa"), another, []string{"R_DKIM_ALLOW", "R_SPF_FAIL", "DMARC_POLICY_ALLOW"}},
		{"a changed body", message + "more\r\n", ours, []string{"R_DKIM_REJECT", "R_SPF_ALLOW", "DMARC_POLICY_ALLOW"}},
		{"an added header, from elsewhere", "Subject: buy\r\n" + message, another, []string{"R_DKIM_REJECT", "R_SPF_FAIL", "DMARC_POLICY_REJECT"}},
	} {
		if got := judge(tc.message, tc.from); !slices.Equal(got, tc.want) {
			t.Errorf("%s: rspamd says %v, want %v", tc.what, got, tc.want)
		}
	}
}

// signedOnly takes all signatures away but that of one algorithm.
func signedOnly(t *testing.T, message, algorithm string) string {
	t.Helper()
	var kept strings.Builder
	skip, signatures := false, 0
	for line := range strings.Lines(message) {
		if line[0] != ' ' && line[0] != '\t' {
			skip = strings.HasPrefix(line, "DKIM-Signature:") && !strings.Contains(line, algorithm)
			if !skip && strings.HasPrefix(line, "DKIM-Signature:") {
				signatures++
			}
		}
		if !skip {
			kept.WriteString(line)
		}
	}
	if signatures != 1 {
		t.Fatalf("%d signatures by %s", signatures, algorithm)
	}
	return kept.String()
}

// checksOut demands that 'mta check --dns' finds the mail of client.example from 192.0.2.10 to be good.
// Nobody answers for reverse DNS here, nor at the MX.
func checksOut(t *testing.T, config string) {
	t.Helper()
	out, err := exec.Command(binary, "check", "--config", config, "--dns", "--domain", "client.example", "--source", "192.0.2.10", "--json").Output()
	var found struct {
		Findings []struct{ Check, Result, Text string }
	}
	if err != nil || json.Unmarshal(out, &found) != nil {
		t.Fatalf("mta check --dns: %v\n%s", err, out)
	}
	for _, f := range found.Findings {
		if unasked := f.Check == "reverse" || f.Check == "starttls"; f.Result != "ok" && !(unasked && f.Result == "unknown") {
			t.Errorf("mta check --dns: %+v", f)
		}
	}
}

// rspamd runs rspamd with its modules for DKIM, SPF and DMARC, and gives a func that has it judge a message
// from an address: what it says of the three, in that order.
func rspamd(t *testing.T, nameServer string) func(message, from string) []string {
	t.Helper()
	program := need(t, "rspamd")[0]
	dir := scratch(t)
	addr := "127.0.0.1:" + commonPort(t, "127.0.0.1")
	writeFile(t, dir+"/tld.dat", "example\n") // its own list takes seconds to compile
	writeFile(t, dir+"/rspamd.conf", fmt.Sprintf(`options {
  filters = "dkim,spf";
  pidfile = "%[1]s/pid";
  tempdir = "%[1]s";
  url_tld = "%[1]s/tld.dat";
  local_addrs = [];
  control_socket = "%[1]s/control mode=0600";
  dns { nameserver = ["%[3]s"]; timeout = 2s; retransmits = 5; }
}
logging { type = "console"; level = "notice"; color = false; }
lua = "/usr/share/rspamd/rules/rspamd.lua";
modules { path = "/usr/share/rspamd/plugins/"; }
actions { reject = 1000; }
dkim { }
spf { }
dmarc { }
worker "normal" { bind_socket = "%[2]s"; count = 1; }
`, dir, addr, nameServer))
	p := start(t, "rspamd", program, "-i", "-f", "-c", dir+"/rspamd.conf")
	ask := func(message, from string) ([]string, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/checkv2", strings.NewReader(message))
		if err != nil {
			return nil, err
		}
		for name, value := range map[string]string{"IP": from, "Helo": "relay.example", "From": "sender@client.example", "Rcpt": "user@postfix.example"} {
			req.Header.Set(name, value)
		}
		resp, err := (&http.Client{Timeout: time.Minute}).Do(req)
		if err != nil {
			return nil, err
		}
		defer resp.Body.Close()
		var verdict struct{ Symbols map[string]any }
		if err := json.NewDecoder(resp.Body).Decode(&verdict); err != nil {
			return nil, err
		}
		var said []string
		for _, prefix := range []string{"R_DKIM_", "R_SPF_", "DMARC_"} {
			for name := range verdict.Symbols {
				if strings.HasPrefix(name, prefix) {
					said = append(said, name)
				}
			}
		}
		return said, nil
	}
	eventually(t, patience, func() error {
		if p.ended() {
			t.Fatalf("rspamd has ended:\n%s", tail(p.log))
		}
		_, err := ask("From: a@client.example\r\n\r\n", "192.0.2.10")
		return err
	})
	return func(message, from string) []string {
		t.Helper()
		said, err := ask(message, from)
		if err != nil {
			t.Fatal(err)
		}
		return said
	}
}
