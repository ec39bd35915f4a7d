package powermta_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.org/mta/importer"
	"example.org/mta/importer/powermta"
	"example.org/mta/internal/route"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
)

var update = flag.Bool("update", false, "write the golden files anew")

// check reads the result of a draft as 'mta check' does.
func check(d *importer.Draft) error {
	_, err := config.Parse(d.Bytes(), "mta.conf", func(name string) string { return d.Secrets[name] })
	return err
}

// Each configuration in testdata gives the mta.conf and the notes beside it, and that is a valid configuration.
func TestSamples(t *testing.T) {
	samples, err := filepath.Glob("testdata/*.pmta")
	if err != nil || len(samples) < 20 {
		t.Fatalf("%d samples, %v", len(samples), err)
	}
	for _, path := range samples {
		t.Run(filepath.Base(path), func(t *testing.T) {
			d, err := powermta.Read(path)
			if err != nil {
				t.Fatal(err)
			}
			text := d.Bytes()
			if err := check(d); err != nil {
				t.Errorf("the result is no configuration: %v", err)
			}
			compare(t, strings.TrimSuffix(path, ".pmta")+".conf", text)
			compare(t, strings.TrimSuffix(path, ".pmta")+".notes", notes(d))
		})
	}
}

func notes(d *importer.Draft) []byte {
	s := d.Summary()
	var b bytes.Buffer
	fmt.Fprintf(&b, "%d carried, %d with a note, %d not, %d of these protect\n", s.Carried, s.Noted, s.Lost, s.Protects)
	for _, n := range s.Notes {
		fmt.Fprintf(&b, "%s:%d %s: lost %v, protects %v: %s\n", n.File, n.Line, n.Directive, n.Lost, n.Protects, n.Reason)
	}
	return b.Bytes()
}

func compare(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: %v; 'go test -update' writes it anew; got\n%s", path, err, got)
	}
}

