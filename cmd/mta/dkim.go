package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/internal/dkim"
	"example.org/mta/internal/dnscheck"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/smallfile"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/api"
	"example.org/mta/router/resolver"
)

const dkimHelp = `Generate the keys that sign mail, print the DNS records that publish them, and check that
every name server has these. The dkim blocks of the configuration decide which mail is
signed. These commands need no running relay.`

func newDKIM(c *cli) *cobra.Command {
	return group("dkim", "keys that sign mail, and their DNS records", dkimHelp, newDKIMKeygen(c), newDKIMDNS(c),
		newDKIMCheck(c), newDKIMList(c))
}

const keygenHelp = `Generate a private key in a new file, and print the DNS record to
publish and the block for the configuration. Only the owner can read the file; in a
setgid folder, as /etc/mta of the packages, its group can, too. A missing folder is made
like the one above it. An existing file is never overwritten.

Many receivers verify RSA only: use an RSA key, and optionally an Ed25519 key with
another selector.`

// keygen is what 'mta dkim keygen' was asked for.
type keygen struct {
	Domain   string `flag:"domain" help:"the signing <domain>"`
	Selector string `flag:"selector" help:"the key's <name> below ._domainkey of the domain"`
	Out      string `flag:"out" help:"the new <file> for the private key"`
	Kind     string `flag:"type" help:"rsa or ed25519"`
	Bits     int    `flag:"bits" help:"the size of an RSA key: 2048 or 4096, which some receivers don't verify"`
	JSON     bool   `flag:"json" help:"print JSON"`
	dryRun   bool
}

func newDKIMKeygen(c *cli) *cobra.Command {
	k := keygen{Kind: string(dkim.RSA), Bits: 2048}
	cmd := &cobra.Command{
		Use: "keygen --domain DOMAIN --selector SELECTOR --out FILE", Short: "generate a key", Long: keygenHelp,
		Example: `  mta dkim keygen --domain example.com --selector 2026a --out /etc/mta/dkim/2026a.pem
  mta dkim keygen --domain example.com --selector 2026e --type ed25519 --out /etc/mta/dkim/2026e.pem`,
		Args: noArgs, RunE: func(cmd *cobra.Command, _ []string) error { return c.dkimKeygen(cmd.Context(), k) },
	}
	addFlags(cmd.Flags(), &k)
	oneOf(cmd, "type", []dkim.Algorithm{dkim.RSA, dkim.Ed25519})
	fileFlags(cmd, &k.dryRun)
	return cmd
}

func (c *cli) dkimKeygen(ctx context.Context, k keygen) error {
	domain, err := envelope.ToASCII(k.Domain)
	switch {
	case k.Domain == "" || err != nil || strings.HasPrefix(domain, "["):
		return usagef("a signing domain is required: --domain example.com")
	case !config.IsSelector(k.Selector):
		return usagef("a selector of letters, digits and hyphens is required: --selector 2026a")
	case k.Out == "":
		return usagef("a file for the private key is required: --out /etc/mta/dkim/%s.pem", k.Selector)
	case k.Kind != string(dkim.RSA) && k.Kind != string(dkim.Ed25519):
		return usagef("unknown type %q: use rsa or ed25519", k.Kind)
	case k.Bits != 2048 && k.Bits != 3072 && k.Bits != 4096:
		return usagef("an RSA key has 2048, 3072 or 4096 bits, not %d", k.Bits)
	}
	signer, text, err := dkim.Generate(dkim.Algorithm(k.Kind), k.Bits)
	if err != nil {
		return err
	}
	key, err := dkim.NewKey(domain, k.Selector, signer)
	if err != nil {
		return err
	}
	f := fileChange{"dkim keygen", api.FileSubject{File: k.Out, Domain: domain, Selector: k.Selector}, k.dryRun}
	err = c.changeFile(ctx, f, func() (int, error) {
		if k.dryRun {
			return 1, checkNew(k.Out)
		}
		return 1, writeNewKey(k.Out, text)
	})
	switch {
	case errors.Is(err, fs.ErrExist):
		return hinted{fmt.Errorf("%s already exists", k.Out),
			"mta does not overwrite keys: choose another selector and another file"}
	case err != nil:
		return err
	case k.dryRun:
		return c.did(true, k.Out, "generated a key")
	}
	if k.JSON {
		return writeJSON(c.out,
			map[string]any{"file": k.Out, "name": key.Name(), "record": key.Record(), "zone_line": key.ZoneLine()})
	}
	readers := "only you can read it; make the relay's user its owner"
	if smallfile.NewMode(filepath.Dir(k.Out)) != 0o600 {
		readers = "you and the group of its folder can read it"
	}
	fmt.Fprintf(c.out, "%s has the private key: %s\n", k.Out, readers)
	fmt.Fprintf(c.out, "\npublish this record:\n\n%s\n", key.ZoneLine())
	_, err = fmt.Fprintf(c.out,
		"\nand add to the configuration:\n\ndkim %q {\n  domain = %q\n  key %q { file = %q }\n}\n", domain, domain,
		k.Selector, k.Out)
	return err
}

