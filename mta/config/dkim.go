package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"example.org/mta/internal/dkim"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/settings"
	"example.org/mta/submission/auth"
)

// DKIM is the keys of one domain, and whose mail they sign.
//
// The keys of one domain, and the mail that they sign: see [dkim.md](dkim.md). All blocks that match a message sign
// it.
type DKIM struct {
	block
	Name string `conf:",label"`
	// The signing domain (`d=`); its DNS zone publishes the keys. Default: required.
	Domain string `conf:"domain" check:"hostname"`
	// The authors' domains, in `From`, whose mail is signed: a name, `"*.name"` for all names below it, or `"*"` for
	// all. Default: `domain` and all names below it.
	Senders []Pattern `conf:"senders"`
	// [tenants](dkim.md#tenants) whose mail is signed; `"*"` for all. Without `tenant` blocks all mail is signed.
	// Default: those whose `senders` cover `domain`.
	Tenants []string `conf:"tenants"`
	// Mail that [can't be signed](dkim.md#when-mail-cant-be-signed) is refused or waits (`"defer"`), or goes out
	// unsigned (`"send"`).
	OnFailure string     `conf:"on_failure" default:"defer" oneof:"defer send"`
	Keys      []*DKIMKey `conf:"key,block"`
}

// DKIMKey is a private key, from a file or from the environment.
//
// Within a `dkim` block: a private key, RSA or Ed25519. One key of each algorithm signs: the one that took over
// last.
type DKIMKey struct {
	block
	Selector string `conf:",label"`
	// A PEM file that only its owner can write, and only its owner and group can read.
	File string `conf:"file"`
	// Instead of `file`: the key in base64 without line breaks, best by `env("NAME")`.
	PrivateKey Secret `conf:"private_key"`
	// When the key takes over, such as `"2026-07-01"` (UTC) or `"2026-07-01T12:00:00Z"`. Publish its record before
	// that. Default: from the beginning.
	From Date `conf:"from"`

	loaded *dkim.Key
}

// Key is the key itself, nil when the file was not read: see Parse.
func (k *DKIMKey) Key() *dkim.Key { return k.loaded }

// Date is a day ("2026-01-31": from its first second, UTC) or a time ("2026-01-31T12:00:00Z").
type Date string

// UnmarshalText reads a day or a time.
func (d *Date) UnmarshalText(text []byte) error {
	*d = Date(text)
	if _, err := d.parse(); err != nil {
		*d = ""
		return settings.Wrong(`write it as "2026-01-31" or "2026-01-31T12:00:00Z"`, "%s is not a date",
			settings.Quoted(string(text)))
	}
	return nil
}

func (d Date) parse() (time.Time, error) {
	if d == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.DateOnly, string(d)); err == nil {
		return t, nil
	}
	return time.Parse(time.RFC3339, string(d))
}

// Time is the zero time for "".
func (d Date) Time() time.Time {
	t, _ := d.parse() // read before
	return t
}

// DKIMFor lists the blocks that sign a tenant's mail from an author's domain: those aligned with the domain, as DMARC
// wants one to be, first, and the longest of their domains before the others. Of several authors, or those that could
// be the author, these are the blocks that sign for one of them: see Stranger. Without one, they sign for anybody.
func (c *Config) DKIMFor(tenant string, authors ...string) []*DKIM {
	if len(authors) == 0 {
		authors = []string{""} // whom blocks fit that sign anybody's mail
	}
	found := slices.DeleteFunc(c.fitting(authors), func(d *DKIM) bool { return !c.maySign(d, tenant, authors...) })
	slices.SortStableFunc(found, func(a, b *DKIM) int {
		if x, y := slices.ContainsFunc(authors, a.Aligned), slices.ContainsFunc(authors, b.Aligned); x != y {
			if x {
				return -1
			}
			return 1
		}
		return cmp.Compare(len(b.Domain), len(a.Domain))
	})
	return found
}

