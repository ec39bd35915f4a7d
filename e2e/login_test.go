package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestClientsLogIn has real clients log in by each mechanism that they know, and send.
func TestClientsLogIn(t *testing.T) {
	parallel(t)
	dir := scratch(t)
	cert, key := dir+"/cert.pem", dir+"/key.pem"
	runClient(t, "", need(t, "openssl")[0], "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
		"-subj", "/CN=relay.example", "-addext", "subjectAltName=DNS:relay.example,IP:127.0.0.1", "-keyout", key, "-out", cert)
	users := dir + "/users"
	addr := "127.0.0.1:" + commonPort(t, "127.0.0.1")
	f := newFieldWith(t, "", fmt.Sprintf(`
users {
  file   = "%[1]s"
  scheme = "scram-sha-256"
}
tenant "acme" { senders = ["acme.example"] }
listener "submission" {
  address    = "%[2]s"
  relay_from = []
  tls {
    certificate = "%[3]s"
    key         = "%[4]s"
  }
  auth { mechanisms = ["SCRAM-SHA-256-PLUS", "SCRAM-SHA-256", "PLAIN", "LOGIN"] }
}`, users, addr, cert, key), smtpSink)
	// The relay runs: what the command adds is in force at once.
	runClient(t, "secret\n", binary, "user", "add", "ann@acme.example", "--tenant", "acme", "--config", f.relay.config)

	host, port, _ := strings.Cut(addr, ":")
	const user, from = "ann@acme.example", "ann@acme.example"
	clients := map[string]func(t *testing.T, to, content string){}
	for _, mechanism := range []string{"PLAIN", "LOGIN"} {
		clients["swaks "+mechanism] = func(t *testing.T, to, content string) {
			runClient(t, "", need(t, "swaks")[0], "--server", host, "--port", port, "--tls", "--auth", mechanism, "--auth-user", user, "--auth-password", "secret",
				"--from", from, "--to", to, "--data", unixText(content))
		}
	}
	for _, mechanism := range []string{"plain", "login", "scram-sha-256"} {
		clients["msmtp "+mechanism] = func(t *testing.T, to, content string) {
			runClient(t, unixText(content)+"\n", need(t, "msmtp")[0], "--host="+host, "--port="+port, "--tls=on", "--tls-starttls=on", "--tls-certcheck=off",
				"--auth="+mechanism, "--user="+user, "--passwordeval=echo secret", "--from="+from, "--", to)
		}
	}
	clients["python"] = func(t *testing.T, to, content string) {
		runClient(t, content, need(t, "python3")[0], "-c", `
import smtplib, ssl, sys
s = smtplib.SMTP(sys.argv[1], int(sys.argv[2]))
c = ssl.create_default_context(); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE
s.starttls(context=c)
try:
    s.login(sys.argv[3], "wrong")
    sys.exit("a wrong password is right")
except smtplib.SMTPAuthenticationError as e:
    if e.smtp_code != 535: sys.exit(str(e))
s.login(sys.argv[3], "secret")
s.sendmail(sys.argv[3], [sys.argv[4]], sys.stdin.buffer.read())
s.quit()`, host, port, user, to)
	}
	for _, mechanism := range []string{"PLAIN", "LOGIN"} {
		clients["curl "+mechanism] = func(t *testing.T, to, content string) {
			runClient(t, content, need(t, "curl")[0], "-sS", "--ssl-reqd", "-k", "--url", "smtp://"+addr, "--user", user+":secret", "--login-options", "AUTH="+mechanism,
				"--mail-from", from, "--mail-rcpt", to, "-T", "-")
		}
	}
	clients["s-nail"] = func(t *testing.T, to, _ string) {
		runClient(t, "hi\n", need(t, "s-nail")[0], "-n", "-s", "hello", "-S", "v15-compat", "-S", "sendwait", "-S", "smtp-use-starttls", "-S", "tls-verify=ignore", "-S", "smtp-auth=plain",
			"-S", "mta=smtp://"+strings.ReplaceAll(user, "@", "%40")+":secret@"+addr, "-S", "from="+from, to)
	}
	for _, mechanism := range []string{"PLAIN", "LOGIN"} {
		clients["PHPMailer "+mechanism] = func(t *testing.T, to, content string) {
			phpMailer(t, host, port, user, to, mechanism, content)
		}
	}
	s := f.servers[0]
	for name, send := range clients {
		t.Run(name, func(t *testing.T) {
			id := strings.ReplaceAll(name, " ", "-")
			send(t, "user@"+s.domain, letter{name: "hello", body: "Hello\r\n"}.content(id))
			if name != "s-nail" { // which writes the message itself
				s.wait(t, id, patience)
			}
		})
	}
	f.relay.drained(t, patience)
	text, err := os.ReadFile(f.relay.process.log)
	if err != nil {
		t.Fatal(err)
	}
	log := string(text)
	for _, mechanism := range []string{"PLAIN", "LOGIN", "SCRAM-SHA-256"} {
		if !strings.Contains(log, "msg=login ") || !strings.Contains(log, "mechanism="+mechanism+" user="+user) {
			t.Errorf("nobody has logged in by %s:\n%s", mechanism, log)
		}
	}
	if strings.Contains(log, "secret ") || strings.Contains(log, "wrong ") && !strings.Contains(log, `reason="wrong password"`) {
		t.Error("a password is in the log")
	}
}

// phpMailer sends by the library that most programs in PHP use. It writes the message itself, and takes
// over what the test knows it by.
func phpMailer(t *testing.T, host, port, user, to, mechanism, content string) {
	t.Helper()
	if _, err := os.Stat("/usr/share/php/libphp-phpmailer/autoload.php"); err != nil {
		cannot(t, "PHPMailer: "+err.Error())
	}
	_, id, _ := strings.Cut(content, "X-Mta-Test-Id: ")
	id, _, _ = strings.Cut(id, "\r\n")
	runClient(t, "", need(t, "php")[0], "-r", `
require '/usr/share/php/libphp-phpmailer/autoload.php';
[, $host, $port, $user, $to, $mechanism, $id] = $argv;
$m = new PHPMailer\PHPMailer\PHPMailer(true);
$m->isSMTP();
$m->Host = $host; $m->Port = (int)$port; $m->SMTPSecure = 'tls';
$m->SMTPOptions = ['ssl' => ['verify_peer' => false, 'verify_peer_name' => false]];
$m->SMTPAuth = true; $m->AuthType = $mechanism; $m->Username = $user; $m->Password = 'secret';
$m->setFrom($user, 'Ann'); $m->addAddress($to);
$m->addCustomHeader('X-Mta-Test-Id', $id);
$m->Subject = 'hello'; $m->Body = "Hello\r\n";
$m->send();`, "--", host, port, user, to, mechanism, id)
}