// checkNew returns why there can be no new file, as far as that is known before it is made.
func checkNew(path string) error {
	if _, err := os.Lstat(path); err == nil {
		return fs.ErrExist
	}
	dir := filepath.Dir(path)
	_, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		_, err = os.Stat(filepath.Dir(dir))
	}
	return err
}

// writeNewKey writes a file that is not there yet to stable storage, for its owner only, or for its group too where the
// folder hands its group on: the relay then reads what root has written. The last folder of the path is made if it is
// missing.
func writeNewKey(path string, text []byte) error {
	dir := filepath.Dir(path)
	if err := makeLike(dir); err != nil {
		return err
	}
	mode := smallfile.NewMode(dir)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		os.Remove(path) // half a key would be in the way of the next try
	}
	return err
}

// makeLike makes a missing folder: with the rights of the one above it where that hands its group on, else for its
// owner only.
func makeLike(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil
		}
		return err
	}
	above, err := os.Stat(filepath.Dir(dir))
	if err != nil || above.Mode()&os.ModeSetgid == 0 {
		return err
	}
	return os.Chmod(dir, above.Mode()&(os.ModePerm|os.ModeSetgid))
}

// dkimKey is a key of the configuration, for tables and JSON.
type dkimKey struct {
	Block     string         `json:"dkim"`
	Domain    string         `json:"domain"`
	Selector  string         `json:"selector"`
	Algorithm dkim.Algorithm `json:"algorithm"`
	Bits      int            `json:"bits"`
	State     string         `json:"state"` // signing, later, or replaced
	From      *time.Time     `json:"from,omitempty"`
	File      string         `json:"file,omitempty"` // "": from the environment
	Senders   []string       `json:"senders"`
	Tenants   []string       `json:"tenants"` // none: those whose senders cover the domain
	Name      string         `json:"name"`
	Record    string         `json:"record"`

	key *dkim.Key
}

// dkimKeys lists the keys of the configuration: of all blocks, or of those whose name or domain is
// one of names.
func (c *cli) dkimKeys(names []string) ([]dkimKey, error) {
	cfg, err := c.config()
	if err != nil {
		return nil, err
	}
	wanted := make(map[string]bool)
	for _, n := range names {
		wanted[n] = false
	}
	keys := []dkimKey{}
	for _, d := range cfg.DKIMs {
		if _, ok := wanted[d.Name]; ok {
			wanted[d.Name] = true
		} else if _, ok := wanted[d.Domain]; ok {
			wanted[d.Domain] = true
		} else if len(names) > 0 {
			continue
		}
		for _, k := range d.Keys {
			keys = append(keys, describeKey(d, k, c.now()))
		}
	}
	for _, n := range names {
		if !wanted[n] {
			return nil, hinted{fmt.Errorf("no dkim block has the name or domain %q", n),
				"'mta dkim list' lists the keys"}
		}
	}
	if len(keys) == 0 {
		fmt.Fprintln(c.err,
			"mta: no mail is signed: the configuration has no dkim block; 'mta dkim keygen' generates a key")
	}
	return keys, nil
}

