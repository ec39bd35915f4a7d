package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/internal/legible"
	"example.org/mta/internal/smallfile"
	"example.org/mta/mta/config"
	"example.org/mta/operator/answer/kept"
	"example.org/mta/operator/api"
	"example.org/mta/operator/audit"
	"example.org/mta/submission/auth"
	"example.org/mta/submission/shared"
)

const keyHelp = `Show and change the API keys with which applications submit mail by HTTP. Each key belongs
to one tenant. The configuration names the file, keys { file = "..." }; --file names another.

A change takes effect immediately, without a reload. These commands need no running relay;
the nodes of a cluster share the keys that a running one has.

A key is printed once, when it is added or rotated: the file has its SHA-256 only.`

func newKey(c *cli) *cobra.Command {
	g := group("key", "the API keys of applications", keyHelp,
		newKeyAdd(c), newKeyRotate(c), newKeyRemove(c), newKeyList(c), newKeyWhich(c), newKeyCheck(c))
	g.PersistentFlags().StringVar(&c.keysFlag, "file", "", "the keys `file` (default: that of the configuration)")
	return g
}

// keysFile returns which file is meant. The configuration is nil when --file alone names it.
func (c *cli) keysFile() (path string, cfg *config.Config, err error) {
	return c.fileOf(c.keysFlag, func(cfg *config.Config) string { return cfg.Keys.File }, "keys file",
		`add keys { file = "/etc/mta/keys" }`)
}

// fileOf gives the path of a flag, or else that of the configuration, which is nil when only the flag counts.
func (c *cli) fileOf(flag string, of func(*config.Config) string, what, add string,
) (path string, cfg *config.Config, err error) {
	if flag != "" && c.configFlag == "" {
		return flag, nil, nil
	}
	if cfg, err = c.config(); err != nil {
		return "", nil, err
	}
	if path = cmp.Or(flag, of(cfg)); path == "" {
		return "", nil, hinted{errors.New("the configuration has no " + what),
			add + " to it, or name a file with --file"}
	}
	return path, cfg, nil
}

// sharedKeys are those of the cluster, nil without one. They count before the file.
func (c *cli) sharedKeys(cfg *config.Config) *auth.SharedKeys {
	return sharedOf(c, cfg, c.keysFlag, auth.KeyEntries)
}

// sharedOf are entries of the cluster, nil without one, or if a flag names a file. They count before the file.
func sharedOf[K comparable, E any](
	c *cli, cfg *config.Config, flag string, of *shared.Entries[K, E]) *shared.Store[K, E] {
	if cfg == nil || flag != "" {
		return nil
	}
	s, err := shared.Read(cfg.Cluster.SharedPath(of.Kind), of)
	if err != nil && (cfg.Cluster.On() || !errors.Is(err, fs.ErrPermission)) {
		fmt.Fprintf(c.err, "mta: only those of the file are known: %v\n", err)
	}
	return s
}

// keysTable reads the keys file.
func (c *cli) keysTable() (path string, cfg *config.Config, table *auth.KeyTable, err error) {
	if path, cfg, err = c.keysFile(); err != nil {
		return "", nil, nil, err
	}
	table, err = auth.LoadKeys(path)
	if errors.Is(err, fs.ErrNotExist) && c.sharedKeys(cfg) != nil {
		table, err = auth.ParseKeys(nil, path)
	}
	if err != nil {
		return "", nil, nil, keyFault(err)
	}
	return path, cfg, table, nil
}

func newKeyAdd(c *cli) *cobra.Command {
	var (
		o      api.AddAPIKey
		asJSON bool
	)
	cmd := &cobra.Command{
		Use: "add", Short: "add an API key",
		Long: `Add an API key of a tenant and print it on standard output.

--scope limits what the key allows: send (submit messages), read (their states), cancel
(cancel and move scheduled ones), events (what became of them), suppress (the tenant's
suppression list). --from limits where it may be used.`,
		Example: `  mta key add --tenant acme --name shop
  mta key add --tenant acme --name shop --scope send,read --from 192.0.2.0/24 --expires 90d`,
		Args: noArgs, RunE: func(cmd *cobra.Command, _ []string) error { return c.keyAdd(cmd.Context(), o, asJSON) },
	}
	addFlags(cmd.Flags(), &o)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	fileFlags(cmd, &o.DryRun)
	return cmd
}