// Stranger returns the first of several authors' domains that a tenant may not write as: neither do its senders cover
// it, nor does a block of that organization sign the tenant's mail. "": there is none.
func (c *Config) Stranger(tenant string, authors ...string) string {
	t := c.Tenant(tenant)
	if tenant == "" || len(c.Tenants) == 0 || len(authors) < 2 {
		return ""
	}
	for _, from := range authors {
		own := t != nil && auth.Senders(t.Senders).Cover(from)
		if !own && !slices.ContainsFunc(c.DKIMFor(tenant, from), func(d *DKIM) bool { return d.Aligned(from) }) {
			return from
		}
	}
	return ""
}

// fitting lists the blocks whose senders match any of the authors' domains.
func (c *Config) fitting(authors []string) (found []*DKIM) {
	for _, from := range authors {
		for p := range wider(from) {
			for _, d := range c.resolved.signers[p] {
				if !slices.Contains(found, d) {
					found = append(found, d)
				}
			}
		}
	}
	return found
}

// Withheld lists the blocks that fit authors' domains, name no tenants or all, and must not sign this tenant's mail.
func (c *Config) Withheld(tenant string, authors ...string) []*DKIM {
	return slices.DeleteFunc(c.fitting(authors), func(d *DKIM) bool {
		return len(d.Tenants) > 0 && !slices.Contains(d.Tenants, everybody) || c.maySign(d, tenant, authors...)
	})
}

// Waits reports whether mail that blocks should sign and can't waits, and doesn't leave without a signature.
func Waits(blocks []*DKIM) bool {
	return slices.ContainsFunc(blocks, func(d *DKIM) bool { return d.OnFailure == "defer" })
}

// wider gives the patterns that match a domain, the closest first.
func wider(domain string) func(yield func(Pattern) bool) {
	return func(yield func(Pattern) bool) {
		if domain != "" && !yield(Pattern(domain)) {
			return
		}
		for rest := domain; ; {
			_, above, more := strings.Cut(rest, ".")
			if !more {
				break
			}
			if !yield(Pattern("*." + above)) {
				return
			}
			rest = above
		}
		yield("*")
	}
}

// maySign reports whether a block may sign a tenant's mail from authors' domains. One that names no tenants would let
// each of them write as from its domain, so it signs for those whose senders cover the domain. One that signs
// everybody's mail for all tenants signs beside the author's domain, and must not prove that a tenant writes as from
// its own. Mail without a tenant is the operator's own.
func (c *Config) maySign(d *DKIM, tenant string, authors ...string) bool {
	named, all := slices.Contains(d.Tenants, tenant), slices.Contains(d.Tenants, everybody)
	if len(d.Tenants) > 0 && (named || !all) {
		return named
	}
	if tenant == "" || len(c.Tenants) == 0 {
		return true
	}
	t := c.Tenant(tenant)
	covers := func(domain string) bool { return t != nil && auth.Senders(t.Senders).Cover(domain) }
	if !all {
		return covers(d.Domain)
	}
	return !slices.Contains(d.Senders, everybody) ||
		!slices.ContainsFunc(authors, func(from string) bool { return d.Aligned(from) && !covers(from) })
}

// Unsigned returns a sentence for each dkim block without tenants that doesn't sign the mail of some that its senders
// match.
func (c *Config) Unsigned() (out []string) {
	without, signed := make(map[*DKIM][]string), make(map[*DKIM][]string)
	for _, t := range c.Tenants {
		var authors []string
		for _, s := range t.Senders {
			authors = append(authors, s.Domain())
		}
		if len(authors) == 0 { // it may be anybody
			for _, d := range c.DKIMs {
				for _, p := range d.Senders {
					authors = append(authors, string(p))
				}
			}
		}
		for _, d := range c.Withheld(t.Name, authors...) {
			without[d] = append(without[d], t.Name)
		}
		for _, d := range c.DKIMs {
			if c.maySign(d, t.Name) {
				signed[d] = append(signed[d], t.Name)
			}
		}
	}
	for _, d := range c.DKIMs {
		names := without[d]
		if len(names) == 0 || len(d.Tenants) > 0 {
			continue
		}
		remedy := fmt.Sprintf("give them senders that cover it, or name each tenant that it signs for: tenants = [%s]",
			quoted(slices.Concat(signed[d], names), ", and %d more"))
		if slices.Contains(d.Senders, everybody) { // it signs beside the author's domain
			remedy = `write tenants = ["*"] into the block to sign for all`
		}
		out = append(out,
			fmt.Sprintf("%s: mail of %s leaves without a signature of %s: a dkim block signs for tenants whose "+
				"senders cover its domain, or that its tenants name; %s",
				d.Origin("domain"), tenants(names), d.Domain, remedy))
	}
	return out
}

