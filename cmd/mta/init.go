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

	"example.org/mta/delivery"
	"example.org/mta/internal/dkim"
	"example.org/mta/internal/envelope"
	"example.org/mta/mta/config"
	"example.org/mta/submission/auth"
	"example.org/mta/warmup"
)

const initHelp = `Write a configuration for production: a listener with TLS and logins, a certificate
from Let's Encrypt, a user, the addresses to send from, and a DKIM key. What no flag
answers is asked.

DIR gets mta.conf, or the file of --config, users and dkim/s1.pem; files that exist are
not overwritten. The DNS records to publish and the user's password are printed.

--address is the address to send from. If it is new to receivers, --plan limits its mail
for some weeks, and the rest waits, or uses --warm, an address that receivers know. With
--plan none there is no limit. Behind a NAT, --public-address is what receivers see.`

// initAnswers are those to the questions of 'mta init', and the fields of its template.
type initAnswers struct {
	Hostname string `flag:"hostname" help:"the relay's <name>, which leads to this machine in the DNS"`
	Domain   string `flag:"domain" help:"the <domain> of the senders"`
	Address  string `flag:"address" help:"the IP <address> to send from"`
	Public   string `flag:"public-address" help:"the <address> that receivers see of it, behind a NAT"`
	Plan     string `flag:"plan" help:"the warm-up <plan> of the address; none: receivers know it"`
	Warm     string `flag:"warm" help:"an <address> that receivers know, for mail beyond the plan; \"\": that waits"`
	Email    string `flag:"email" help:"your <address>, for the certificate authority"`
	Login    string `flag:"login" help:"the <name> of the first user"`
	Dir      string `flag:"dir" help:"the <folder> for the files (default: that of --config, or /etc/mta)"`
	DataDir  string `flag:"data-dir" help:"the <folder> of the queue"`
}

// noPlan is the answer for an address that receivers know.
const noPlan = "none"

// Caps describes the plan, for the file. It is empty without one.
func (a *initAnswers) Caps() string {
	p, err := warmup.Preset(a.Plan)
	if err != nil {
		return ""
	}
	day, first := func(s warmup.Stage) int64 { return cmp.Or(s.Daily, 24*s.Hourly) }, int64(0)
	for _, s := range p.Stages[:5] {
		first += day(s)
	}
	n := len(p.Stages)
	return fmt.Sprintf("%d recipients on day 1, %d in 5 days, %d on day %d", day(p.Stages[0]), first,
		day(p.Stages[n-1]), n)
}

func newInit(c *cli) *cobra.Command {
	a := initAnswers{DataDir: "/var/lib/mta"}
	cmd := &cobra.Command{
		Use: "init", Short: "write a configuration for production", Long: initHelp, Args: noArgs,
		Example: `  mta init
  mta init --hostname mta1.example.com --domain example.com --address 192.0.2.11 \
    --plan standard --warm 192.0.2.10 --email postmaster@example.com --login app`,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.init(cmd, &a) },
	}
	addFlags(cmd.Flags(), &a)
	return cmd
}

// initFile is what 'mta init' writes. contrib/examples/production.conf is made of it.
const initFile = `{{define "own"}}{{if .Public}}{
  address        = {{printf "%q" .Address}}
  public_address = {{printf "%q" .Public}}
}{{else}}{ address = {{printf "%q" .Address}} }{{end}}{{end -}}
# All settings, with their defaults: /usr/share/doc/mta/mta.conf.example. Check changes with 'mta check'.
hostname   = {{printf "%q" .Hostname}}
postmaster = {{printf "%q" .Email}} # the sender of reports, which gets answers to them
data_dir   = {{printf "%q" .DataDir}}

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
users { file = {{printf "%q" (print .Dir "/users")}} } # 'mta user add NAME' adds one

{{if .Warm}}source "shared" { address = {{printf "%q" .Warm}} }
{{end}}source "out" {{template "own" .}}
{{- with .Caps}}
# Warm-up: {{.}}, while providers take the mail well.
# Mail beyond the plan {{if $.Warm}}uses the shared source.
{{- else}}waits, and expires after max_age (5d).
{{- end}}
pool "default" {
{{- if $.Warm}}
  shared = ["shared"]
{{- else}}
  overflow = "hold"
{{- end}}
  dedicated "out" { plan = {{printf "%q" $.Plan}} }
}
{{- end}}

dkim {{printf "%q" .Domain}} {
  domain = {{printf "%q" .Domain}}
  key "s1" { file = {{printf "%q" (print .Dir "/dkim/s1.pem")}} }
}
`

// askInit fills in what no flag has answered. A bad answer is asked again.
func (c *cli) askInit(cmd *cobra.Command, a *initAnswers) error {
	in := bufio.NewReader(io.LimitReader(c.in, 64<<10))
	for _, q := range []struct {
		flag, text, usual string
		to                *string
		check             func(*string) error
	}{
		{"hostname", "The name of this machine in the DNS, such as mta1.example.com", "", &a.Hostname, initHost},
		{"domain", "The domain of the senders, such as example.com", "", &a.Domain, initHost},
		{"address", "The IP address to send from", "", &a.Address, initAddress},
		{"public-address", "The address that receivers see of this private one", "", &a.Public, initAddress},
		{"plan", "Its warm-up plan (empty: standard; none: receivers know the address)", "standard", &a.Plan, initPlan},
		{"warm", "An address that receivers know, for mail beyond the plan (empty: that mail waits)", "", &a.Warm,
			initAddress},
		{"email", "Your mail address, for the certificate authority", "", &a.Email, initEmail},
		{"login", "The name of the first user (empty: app)", "app", &a.Login, initLogin},
	} {
		asked, optional := !cmd.Flags().Changed(q.flag), q.flag == "warm"
		switch q.flag {
		case "public-address":
			ip, _ := netip.ParseAddr(a.Address)
			asked, optional = asked && ip.IsPrivate(), !ip.IsPrivate()
		case "warm":
			asked = asked && a.Plan != noPlan
		}
		for {
			var err error
			if asked {
				fmt.Fprintf(c.err, "%s: ", q.text)
				var line string
				if line, err = in.ReadString('\n'); err != nil && !errors.Is(err, io.EOF) {
					return err
				}
				*q.to = cmp.Or(strings.TrimSpace(line), q.usual)
			}
			fault := q.check(q.to)
			if *q.to == "" {
				fault = errors.New("an answer is required")
			}
			if fault == nil || *q.to == "" && optional {
				ip, _ := netip.ParseAddr(*q.to)
				if ip.IsValid() && q.flag != "public-address" && delivery.MachineLacks(ip) {
					fmt.Fprintf(c.err, "This machine lacks the address %s: behind a NAT, give its private one\n", ip)
				}
				break
			}
			if !asked || err != nil {
				return usagef("--%s: %v", q.flag, fault)
			}
			fmt.Fprintln(c.err, fault)
		}
	}
	return nil
}