func (c *cli) keyAdd(ctx context.Context, o api.AddAPIKey, asJSON bool) error {
	path, cfg, err := c.keysFile()
	if err != nil {
		return err
	}
	k := auth.Key{Tenant: o.Tenant, Name: o.Name, Scopes: auth.MayAll}
	switch {
	case o.Tenant == "":
		return usagef("--tenant is missing: a key belongs to a tenant")
	case o.Name == "":
		return usagef("--name is missing: give the key a name, such as that of its application")
	}
	if err := tenantOfKey(cfg, o.Tenant); err != nil {
		return err
	}
	if len(o.Scopes) > 0 {
		if k.Scopes, err = auth.ParseScopes(o.Scopes); err != nil {
			return usageError{err}
		}
	}
	if k.From, err = auth.ParseNetworks(o.From); err != nil {
		return usageError{err}
	}
	if o.Expires > 0 {
		k.Expires = c.now().Add(time.Duration(o.Expires))
	}
	if done, err := c.keysInCluster(cfg, func(client *api.Client) error {
		n, err := api.OpAddAPIKey.Call(ctx, client, o)
		if err != nil {
			return err
		}
		return c.newToken(theCluster, "added", &n, asJSON)
	}); done || err != nil {
		return err
	}
	n := api.NewAPIKey{Effect: api.Effect{Count: 1, DryRun: o.DryRun}}
	f := fileChange{"key add", api.FileSubject{File: path, Tenant: k.Tenant, Names: []string{k.Name}, Scopes: o.Scopes},
		o.DryRun}
	err = c.changeFile(ctx, f, func() (int, error) {
		token, added, err := auth.File{Path: path, DryRun: o.DryRun}.AddKey(k, c.now())
		if err == nil {
			n.Key, n.Added = token, c.listed(added)
		}
		return 1, err
	})
	if err != nil {
		return keyFault(err)
	}
	return c.newToken(path, "added", &n, asJSON)
}

// tenantOfKey refuses a tenant that the configuration does not have: requests with its key would be refused.
func tenantOfKey(cfg *config.Config, tenant string) error {
	if cfg == nil || cfg.Tenant(tenant) != nil {
		return nil
	}
	hint := fmt.Sprintf("add tenant %q { } to the configuration first", tenant)
	if like := legible.Nearest(tenant, cfg.Names("tenant")); like != "" {
		hint = fmt.Sprintf("did you mean %q? Otherwise %s", like, hint)
	}
	return hinted{fmt.Errorf("the configuration has no tenant %q", tenant), hint}
}

// newToken prints a key that is shown this once: alone on standard output. A dry run has none. What other nodes of a
// cluster don't know yet is printed, too.
func (c *cli) newToken(where, what string, n *api.NewAPIKey, asJSON bool) error {
	if asJSON {
		return writeJSON(c.out, n)
	}
	c.behind(n.Effect)
	k := &n.Added
	if n.Key == "" {
		return c.did(true, where, "%s %s of %s, %s", what, k.Name, k.Tenant, keyBounds(k))
	}
	if _, err := fmt.Fprintln(c.out, n.Key); err != nil {
		return err
	}
	_, err := fmt.Fprintf(c.err, "%s: %s %s of %s, id %s, %s; the key will not be shown again\n", where, what, k.Name,
		k.Tenant, k.ID, keyBounds(k))
	return err
}

// keyBounds returns what a key allows.
func keyBounds(k *api.APIKey) string {
	text := "scopes " + strings.Join(k.Scopes, ",")
	if len(k.From) > 0 {
		text += ", from " + strings.Join(k.From, ",")
	}
	if !k.Expires.IsZero() {
		text += ", expires " + k.Expires.Format(time.DateTime) + " UTC"
	}
	return text
}

