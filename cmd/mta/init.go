package main

import (
	"bufio"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/miekg/dns"
	"github.com/spf13/cobra"

	"example.org/mta/internal/dkim"
	"example.org/mta/mta/config"
	"example.org/mta/submission/auth"
)

const initHelp = `Write a configuration for production: a listener with TLS and logins, a certificate
from Let's Encrypt, a user, the addresses to send from, and a DKIM key. What no flag
answers is asked.

DIR gets mta.conf, users and dkim/s1.pem; files that exist are not overwritten. The DNS
records to publish and the user's password are printed.

--address is the address to send from. If it is new, and you have another one that
receivers know, name that as --warm: mail beyond the warm-up plan of the new one uses it.`

// initAnswers are those to the questions of 'mta init', and the fields of its template.
type initAnswers struct {
	Hostname, Domain, Address, Warm, Email, Login string
	Dir, DataDir                                  string
}

func newInit(c *cli) *cobra.Command {
	var a initAnswers
	cmd := &cobra.Command{
		Use: "init", Short: "write a configuration for production", Long: initHelp, Args: noArgs,
		Example: `  mta init
  mta init --hostname mta1.example.com --domain example.com --address 192.0.2.11 \
    --warm 192.0.2.10 --email postmaster@example.com --login app`,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.init(cmd, &a) },
	}
	f := cmd.Flags()
	f.StringVar(&a.Hostname, "hostname", "", "the relay's `name`, which leads to this machine in the DNS")
	f.StringVar(&a.Domain, "domain", "", "the `domain` of the senders")
	f.StringVar(&a.Address, "address", "", "the IP `address` to send from")
	f.StringVar(&a.Warm, "warm", "", "another `address`, which receivers know; \"\": none")
	f.StringVar(&a.Email, "email", "", "your `address`, for the certificate authority")
	f.StringVar(&a.Login, "login", "", "the `name` of the first user")
	f.StringVar(&a.Dir, "dir", "/etc/mta", "the `folder` for the files")
	f.StringVar(&a.DataDir, "data-dir", "/var/lib/mta", "the `folder` of the queue")
	return cmd
}

// initFile is what 'mta init' writes. contrib/examples/production.conf is made of it.
const initFile = `# All settings, with their defaults: mta.conf.example. Check changes with 'mta check'.
hostname = {{printf "%q" .Hostname}}
data_dir = {{printf "%q" .DataDir}}

listener "submission" {
  address = ":587"
  tls { acme = true }
  auth { mechanisms = ["PLAIN", "LOGIN"] }
}
acme {
  names       = [{{printf "%q" .Hostname}}]
  email       = {{printf "%q" .Email}}
  tls_address = ":443" # for the challenges of the certificate authority
}
users { file = "{{.Dir}}/users" } # 'mta user add NAME' adds one
{{if .Warm}}
source "shared" { address = {{printf "%q" .Warm}} }
source "new" { address = {{printf "%q" .Address}} }
pool "default" {
  shared = ["shared"]
  dedicated "new" { plan = "standard" } # mail beyond the plan uses the shared source
}
{{else}}
source "out" { address = {{printf "%q" .Address}} }
{{end}}
dkim {{printf "%q" .Domain}} {
  domain = {{printf "%q" .Domain}}
  key "s1" { file = "{{.Dir}}/dkim/s1.pem" }
}
`