const mostNamed = 5 // tenants in a sentence

// tenants names them for a sentence.
func tenants(names []string) string {
	if len(names) == 1 {
		return "tenant " + quoted(names, "")
	}
	return "tenants " + quoted(names, " and %d more")
}

// quoted lists names for a sentence.
func quoted(names []string, more string) string {
	listed := `"` + strings.Join(names[:min(len(names), mostNamed)], `", "`) + `"`
	if n := len(names) - mostNamed; n > 0 {
		listed += fmt.Sprintf(more, n)
	}
	return listed
}

// Aligned reports whether a signature by the block lets DMARC pass for mail from a domain, by relaxed
// alignment: both belong to one organization (RFC 7489, 3.1.1).
func (d *DKIM) Aligned(from string) bool {
	return dkim.SameOrganization(d.Domain, from)
}

// Signing lists the keys that sign at a time: of each algorithm the one that took over last.
func (d *DKIM) Signing(now time.Time) []*DKIMKey {
	var latest []*DKIMKey
	for _, k := range d.Keys {
		if k.From.Time().After(now) || k.loaded == nil {
			continue
		}
		i := slices.IndexFunc(latest, func(l *DKIMKey) bool { return l.loaded.Algorithm() == k.loaded.Algorithm() })
		switch {
		case i < 0:
			latest = append(latest, k)
		case k.From.Time().After(latest[i].From.Time()):
			latest[i] = k
		}
	}
	return latest
}

// Signs reports whether any block could sign a tenant's mail: one that names it, or one that names none, even if the
// tenant's senders don't cover its domain, so that such mail is noticed.
func (c *Config) Signs(tenant string) bool {
	return len(c.DKIMs) > 0 && (c.resolved.signed[everybody] || c.resolved.signed[tenant])
}

const everybody = "*"

// indexSigners lists the dkim blocks by each pattern of their senders, and the tenants of all.
func (c *Config) indexSigners() (by map[Pattern][]*DKIM, tenants map[string]bool) {
	by, tenants = make(map[Pattern][]*DKIM), make(map[string]bool)
	for _, d := range c.DKIMs {
		if len(d.Tenants) == 0 {
			tenants[everybody] = true
		}
		for _, t := range d.Tenants {
			tenants[t] = true
		}
		for _, p := range d.Senders {
			by[p] = append(by[p], d)
		}
	}
	return by, tenants
}

// deriveDKIM fills in what follows from a block's domain, and puts the domain in A-label form.
func (c *Config) deriveDKIM() {
	for _, d := range c.DKIMs {
		ascii, err := envelope.ToASCII(d.Domain)
		if err != nil || d.Domain == "" {
			continue // complained of
		}
		d.Domain = ascii
		if !d.Set("senders") {
			d.Senders = []Pattern{Pattern(ascii), Pattern("*." + ascii)}
		}
	}
}

func (k checker) dkim() {
	published := make(map[string]*DKIMKey)
	for _, d := range k.DKIMs {
		if d.Domain == "" || strings.HasPrefix(d.Domain, "[") {
			k.problem(&d.block, "domain", `write the signing domain, such as domain = "example.com"`,
				"dkim %q has no domain", d.Name)
		}
		if len(d.Senders) == 0 && d.Set("senders") {
			k.problem(&d.block, "senders", "remove it to sign for the domain itself and all names below it",
				"senders: dkim %q signs no mail", d.Name)
		}
		for _, t := range d.Tenants {
			if t != everybody && k.Tenant(t) == nil && !k.listenersTenant(t) {
				k.reference(&d.block, "tenants", "tenant", t, k.Names("tenant"))
			}
		}
		if len(d.Keys) == 0 {
			k.problem(&d.block, "key", `generate one with 'mta dkim keygen', and write key "selector" { file = "..." }`,
				"dkim %q has no key", d.Name)
		}
		for _, key := range d.Keys {
			k.dkimKey(d, key)
			name := key.Selector + "." + d.Domain
			if other := published[name]; other != nil &&
				(other.File != key.File || other.PrivateKey != key.PrivateKey) {
				k.problem(&key.block, "key", "give one of them another selector",
					"%s: this selector of %s already has a key in line %d", key.Title(), d.Domain, other.Line())
			}
			published[name] = key
		}
	}
}