func describeKey(d *config.DKIM, k *config.DKIMKey, now time.Time) dkimKey {
	out := dkimKey{
		Block: d.Name, Domain: d.Domain, Selector: k.Selector, Algorithm: k.Key().Algorithm(), Bits: k.Key().Bits(),
		State: "replaced",
		File:  k.File, Senders: []string{}, Tenants: append([]string{}, d.Tenants...), Name: k.Key().Name(),
		Record: k.Key().Record(), key: k.Key(),
	}
	for _, p := range d.Senders {
		out.Senders = append(out.Senders, string(p))
	}
	if from := k.From.Time(); !from.IsZero() {
		out.From = &from
		if from.After(now) {
			out.State = "later"
		}
	}
	for _, s := range d.Signing(now) {
		if s == k {
			out.State = "signing"
		}
	}
	return out
}

func newDKIMList(c *cli) *cobra.Command {
	return c.dkimListing(&cobra.Command{
		Use: "list [NAME...]", Short: "list the keys and their states",
		Long: `List the keys of the configuration, or those of the blocks or domains NAME.
STATE shows which sign today; a key in state "later" takes over on its day. Keep the
record of a "replaced" one until the mail that it signed has arrived.`,
	}, func(keys []dkimKey) error {
		t := draw.New("", "DKIM", "DOMAIN", "SELECTOR", "KEY", "STATE", "FROM", "~SENDERS", "~TENANTS", "~-FILE")
		t.Columns[4].Colour = colourOf
		for _, k := range keys {
			from, kind := "-", string(k.Algorithm)
			if k.From != nil {
				from = k.From.UTC().Format(time.DateOnly)
			}
			if k.Algorithm == dkim.RSA {
				kind = fmt.Sprintf("%s %d", kind, k.Bits)
			}
			t.Add("", k.Block, k.Domain, k.Selector, kind, k.State, from, strings.Join(k.Senders, ", "),
				cmp.Or(strings.Join(k.Tenants, ", "), "-"), cmp.Or(k.File, "environment"))
		}
		return t.Write(c.out, c.screen)
	})
}

func newDKIMDNS(c *cli) *cobra.Command {
	return c.dkimListing(&cobra.Command{
		Use: "dns [NAME...]", Short: "print the DNS records to publish",
		Long: `Print the record of each key, including those that sign later, as lines of a zone file:
for all keys of the configuration, or for the blocks or domains NAME.`,
	}, func(keys []dkimKey) error {
		for _, k := range keys {
			if _, err := fmt.Fprintln(c.out, k.key.ZoneLine()); err != nil {
				return err
			}
		}
		return nil
	})
}

// dkimListing makes a command that shows keys, or prints all that is known of them as JSON.
func (c *cli) dkimListing(cmd *cobra.Command, show func([]dkimKey) error) *cobra.Command {
	prints(c, cmd, func(_ context.Context, names []string) (map[string][]dkimKey, error) {
		keys, err := c.dkimKeys(names)
		return map[string][]dkimKey{"keys": keys}, err
	}, func(all map[string][]dkimKey) error { return show(all["keys"]) })
	cmd.Flags().Lookup("json").Usage = "print JSON: the name and text of each record, too"
	return cmd
}

const dkimCheckHelp = `Ask each name server of a key's zone for its record, past all
caches, and compare it with the private key: for all keys of the configuration, those
that sign later included, or those of the blocks or domains NAME.

The exit status is 1 when a key that signs, or will sign, does not have its record at
every server. A replaced key never fails.`

// checkedKey is what a name server has for a key.
type checkedKey struct {
	Domain   string `json:"domain"`
	Selector string `json:"selector"`
	State    string `json:"state"`
	Server   string `json:"server"` // "" when none was found
	Result   string `json:"result"` // ok, testing, missing, wrong, or unknown
	Why      string `json:"why,omitempty"`
	Remedy   string `json:"remedy,omitempty"`
	Alias    string `json:"alias,omitempty"` // where the record is found
	Failed   bool   `json:"failed"`
}

