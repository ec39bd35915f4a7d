package e2e

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"

	"example.org/mta/internal/testca"
	"example.org/mta/mta/accounting"
)

// daneCase is a recipient's domain under secure.example, or plain.example which is not signed, and what
// DANE makes of mail for it.
type daneCase struct {
	domain string
	// records are those of the domain: HOST and CLEAR are the addresses of Postfix with TLS, and of a sink
	// without; FIT, ANCHOR and OTHER stand for TLSA records of Postfix's certificate, of its authority,
	// and of another certificate, and TLSA for the label in front of a host's name.
	records string
	want    daneVerdict
	why     string // in the reply of what is deferred
}

// daneVerdict is what becomes of the mail.
type daneVerdict string

const (
	matched    daneVerdict = "over TLS, verified by DANE"
	unverified daneVerdict = "over TLS, unverified"
	inClear    daneVerdict = "in clear text"
	deferred   daneVerdict = "deferred"
)

var daneCases = []daneCase{
	{domain: "fit.secure", records: `
		fit MX 10 mx.fit
		mx.fit A HOST
		TLSA.mx.fit TLSA FIT`, want: matched},
	{domain: "implicit.secure", records: `
		implicit A HOST
		TLSA.implicit TLSA FIT`, want: matched},
	{domain: "anchor.secure", records: `
		anchor MX 10 mx.anchor
		mx.anchor A HOST
		TLSA.mx.anchor TLSA ANCHOR`, want: matched},
	{domain: "anchorname.secure", records: `
		anchorname MX 10 mx.anchorname
		mx.anchorname A HOST
		TLSA.mx.anchorname TLSA ANCHOR`, want: deferred, why: "is valid for mx.anchor.secure.example"},
	{domain: "misfit.secure", records: `
		misfit MX 10 mx.misfit
		mx.misfit A HOST
		TLSA.mx.misfit TLSA OTHER`, want: deferred, why: "matches no TLSA record"},
	{domain: "next.secure", records: `
		next MX 10 mx.misfit
		next MX 20 mx.fit`, want: matched},
	{domain: "stripped.secure", records: `
		stripped MX 10 mx.stripped
		mx.stripped A CLEAR
		TLSA.mx.stripped TLSA FIT`, want: deferred, why: "TLS is required"},
	{domain: "unusable.secure", records: `
		unusable MX 10 mx.unusable
		mx.unusable A HOST
		TLSA.mx.unusable TLSA 1 1 1 0000000000000000000000000000000000000000000000000000000000000000
		TLSA.mx.unusable TLSA 3 1 9 00`, want: unverified},
	{domain: "unusableclear.secure", records: `
		unusableclear MX 10 mx.unusableclear
		mx.unusableclear A CLEAR
		TLSA.mx.unusableclear TLSA 3 1 9 00`, want: deferred, why: "TLS is required"},
	{domain: "absent.secure", records: `
		absent MX 10 mx.absent
		mx.absent A HOST`, want: unverified},
	{domain: "absentclear.secure", records: `
		absentclear MX 10 mx.absentclear
		mx.absentclear A CLEAR`, want: inClear},
	{domain: "address.secure", records: `
		address MX 10 bogus-address
		bogus-address A HOST`, want: deferred, why: "SERVFAIL"},
	{domain: "records.secure", records: `
		records MX 10 mx.records
		mx.records A HOST
		TLSA.mx.records TLSA 3 1 1 b09000000000000000000000000000000000000000000000000000000000b095`, want: deferred, why: "SERVFAIL"},
	{domain: "recordsnext.secure", records: `
		recordsnext MX 10 mx.records
		recordsnext MX 20 mx.fit`, want: matched},
	{domain: "silent.secure", records: `
		silent MX 10 mx.silent
		mx.silent A HOST
		TLSA.mx.silent TLSA FIT`, want: deferred, why: "looking up TLSA of "},
	{domain: "alias.secure", records: `
		alias MX 10 mx.alias
		mx.alias CNAME mx.fit`, want: matched},
	{domain: "aliasown.secure", records: `
		aliasown MX 10 mx.aliasown
		mx.aliasown CNAME mx.absent
		TLSA.mx.aliasown TLSA FIT`, want: matched},
	{domain: "unsignedalias.secure", records: `
		unsignedalias MX 10 mx.unsignedalias
		mx.unsignedalias CNAME host.plain.example.
		TLSA.mx.unsignedalias TLSA FIT`, want: matched},
	{domain: "unsignedaliasmisfit.secure", records: `
		unsignedaliasmisfit MX 10 mx.unsignedaliasmisfit
		mx.unsignedaliasmisfit CNAME host.plain.example.
		TLSA.mx.unsignedaliasmisfit TLSA OTHER`, want: deferred, why: "matches no TLSA record"},
	{domain: "recordalias.secure", records: `
		recordalias MX 10 mx.recordalias
		mx.recordalias A HOST
		TLSA.mx.recordalias CNAME TLSA.mx.fit`, want: matched},
	{domain: "unsignedhost.secure", records: `
		unsignedhost MX 10 mx.clear.plain.example.`, want: inClear},
	{domain: "clear.plain", records: `
		clear MX 10 mx.clear
		mx.clear A CLEAR
		TLSA.mx.clear TLSA OTHER`, want: inClear},
	{domain: "host.plain", records: `
		host A HOST
		TLSA.host TLSA OTHER`, want: unverified},
	{domain: "elsewhere.plain", records: `
		elsewhere MX 10 mx.misfit.secure.example.`, want: unverified},
}

