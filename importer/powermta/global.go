package powermta

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/mta/importer"
	"example.org/mta/internal/envelope"
)

// global carries over a directive outside of all scopes.
func (c *conversion) global(d *directive) error {
	switch d.name {
	case "host-name":
		if name := hostname(d.value); name != "" {
			c.draft.Set("hostname", name, d.Origin)
		} else {
			return d.fault("host-name: %s is not a host name: write one such as mta1.example.com", short(d.value))
		}
	case "postmaster":
		if a, err := envelope.ParseAddress(unquote(d.value)); err == nil && !a.Null() && d.value != "" {
			c.draft.Set("postmaster", unquote(d.value), d.Origin)
		} else {
			return d.fault("postmaster: %s is not a mail address: write one such as postmaster@example.com",
				short(d.value))
		}
	case "smtp-source-host", "smtp-source-ip":
		return c.defaultSource(d)
	case "domain-key":
		return c.domainKey(d, "")
	case "total-max-smtp-out":
		n, err := d.number(d.value)
		if err == nil && n > 0 {
			c.draft.Inner("delivery").Set("max_connections", n, d.Origin)
		}
		return err
	case "total-max-smtp-in":
		c.maxIn = d
		c.draft.Inner("listener", "smtp")
	case "smtp-server-tls-certificate":
		if d.value == "" {
			return d.fault("%s names no file: write that with the certificate and its key", d.name)
		}
		c.tlsFile = d
	case "name-server":
		return c.nameServer(d)
	default:
		_, limit := carried[d.name]
		if _, other := c.readers[d.name]; limit || other { // for all domains
			return c.domainScope(&directive{Origin: d.Origin, name: "domain", value: "*", scope: true,
				inner: []*directive{d}}, nil)
		}
		c.lose(nil, d)
	}
	return nil
}

// defaultSource makes the source of mail that names no virtual MTA.
func (c *conversion) defaultSource(d *directive) error {
	v := c.vmta("default")
	if v == nil {
		v = &vmta{directive: d, name: "default", sources: []string{"default"}, at: make([]netip.Addr, 1)}
		c.addVMTA(v)
	} else if v.name == "default" && v.at[0].IsValid() {
		c.draft.Lost(d.Origin, "the source default has an address already", false)
		return nil
	}
	c.draft.Inner("source", "default").From(d.Origin)
	return c.sourceHost(v, 0, d)
}

func (c *conversion) nameServer(d *directive) error {
	var servers []string
	for _, text := range names(d.value) {
		a, err := netip.ParseAddr(strings.Trim(text, "[]"))
		if err != nil || a.Zone() != "" || a.IsUnspecified() {
			return d.fault("name-server: %s is not an address: write one such as 192.0.2.53", short(text))
		}
		servers = append(servers, a.String())
	}
	if len(servers) == 0 {
		return d.fault("name-server names no address: write one such as 192.0.2.53")
	}
	c.servers = append(c.servers, servers...)
	c.draft.Inner("resolver").Set("servers", sortedUnique(c.servers), d.Origin)
	return nil
}

// acctScope carries an accounting file over: the relay has one log, which all commands and streams read.
func (c *conversion) acctScope(d *directive) error {
	b := c.draft.Inner("accounting")
	if strings.HasPrefix(unquote(d.value), "|") {
		c.draft.Lost(d.Origin,
			"records go to a program by a stream: write a block stream, or pipe 'mta log --follow --format pmta' "+
				"into it", false)
		return nil
	}
	b.From(d.Origin)
	b.Noted(d.Origin, "one log has all records; 'mta log --format pmta' writes them in the columns of an acct-file")
	for _, in := range d.inner {
		switch in.name {
		case "move-interval", "delete-after":
			ever := never(in.value)
			if ever {
				in.value = "0"
			}
			t, err := in.duration(in.value)
			switch {
			case !c.faults.take(in, err):
			case in.name == "move-interval":
				b.Set("rotate_every", span(max(t, time.Minute)), in.Origin)
			case ever || t >= c.keep && !c.keepAll:
				c.keep, c.keepAll = t, ever
				b.Set("keep", span(t), in.Origin)
			default:
				b.Noted(in.Origin, "records are kept for as long as the longest delete-after")
			}
		case "max-size":
			n, err := in.octets(in.value)
			if !c.faults.take(in, err) {
				continue
			}
			if n = max(n, 64<<10); n > 10<<30 {
				b.Noted(in.Origin, "a file has 10GiB at most")
				n = 10 << 30
			}
			b.Set("rotate_size", strconv.FormatInt(n, 10)+"B", in.Origin)
		default:
			c.lose(b, in)
		}
	}
	return nil
}