// The samples use every directive that the manual's table has.
func TestSamplesUseTheDirectives(t *testing.T) {
	used := make(map[string]bool)
	err := filepath.WalkDir("testdata", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.Contains(path, "fuzz") || strings.HasSuffix(path, ".notes") || strings.HasSuffix(path, ".conf") && !strings.Contains(path, "parts") {
			return err
		}
		text, err := os.ReadFile(path)
		for line := range strings.Lines(string(text)) {
			if words := strings.Fields(strings.Trim(strings.TrimSpace(line), "<>")); len(words) > 0 {
				used[words[0]] = true
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/moving-from-powermta.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(page)) {
		cell, ok := strings.CutPrefix(line, "- `")
		if !ok {
			continue
		}
		cell, _, _ = strings.Cut(cell, "`: ")
		for _, name := range strings.Split(strings.ReplaceAll(cell, "`", ""), ", ") {
			if n++; !used[strings.Trim(name, "<> ")] {
				t.Errorf("no sample uses %s", name)
			}
		}
	}
	if n < 60 {
		t.Errorf("the list has %d directives", n)
	}
}

// readFrom makes a draft of a configuration of several files.
func readFrom(path string, all map[string]string) (*importer.Draft, error) {
	return powermta.ReadFrom(path, files(all), func(pattern string) (found []string, err error) {
		for name := range all {
			if ok, err := filepath.Match(pattern, name); err != nil {
				return nil, err
			} else if ok {
				found = append(found, name)
			}
		}
		return found, nil
	})
}

// files gives them.
func files(all map[string]string) func(string) (io.ReadCloser, error) {
	return func(path string) (io.ReadCloser, error) {
		text, ok := all[path]
		if !ok {
			return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
		}
		return io.NopCloser(strings.NewReader(text)), nil
	}
}

// What is wrong is reported with its file and line.
func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		all  map[string]string
		want string
	}{
		"loop":             {map[string]string{"etc/config": "include a\n", "etc/a": "\ninclude b\n", "etc/b": "# b\n\ninclude ../etc/a"}, "etc/b:3: include: etc/a includes itself"},
		"missing file":     {map[string]string{"etc/config": "\n\ninclude a\n"}, "etc/config:3: include: etc/a does not exist"},
		"no match":         {map[string]string{"etc/config": "include d/*.conf\n"}, "etc/config:1: include: no file matches \"etc/d/*.conf\""},
		"bad pattern":      {map[string]string{"etc/config": "include d/[.conf\n"}, "etc/config:1: include: \"etc/d/[.conf\""},
		"by HTTP":          {map[string]string{"etc/config": "include http://192.0.2.1/pmta\n"}, "etc/config:1: include: no file is fetched by \"http\""},
		"loop by pattern":  {map[string]string{"etc/config": "include c*\n"}, "etc/config:1: include: etc/config includes itself"},
		"Latin-1":          {map[string]string{"etc/config": "# f\xfcr\nhost-name \xfc.example\n"}, "etc/config:2: the line is not text in UTF-8"},
		"no such list":     {map[string]string{"etc/config": "<domain *>\nsmtp-pattern-list x\n</domain>"}, "etc/config:2: smtp-pattern-list: there is no list"},
		"rate":             {map[string]string{"etc/config": "include a", "etc/a": "<domain *>\n max-msg-rate 5/x\n</domain>"}, "etc/a:2: max-msg-rate: \"5/x\" is not a rate"},
		"duration":         {map[string]string{"etc/config": "<domain *>\n retry-after 10\n</domain>"}, "etc/config:2: retry-after: \"10\" is not a time: the unit is missing"},
		"size":             {map[string]string{"etc/config": "<acct-file a>\nmax-size 10Q\n</acct-file>"}, "etc/config:2: max-size: \"10Q\" is not a size"},
		"number":           {map[string]string{"etc/config": "<domain *>\nmax-smtp-out many\n</domain>"}, "etc/config:2: max-smtp-out: \"many\" is not a number"},
		"boolean":          {map[string]string{"etc/config": "<source 10.0.0.1>\nalways-allow-relaying perhaps\n</source>"}, "etc/config:2: always-allow-relaying: \"perhaps\" is neither"},
		"days":             {map[string]string{"etc/config": "<virtual-mta a>\nsmtp-source-host 192.0.2.1 a\n<domain *>\nmax-cold-virtual-mta-msg 5/h\n</domain>\n</virtual-mta>"}, "etc/config:4: max-cold-virtual-mta-msg: \"5/h\" is not a number per day"},
		"macro":            {map[string]string{"etc/config": "<domain $x>\n</domain>"}, "etc/config:1: $x: there is no domain-macro"},
		"macro of itself":  {map[string]string{"etc/config": "domain-macro x a.$x\n<domain $x>\n</domain>"}, "etc/config:2: $x: more than"},
		"open scope":       {map[string]string{"etc/config": "\n<domain *>\n"}, "etc/config:2: <domain> is never closed"},
		"open in include":  {map[string]string{"etc/config": "include a\n</domain>", "etc/a": "<domain *>\n"}, "etc/a:1: <domain> is never closed"},
		"wrong close":      {map[string]string{"etc/config": "<domain *>\n</source>"}, "etc/config:2: </source> closes <domain> of line 1"},
		"nothing to close": {map[string]string{"etc/config": "</source>"}, "etc/config:1: </source> closes nothing"},
		"no member":        {map[string]string{"etc/config": "<virtual-mta-pool p>\nvirtual-mta a\n</virtual-mta-pool>"}, "etc/config:2: virtual-mta: there is no virtual MTA"},
		"weight":           {map[string]string{"etc/config": "<virtual-mta a>\n</virtual-mta>\n<virtual-mta-pool p>\nvirtual-mta a heavy\n</virtual-mta-pool>\n"}, "etc/config:4: virtual-mta: \"heavy\" is not a weight"},
		"no weight":        {map[string]string{"etc/config": "<virtual-mta a>\n</virtual-mta>\n<virtual-mta-pool p>\nvirtual-mta a 0\n</virtual-mta-pool>\n"}, "etc/config:4: virtual-mta: no virtual MTA of the pool has a weight above 0"},
		"no default":       {map[string]string{"etc/config": "<source 10.0.0.1>\ndefault-virtual-mta a\n</source>"}, "etc/config:2: default-virtual-mta: there is no virtual MTA or pool"},
		"no address":       {map[string]string{"etc/config": "<virtual-mta a>\nsmtp-source-host a.example.com\n</virtual-mta>"}, "etc/config:2: smtp-source-host"},
		"network":          {map[string]string{"etc/config": "<source 10.0.0.300>\n</source>"}, "etc/config:1: <source>: \"10.0.0.300\" is neither"},
		"continued":        {map[string]string{"etc/config": "# x\nhost-name \\\n bad..name\n"}, "etc/config:2: host-name"},
		"NUL":              {map[string]string{"etc/config": "a\nb\x00\n"}, "etc/config:2: the line is not text"},
		"listener":         {map[string]string{"etc/config": "smtp-listener somewhere:25"}, "etc/config:1: smtp-listener"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := readFrom("etc/config", c.all)
			if err == nil || !strings.Contains("\n"+err.Error(), "\n"+c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
			if list := (*importer.FaultList)(nil); !errors.As(err, &list) {
				t.Errorf("%T is no list of faults", err)
			}
		})
	}
}