// askInit fills in what no flag has answered.
func (c *cli) askInit(cmd *cobra.Command, a *initAnswers) error {
	in := bufio.NewReader(io.LimitReader(c.in, 64<<10))
	for _, q := range []struct {
		flag, text, usual string
		to                *string
	}{
		{"hostname", "The name of this machine in the DNS, such as mta1.example.com", "", &a.Hostname},
		{"domain", "The domain of the senders, such as example.com", "", &a.Domain},
		{"address", "The IP address to send from", "", &a.Address},
		{"warm", "Another address, which receivers know already (none)", "", &a.Warm},
		{"email", "Your mail address, for the certificate authority", "", &a.Email},
		{"login", "The name of the first user (app)", "app", &a.Login},
	} {
		if cmd.Flags().Changed(q.flag) {
			continue
		}
		fmt.Fprintf(c.err, "%s: ", q.text)
		line, err := in.ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		*q.to = cmp.Or(strings.TrimSpace(line), q.usual)
		if *q.to == "" && q.flag != "warm" {
			return usagef("an answer is required: --%s", q.flag)
		}
	}
	for _, text := range []string{a.Address, a.Warm} {
		if _, err := netip.ParseAddr(text); err != nil && text != "" {
			return usagef("%q is not an IP address", text)
		}
	}
	return nil
}

func (c *cli) init(cmd *cobra.Command, a *initAnswers) error {
	if err := c.askInit(cmd, a); err != nil {
		return err
	}
	var text strings.Builder
	if err := template.Must(template.New("").Parse(initFile)).Execute(&text, a); err != nil {
		return err
	}
	conf := strings.ReplaceAll(text.String(), "\n\n\n", "\n\n")
	if _, err := config.Parse([]byte(conf), "the answers", c.env); err != nil {
		return usageError{err}
	}
	name, err := auth.NormalName(a.Login)
	if err != nil {
		return usageError{err}
	}
	signer, pem, err := dkim.Generate(dkim.RSA, 2048)
	if err != nil {
		return err
	}
	key, err := dkim.NewKey(a.Domain, "s1", signer)
	if err != nil {
		return err
	}
	password := rand.Text()
	hash, err := auth.NewHash(auth.Argon2id, password)
	if err != nil {
		return err
	}
	files := []string{"mta.conf", "users", "dkim/s1.pem"}
	for i := range files {
		files[i] = filepath.Join(a.Dir, files[i])
		if _, err := os.Lstat(files[i]); err == nil {
			return hinted{fmt.Errorf("%s already exists", files[i]), "move it away, or name another folder: --dir"}
		}
	}
	if err := makeLike(a.Dir); err != nil {
		return err
	}
	if err := writeNewKey(files[2], pem); err != nil {
		return err
	}
	err = auth.File{Path: files[1]}.UpdateUsers(func(t *auth.UserTable) error {
		return t.Put(&auth.User{Name: name, Hash: hash})
	})
	if err != nil {
		return err
	}
	if err := writeNewKey(files[0], []byte(conf)); err != nil { // it may get secrets later
		return err
	}
	fmt.Fprintf(c.out, "%s, %s and %s are written.\nThe password of %s: %s\n\nPublish these records:\n\n%s\n",
		files[0], files[1], files[2], name, password, a.records(key))
	fmt.Fprintf(c.out, "A host must take mail for %s (MX), for bounces. Then: mta check --dns\n", a.Domain)
	return nil
}

// records are the lines of zone files that the configuration takes.
func (a *initAnswers) records(key *dkim.Key) string {
	var b strings.Builder
	spf := "v=spf1"
	for _, text := range []string{a.Address, a.Warm} {
		address, err := netip.ParseAddr(text)
		if err != nil {
			continue
		}
		kind, mechanism := "A", " ip4:"
		if address.Is6() {
			kind, mechanism = "AAAA", " ip6:"
		}
		spf += mechanism + text
		reverse, _ := dns.ReverseAddr(text)
		fmt.Fprintf(&b, "%s. IN %s %s\n%s IN PTR %[1]s. ; at the provider of the address\n", a.Hostname, kind, text,
			reverse)
	}
	for _, record := range [][2]string{{a.Domain, spf + " ~all"}, {a.Hostname, "v=spf1 a -all"},
		{"_dmarc." + a.Domain, "v=DMARC1; p=none"}} {
		b.WriteString(dkim.TextRecord(record[0], record[1]) + "\n")
	}
	b.WriteString(key.ZoneLine() + "\n")
	return b.String()
}
