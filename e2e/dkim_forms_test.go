package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/mail"
	"net/smtp"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/emersion/go-msgauth/dkim"
)

// lengths of the names in the corpus: a field is folded at each place at which a library folds it.
const lengths = 90

// TestSignedHeadersOfOthers sends header fields as common libraries fold them, by SMTP and by HTTP. All leave signed,
// and dkimpy and go-msgauth verify each signature.
func TestSignedHeadersOfOthers(t *testing.T) {
	parallel(t)
	if err := exec.Command(dkimpy, "-c", "import dkim, nacl").Run(); err != nil {
		cannot(t, "python3-dkim and python3-nacl are not installed")
	}
	lines, keys := dkimKeys(t, "acme.example", "ed25519", "rsa")
	f := newWebField(t, "", "dkim \"acme\" {\n  domain = \"acme.example\"\n"+keys["ed25519"]+keys["rsa"]+"}\n", postfix)
	to := "user@" + f.servers[0].domain
	corpus := map[string][]string{"Python": pythonForms(t, to), "PHPMailer": phpForms(t, to), "Go": goForms(to), "nodemailer": nodemailerForms(to)}
	sent := f.compose(t, to)
	for name, all := range corpus {
		if len(all) != 2*lengths {
			t.Fatalf("%s has made %d messages", name, len(all))
		}
		for i, content := range all {
			if i/2%2 == 0 {
				f.post(t, "?from=news@acme.example&to="+to, "message/rfc822", content)
			}
		}
		f.sendAll(t, to, all)
		sent += len(all) + len(all)/2
	}
	var got []stored
	eventually(t, 5*patience, func() error {
		if got = f.servers[0].messages(t); len(got) < sent {
			return fmt.Errorf("%d of %d messages are there", len(got), sent)
		}
		return nil
	})
	records := publishedRecords(lines)
	contents := make([]string, len(got))
	for i, m := range got {
		contents[i] = string(m.head) + "\r\n" + string(m.body)
		found, err := dkim.VerifyWithOptions(strings.NewReader(contents[i]), &dkim.VerifyOptions{
			LookupTXT: func(name string) ([]string, error) { return []string{records[name]}, nil },
		})
		if err != nil || len(found) != 2 || found[0].Err != nil || found[1].Err != nil {
			t.Errorf("go-msgauth: %d signatures, %v:\n%s", len(found), err, m.head)
		}
	}
	for _, i := range dkimpyRefuses(t, contents, records) {
		t.Errorf("dkimpy verifies not both signatures of:\n%s", got[i].head)
	}
	t.Logf("%d messages, two signatures each", len(got))
}

// names of each length in letters that need no encoding, and in others.
func names() (all []string) {
	for n := 1; n <= lengths; n++ {
		all = append(all, strings.Repeat("Name ", lengths)[:n-1]+"x", string([]rune(strings.Repeat("Grüße & Söhne, ", lengths))[:n-1])+"ß")
	}
	return all
}

// subject is what a message has besides its names.
func subject(name string) string { return "About " + name }

// goForms has names written by net/mail, and folded at the last space before octet 76.
func goForms(to string) (all []string) {
	for _, name := range names() {
		from := mail.Address{Name: name, Address: "news@acme.example"}
		rcpt := mail.Address{Name: name, Address: to}
		all = append(all, folded("From: "+from.String())+folded("To: "+rcpt.String())+folded("Subject: "+(&mail.Address{Name: subject(name)}).String())+"\r\nx\r\n")
	}
	return all
}

// nodemailerForms follows nodemailer: encoded-words of 52 octets, or a quoted name, folded as it does.
func nodemailerForms(to string) (all []string) {
	for _, name := range names() {
		word := `"` + name + `"`
		if strings.ContainsFunc(name, func(r rune) bool { return r > 0x7f }) {
			word = encodedWords(name, 52)
		}
		all = append(all, folded("From: "+word+" <news@acme.example>")+folded("To: "+word+" <"+to+">")+folded("Subject: "+word)+"MIME-Version: 1.0\r\n\r\nx\r\n")
	}
	return all
}

// encodedWords encodes a text in the Q encoding (RFC 2047), in words of so many octets at most.
func encodedWords(text string, most int) string {
	const begin, end = "=?UTF-8?Q?", "?="
	words, word := "", begin
	for _, r := range text {
		piece := string(r)
		if r == ' ' {
			piece = "_"
		} else if !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z') {
			piece = strings.ToUpper(fmt.Sprintf("% x", piece))
			piece = "=" + strings.ReplaceAll(piece, " ", "=")
		}
		if len(word)+len(piece)+len(end) > most {
			words, word = words+word+end+" ", begin
		}
		word += piece
	}
	return words + word + end
}

// folded breaks a field before the last space of each 76 octets.
func folded(field string) string {
	var out strings.Builder
	for len(field) > 76 {
		at := strings.LastIndexByte(field[:77], ' ')
		if at <= 1 {
			if at = strings.IndexByte(field[1:], ' ') + 1; at <= 1 {
				break
			}
		}
		if strings.TrimSpace(field[:at]) == "" {
			break
		}
		out.WriteString(field[:at] + "\r\n")
		field = field[at:]
	}
	return out.String() + field + "\r\n"
}