// All faults are reported at once, in the order of the files, and nothing that merely follows from another.
func TestAllFaultsAtOnce(t *testing.T) {
	_, err := readFrom("etc/config", map[string]string{
		"etc/config": `include a
host-name bad..name
<virtual-mta v>
  smtp-source-host nowhere
  <domain *>
    max-smtp-out many
    retry-after 10
  </domain>
</virtual-mta>
<virtual-mta-pool p>
  virtual-mta v
  virtual-mta gone
</virtual-mta-pool>
<smtp-pattern-list l>
  reply no
  reply /x/ mode=backoff
</smtp-pattern-list>
<domain a.example, b.example>
  smtp-pattern-list l
  max-msg-rate 5/x
</domain>
<source 10.0.0.300>
</source>
<source 10.0.0.1>
  always-allow-relaying perhaps
  max-message-size big
  default-virtual-mta absent
</source>
total-max-smtp-in lots
<acct-file f>
  max-size 10Q
  delete-after 5
</acct-file>
`,
		"etc/a": "<domain c.example>\n  bounce-after soon\n  max-smtp-out -1\n</domain>\n",
	})
	list := (*importer.FaultList)(nil)
	if !errors.As(err, &list) {
		t.Fatalf("%T: %v", err, err)
	}
	var got []string
	for _, f := range list.First {
		word, _, _ := strings.Cut(f.What, ":")
		got = append(got, fmt.Sprintf("%s:%d %s", f.File, f.Line, word))
	}
	want := []string{
		"etc/config:2 host-name", "etc/config:4 smtp-source-host", "etc/config:6 max-smtp-out", "etc/config:7 retry-after",
		"etc/config:12 virtual-mta", "etc/config:15 \"reply no\" is not a rule", "etc/config:20 max-msg-rate", "etc/config:22 <source>",
		"etc/config:25 always-allow-relaying", "etc/config:26 max-message-size", "etc/config:27 default-virtual-mta", "etc/config:29 total-max-smtp-in",
		"etc/config:31 max-size", "etc/config:32 delete-after", "etc/a:2 bounce-after", "etc/a:3 max-smtp-out",
	}
	if !slices.Equal(got, want) || list.More != 0 {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// What is missing because of another fault is no further one, and the reading goes on behind a scope without its end.
func TestFaultsThatFollowAreNoFaults(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"a file with definitions": {
			"include gone\n<domain $m>\nsmtp-pattern-list l\nmax-smtp-out x\n</domain>\n<virtual-mta-pool p>\nvirtual-mta v\n</virtual-mta-pool>\n<source 10.0.0.1>\ndefault-virtual-mta v\n</source>\nhost-name a..b\n",
			"c:1: include; c:12: host-name"},
		"a loop": {"include c\n<virtual-mta-pool p>\nvirtual-mta v\n</virtual-mta-pool>\n<domain *>\nmax-smtp-out x\n</domain>\n", "c:1: include; c:6: max-smtp-out"},
		"a scope without its end": {
			"<domain a.example>\nmax-smtp-out x\n<domain b.example>\nmax-smtp-out y\n</domain>\n<virtual-mta v>\nsmtp-source-host z\n</virtual-mta>\n",
			"c:1: <domain> is never closed; c:2: max-smtp-out; c:4: max-smtp-out; c:7: smtp-source-host"},
		"a misspelt end":  {"<domain a.example>\nmax-smtp-out x\n</domian>\n<domain b.example>\nmax-smtp-out y\n</domain>\n", "c:2: max-smtp-out; c:3: </domian> closes <domain> of line 1; c:5: max-smtp-out"},
		"an end too many": {"</domain>\nhost-name a..b\n", "c:1: </domain> closes nothing; c:2: host-name"},
		"no name":         {"<virtual-mta>\nsmtp-source-host x\n</virtual-mta>\n<virtual-mta-pool p>\nvirtual-mta a\n</virtual-mta-pool>\nhost-name a..b", "c:1: write it as <virtual-mta name>; c:7: host-name"},
		"Latin-1":         {"<virtual-mta f\xfcr>\nsmtp-source-host x\n</virtual-mta>\nhost-name f\xfcr..example", "c:1: the line is not text in UTF-8; c:2: smtp-source-host; c:4: the line is not text in UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := readFrom("c", map[string]string{"c": c.text})
			list := (*importer.FaultList)(nil)
			if !errors.As(err, &list) {
				t.Fatalf("%T: %v", err, err)
			}
			wants := strings.Split(c.want, "; ")
			ok := len(wants) == len(list.First)
			for i := 0; ok && i < len(wants); i++ {
				ok = strings.HasPrefix(list.First[i].Error(), wants[i])
			}
			if !ok {
				t.Errorf("got\n%v\nwant %s", err, c.want)
			}
		})
	}
}

// What was found before the bounds are reached is reported, too.
func TestFaultsBeforeABound(t *testing.T) {
	_, err := readFrom("c", map[string]string{"c": "</domain>\n" + strings.Repeat("x", 70_000)})
	if err == nil || !strings.HasPrefix(err.Error(), "c:1: </domain> closes nothing") || !strings.Contains(err.Error(), "\nc:2: the line has more than 65536 octets") {
		t.Error(err)
	}
}

// What an import would cost in memory is bounded.
func TestConfigurationsAreBounded(t *testing.T) {
	long := map[string]string{"c": strings.Repeat("domain-macro a b.example\n", 600_000)}
	if _, err := readFrom("c", long); err == nil || !strings.Contains(err.Error(), "more than 500000 directives") {
		t.Errorf("too many directives: %v", err)
	}
	endless := map[string]string{"c": strings.Repeat("x\\\n", 40_000)}
	if _, err := readFrom("c", endless); err == nil || !strings.HasPrefix(err.Error(), "c:1: the line has more than 65536 octets") {
		t.Errorf("a line without an end: %v", err)
	}
	wide := "domain-macro a " + strings.Repeat("x,", 300) + "y\ndomain-macro b " + strings.Repeat("x,", 300) + "y\n<domain $a.$b>\n</domain>"
	if _, err := readFrom("c", map[string]string{"c": wide}); err == nil || !strings.Contains(err.Error(), "more than 50000 domains") {
		t.Errorf("too many domains: %v", err)
	}
}

