package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/internal/legible"
	"example.org/mta/mta/config"
	"example.org/mta/mta/datadir"
	"example.org/mta/operator/api"
	"example.org/mta/submission/maildrop"
)

func newBackup(c *cli) *cobra.Command {
	var o api.BackupOptions
	cmd := &cobra.Command{
		Use: "backup DIR|-", Short: "back up the running relay",
		Long: `Write the state of the running relay, which goes on working, into a new
directory or as a tar archive to standard output: the queue at one instant, and the
databases and logs right after it. The configuration, keys and secrets need
--with-secrets, the accounting log --with-log.`,
		Example: "  mta backup /srv/backup/mta-today\n  mta backup --with-secrets - | ssh safe 'cat > mta.tar'",
		Args:    oneArg("a directory, or -"),
		RunE: c.asking(func(ctx context.Context, client *api.Client, args []string) error {
			if args[0] == "-" {
				return api.OpBackup.Copy(ctx, client, c.out, o)
			}
			return c.backupTo(ctx, client, args[0], o)
		}),
	}
	c.addParams(cmd, &o)
	return cmd
}

func (c *cli) backupTo(ctx context.Context, client *api.Client, dir string, o api.BackupOptions) error {
	out, in := io.Pipe()
	taken := make(chan error, 1)
	go func() { // ended by the reader's Close
		err := api.OpBackup.Copy(ctx, client, in, o)
		in.CloseWithError(err)
		taken <- err
	}()
	m, err := datadir.UnpackBackup(out, dir)
	out.CloseWithError(err)
	if why := <-taken; why != nil && errors.Is(err, datadir.ErrIncomplete) {
		err = why // the relay, or the way to it, has failed: nothing is wrong with a backup
	}
	if err != nil {
		return err
	}
	size := int64(0)
	for _, f := range m.Files {
		size += f.Size
	}
	fmt.Fprintf(c.out, "%s: %s with %s as of %s, in %s (%s)\n", draw.Clean(dir), plural(m.Messages, "message"),
		plural(m.Recipients, "recipient"), moment(m.At, c.now()), plural(len(m.Files), "file"), legible.Size(size))
	return nil
}

func newRestore(c *cli) *cobra.Command {
	var hold, send bool
	cmd := &cobra.Command{
		Use: "restore DIR|FILE|-", Short: "restore a backup",
		Long: `Restore a backup into the data directory of the configuration, which no relay
may use or have used. Mail that has left since the backup was taken is still in its
queue: with --hold all of it waits until you release or remove it, with --send it leaves
when the relay starts, some of it a second time; without either, the command asks. The
backup's configuration and keys go to the folder config of the data directory, its
accounting log to the folder log.`,
		Example: "  mta restore /srv/backup/mta-today --hold", Args: oneArg("a directory, a file or -"),
		RunE: func(_ *cobra.Command, args []string) error {
			if hold && send {
				return usagef("--hold and --send exclude each other")
			}
			return c.restore(args[0], hold, send)
		},
	}
	cmd.Flags().BoolVar(&hold, "hold", false, "hold all mail")
	cmd.Flags().BoolVar(&send, "send", false, "let all mail leave")
	return cmd
}

func (c *cli) restore(name string, hold, send bool) error {
	cfg, err := c.config()
	if err != nil {
		return err
	}
	from, err := c.openBackup(name)
	if err != nil {
		return err
	}
	defer from.Close()
	s, err := datadir.StageRestore(cfg, thisBuild().Version, from)
	if err != nil {
		return fmt.Errorf("restoring %s: %w", name, err)
	}
	defer s.Discard()
	age := c.now().Sub(s.At).Round(time.Second)
	fmt.Fprintf(c.err, "the backup of %s is %s old, with %s for %s; mail that has left since then would leave again\n",
		draw.Clean(s.Hostname), legible.Age(age), plural(s.Messages, "message"), plural(s.Recipients, "recipient"))
	if !hold && !send {
		if hold, err = c.askHold(name); err != nil {
			return err
		}
	}
	if err := s.Restore(hold); err != nil {
		return fmt.Errorf("restoring %s: %w", name, err)
	}
	if hold {
		c.heldLetters(s.Letters())
	}
	what := "its mail leaves when the relay starts"
	if hold {
		what = "all of its mail is held until 'mta queue release' or 'mta queue remove'"
	}
	fmt.Fprintf(c.out, "%s is restored; %s\n", draw.Clean(cfg.DataDir), what)
	return nil
}

// heldLetters names the letters that sendmail had left, which are held.
func (c *cli) heldLetters(n int) {
	if n > 0 {
		fmt.Fprintf(c.err, "sendmail had left %s: move what should leave from %s to %s, both in the data directory\n",
			plural(n, "more message"), datadir.HeldLetters, config.Maildrop+"/"+maildrop.New)
	}
}

func (c *cli) openBackup(name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(c.in), nil
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return datadir.ReadBackup(name)
	}
	return os.Open(name)
}