// initHost checks a name that the DNS of the world can have, and gives it in A-label form.
func initHost(name *string) error {
	ascii, err := envelope.ToASCII(*name)
	_, ip := netip.ParseAddr(ascii)
	if err != nil || strings.HasPrefix(ascii, "[") || ip == nil || !strings.Contains(strings.Trim(ascii, "."), ".") {
		return fmt.Errorf("%q is not a host name with its domain", *name)
	}
	*name = ascii
	return nil
}

func initAddress(text *string) error {
	ip, err := netip.ParseAddr(*text)
	if err != nil || ip.Zone() != "" {
		return fmt.Errorf("%q is not an IP address", *text)
	}
	if !ip.IsGlobalUnicast() {
		return fmt.Errorf("no mail can leave from %s", *text)
	}
	return nil
}

func initPlan(name *string) error {
	if *name == noPlan {
		return nil
	}
	_, err := warmup.Preset(*name)
	return err
}

func initEmail(text *string) error {
	address, err := envelope.ParseAddress(*text)
	if domain := address.Domain(); err != nil || initHost(&domain) != nil {
		return fmt.Errorf("%q is not a mail address", *text)
	}
	return nil
}

func initLogin(name *string) (err error) {
	*name, err = auth.NormalName(*name)
	return err
}

func (c *cli) init(cmd *cobra.Command, a *initAnswers) error {
	usual := filepath.Dir(defaultConfig)
	if c.configFlag != "" {
		usual = filepath.Dir(c.configFlag)
	}
	a.Dir = cmp.Or(a.Dir, usual)
	conf := cmp.Or(c.configFlag, filepath.Join(a.Dir, "mta.conf"))
	for _, path := range []*string{&a.Dir, &a.DataDir, &conf} { // the relay may start in another folder
		var err error
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	files := []string{conf, filepath.Join(a.Dir, "users"), filepath.Join(a.Dir, "dkim/s1.pem")}
	for i := range files {
		if _, err := os.Lstat(files[i]); err == nil {
			return hinted{fmt.Errorf("%s already exists", files[i]), "move it away, or name another folder: --dir"}
		}
	}
	if err := c.askInit(cmd, a); err != nil {
		return err
	}
	if a.Plan == noPlan && a.Warm != "" {
		return usagef("--warm: it is for mail beyond the plan, and there is none")
	}
	var text strings.Builder
	if err := template.Must(template.New("").Parse(initFile)).Execute(&text, a); err != nil {
		return err
	}
	if _, err := config.Parse([]byte(text.String()), "the answers", c.env); err != nil {
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
	sender, err := auth.ParseSender(a.Domain)
	if err != nil {
		return err
	}
	password := rand.Text()
	hash, err := auth.NewHash(auth.Argon2id, password)
	if err != nil {
		return err
	}
	if err := makeLike(a.Dir); err != nil {
		return err
	}
	if err := writeNewKey(files[2], pem); err != nil {
		return err
	}
	err = auth.File{Path: files[1]}.UpdateUsers(func(t *auth.UserTable) error {
		return t.Put(&auth.User{Name: a.Login, Hash: hash, Senders: auth.Senders{sender}})
	})
	if err != nil {
		return err
	}
	if err := writeNewKey(conf, []byte(text.String())); err != nil { // it may get secrets later
		return err
	}
	start, of := "systemctl restart mta", ""
	if conf != defaultConfig {
		of = " --config " + conf
		start = "mta serve" + of
	}
	fmt.Fprintf(c.out, initDone, conf, files[1], files[2], a.Login, password, a.Domain, a.records(key), of, start)
	return nil
}

// initDone is what 'mta init' prints at the end.
const initDone = `%s, %s and %s are written.
The password of %s, which is not shown again ('mta user password %[4]s' sets another): %[5]s
It may send as %s.

Publish these records, and an MX: some host must take mail for %[6]s, bounces among it.

%s
Then, with ports 443 and 587 open from the world and 25 to it:

  mta check%[8]s
  %[9]s
  mta check --dns%[8]s
`

// records are the lines of zone files that the configuration takes.
func (a *initAnswers) records(key *dkim.Key) string {
	var b strings.Builder
	spf := "v=spf1"
	for _, text := range []string{a.Warm, cmp.Or(a.Public, a.Address)} { // in the order of the sources
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
		{"_dmarc." + a.Domain, "v=DMARC1; p=none; rua=mailto:dmarc@" + a.Domain}} {
		b.WriteString(dkim.TextRecord(record[0], record[1]) + "\n")
	}
	b.WriteString(key.ZoneLine() + "\n")
	return b.String()
}