// lost are directives without a counterpart.
var lost = importer.ByName(map[string]struct {
	reason   string
	protects bool
}{
	"records":        {reason: "all types are recorded: choose with 'mta log --type'"},
	"record-fields":  {reason: "'mta log --format pmta' writes the columns that are usual"},
	"user-string":    {reason: "records have the tenant, the campaign and metadata"},
	"move-to":        {reason: "finished files stay in the directory of the log"},
	"sync":           {reason: "the log is written every second, and never in the way of mail"},
	"world-readable": {reason: "the files are for the owner and the group"},
	"write-timeout":  {reason: "writing the log never delays mail"},
	"pattern-list": {
		reason: "no pattern chooses the pool: applications name it in the field of pool_header, or have a " +
			"tenant with a pool", protects: true},
	"hide-message-source": {
		reason: "the Received field has the client's address, for the trace that RFC 5321, 4.4 wants", protects: true},
	"add-received-header":                   {reason: "a Received field is always added (RFC 5321, 4.4)"},
	"add-message-id-header add-date-header": {reason: "a message without one gets one, always"},
	"retain-x-job retain-x-virtual-mta":     {reason: "the field is always removed"},
	"process-x-dkim-options": {
		reason: "the domain in From decides which key signs, and the field X-DKIM-Options would be sent: " +
			"remove it in the application", protects: true},
	"verp-default": {
		reason: "return paths have a token where a tenant has return_path: see docs/bounces.md"},
	"allow-mailmerge":                      {reason: "templates are filled in by HTTP: see docs/http.md"},
	"allow-starttls":                       {reason: "STARTTLS is offered where the listener has a certificate"},
	"always-allow-api-submission":          {reason: "programs submit by HTTP with keys: see docs/http.md"},
	"suppress-local-dsn deliver-local-dsn": {reason: "a report goes to every sender, unless MAIL FROM is <>"},
	"check-mfrom-inbound": {
		reason: "verify_recipients looks at recipients; senders are held to the tenant's senders"},
	"accept-invalid-recipients": {reason: "a recipient that can't be an address is refused"},
	"log-connections": {
		reason: "the log has sessions at level debug; 'mta trace' follows one message"},
	"log-commands log-data":        {reason: "'mta trace' shows the commands of one message or site"},
	"log-resolution":               {reason: "'mta explain' shows how a domain is reached"},
	"log-transfer-failures":        {reason: "every attempt is in the accounting log"},
	"log-file":                     {reason: "the relay logs to standard error, or to log { file }"},
	"log-rotate log-auto-rotation": {reason: "use logrotate: the relay reopens its log on SIGHUP"},
	"max-events-recorded":          {reason: "'mta sites' and the accounting log have the latest replies"},
	"run-as-root":                  {reason: "the relay gives up root: see user"},
	"sync-msg-create": {
		reason: "a message is always on stable storage before the client gets its 250"},
	"sync-msg-update": {reason: "outcomes are always written before they count"},
	"edns-udp-length": {reason: "the resolver chooses it"},
	"smtp-port":       {reason: "write the address of the listener"},
	"pickup":          {reason: "'mta send' and sendmail submit from files"},
	"badmail":         {reason: "'mta send' reports what it can't send"},
	"bounce-upon-5xx-greeting": {
		reason: "a host that turns sessions away is left out for a while, and its mail goes to others of the " +
			"site; mail bounces at max_age"},
	"bounce-upon-transfer-failure": {reason: "a message whose transfer broke off is tried again"},
	"smtp-421-means-mx-unavailable": {
		reason: "that is so always: 421 ends the connection, and the host is left out for host_retry_interval"},
	"smtp-553-means-invalid-mailbox":           {reason: "the class of a reply comes from its code and its words"},
	"replace-smtp-421-service-response":        {reason: "reports quote the reply of the host"},
	"use-unencrypted-plain-auth":               {reason: "passwords are sent over TLS only"},
	"backoff-notify disabled-source-ip-notify": {reason: "alarms and metrics report it: see docs/monitoring.md"},
	"backoff-upon-all-sources-disabled":        {reason: "a site that all sources are kept from waits"},
	"reenable-source-ip-after":                 {reason: "write it as reenable-after in the rule"},
	"backoff-reroute-to-virtual-mta": {
		reason: "mail of a blocked source waits, and takes no other source: a provider that blocks one soon " +
			"blocks the next"},
	"reroute-to-virtual-mta": {
		reason: "give the mail to a tenant with that pool, or use 'mta queue reroute'", protects: true},
	"retry-recipients-after":             {reason: "retry_interval is that of recipients"},
	"retry-after-dns-error":              {reason: "DNS failures wait like others, by retry_interval"},
	"notify-of-delay-every":              {reason: "delay_warning says when the sender gets a report, once"},
	"dsn-format":                         {reason: "reports are in the standard format (RFC 3464)"},
	"ignore-8bitmime ignore-dsn":         {reason: "the relay sends what the host offers"},
	"queue-priority":                     {reason: "priority is the message's: see tier"},
	"dkim-algorithm":                     {reason: "rsa-sha256 and ed25519-sha256 (RFC 8301 rules out rsa-sha1)"},
	"dkim-body-canon dkim-headers-canon": {reason: "always relaxed"},
	"dkim-headers":                       {reason: "the fields that RFC 6376, 5.4.1 names are signed"},
	"dkim-disallow-adding-headers": {
		reason: "fields that must not be added are signed once more than they are there"},
	"dkim-add-body-limit": {reason: "l= lets anybody append to signed mail"},
	"dkim-add-timestamp":  {reason: "signatures always have their time"},
	"dkim-expire-after":   {reason: "signatures have no end"},
	"dkim-identity-fallback": {
		reason: "to sign the mail of other domains, add them to senders of a dkim block"},
	"bcc-upon-delivery":    {reason: "there are no copies: a stream reports deliveries", protects: true},
	"disable-acct-records": {reason: "all records are written"},
	"max-data-volume-rate backoff-max-data-volume-rate source-ip-max-data-volume-rate": {
		reason: "rates are of messages, not of octets", protects: true},
	"max-errors-per-connection": {
		reason: "a connection ends when the host ends it: errors of recipients do not count", protects: true},
	"smtp-out-rampup-interval": {
		reason: "connections to a site begin at one and grow with success: see max_connection_rate_per_source"},
	"check-spf-outbound":                 {reason: "'mta check --dns' checks SPF", protects: true},
	"suppress-delivery suppression-list": {reason: "import the addresses: mta suppress import FILE", protects: true},
	"dummy-smtp-port dummy-smtp-ip dummy-smtp-blackhole": {
		reason: "the relay has no sink in it: 'mta demo' has providers for tests"},
	"deliver-only":        {reason: "the spool is PowerMTA's"},
	"delete-file-holders": {reason: "the queue gives its disk back by itself"},
	"min-free-space":      {reason: "queue { min_free } refuses mail before the disk is full"},
	"smtp-service":        {reason: "everybody may connect, and only clients in relay_from and users may send"},
	"relay-domain relay-address": {
		reason: "strangers may send to inbound { domains } only, for bounces and complaints: see docs/bounces.md"},
	"feedback-loop-processor bounce-processor": {
		reason: "bounces and complaints come back to a listener's inbound { domains }, complaints to its " +
			"addresses in complaints: see docs/bounces.md"},
	"spool": {reason: "the relay's queue is in data_dir, in another format: let PowerMTA empty its spool"},
	"http-access http-mgmt-port http-mgmt-host http-mgmt http-redirect-to-https": {
		reason: "the console is off, and metrics are for this machine only: see 'mta console' and the block console"},
})

// protecting are parts of names of directives that limit or protect.
var protecting = []string{"max-", "min-", "-limit", "rate", "suppress", "deny", "reject", "require", "disallow",
	"restrict", "block", "blacklist", "access", "allow-", "verify", "check-", "password", "auth"}

// mayProtect reports whether a directive that is not known limits or protects something by its name, or has one in it
// that does.
func mayProtect(d *directive) bool {
	return slices.ContainsFunc(protecting, func(part string) bool {
		return strings.Contains(d.name, part)
	}) || slices.ContainsFunc(d.inner, mayProtect)
}

// lose notes a directive without a counterpart in a block; nil is the top.
func (c *conversion) lose(b *importer.Block, d *directive) {
	b = cmp.Or(b, c.draft.Block)
	what, known := lost[d.name]
	switch value := strings.ToLower(d.value); {
	case value == "unlimited" || known && slices.Contains([]string{"no", "false", "off", "never"}, value):
		what.protects = false // it has no effect in PowerMTA either
	case !known:
		what.protects = mayProtect(d)
	}
	if !known {
		what.reason = "mta import does not know the directive"
	}
	b.Lost(d.Origin, what.reason, what.protects)
}