// askHold asks what becomes of the mail.
func (c *cli) askHold(name string) (hold bool, err error) {
	if name == "-" || !c.screen.TTY {
		return false, hinted{errors.New("nothing is restored"), "say what becomes of the mail: --hold or --send"}
	}
	fmt.Fprint(c.err, "hold the mail, or send it? [hold/send] ")
	answer, err := bufio.NewReader(c.in).ReadString('\n')
	if err != nil && answer == "" {
		return false, err
	}
	switch strings.TrimSpace(answer) {
	case "hold":
		return true, nil
	case "send":
		return false, nil
	}
	return false, hinted{errors.New("nothing is restored"), "answer hold or send"}
}

const upgradeHelp = `Show and finish an upgrade of the relay. Until it is finished, a
new version writes the formats of the version before, so that you can go back with every
message.`

func newUpgrade(c *cli) *cobra.Command {
	return group("upgrade", "show and finish an upgrade", upgradeHelp, newUpgradeStatus(c), newUpgradeFinish(c))
}

func newUpgradeStatus(c *cli) *cobra.Command {
	return answers(c, &cobra.Command{
		Use: "status", Short: "show the formats of the relay's stores",
		Long: `Show the format of each store, and the version to which you can go back. FORMAT is
written now, READS is the oldest that this version reads, WRITES is written once the
upgrade is finished. Exit code 78: this version does not read one of them.`,
		Args: noArgs,
	}, func(ctx context.Context, client *api.Client, _ []string) (api.Upgrade, error) {
		return c.upgrade(ctx, client)
	}, func(u api.Upgrade) error { return c.upgradeTable(&u) })
}

// upgrade asks the running relay, or looks at its stores when there is none.
func (c *cli) upgrade(ctx context.Context, client *api.Client) (api.Upgrade, error) {
	u, err := api.OpUpgrade.Call(ctx, client, api.None{})
	if !api.Down(err) {
		return u, err
	}
	cfg, err := c.config()
	if err != nil {
		return u, err
	}
	version := thisBuild().Version
	set, err := datadir.Formats(cfg, version)
	if err != nil {
		return u, err
	}
	return datadir.UpgradeStatus(cfg, version, set), nil
}

func (c *cli) upgradeTable(u *api.Upgrade) error {
	if err := c.storeTable(u.Stores); err != nil {
		return err
	}
	switch {
	case !u.Pending:
		fmt.Fprintf(c.out, "\nmta %s: the upgrade is finished\n", draw.Clean(u.Version))
	case u.Mode == "auto":
		fmt.Fprintf(c.out, "\nmta %s: the upgrade is not finished; the relay finishes it after running for a day\n",
			draw.Clean(u.Version))
	default:
		fmt.Fprintf(c.out, "\nmta %s: the upgrade is not finished; to finish it: mta upgrade finish\n",
			draw.Clean(u.Version))
	}
	return nil
}

func (c *cli) storeTable(stores []api.StoreFormat) error {
	t := draw.New("", "STORE", ">FORMAT", ">READS", ">WRITES", "BACK TO", "~PATH")
	for _, s := range stores {
		t.Add("", s.Store, s.Format, s.Reads, s.Writes, cmp.Or(s.BackTo, "-"), s.Path)
	}
	return t.Write(c.out, c.screen)
}

func newUpgradeFinish(c *cli) *cobra.Command {
	var f api.FinishUpgrade
	cmd := answers(c, &cobra.Command{
		Use: "finish", Short: "write the newest formats from now on",
		Long: `Have the relay write the newest formats from now on. The version before then no longer
reads the data. Without a running relay, the next start of this version does so.`,
		Example: "  mta upgrade finish --dry-run\n  mta upgrade finish", Args: noArgs,
	}, func(ctx context.Context, client *api.Client, _ []string) (api.UpgradeFinished, error) {
		return c.finishUpgrade(ctx, client, f)
	}, func(done api.UpgradeFinished) error { return c.upgradeFinished(&done) })
	changeFlags(cmd, &f.Intent)
	return cmd
}

// finishUpgrade asks the running relay, or does it to the stores when there is none.
func (c *cli) finishUpgrade(ctx context.Context, client *api.Client, f api.FinishUpgrade) (api.UpgradeFinished, error) {
	done, err := api.OpFinishUpgrade.Call(ctx, client, f)
	if !api.Down(err) {
		return done, err
	}
	cfg, err := c.config()
	if err != nil {
		return done, err
	}
	stores, err := datadir.FinishUpgrade(cfg, thisBuild().Version, c.now(), f.DryRun)
	return datadir.UpgradeDone(stores, f.DryRun), err
}

func (c *cli) upgradeFinished(done *api.UpgradeFinished) error {
	if done.Count == 0 {
		fmt.Fprintln(c.out, "nothing to finish: every store is in the newest format")
		return nil
	}
	for _, s := range done.Stores {
		would := "is"
		if done.DryRun {
			would = "would be"
		}
		fmt.Fprintf(c.out, "%s: format %d %s written from now on (was %d)\n", draw.Clean(s.Store), s.Writes,
			would, s.Format)
	}
	return nil
}