// keyFault adds the remedy to an error about keys.
func keyFault(err error) error {
	var mode *smallfile.ModeError
	switch {
	case errors.As(err, &mode):
		return hinted{err, mode.Remedy()}
	case errors.Is(err, fs.ErrNotExist):
		return hinted{err, "'mta key add' creates it"}
	case errors.Is(err, auth.ErrExists):
		return hinted{err, "'mta key rotate' replaces it; or choose another name"}
	case errors.Is(err, auth.ErrNotFound):
		return hinted{err, "'mta key list' lists the keys"}
	case errors.Is(err, auth.ErrAmbiguous):
		return hinted{err, "name the tenant with --tenant, or give the id of the key"}
	}
	return err
}

func newKeyRotate(c *cli) *cobra.Command {
	var (
		o       api.RotateAPIKey
		overlap = api.Age(auth.DefaultOverlap)
		asJSON  bool
	)
	cmd := &cobra.Command{
		Use: "rotate NAME", Short: "replace an API key by a new one",
		Long: `Replace a key by a new one with the same tenant, name, scopes, networks and
period of validity, and print the new key. Both are valid for --overlap; 0s removes the
old one immediately, as after a leak.`,
		Example: `  mta key rotate shop
  mta key rotate shop --tenant acme --overlap 0s`,
		Args: oneArg("the key's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, cfg, err := c.keysFile()
			if err != nil {
				return err
			}
			o.Name, o.Overlap = args[0], &overlap
			if done, err := c.keysInCluster(cfg, func(client *api.Client) error {
				n, err := api.OpRotateAPIKey.Call(cmd.Context(), client, o)
				if err != nil {
					return err
				}
				return c.rotated(theCluster, &n, n.Old, overlap, asJSON)
			}); done || err != nil {
				return err
			}
			return c.keyRotate(cmd.Context(), path, o, asJSON)
		},
	}
	addFlags(cmd.Flags(), &o)
	cmd.Flags().Var((*ageFlag)(&overlap), "overlap", "the time that both keys are valid (`age`)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	fileFlags(cmd, &o.DryRun)
	return cmd
}

// keyRotate replaces a key of the file.
func (c *cli) keyRotate(ctx context.Context, path string, o api.RotateAPIKey, asJSON bool) error {
	var end time.Time
	if o.Expires > 0 {
		end = c.now().Add(time.Duration(o.Expires))
	}
	n, was := api.NewAPIKey{Effect: api.Effect{Count: 1, DryRun: o.DryRun}}, api.APIKey{}
	f := fileChange{"key rotate", api.FileSubject{File: path, Tenant: o.Tenant, Names: []string{o.Name}}, o.DryRun}
	err := c.changeFile(ctx, f, func() (int, error) {
		token, added, old, err := auth.File{Path: path, DryRun: o.DryRun}.RotateKey(
			auth.WhichKey{Tenant: o.Tenant, Name: o.Name}, time.Duration(*o.Overlap), end, c.now())
		if err == nil {
			n.Key, n.Added, was = token, c.listed(added), c.listed(old)
		}
		return 1, err
	})
	if err != nil {
		return keyFault(err)
	}
	return c.rotated(path, &n, &was, *o.Overlap, asJSON)
}

// rotated prints a new key, and until when the old one is valid; nil: nothing is known of it.
func (c *cli) rotated(where string, n *api.NewAPIKey, old *api.APIKey, overlap api.Age, asJSON bool) error {
	err := c.newToken(where, "rotated", n, asJSON)
	if err == nil && old != nil && !asJSON && !n.DryRun {
		until := "removed"
		if overlap > 0 {
			until = "valid until " + old.Expires.Format(time.DateTime) + " UTC"
		}
		_, err = fmt.Fprintf(c.err, "%s: the old key, id %s, is %s\n", where, old.ID, until)
	}
	return err
}

func newKeyRemove(c *cli) *cobra.Command {
	var (
		o       api.RemoveAPIKeys
		expired bool
	)
	cmd := &cobra.Command{
		Use: "remove NAME|ID...", Short: "remove API keys",
		Long: `Remove all keys of a name, replaced ones included, or the one of an id.
Requests with them are refused from then on.`,
		Example: `  mta key remove shop --tenant acme
  mta key remove --expired`,
		Args: func(_ *cobra.Command, args []string) error {
			if (len(args) == 0) != expired {
				return usagef("want names or ids of keys, or --expired")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			path, cfg, err := c.keysFile()
			if err != nil {
				return err
			}
			o.Names = args
			if done, err := c.keysInCluster(cfg, func(client *api.Client) error {
				return c.removeShared(cmd.Context(), client, o)
			}); done || err != nil {
				return err
			}
			done := api.RemovedAPIKeys{Effect: api.Effect{DryRun: o.DryRun}}
			f := fileChange{"key remove",
				api.FileSubject{File: path, Tenant: o.Tenant, Names: args, Expired: expired}, o.DryRun}
			err = c.changeFile(cmd.Context(), f, func() (int, error) {
				removed, err := c.removeKeys(path, o)
				for _, k := range removed {
					done.Keys = append(done.Keys, c.listed(k))
				}
				return len(removed), err
			})
			if err != nil {
				return keyFault(err)
			}
			return c.removed(path, &done)
		},
	}
	addFlags(cmd.Flags(), &o)
	cmd.Flags().BoolVar(&expired, "expired", false, "all keys that have expired")
	fileFlags(cmd, &o.DryRun)
	return cmd
}

// removed prints which keys were removed.
func (c *cli) removed(where string, done *api.RemovedAPIKeys) error {
	c.behind(done.Effect)
	for _, k := range done.Keys {
		if err := c.did(done.DryRun, where, "removed %s of %s, id %s", k.Name, k.Tenant, k.ID); err != nil {
			return err
		}
	}
	if len(done.Keys) == 0 {
		fmt.Fprintf(c.out, "%s: no key has expired\n", where)
	}
	return nil
}

// theCluster is where keys are that its nodes share.
const theCluster = "the cluster"

// keysInCluster has the relay change keys that are shared: see inCluster.
func (c *cli) keysInCluster(cfg *config.Config, change func(*api.Client) error) (done bool, err error) {
	if c.keysFlag != "" {
		cfg = nil
	}
	return c.inCluster(cfg, func() bool { return !c.sharedKeys(cfg).Empty() }, change)
}

// inCluster has the relay change what the nodes of its cluster share, or have shared (some). It reports false if there
// is none, or the relay does not run: then the file is changed, and the relay takes that over when it starts.
func (c *cli) inCluster(
	cfg *config.Config, some func() bool, change func(*api.Client) error) (done bool, err error) {
	if cfg == nil || !cfg.Cluster.SharesSecrets() && !some() {
		return false, nil
	}
	client, err := c.client()
	if err != nil {
		return false, err
	}
	if err = change(client); c.notRunning(err) {
		return false, nil
	}
	return true, err
}

// removeShared removes keys; those that have expired if none is named.
func (c *cli) removeShared(ctx context.Context, client *api.Client, o api.RemoveAPIKeys) error {
	if len(o.Names) == 0 {
		list, err := api.OpAPIKeys.Call(ctx, client, api.None{})
		if err != nil {
			return err
		}
		for _, k := range list.Keys {
			if k.State == "expired" {
				o.Names = append(o.Names, k.ID)
			}
		}
		if len(o.Names) == 0 {
			return c.removed(theCluster, new(api.RemovedAPIKeys))
		}
	}
	done, err := api.OpRemoveAPIKeys.Call(ctx, client, o)
	if err != nil {
		return err
	}
	return c.removed(theCluster, &done)
}

// removeKeys removes keys by their names or ids, or without any those that have expired.
func (c *cli) removeKeys(path string, o api.RemoveAPIKeys) ([]*auth.Key, error) {
	file := auth.File{Path: path, DryRun: o.DryRun}
	if len(o.Names) == 0 {
		return file.RemoveExpiredKeys(c.now())
	}
	var which []auth.WhichKey
	for _, name := range o.Names {
		which = append(which, auth.WhichKey{Tenant: o.Tenant, Name: name})
	}
	return file.RemoveKeys(which...)
}

func (c *cli) listed(k *auth.Key) api.APIKey { return kept.APIKey(k, c.now()) }

func newKeyList(c *cli) *cobra.Command {
	tenant := ""
	cmd := prints(c, &cobra.Command{
		Use: "list", Short: "list the API keys",
		Long: `List the keys, in the order of the file. A replaced key is valid until its end,
beside the new one. LAST USED is accurate to a minute or two.`,
		Args: noArgs,
	}, func(context.Context, []string) (api.APIKeyList, error) { return c.keyList(tenant) }, c.keyTable)
	cmd.Flags().StringVar(&tenant, "tenant", "", "the keys of this `tenant` only")
	return cmd
}

func (c *cli) keyList(tenant string) (list api.APIKeyList, err error) {
	_, cfg, table, err := c.keysTable()
	if err != nil {
		return list, err
	}
	var used map[string]time.Time
	if cfg != nil {
		if used, err = auth.ReadKeyUse(cfg.KeysUsed()); err != nil {
			fmt.Fprintf(c.err, "mta: the last uses of keys can't be read: %v\n", err)
		}
	}
	list.Keys = []api.APIKey{}
	for _, k := range c.sharedKeys(cfg).Over(table.Keys()) {
		if tenant == "" || tenant == k.Tenant {
			l := c.listed(k)
			l.LastUsed = used[l.ID]
			list.Keys = append(list.Keys, l)
		}
	}
	return list, nil
}

func (c *cli) keyTable(list api.APIKeyList) error {
	if len(list.Keys) == 0 {
		fmt.Fprintln(c.err, "no keys")
	}
	t := draw.New("", "NAME", "~TENANT", "ID", "STATE", "~SCOPES", "~-FROM", ">AGE", ">ENDS IN", ">LAST USED")
	for _, l := range list.Keys {
		from, end, used := cmp.Or(strings.Join(l.From, ","), "anywhere"), "-", "-"
		if !l.Expires.IsZero() {
			end = legible.Left(l.Expires.Sub(c.now()))
		}
		if !l.LastUsed.IsZero() {
			used = legible.Age(c.now().Sub(l.LastUsed)) + " ago"
		}
		t.Add("", l.Name, l.Tenant, l.ID, l.State, strings.Join(l.Scopes, ","), from,
			legible.Age(c.now().Sub(l.Created)), end, used)
	}
	return c.printTable(t)
}

func newKeyWhich(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "which", Short: "identify an API key that was found somewhere",
		Long: `Read a key from the terminal or standard input, and print its tenant, name and
id, as for a key that turned up in a log. The exit status is 1 if the file does not have
it.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			path, cfg, table, err := c.keysTable()
			if err != nil {
				return err
			}
			token, err := c.readSecret("Key: ")
			if err != nil {
				return err
			}
			token = strings.TrimSpace(token)
			k := c.sharedKeys(cfg).Of(auth.KeySumOf(token), table.Of(token))
			if k == nil {
				return fmt.Errorf("%s does not have this key", path)
			}
			l := c.listed(k)
			_, err = fmt.Fprintf(c.out, "%s of %s, id %s, %s: %s\n", l.Name, l.Tenant, l.ID, l.State, keyBounds(&l))
			return err
		},
	}
}

func newKeyCheck(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "check", Short: "check the keys file",
		Long: `Report every error in the keys file, line by line. The exit status is 1 if there is one.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			path, cfg, table, err := c.keysTable()
			if err != nil {
				return err
			}
			for _, k := range table.Keys() {
				if err := tenantOfKey(cfg, k.Tenant); err != nil {
					return fmt.Errorf("key %q, id %s: %w", k.Name, k.ID(), err)
				}
			}
			_, err = fmt.Fprintf(c.out, "%s: no errors, %s\n", path, plural(len(table.Keys()), "key"))
			return err
		},
	}
}