// Passwords are in no line of the result, and in no note.
func TestPasswordsAreNotRepeated(t *testing.T) {
	d := read(t, `
<smtp-user u>
  password geheim1
</smtp-user>
<domain a.example>
  route [192.0.2.1]
  use-starttls no
  auth-username u
  auth-password "geheim2"
  proxy-password geheim3
</domain>
<domain b.example>
  auth-password geheim4
</domain>
<domain c.example>
  route [192.0.2.2]
  auth-username u
  auth-password other
</domain>
smtp-server-tls-certificate x.pem geheim5
http-api-secret geheim6
`)
	if text := string(d.Bytes()) + string(notes(d)); strings.Contains(text, "geheim") {
		t.Errorf("a password shows:\n%s", text)
	}
	if want := map[string]string{"PASSWORD_A_EXAMPLE": "geheim2", "PASSWORD_C_EXAMPLE": "other"}; !maps.Equal(d.Secrets, want) {
		t.Errorf("secrets %v, want %v", d.Secrets, want)
	}
	if err := check(d); err != nil {
		t.Errorf("%v\n%s", err, d.Bytes())
	}
}

// read makes a draft of a configuration.
func read(t *testing.T, text string) *importer.Draft {
	t.Helper()
	d, err := readFrom("c", map[string]string{"c": text})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// What a client may not do in PowerMTA, it may not do here, or the loss counts as that of a protection.
func TestNobodyMayMoreThanBefore(t *testing.T) {
	for name, c := range map[string]struct {
		text, want string
		protects   int
	}{
		"header fields of a smaller network": {
			"<source 10.0.0.0/8>\nprocess-x-virtual-mta yes\n</source>\n<source 10.128.0.0/9>\nprocess-x-virtual-mta no\n</source>",
			`headers_from = ["10.0.0.0/9"]`, 0},
		"the pool by a network that may name the job only": {
			"<source 10.0.0.0/8>\nprocess-x-virtual-mta yes\n</source>\n<source 192.0.2.0/24>\nprocess-x-job yes\n</source>",
			`headers_from = ["10.0.0.0/8"]`, 0},
		"the pool by a user": {
			"<source 10.0.0.0/8>\nprocess-x-virtual-mta yes\n</source>\n<smtp-user ann>\npassword x\n</smtp-user>",
			"smtp-user ann>: not carried, and it protects", 1},
		"the pool by a user who could": {
			"<source {s}>\nprocess-x-virtual-mta yes\n</source>\n<smtp-user ann>\npassword x\nsource {s}\n</smtp-user>",
			`pool_header = "X-Virtual-MTA"`, 0},
		"two scopes for one network": {
			"<source 10.0.0.0/8>\nalways-allow-relaying yes\n</source>\n<source 10.0.0.0/8>\nprocess-x-job yes\n</source>",
			`relay_from      = ["10.0.0.0/8"]`, 0},
		"IPv4 within IPv6": {
			"<source ::ffff:10.0.0.1>\nalways-allow-relaying yes\n</source>", `relay_from = ["10.0.0.1/32"]`, 0},
		"a network without service, and users": {
			"<source 203.0.113.0/24>\nsmtp-service no\n</source>\n<smtp-user ann>\npassword x\n</smtp-user>",
			"smtp-service no: not carried, and it protects", 1},
		"a stopped address": {
			"<domain *>\nsource-ip-max-smtp-out 192.0.2.1 0\n</domain>", "0 stops the mail", 1},
		"a route by MX records": {
			"<domain a.example>\nroute lookup-mx:b.example\n</domain>", "not carried, and it protects", 1},
		"the address of the client": {
			"<source 10.0.0.0/8>\nhide-message-source yes\n</source>", "not carried, and it protects", 1},
		"limits in a scope that is not known": {
			"<source-group g>\n<domain a.example>\nmax-smtp-out 5\n</domain>\n</source-group>\n<colours>\nblue yes\n</colours>", "<source-group g>: not carried, and it protects", 1},
		"limits that are none": {
			"<source 10.0.0.0/8>\nhide-message-source no\n</source>\n<domain *>\nmax-data-volume-rate unlimited\nmax-unknown unlimited\n</domain>", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			d := read(t, c.text)
			if err := check(d); err != nil {
				t.Error(err)
			}
			if text := string(d.Bytes()); !strings.Contains(text, c.want) || d.Summary().Protects != c.protects {
				t.Errorf("%d that protect, want %d, and %s in:\n%s", d.Summary().Protects, c.protects, c.want, text)
			}
		})
	}
}