// listenersTenant reports whether a listener takes mail on behalf of a tenant that has no block.
func (k checker) listenersTenant(name string) bool {
	return slices.ContainsFunc(k.Listeners, func(l *Listener) bool { return l.Tenant == name })
}

func (k checker) dkimKey(d *DKIM, key *DKIMKey) {
	if !IsSelector(key.Selector) {
		k.problem(&key.block, "", `write letters, digits and hyphens, such as key "2026a"`, "%s is not a selector",
			settings.Quoted(key.Selector))
	}
	switch {
	case key.File == "" && key.PrivateKey == "" && !key.Set("private_key"):
		k.problem(&key.block, "file", `write file = "/etc/mta/dkim/NAME.pem"; 'mta dkim keygen' generates one`,
			"%s of dkim %q has no private key", key.Title(), d.Name)
	case key.PrivateKey == "" && key.File == "":
		k.problem(&key.block, "private_key", "set the environment variable, or name a file",
			"private_key of %s is empty", key.Title())
	case key.File != "" && key.PrivateKey != "":
		k.problem(&key.block, "private_key", "remove one of them", "%s has both file and private_key", key.Title())
	case key.PrivateKey != "":
		signer, err := dkim.ParseKey([]byte(key.PrivateKey))
		if err == nil {
			key.loaded, err = dkim.NewKey(d.Domain, key.Selector, signer)
		}
		if err != nil {
			k.problem(&key.block, "private_key",
				"write the key in base64, as in the body of a PEM file, without line breaks", "private_key of %s: %s",
				key.Title(), err)
		}
	}
}

// sameTime complains of a key that takes over at the same time as another of its kind: which signs
// would be chance.
func (k checker) sameTime(d *DKIM, key *DKIMKey) {
	for _, other := range d.Keys {
		if other == key {
			return
		}
		if key.loaded != nil && other.loaded != nil && key.loaded.Algorithm() == other.loaded.Algorithm() &&
			key.From.Time().Equal(other.From.Time()) {
			k.problem(&key.block, "from", `write when it takes over, such as from = "2026-07-01"`,
				"%s and %s are both %s and take over at the same time", key.Title(), other.Title(),
				key.loaded.Algorithm())
			return
		}
	}
}

// IsSelector reports whether s can stand in front of ._domainkey (RFC 6376, 3.1).
func IsSelector(s string) bool {
	for part := range strings.SplitSeq(s, ".") {
		if part == "" || len(part) > 63 || part[0] == '-' || strings.HasSuffix(part, "-") {
			return false
		}
		for _, c := range part {
			if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return false
			}
		}
	}
	return true
}

// dkimFiles reads the private keys that are in files.
func (k checker) dkimFiles() {
	for _, d := range k.DKIMs {
		for _, key := range d.Keys {
			if err := key.load(d.Domain); err != nil {
				k.problem(&key.block, "file", keyRemedy(err, d, key), "private key of %s: %s", key.Title(), err)
			}
			k.sameTime(d, key)
		}
	}
}

// load reads the key's file, if it has one.
func (k *DKIMKey) load(domain string) error {
	if k.File == "" {
		return nil
	}
	signer, err := dkim.LoadKey(k.File)
	if err != nil {
		return err
	}
	k.loaded, err = dkim.NewKey(domain, k.Selector, signer)
	return err
}

func keyRemedy(err error, d *DKIM, key *DKIMKey) string {
	var mode *dkim.ModeError
	switch {
	case errors.As(err, &mode):
		return mode.Remedy()
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("mta dkim keygen --domain %s --selector %s --out %s", d.Domain, key.Selector, key.File)
	case errors.Is(err, fs.ErrPermission):
		return "run this as root or as the relay's user, who should own the file, with mode 0600"
	}
	return ""
}