// Commands that change a file without the relay leave the same two lines in the audit log as a change by the API. A
// running relay writes them, as it is the only writer of its log; while none runs, the command is.

// fileChange is such a command.
type fileChange struct {
	action string // one of api.FileActions
	about  api.FileSubject
	dryRun bool // it only shows what it would do
}

// fileFlags adds the flags of all commands that change files: --dry-run and --reason.
func fileFlags(cmd *cobra.Command, dryRun *bool) {
	cmd.Flags().BoolVarP(dryRun, "dry-run", "n", false, "check everything, but change nothing")
	reasonFlag(cmd)
}

// changeFile carries out a change with its lines in the audit log. do returns how much it has changed. What can't be
// put on record is not carried out.
func (c *cli) changeFile(ctx context.Context, f fileChange, do func() (int, error)) error {
	if f.dryRun {
		_, err := do()
		return err
	}
	if path, err := filepath.Abs(f.about.File); err == nil {
		f.about.File = path
	}
	end, err := c.beginFileChange(ctx, f)
	if err != nil {
		return err
	}
	n, err := do()
	if late := end(outcomeOf(n, err)); late != nil {
		fmt.Fprintf(c.err, "mta: the outcome is not in the audit log yet: %v\n", late)
	}
	return err
}

// did prints what was done to a file, or in a dry run would be.
func (c *cli) did(dryRun bool, path, format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if dryRun {
		text += " (dry run: nothing has changed)"
	}
	_, err := fmt.Fprintf(c.out, "%s: %s\n", path, text)
	return err
}

