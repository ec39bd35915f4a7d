package postfix

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"example.org/mta/importer"
)

// importing is an import on its way.
type importing struct {
	dir        string
	main       map[string]parameter
	order      []string // the names in main, as they stand in the file
	services   []*service
	transports map[string]*transport
	everything *hop // where mail goes that no table sends elsewhere
	pools      map[string][]string
	bySender   []*table
	policies   []*table
	passwords  []*password
	passwordOf map[string]*password // by the key
	asked      []*milter            // in the order of listeners
	top        *importer.Draft
	used       map[importer.Origin]bool
	entries    int // of all tables
	depth      int // of tables within one another

	faults  importer.Faults
	spoiled map[importer.Origin]bool // places with a fault from which others follow
	partial bool                     // an entry of master.cf can't be read
}

// Import reads main.cf and master.cf in a folder. Their faults are returned together, as an *importer.FaultList.
func Import(dir string) (*importer.Draft, error) {
	main, err := readFile(filepath.Join(dir, "main.cf"), maxConfig)
	if err != nil {
		return nil, err
	}
	master, err := readFile(filepath.Join(dir, "master.cf"), maxConfig)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s has no master.cf: name the folder of Postfix's configuration, such as /etc/postfix",
			dir)
	} else if err != nil {
		return nil, err
	}
	return convert(dir, main, master)
}

func convert(dir string, main, master []byte) (*importer.Draft, error) {
	im := &importing{
		dir: dir, main: make(map[string]parameter), transports: make(map[string]*transport),
		pools: make(map[string][]string), passwordOf: make(map[string]*password),
		used: make(map[importer.Origin]bool), spoiled: make(map[importer.Origin]bool),
		top: importer.New("mta.conf, imported from the configuration of a Postfix."),
	}
	for _, name := range []string{"main.cf", "master.cf"} {
		im.faults.Reads(name)
	}
	im.readMain(main)
	im.readMaster(master)
	im.whole()
	im.incoming()
	im.outgoing()
	im.leftover()
	if err := im.faults.Err(); err != nil {
		return nil, err
	}
	return im.top, nil
}

// fail notes a fault in the configuration.
func (im *importing) fail(at importer.Origin, format string, args ...any) {
	if !im.spoiled[at] {
		im.faults.Add(&importer.Fault{File: at.File, Line: at.Line, What: fmt.Sprintf(format, args...)})
	}
}

// spoil notes a fault after which the value is taken for an empty one: what that leads to is not a further fault.
func (im *importing) spoil(at importer.Origin, format string, args ...any) {
	im.fail(at, format, args...)
	im.spoiled[at] = true
}

// whole writes what concerns the relay as a whole.
func (im *importing) whole() {
	s := scope{im: im}
	if name, at, set := s.text("myhostname"); set && name != "" {
		if _, err := domainName(name); err != nil {
			im.fail(at, "myhostname: %q is not a host name: write one such as mail.example.com", importer.Short(name))
		}
		im.top.Set("hostname", name, at)
	} else {
		im.top.Comment("myhostname is not set: the relay takes the machine's name, too")
	}
	im.top.Comment("Postfix knows no providers: without the presets, its own limits apply. Delete the line to have " +
		"them.")
	im.top.Set("presets", false, importer.Origin{})
	v4, v6, at := s.protocols()
	if !v6 {
		im.top.Inner("router").Set("ipv6", false, at)
	}
	if !v4 {
		im.top.Inner("router").Set("ipv4", false, at)
	}
}

func sortedNames(m map[string]parameter) []string { return slices.Sorted(maps.Keys(m)) }

// Limits of what is read.
const (
	maxConfig  = 4 << 20  // octets of main.cf or master.cf
	maxTable   = 64 << 20 // octets of a table
	maxEntries = 200_000  // of all tables together
)

// line is a logical line: continuations are joined to it.
type line struct {
	text   string
	number int // of its first line, from 1
}