// TestDANE sends mail for a domain of each kind through Unbound, which validates what NSD serves, to Postfix
// and to a sink that has no TLS, and asks Postfix's own client for its opinion.
func TestDANE(t *testing.T) {
	parallel(t)
	w := newDANEWorld(t)
	for _, c := range daneCases {
		for _, via := range []string{w.relay.addr, w.other.addr + ":" + w.port} {
			python(t, via, "sender@client.example", []string{c.recipient()}, letter{name: c.domain, body: "x\r\n"}.content(c.domain))
		}
	}
	for _, c := range daneCases {
		t.Run(c.domain, func(t *testing.T) {
			w.relay.becomes(t, c)
			if got, said := w.postfixSays(t, c.recipient()); got != c.want {
				t.Errorf("Postfix's verdict is %q, want %q: %s", got, c.want, said)
			}
		})
	}
	if n := len(w.clear.messages(t)); n != 2*3 {
		t.Errorf("%d messages came in clear text, want 3 of each sender", n)
	}
}

// daneWorld is a relay behind Unbound and two receivers.
type daneWorld struct {
	relay      *daneRelay
	clear      *server // has no TLS
	other      *server // a Postfix that sends
	port       string
	nameServer string
}

type daneRelay struct{ *relay }

func newDANEWorld(t *testing.T) *daneWorld {
	t.Helper()
	addrs := addresses(3)
	w := &daneWorld{port: commonPort(t, addrs...), nameServer: ownAddress(t, 21, "53")}
	ca := testca.New(t)
	cert := ca.Issue(t, []string{"mx.anchor.secure.example"})
	cert.Certificate = append(cert.Certificate, ca.Certificate.Raw)
	certFile, keyFile := testca.Files(t, cert)
	postfixWith(t, addrs[0], w.port, fmt.Sprintf(`smtpd_tls_security_level = may
smtpd_tls_received_header = yes
smtpd_tls_chain_files = %s, %s
`, keyFile, certFile))
	w.clear = smtpSink(t, addrs[1], w.port)
	w.serveZones(t, strings.NewReplacer(
		"HOST", addrs[0], "CLEAR", addrs[1], "TLSA.", "_"+w.port+"._tcp.",
		"FIT", tlsaRecord(3, cert.Leaf), "ANCHOR", tlsaRecord(2, ca.Certificate),
		"OTHER", tlsaRecord(3, testca.New(t).Issue(t, []string{"mx.misfit.secure.example"}).Leaf)))
	w.sender(t, addrs[2])
	w.relay = &daneRelay{newRelay(t, w.nameServer+":53", w.port, "")}
	w.relay.start(t)
	return w
}

// sender runs the Postfix that sends. resolv.conf, where its resolver looks for a name server, is another one
// for it alone.
func (w *daneWorld) sender(t *testing.T, addr string) {
	t.Helper()
	var transports strings.Builder
	for _, c := range daneCases {
		fmt.Fprintf(&transports, " { %[1]s.example = smtp:%[1]s.example:%[2]s }", c.domain, w.port)
	}
	resolvConf := scratch(t) + "/resolv.conf"
	writeFile(t, resolvConf, "nameserver "+w.nameServer+"\noptions edns0 trust-ad\n")
	w.other, _ = postfixBehind(t, resolvConf, addr, w.port, `myhostname = sender.example
virtual_mailbox_domains =
inet_protocols = ipv4
smtp_dns_support_level = dnssec
smtp_tls_security_level = dane
smtp_tls_dane_insecure_mx_policy = may
smtp_tls_loglevel = 1
transport_maps = inline:{`+transports.String()+` }
`)
}

// tlsaRecord is the record of a certificate's key.
func tlsaRecord(usage int, cert *x509.Certificate) string {
	return fmt.Sprintf("%d 1 1 %x", usage, sha256.Sum256(cert.RawSubjectPublicKeyInfo))
}