// Mail for a domain is never sent faster than before because a scope of one virtual MTA, or the other kind of limit, names
// it too.
func TestNoLimitIsRaised(t *testing.T) {
	const a, b = "<virtual-mta a>\nsmtp-source-host 192.0.2.1 a.example\n%s</virtual-mta>\n", "<virtual-mta b>\nsmtp-source-host 192.0.2.2 b.example\n%s</virtual-mta>\n"
	for name, c := range map[string]struct{ text, want string }{
		"the only one has": {
			"<domain *>\nmax-smtp-out 20\n</domain>\n" + fmt.Sprintf(a, "<domain x.example>\nmax-smtp-out 30\n</domain>\n"),
			"connection_limit_per_source = 30 #"},
		"the domain has a higher limit than all": {
			"<domain *>\nmax-smtp-out 20\n</domain>\n<domain x.example>\nmax-smtp-out 30\n</domain>\n" + fmt.Sprintf(a, ""),
			"connection_limit_per_source = 30 #"},
		"the addresses have a rate, and the domain another": {
			"<domain *>\nsource-ip-max-msg-rate 0/0 100/h\n</domain>\n<domain x.example>\nmax-msg-rate 200/h\n</domain>\n" + fmt.Sprintf(a, ""),
			`max_message_rate_per_source = "100/h"`},
		"a limit of each address": {
			"<domain x.example>\nsource-ip-max-smtp-out 192.0.2.1 3\n</domain>\n" + fmt.Sprintf(a, "smtp-source-host 192.0.2.3 c.example\n"),
			"connection_limit_per_source = 3 #"},
		"a limit of both addresses": {
			"<domain x.example>\nsource-ip-max-smtp-out 192.0.2.1 3\nmax-smtp-out 4\n</domain>\n" + fmt.Sprintf(a, "smtp-source-host 192.0.2.3 c.example\n"),
			"connection_limit_per_source = 2 #"},
		"a rate of each address": {
			"<domain x.example>\nsource-ip-max-msg-rate 0/0 90/h\n</domain>\n" + fmt.Sprintf(a, "smtp-source-host 192.0.2.3 c.example\n"),
			`max_message_rate_per_source = "90/h" #`},
		"a rate of both addresses": {
			"<domain x.example>\nsource-ip-max-msg-rate 0/0 90/h\nmax-msg-rate 100/h\n</domain>\n" + fmt.Sprintf(a, "smtp-source-host 192.0.2.3 c.example\n"),
			`max_message_rate_per_source = "50/h" #`},
		"two names of one directive": {
			"<domain *>\nmax-msg-per-hour 100\n</domain>\n<domain x.example>\nmax-msg-rate 200/h\n</domain>\n" + fmt.Sprintf(a, ""),
			`max_message_rate_per_source = "200/h"`},
	} {
		t.Run(name, func(t *testing.T) {
			text := string(read(t, c.text).Bytes())
			_, block, _ := strings.Cut(text, `domain "x.example" {`)
			if block, _, _ = strings.Cut(block, "\n}"); !strings.Contains(block, c.want) {
				t.Errorf("no %s in:\n%s", c.want, text)
			}
		})
	}
}

// Each virtual MTA keeps its own limit at a domain, and what is not limited for it alone has that of all.
func TestVirtualMTAsKeepTheirLimits(t *testing.T) {
	const a, b = "<virtual-mta a>\nsmtp-source-host 192.0.2.1 a.example\n%s</virtual-mta>\n", "<virtual-mta b>\nsmtp-source-host 192.0.2.2 b.example\n%s</virtual-mta>\n"
	const all = "<domain *>\nmax-smtp-out 20\n</domain>\n"
	for name, c := range map[string]struct {
		text   string
		source map[string]int // the limit at x.example
	}{
		"one has more than all":           {all + fmt.Sprintf(a, "<domain x.example>\nmax-smtp-out 30\n</domain>\n") + fmt.Sprintf(b, ""), map[string]int{"a": 30, "b": 20}},
		"one has less":                    {all + fmt.Sprintf(a, "<domain x.example>\nmax-smtp-out 3\n</domain>\n") + fmt.Sprintf(b, ""), map[string]int{"a": 3, "b": 20}},
		"one alone has one":               {fmt.Sprintf(a, "<domain x.example>\nmax-smtp-out 3\n</domain>\n") + fmt.Sprintf(b, ""), map[string]int{"a": 3, "b": 0}},
		"one has one everywhere":          {all + fmt.Sprintf(a, "max-smtp-out 5\n<domain x.example>\nmax-smtp-out 8\n</domain>\n") + fmt.Sprintf(b, ""), map[string]int{"a": 8, "b": 20}},
		"one everywhere, all at a domain": {"<domain x.example>\nmax-smtp-out 8\n</domain>\n" + fmt.Sprintf(a, "max-smtp-out 5\n") + fmt.Sprintf(b, ""), map[string]int{"a": 5, "b": 8}},
		"one of two addresses":            {all + fmt.Sprintf(a, "smtp-source-host 192.0.2.3 c.example\n<domain x.example>\nmax-smtp-out 8\n</domain>\n") + fmt.Sprintf(b, ""), map[string]int{"a-1": 4, "a-2": 4, "b": 20}},
		"all, one of two addresses":       {all + fmt.Sprintf(a, "smtp-source-host 192.0.2.3 c.example\n") + fmt.Sprintf(b, ""), map[string]int{"a-1": 10, "a-2": 10, "b": 20}},
		"a cold one":                      {all + fmt.Sprintf(a, "auto-cold-virtual-mta 192.0.2.9 c.example\nmax-cold-virtual-mta-msg 5/day\n<domain x.example>\nmax-smtp-out 8\n</domain>\n") + fmt.Sprintf(b, ""), map[string]int{"a": 8, "a-cold": 8, "b": 20}},
		"two of a pool":                   {all + fmt.Sprintf(a, "") + fmt.Sprintf(b, "") + "<virtual-mta-pool p>\nvirtual-mta a\nvirtual-mta b\n<domain x.example>\nmax-smtp-out 7\n</domain>\n</virtual-mta-pool>\n", map[string]int{"a": 7, "b": 7}},
	} {
		t.Run(name, func(t *testing.T) {
			d := read(t, c.text)
			cfg, err := config.Parse(d.Bytes(), "mta.conf", func(string) string { return "" })
			if err != nil {
				t.Fatalf("%v\n%s", err, d.Bytes())
			}
			for source, want := range c.source {
				l := wiring.New(cfg).Limits(&route.Route{Domain: "x.example"}, source, "")
				if l.Path.Connections != want || l.Site.Connections < want {
					t.Errorf("%d connections from %s, %d of all, want %d:\n%s", l.Path.Connections, source, l.Site.Connections, want, d.Bytes())
				}
			}
		})
	}
}