// logicalLines splits a file as Postfix does: a line that begins with white space continues the one before, and empty
// lines and comments count for nothing, not even as the end of a logical line.
func logicalLines(data []byte) (lines []line) {
	number := 0
	var text []byte // of the last of them
	end := func() {
		if len(lines) > 0 {
			lines[len(lines)-1].text = string(text)
		}
	}
	for raw := range bytes.Lines(data) {
		number++
		raw = bytes.TrimRight(raw, " \t\r\n")
		trimmed := bytes.TrimLeft(raw, " \t")
		switch {
		case len(trimmed) == 0 || trimmed[0] == '#':
		case len(trimmed) < len(raw) && len(lines) > 0:
			text = append(append(text, ' '), trimmed...)
		default:
			end()
			text = append(text[:0], trimmed...)
			lines = append(lines, line{number: number})
		}
	}
	end()
	return lines
}

// readFile reads a file of limited size.
func readFile(path string, limit int64) ([]byte, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		// opening a FIFO would wait for its writer
		return nil, fmt.Errorf("%s is not a file: write the table's text into one", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s is larger than %d MiB: import a part of it", path, limit>>20)
	}
	return data, err
}

// reason is why a parameter is not carried.
type reason struct {
	text     string
	protects bool
	silent   bool // it has no effect on a relay, or is part of another parameter that is noted
}

const (
	local   = "local delivery is out of scope"
	filter  = "content filters are out of scope: run them in front of the relay, or as milters"
	proxied = "write proxy_from with the proxies' networks, then relay_from: clients are known by the address of the " +
		"proxy until then"
	rewrite = "addresses and headers are not rewritten"
)

// reasons by the parameter, or by the beginning of its name.
var reasons = importer.ByName(map[string]reason{
	"content_filter smtpd_proxy_filter": {text: filter, protects: true},
	"non_smtpd_milters": {
		text: "write a milter block: mail of sendmail goes to the first listener", protects: true},
	"receive_override_options": {text: filter},
	"header_checks mime_header_checks nested_header_checks": {
		text: "rules for headers are not carried", protects: true},
	"body_checks": {text: "rules for content are not carried", protects: true},
	"smtp_header_checks smtp_body_checks smtp_mime_header_checks smtp_generic_maps canonical_ " +
		"sender_canonical_ recipient_canonical_ masquerade_": {text: rewrite, protects: true},
	"virtual_alias_maps": {text: "aliases are not expanded: " + rewrite, protects: true},
	"virtual_alias_domains mydestination mailbox_ home_mailbox virtual_ local_ luser_relay " +
		"recipient_delimiter mail_spool_directory propagate_unmatched_extensions lmtp_ fallback_transport": {
		text: local},
	"always_bcc sender_bcc_maps recipient_bcc_maps": {text: "copies are not made", protects: true},
	"soft_bounce":      {text: "refusals stay permanent", protects: true},
	"defer_transports": {text: "use 'mta pause'", protects: true},
	"relocated_maps":   {text: rewrite},
	"disable_dns_lookups": {
		text: "the relay looks MX records up unless there is a route", protects: true},
	"smtp_fallback_relay fallback_relay": {text: "a relay for mail that can't be delivered has no counterpart"},
	"smtp_address_preference":            {text: "no family is preferred: hosts of equal preference share the mail"},
	"smtp_tls_per_site": {
		text: "obsolete: write smtp_tls_policy_maps, and import again", protects: true},
	"smtpd_sender_login_maps": {text: "write senders of users and tenants", protects: true},
	"authorized_submit_users": {
		text: "the control socket's permissions decide who submits with mta sendmail", protects: true},
	"smtpd_restriction_classes":          {text: "restriction classes are not carried", protects: true},
	"relay_domains relay_recipient_maps": {text: "mail from strangers is not relayed, whatever its domain"},
	"relay_transport":                    {text: "mail for relay_domains goes as all other mail"},
	"smtpd_upstream_proxy_protocol postscreen_upstream_proxy_protocol": {text: proxied, protects: true},
	"parent_domain_matches_subdomains": {
		text:     "a name in transport_maps is the domain alone here: write domain blocks for \"*.name\", too",
		protects: true},
	"smtpd_authorized_ postscreen": {},
	"multi_instance_": {
		text: "import each instance from its own folder: 'mta import postfix DIR'"},
	"postscreen_":                          {text: "postscreen has no counterpart"},
	"smtp_sasl_":                           {text: "the relay chooses the mechanism"},
	"smtp_sender_dependent_authentication": {text: "logins are by route"},
	"qmgr_":                                {text: "the queue manager's limits have no counterpart"},
	"smtp_tls_CApath":                      {text: "a folder of authorities is not carried: write tls_ca"},
	"smtpd_":                               {protects: true},
	"initial_destination_concurrency":      {text: "the relay begins with one connection to a site"},
	"hopcount_limit":                       {text: "100 Received fields are a loop"},
	"bounce_size_limit":                    {text: "messages above 64 KiB are returned as headers only"},
	"queue_minfree":                        {text: "write min_free in queue"},
	"smtp_sasl_security_options smtp_sasl_tls_security_options alias_ append_ biff readme_directory " +
		"html_directory manpage_directory sample_directory command_directory daemon_directory " +
		"data_directory queue_directory sendmail_path mailq_path newaliases_path setgid_group mail_owner " +
		"mail_name mail_version meta_directory shlib_directory compatibility_level debug_peer_ " +
		"debugger_command maillog_ syslog_ unknown_local_recipient_reject_code smtpd_tls_session_cache_ " +
		"smtp_tls_session_cache_ smtp_tls_loglevel smtpd_tls_loglevel smtpd_tls_received_header " +
		"smtp_tls_note_starttls_offer disable_vrfy_command smtpd_helo_required strict_rfc821_envelopes " +
		"smtputf8_ myorigin mydomain smtp_connection_cache_ smtpd_sasl_ smtpd_tls_auth_only " +
		"config_directory import_environment export_environment smtp_dns_support_level address_verify_ " +
		"queue_run_delay": {silent: true},
})