// serveZones has NSD serve secure.example, which is signed, with two records that were changed after that, and
// plain.example. Nobody answers for the TLSA records of mx.silent.secure.example: the zone has them, so that Unbound
// can't conclude from its NSEC records that there are none.
func (w *daneWorld) serveZones(t *testing.T, names *strings.Replacer) {
	t.Helper()
	zones := map[string]string{"secure.example": zoneHead("secure.example"), "plain.example": zoneHead("plain.example")}
	for _, c := range daneCases {
		_, zone, _ := strings.Cut(c.domain, ".")
		for line := range strings.Lines(c.records) {
			zones[zone+".example"] += names.Replace(strings.TrimSpace(line)) + "\n"
		}
	}
	signed, anchor := sign(t, "secure.example", zones["secure.example"])
	zones["secure.example"] = changed(t, signed, "bogus-address.secure.example.", "127.20.0.1", "127.20.0.2",
		"mx.records.secure.example.", "b090", "b091")
	upstream, _ := nsdWith(t, "plain.example", zones)
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	unboundWith(t, fmt.Sprintf("server:\n  trust-anchor: %q\n", anchor)+stub("example", upstream)+
		stub("_tcp.mx.silent.secure.example", silent.LocalAddr().String()), w.nameServer, "53", "secure.example")
}

// changed gives a zone in which the records of some names, each with a text and its replacement, are others.
func changed(t *testing.T, zone string, what ...string) string {
	t.Helper()
	lines := strings.SplitAfter(zone, "\n")
	for ; len(what) > 0; what = what[3:] {
		found := false
		for i, line := range lines {
			if strings.Contains(line, what[0]+"\t") && strings.Contains(line, what[1]) && !strings.Contains(line, "RRSIG") {
				lines[i], found = strings.Replace(line, what[1], what[2], 1), true
			}
		}
		if !found {
			t.Fatalf("found no record %s of %s in the zone:\n%s", what[1], what[0], zone)
		}
	}
	return strings.Join(lines, "")
}

func (c daneCase) recipient() string { return "user@" + c.domain + ".example" }

// becomes demands that the mail for a domain ends as it should.
func (r *daneRelay) becomes(t *testing.T, c daneCase) {
	t.Helper()
	if c.want == deferred {
		eventually(t, patience, func() error {
			if text, err := r.reply(c.recipient()); err != nil || !strings.Contains(text, c.why) {
				return fmt.Errorf("the last reply is %q, %v; want %q", text, err, c.why)
			}
			return nil
		})
		return
	}
	eventually(t, patience, func() error {
		got, ok := r.delivered(t, c.recipient())
		if !ok {
			text, _ := r.reply(c.recipient())
			return fmt.Errorf("not delivered; the last reply is %q", text)
		}
		if got != c.want {
			t.Fatalf("delivered %s, want %s", got, c.want)
		}
		return nil
	})
}

// delivered gives what the accounting log says of the delivery to a recipient.
func (r *daneRelay) delivered(t *testing.T, recipient string) (daneVerdict, bool) {
	t.Helper()
	var verdict daneVerdict
	found := false
	_, err := accounting.ReadFrom(t.Context(), r.dir+"/data/log", accounting.Position{}, accounting.Position{}, func(_, _ accounting.Position, line []byte) error {
		var record struct {
			Type, Recipient string
			Version         string `json:"tls_protocol_version"`
			Verified        string `json:"tls_verified_by"`
		}
		if err := json.Unmarshal(line, &record); err != nil || record.Type != "Delivery" || record.Recipient != recipient {
			return err
		}
		switch found = true; {
		case record.Version == "":
			verdict = inClear
		case record.Verified == "DANE":
			verdict = matched
		default:
			verdict = unverified
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return verdict, found
}

// postfixSays gives the verdict of another Postfix, which sends to the same domains by its own idea of DANE.
func (w *daneWorld) postfixSays(t *testing.T, recipient string) (v daneVerdict, said string) {
	t.Helper()
	eventually(t, patience, func() error {
		log := readFile(t, w.other.log)
		to := regexp.MustCompile(`to=<` + recipient + `>, .*`).FindString(log)
		relay, status := daneField(to, "relay"), daneField(to, "status")
		switch how := regexp.MustCompile(`(\w+) TLS connection established to ` + regexp.QuoteMeta(relay)).FindStringSubmatch(log); {
		case to == "":
			return errors.New("Postfix has not tried yet")
		case status == "deferred":
			v = deferred
		case how == nil:
			v = inClear
		case how[1] == "Verified":
			v = matched
		default:
			v = unverified
		}
		said = to
		return nil
	})
	return v, said
}

// daneField is a field of a line of Postfix's log.
func daneField(line, name string) string {
	_, rest, _ := strings.Cut(line, " "+name+"=")
	value, _, _ := strings.Cut(rest, ",")
	value, _, _ = strings.Cut(value, " ")
	return value
}