// The presets of large providers take precedence over defaults: they get the limits of <domain *> that are stricter.
func TestPresetsRaiseNoLimit(t *testing.T) {
	file, err := os.ReadFile("../../mta/config/presets.hcl")
	if err != nil {
		t.Fatal(err)
	}
	n, provider := 0, ""
	for line := range strings.Lines(string(file)) {
		words := strings.Fields(line)
		if len(words) < 3 || words[0] == "#" {
			continue
		}
		if words[0] == "provider" {
			provider = strings.Trim(words[1], `"`)
			continue
		}
		if words[0] == "mx" { // a preset without exchangers can't be overridden
			rollup := "<mx-rollup-list>\n"
			for _, mx := range words[2:] {
				rollup += "mx " + strings.Trim(mx, `[]",`) + " p.rollup\n"
			}
			d := read(t, rollup+"</mx-rollup-list>\n<domain *>\nmax-smtp-out 1\n</domain>\n")
			if err := check(d); err != nil || strings.Contains(string(d.Bytes()), fmt.Sprintf("provider %q {", provider)) {
				t.Errorf("%v, without the exchangers of %s:\n%s", err, provider, d.Bytes())
			}
		}
		var most int
		fmt.Sscanf(strings.Trim(words[2], `"`), "%d", &most)
		for _, k := range []struct{ setting, directive, value string }{
			{"connection_limit_per_source", "max-smtp-out %d", "%d"}, {"max_deliveries_per_connection", "max-msg-per-connection %d", "%d"},
			{"max_connection_rate_per_source", "max-connect-rate %d/m", `"%d/min"`},
		} {
			if words[0] != k.setting {
				continue
			}
			n++
			for value := most - 1; value <= most; value++ {
				text := string(read(t, "<domain *>\n"+fmt.Sprintf(k.directive, value)+"\n</domain>\n").Bytes())
				_, block, _ := strings.Cut(text, fmt.Sprintf("provider %q {", provider))
				block, _, _ = strings.Cut(block, "\n}")
				if has := strings.Contains(block, fmt.Sprintf("%s = "+k.value+" #", k.setting, value)); has != (value < most) {
					t.Errorf("%s of %s is %d, and <domain *> has %d:\n%s", k.setting, provider, most, value, text)
				}
			}
		}
	}
	if n < 30 {
		t.Errorf("%d limits of presets", n)
	}
}

// PowerMTA puts the mail of a domain into the queue of its exchangers, whose limits hold whatever the domain's are.
func TestRollupLimitsTheDomain(t *testing.T) {
	text := string(read(t, "<mx-rollup-list>\nmx *.google.com g.rollup\n</mx-rollup-list>\n<domain g.rollup>\nmax-smtp-out 5\n</domain>\n<domain gmail.com>\nmax-smtp-out 30\n</domain>\n").Bytes())
	_, block, _ := strings.Cut(text, `domain "gmail.com" {`)
	if block, _, _ = strings.Cut(block, "\n}"); !strings.Contains(block, "connection_limit_per_source = 5 #") {
		t.Errorf("the domain may have more than its exchangers' queue:\n%s", text)
	}
}