// outcomeOf gives the outcome of a change that has changed n things.
func outcomeOf(n int, err error) (audit.Outcome, int, string) {
	errno := syscall.Errno(0)
	switch {
	case err == nil:
		return audit.Done, n, ""
	case errors.Is(err, fs.ErrExist), errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
	case errors.As(err, &errno):
		return audit.Failed, n, err.Error()
	}
	return audit.Refused, n, err.Error()
}

// endOf puts the outcome of a change on record.
type endOf func(audit.Outcome, int, string) error

// beginFileChange puts it on record that a change begins: by the running relay, else in the files of a relay that does
// not run. Where there never was one, nothing is recorded.
func (c *cli) beginFileChange(ctx context.Context, f fileChange) (endOf, error) {
	client, err := c.client()
	if err != nil {
		return nil, fmt.Errorf("the change can't be put on record: %w", err)
	}
	begun, err := api.OpBeginFileChange.Call(ctx, client, api.FileChange{Action: f.action, FileSubject: f.about})
	if err == nil {
		return func(o audit.Outcome, n int, why string) error {
			_, err := api.OpEndFileChange.Call(ctx, client,
				api.EndedFileChange{Number: begun.Number, Outcome: o, Count: n, Error: why})
			return err
		}, nil
	}
	if !c.notRunning(err) {
		return nil, fmt.Errorf("the change can't be put on record: %w", err)
	}
	return c.beginWithoutRelay(ctx, f)
}