// pythonForms has Python's email package write the messages, by both of its policies.
func pythonForms(t *testing.T, to string) []string {
	t.Helper()
	return written(t, to, need(t, "python3")[0], "-c", `
import json, sys
from email.headerregistry import Address
from email.header import Header
from email.message import EmailMessage
from email.mime.text import MIMEText
from email.utils import formataddr
import email.policy
j = json.load(sys.stdin)
out = []
for i, name in enumerate(j["names"]):
    if i // 2 % 2:
        m = EmailMessage(policy=email.policy.SMTP)
        m["From"] = Address(name, addr_spec="news@acme.example")
        m["To"] = Address(name, addr_spec=j["to"])
        m["Subject"] = "About " + name
        m.set_content("x\n")
        out.append(m.as_bytes().decode())
    else:
        m = MIMEText("x\n")
        m["From"] = formataddr((name, "news@acme.example"))
        m["To"] = formataddr((name, j["to"]))
        m["Subject"] = Header("About " + name)
        out.append(m.as_bytes(policy=m.policy.clone(linesep="\r\n")).decode())
print(json.dumps(out))`)
}

// phpForms has PHPMailer write the messages.
func phpForms(t *testing.T, to string) []string {
	t.Helper()
	if _, err := os.Stat("/usr/share/php/libphp-phpmailer/autoload.php"); err != nil {
		cannot(t, "PHPMailer: "+err.Error())
	}
	return written(t, to, need(t, "php")[0], "-r", `
require '/usr/share/php/libphp-phpmailer/autoload.php';
$j = json_decode(stream_get_contents(STDIN));
$out = [];
foreach ($j->names as $name) {
	$m = new PHPMailer\PHPMailer\PHPMailer(true);
	$m->isSMTP(); $m->CharSet = 'UTF-8';
	$m->setFrom('news@acme.example', $name); $m->addAddress($j->to, $name);
	$m->Subject = "About $name"; $m->Body = "x\r\n";
	$m->preSend();
	$out[] = $m->getSentMIMEMessage();
}
print json_encode($out);`)
}

// written gives the messages that a program writes for each name.
func written(t *testing.T, to string, argv ...string) (all []string) {
	t.Helper()
	in, err := json.Marshal(map[string]any{"names": names(), "to": to})
	if err != nil {
		t.Fatal(err)
	}
	if out := runClient(t, string(in), argv...); json.Unmarshal([]byte(out), &all) != nil {
		t.Fatalf("%s printed %q", argv[0], out)
	}
	return all
}

// compose has the relay write a message for each name itself, and gives how many.
func (f *webField) compose(t *testing.T, to string) int {
	t.Helper()
	for _, name := range names() {
		body, err := json.Marshal(map[string]any{
			"from": map[string]string{"name": name, "address": "news@acme.example"}, "to": []any{map[string]string{"name": name, "address": to}},
			"subject": subject(name), "text": "x",
		})
		if err != nil {
			t.Fatal(err)
		}
		f.post(t, "", "application/json", string(body))
	}
	return 2 * lengths
}

// post has a message accepted by HTTP.
func (f *webField) post(t *testing.T, query, kind, body string) {
	t.Helper()
	req, err := http.NewRequest("POST", f.url+"/v1/messages"+query, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+f.key)
	req.Header.Set("Content-Type", kind)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusAccepted {
		t.Fatalf("%s %s: %v\n%s", resp.Status, text, err, body)
	}
}

// sendAll has messages accepted by SMTP.
func (f *webField) sendAll(t *testing.T, to string, all []string) {
	t.Helper()
	c, err := smtp.Dial(f.relay.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, content := range all {
		err := c.Mail("news@acme.example")
		if err == nil {
			err = c.Rcpt(to)
		}
		var w io.WriteCloser
		if err == nil {
			w, err = c.Data()
		}
		if err == nil {
			_, _ = io.WriteString(w, content)
			err = w.Close()
		}
		if err != nil {
			t.Fatalf("%v:\n%s", err, content)
		}
	}
	if err := c.Quit(); err != nil {
		t.Fatal(err)
	}
}

// publishedRecords gives the texts of lines of a zone file by their names.
func publishedRecords(lines string) map[string]string {
	records := make(map[string]string)
	for line := range strings.Lines(lines) {
		owner, rest, _ := strings.Cut(line, " ")
		var text strings.Builder
		for i, part := range strings.Split(rest, `"`) {
			if i%2 == 1 {
				text.WriteString(part)
			}
		}
		records[strings.TrimSuffix(owner, ".")] = text.String()
	}
	return records
}

// dkimpyRefuses gives the places of messages of which dkimpy doesn't verify both signatures.
func dkimpyRefuses(t *testing.T, contents []string, records map[string]string) (refused []int) {
	t.Helper()
	in, err := json.Marshal(map[string]any{"messages": contents, "records": records})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(dkimpy, "-c", `
import json, sys, dkim
j = json.load(sys.stdin)
def txt(name, timeout=5):
    return j["records"][name.decode().rstrip(".")].encode()
def good(message):
    v = dkim.DKIM(message.encode())
    try:
        return all(v.verify(place, dnsfunc=txt) for place in (0, 1))
    except (dkim.DKIMException, IndexError):
        return False
print(json.dumps([i for i, m in enumerate(j["messages"]) if not good(m)]))
`)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), t.Output()
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &refused)
	}
	if err != nil {
		t.Fatalf("dkimpy: %v: %s", err, out)
	}
	return refused
}