// What the program of another decade has written: values in whatever case, folders of Windows, actions together.
func TestOldHands(t *testing.T) {
	for name, c := range map[string]struct{ text, want, not string }{
		"case of limits":  {"<Domain *>\nMax-SMTP-Out UNLIMITED\nMAX-MSG-RATE 100/H\nBounce-After 4D12H\nretry-after 10M 30M\n</DOMAIN>\n", `max_message_rate_per_source = "100/h"`, ""},
		"case of times":   {"<domain *>\nbounce-after 4D12H\n</domain>\n", `max_age = "4d12h"`, ""},
		"no signing":      {"domain-key s,a.example,/k.pem\n<domain *>\ndkim-sign No\n</domain>\n", "the key signs no mail", "dkim \""},
		"Windows folder":  {"<acct-file C:\\pmta\\acct.csv>\nmove-to D:\\done\\\nmax-size 1M\n</acct-file>\nlog-file \\\\host\\logs\\\nhost-name a.example\n", `hostname = "a.example"`, "done\\ max-size"},
		"a line goes on":  {"host-name \\\na.example\n", `hostname = "a.example"`, ""},
		"records forever": {"<acct-file a>\ndelete-after never\n</acct-file>\n<acct-file b>\ndelete-after 8d\n</acct-file>\n", `keep = "0"`, `"8d"`},
		"a source that is off for longer than the site": {
			"<smtp-pattern-list l>\nreply /x/ mode=backoff,disable-source-ip,reenable-after=6h\n</smtp-pattern-list>\n<domain *>\nbackoff-retry-after 1h\nsmtp-pattern-list l\n</domain>\n",
			`suspend   = "6h"`, ""},
		"the patience of a domain with the list of all": {
			"<smtp-pattern-list l>\nreply /x/ mode=backoff\n</smtp-pattern-list>\n<domain *>\nbackoff-retry-after 1h\nbackoff-to-normal-after 2h\nsmtp-pattern-list l\n</domain>\n<domain a.example>\nbackoff-retry-after 3h\n</domain>\n",
			`suspend   = "3h"`, ""},
		"replies of several lines": {
			"<smtp-pattern-list l>\nreply /^421-4\\.7\\.0|550\\-5.7.1 (550-x)/ mode=backoff\n</smtp-pattern-list>\n<domain *>\nsmtp-pattern-list l\n</domain>\n",
			`pattern   = "^421[ -]4\\.7\\.0|550[ -]5.7.1 (550[ -]x)"`, ""},
		"a limit of a pool": {
			"<virtual-mta a>\nsmtp-source-host 192.0.2.1 a.example\n</virtual-mta>\n<virtual-mta-pool p>\nvirtual-mta a\nmax-msg-rate 7/h\n</virtual-mta-pool>\n",
			`max_message_rate_per_source = "7/h"`, "not carried"},
		"fields for signing": {"<source 10.0.0.1>\nprocess-x-dkim-options yes\n</source>\n", "not carried, and it protects: the domain in From", ""},
		"a plan without an end": {
			"<virtual-mta a>\nsmtp-source-host 192.0.2.1 a.example\nauto-cold-virtual-mta 192.0.2.2 b.example\n<domain *>\nmax-cold-virtual-mta-msg 50/day,unlimited\n</domain>\n</virtual-mta>\n",
			"finish = true in the plan ends them", ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := read(t, c.text)
			if err := check(d); err != nil {
				t.Error(err)
			}
			text := string(d.Bytes())
			if !strings.Contains(text, c.want) || c.not != "" && strings.Contains(text, c.not) {
				t.Errorf("want %s, and not %s, in\n%s", c.want, c.not, text)
			}
		})
	}
}