func (c *cli) beginWithoutRelay(ctx context.Context, f fileChange) (endOf, error) {
	w, err := c.find()
	if err != nil {
		return nil, err
	}
	_, err = os.Stat(w.DataDir)
	if w.DataDir == "" || errors.Is(err, fs.ErrNotExist) { // no relay has run
		return func(audit.Outcome, int, string) error { return nil }, nil
	}
	var log *audit.Log
	if err == nil {
		log, err = audit.Open(audit.Config{Dir: filepath.Join(w.DataDir, config.AuditLog), Now: c.now})
	}
	if err != nil {
		return nil, noRecord(err)
	}
	begun, err := log.Begin(audit.Line{Actor: thisProcess(), Action: f.action, Subject: f.about.String(),
		Reason: api.ReasonOf(ctx)})
	if err != nil {
		log.Close()
		return nil, noRecord(err)
	}
	return func(o audit.Outcome, n int, why string) error {
		return errors.Join(begun.End(o, n, why), log.Close())
	}, nil
}

func noRecord(err error) error {
	hint := "nothing can be changed while the audit log in data_dir can't be written: look at its disk"
	if errors.Is(err, fs.ErrPermission) {
		hint = "run this as root or as the relay's user: the audit log is in its data_dir"
	}
	return hinted{fmt.Errorf("the change can't be put on record: %w", err), hint}
}

// thisProcess is who runs the command, as the control socket would name it.
func thisProcess() audit.Actor {
	uid := uint32(os.Getuid())
	a := audit.Actor{Kind: audit.ByCommand, UID: &uid, PID: os.Getpid()}
	if u, err := user.Current(); err == nil {
		a.User = u.Username
	}
	return a
}
