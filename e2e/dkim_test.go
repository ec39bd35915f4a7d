package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// dkimpy is Debian's Python: its package python3-dkim is a verifier that knows nothing of Go's.
const dkimpy = "/usr/bin/python3"

// TestOthersVerifySignatures sends mail that is signed twice through Postfix. dkimpy verifies it with the
// records that NSD publishes, and 'mta dkim check' finds them there.
func TestOthersVerifySignatures(t *testing.T) {
	parallel(t)
	if err := exec.Command(dkimpy, "-c", "import dkim, nacl, dns.resolver").Run(); err != nil {
		cannot(t, "python3-dkim and python3-nacl are not installed")
	}
	records, keys := dkimKeys(t, "client.example", "ed25519", "rsa")
	blocks := keys["ed25519"] + keys["rsa"]
	f := newFieldWith(t, records, "dkim \"client\" {\n  domain = \"client.example\"\n"+blocks+"}\n", postfix)
	to := f.servers[0]
	for name, body := range map[string]string{
		"plain": "x\r\n", "empty": "", "spaces": "a \t b \r\n\t\r\n..\r\n \r\n\r\n", "long": strings.Repeat("0123456789 \r\n", 10_000),
	} {
		content := letter{name: name, body: body}.content("dkim-" + name)
		f.python(t, "sender@client.example", []string{"user@" + to.domain}, content)
		m := to.wait(t, "dkim-"+name, patience)
		for i := range 2 {
			if err := verifies(t, m, f.relay.nameServer, i); err != nil {
				t.Errorf("%s: signature %d: %v", name, i, err)
			}
		}
		m.body = append(m.body, "more\r\n"...)
		if verifies(t, m, f.relay.nameServer, 0) == nil {
			t.Errorf("%s: dkimpy verifies what was changed", name)
		}
	}
	out, err := exec.Command(binary, "dkim", "check", "--config", f.relay.config, "--server", f.relay.nameServer).CombinedOutput()
	if err != nil || strings.Count(string(out), " ok") != 2 {
		t.Errorf("mta dkim check: %v\n%s", err, out)
	}
}

// dkimKeys makes a key of each kind, and gives their records as lines of a zone file and their blocks in
// the configuration by kind.
func dkimKeys(t *testing.T, domain string, kinds ...string) (records string, blocks map[string]string) {
	t.Helper()
	dir := scratch(t)
	blocks = make(map[string]string)
	for _, kind := range kinds {
		file := dir + "/" + kind + ".pem"
		out, err := exec.Command(binary, "dkim", "keygen", "--domain", domain, "--selector", kind, "--type", kind, "--out", file, "--json").Output()
		if err != nil {
			t.Fatalf("mta dkim keygen: %v", err)
		}
		var made struct {
			Line string `json:"zone_line"`
		}
		if err := json.Unmarshal(out, &made); err != nil {
			t.Fatal(err)
		}
		records += made.Line + "\n"
		blocks[kind] = fmt.Sprintf("  key %q { file = %q }\n", kind, file)
	}
	return records, blocks
}

// verifies has dkimpy look at the signature that stands at a place, the first at 0.
func verifies(t *testing.T, m stored, nameServer string, place int) error {
	t.Helper()
	message := string(m.head) + "\r\n" + string(m.body)
	request, err := json.Marshal(map[string]any{"message": base64.StdEncoding.EncodeToString([]byte(message)), "server": nameServer, "place": place})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(dkimpy, "-c", `
import base64, json, sys, dkim, dns.resolver
j = json.load(sys.stdin)
host, _, port = j["server"].rpartition(":")
r = dns.resolver.Resolver(configure=False)
r.nameservers, r.port = [host], int(port)
def txt(name, timeout=5):
    return b"".join(r.resolve(name.decode().rstrip("."), "TXT")[0].strings)
v = dkim.DKIM(base64.b64decode(j["message"]))
sys.exit(0 if v.verify(j["place"], dnsfunc=txt) else "not verified")
`)
	cmd.Stdin = strings.NewReader(string(request))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}