// whyNot finds the reason for a parameter by the longest name that it begins with.
func whyNot(name string) reason {
	for n := len(name); n > 0; n-- {
		if r, ok := reasons[name[:n]]; ok &&
			(n == len(name) || strings.HasSuffix(name[:n], "_") || strings.HasPrefix(name, "postscreen")) {
			if r.text == "" && !r.silent {
				r.text = "it has no counterpart"
			}
			return r
		}
	}
	switch {
	case strings.Contains(name, "_concurrency_") || strings.Contains(name, "feedback") ||
		strings.Contains(name, "cohort"):
		return reason{"the relay adapts connections by backoff rules", false, false}
	case strings.HasSuffix(name, "_limit") || strings.HasSuffix(name, "_delay"):
		return reason{"no mail uses it, or it has no counterpart", false, false}
	}
	return reason{"it has no counterpart", false, false}
}

// leftover notes the parameters that nobody has asked for.
func (im *importing) leftover() {
	for _, name := range im.order {
		if p := im.main[name]; !im.used[p.at] && strings.TrimSpace(p.raw) != "" {
			im.leave(name, p)
		}
	}
	for _, s := range im.services {
		if s.command == "smtp" && !im.used[s.at] {
			if _, own := s.own["syslog_name"]; len(s.own) > 0 && !(own && len(s.own) == 1) {
				im.top.Lost(s.at, "no mail uses this transport", false)
			}
			continue
		}
		switch s.command {
		case "smtp", "smtpd", "postscreen", "qmgr", "oqmgr", "cleanup", "pickup", "trivial-rewrite", "bounce":
			for _, name := range sortedNames(s.own) {
				switch p := s.own[name]; {
				case im.used[p.at] || strings.TrimSpace(p.raw) == "":
				case s.command == "smtp" && ofQueueManager(name):
					im.top.Lost(p.at, "it has no effect in Postfix: the queue manager reads main.cf", false)
				default:
					im.leave(name, p)
				}
			}
		case "qmqpd":
			im.top.Lost(s.at, "the relay has no such service", false)
		}
	}
}

func (im *importing) leave(name string, p parameter) {
	value := strings.TrimSpace(p.raw)
	// no other of its lists is carried by name
	if name == "parent_domain_matches_subdomains" && !strings.Contains(value, "transport_maps") {
		return
	}
	if name == "smtp_address_preference" && value == "any" || value == "no" && strings.HasPrefix(name, "soft_bounce") {
		return
	}
	if r := whyNot(name); !r.silent {
		im.top.Lost(p.at, r.text, r.protects && value != "no")
	}
}