// TestOneListForSeveral: a slow-down that is for several destinations, a max_age that is for several virtual MTAs, and a
// rule about replies that accept mail have their notes. Providers have rules of their own.
func TestOneListForSeveral(t *testing.T) {
	const list = "<smtp-pattern-list l>\nreply /x/ mode=backoff\nreply /250/ mode=normal\n</smtp-pattern-list>\n"
	rollups := "<mx-rollup-list>\nmx *.g.example g.rollup\nmx *.y.example y.rollup\n</mx-rollup-list>\n"
	for name, c := range map[string]struct {
		text        string
		conf, noted []string
	}{
		"the strictest": {
			list + "<domain *>\nsmtp-pattern-list l\nbackoff-max-msg-rate 60/h\n</domain>\n<domain a.example>\nbackoff-max-msg-rate 10/h\n</domain>\n",
			[]string{`rate      = "10/h"`, `slow      = "1d"`},
			[]string{"c:7 backoff-max-msg-rate 60/h: lost false, protects false: the rules of the list l are for all that use it: backoff-max-msg-rate 10/h counts, that of c:10", "c:3 reply /250/ mode=normal: lost true"}},
		"no end": {
			list + "<domain a.example>\nsmtp-pattern-list l\nbackoff-max-msg-rate 20/h\n</domain>\n<domain b.example>\nsmtp-pattern-list l\nbackoff-max-msg-rate 200/h\nbackoff-to-normal-after 30m\n</domain>\n",
			[]string{`rate      = "20/h"`}, []string{"backoff-to-normal-after 1d counts, that of <domain a.example>, which has none"}},
		"providers": {
			list + rollups + "<domain g.rollup>\nsmtp-pattern-list l\nbackoff-max-msg-rate 20/h\n</domain>\n<domain y.rollup>\nsmtp-pattern-list l\nbackoff-max-msg-rate 200/h\nbackoff-to-normal-after 30m\n</domain>\n",
			[]string{`rate      = "20/h"`, `rate      = "200/h"`, `slow      = "30m"`}, nil},
		"one virtual MTA": {
			"<virtual-mta a>\nsmtp-source-host 192.0.2.1 a.example\n<domain x.example>\nbounce-after 1d\n</domain>\n</virtual-mta>\n<virtual-mta b>\nsmtp-source-host 192.0.2.2 b.example\n</virtual-mta>\n",
			[]string{`max_age = "1d"`}, []string{"mta has one max_age for all sources: the other virtual MTAs get it too"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := read(t, c.text)
			if err := check(d); err != nil {
				t.Error(err)
			}
			text, noted := string(d.Bytes()), string(notes(d))
			for _, want := range c.conf {
				if !strings.Contains(text, want) || strings.Contains(text, `"250"`) {
					t.Errorf("no %s in\n%s", want, text)
				}
			}
			for _, want := range c.noted {
				if !strings.Contains(noted, want) {
					t.Errorf("no %s in\n%s", want, noted)
				}
			}
		})
	}
}

// A queue that takes mail by exchangers and by queue-to limits both.
func TestQueueOfExchangersAndOfDomains(t *testing.T) {
	text := string(read(t, `
<mx-rollup-list>
  mx *.google.com gmail.rollup
</mx-rollup-list>
<domain gmail.com>
  queue-to gmail.rollup
</domain>
<domain gmail.rollup>
  max-smtp-out 5
</domain>
<virtual-mta a>
  smtp-source-host 192.0.2.1 a.example
</virtual-mta>
`).Bytes())
	for _, start := range []string{`provider "gmail.rollup" {`, `domain "gmail.com" {`} {
		_, block, _ := strings.Cut(text, start)
		if block, _, _ = strings.Cut(block, "\n}"); !strings.Contains(block, "connection_limit_per_source = 5 #") {
			t.Errorf("%s has no limit in:\n%s", start, text)
		}
	}
}

// Files are included by pattern, in the order of their names.
func TestIncludeByPattern(t *testing.T) {
	d, err := readFrom("etc/config", map[string]string{
		"etc/config": "include d/*.conf\n", "etc/d/2.conf": "host-name b.example\n", "etc/d/1.conf": "host-name a.example\n", "etc/d/3.conf.old": "host-name c.example\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	if text := string(d.Bytes()); !strings.Contains(text, `hostname = "b.example"`) {
		t.Errorf("the last file does not count:\n%s", text)
	}
}

// Comments of an old file need not be UTF-8.
func TestCommentsInLatin1(t *testing.T) {
	if text := string(read(t, "# f\xfcr den Kunden\nhost-name a.example # sch\xf6n\n").Bytes()); !strings.Contains(text, `hostname = "a.example"`) {
		t.Errorf("no host name in:\n%s", text)
	}
}

// A macro that is defined in parts has the domains of all of them, in whatever case its name is written.
func TestMacroInParts(t *testing.T) {
	d := read(t, "domain-macro Yahoo yahoo.com\ndomain-macro yahoo aol.com\n<domain $YAHOO>\nmax-smtp-out 5\n</domain>\n")
	for _, want := range []string{`domain "yahoo.com" {`, `domain "aol.com" {`} {
		if text := string(d.Bytes()); !strings.Contains(text, want) {
			t.Errorf("no %s in:\n%s", want, text)
		}
	}
	if text := string(notes(d)); !strings.Contains(text, "c:2 domain-macro yahoo aol.com: lost false") {
		t.Errorf("no note of the second definition: %s", text)
	}
}

// FuzzReadPowerMTA: whatever is read, the result is a configuration, or the fault has a place.
func FuzzReadPowerMTA(f *testing.F) {
	samples, _ := filepath.Glob("testdata/*.pmta")
	for _, path := range samples {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text), "host-name mta1.example.com\n")
	}
	f.Fuzz(func(t *testing.T, text, other string) {
		if len(text) > 8<<10 {
			return
		}
		d, err := readFrom("c", map[string]string{"c": text, "parts/one.conf": other, "o": other})
		if err != nil {
			list := (*importer.FaultList)(nil)
			if !errors.As(err, &list) || len(list.First) == 0 || slices.ContainsFunc(list.First, func(f *importer.Fault) bool { return f.Line < 1 }) {
				t.Errorf("%T without a place: %v", err, err)
			}
			return
		}
		if err := check(d); err != nil {
			t.Errorf("%v\n%s", err, d.Bytes())
		}
		d.Summary()
	})
}