func newDKIMCheck(c *cli) *cobra.Command {
	var asJSON bool
	var servers []string
	cmd := &cobra.Command{
		Use: "check [NAME...]", Short: "hold the published records against the keys", Long: dkimCheckHelp,
		RunE: func(cmd *cobra.Command, args []string) error {
			keys, err := c.dkimKeys(args)
			if err != nil {
				return err
			}
			asker, err := c.asker(servers)
			if err != nil {
				return err
			}
			found := []checkedKey{}
			for _, k := range keys {
				found = append(found, checkKey(cmd.Context(), asker, k)...)
			}
			return c.printKeys(found, asJSON)
		},
	}
	cmd.Flags().StringSliceVar(&servers, "server", nil,
		"ask this name `server`, \"address\" or \"address:port\", in place of the zone's own")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

const askTimeout = 5 * time.Second

// asker finds name servers by the resolvers of the configuration, or asks those that are given.
func (c *cli) asker(servers []string) (*dnscheck.Asker, error) {
	cfg, err := c.config()
	if err != nil {
		return nil, err
	}
	resolvers, err := wiring.Resolver(cfg.Resolver)
	if err != nil {
		return nil, err
	}
	asked, err := wiring.Resolver(config.Resolver{Servers: servers})
	if err != nil {
		return nil, usagef("%v", err)
	}
	a := &dnscheck.Asker{Timeout: askTimeout, Resolvers: resolvers.Servers, Servers: asked.Servers}
	if len(a.Resolvers) == 0 {
		a.Resolvers = resolver.SystemServers()
	}
	return a, nil
}

func checkKey(ctx context.Context, a *dnscheck.Asker, k dkimKey) []checkedKey {
	row := checkedKey{Domain: k.Domain, Selector: k.Selector, State: k.State}
	answers, err := a.TXT(ctx, k.Name)
	if err != nil {
		row.Result, row.Why, row.Failed = "unknown", err.Error(), k.State != "replaced"
		row.Remedy = "is the domain registered, and can this machine reach its resolver?"
		return []checkedKey{row}
	}
	var rows []checkedKey
	for _, ans := range answers {
		row := row
		row.Server, row.Alias = ans.Server, strings.TrimSuffix(ans.Alias, ".")
		row.judge(k, ans)
		row.Failed = k.State != "replaced" && row.Result != "ok"
		rows = append(rows, row)
	}
	return rows
}

// judge holds what a server has against a key.
func (row *checkedKey) judge(k dkimKey, ans dnscheck.Answer) {
	if ans.Err != nil {
		row.Result, row.Why = "unknown", ans.Err.Error()
		row.Remedy = "a receiver that asks this server learns nothing: see to it, or take it out of the zone's NS " +
			"records"
		return
	}
	v := k.key.Judge(ans.Texts)
	row.Result, row.Why, row.Remedy = string(v.Result), v.Why, v.Remedy
}

// printKeys prints what was found, and fails when a key that is needed does not have its record.
func (c *cli) printKeys(found []checkedKey, asJSON bool) error {
	failed := false
	t := draw.New("", "~RECORD", "KEY", "~SERVER", "RESULT")
	for _, k := range found {
		failed = failed || k.Failed
		note := k.Why
		if k.Remedy != "" {
			note += ": " + k.Remedy
		}
		if k.Alias != "" {
			note = strings.TrimPrefix(note+"; found at "+k.Alias, "; ")
		}
		t.Add(note, k.Selector+"._domainkey."+k.Domain, k.State, k.Server, k.Result)
	}
	var err error
	if asJSON {
		err = writeJSON(c.out, map[string]any{"records": found})
	} else if len(found) > 0 {
		err = t.Write(c.out, c.screen)
	}
	if err == nil && failed {
		return exitError(exitFailed)
	}
	return err
}
