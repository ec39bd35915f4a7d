package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/mta/datadir"
	"example.org/mta/operator/api"
)

const upgradeHelp = `Show and finish an upgrade of the relay. A new version goes on writing the formats of the
version before, so that this can be put back with every message; once the upgrade is
finished, it no longer can.`

func newUpgrade(c *cli) *cobra.Command {
	g := group("upgrade", "show and finish an upgrade", newUpgradeStatus(c), newUpgradeFinish(c))
	g.Long = upgradeHelp
	return g
}

func newUpgradeStatus(c *cli) *cobra.Command {
	return answers(c, &cobra.Command{
		Use:   "status",
		Short: "show the formats of the relay's stores",
		Long: `Show in which format each store of the relay is, which formats this version reads, and to
which version one can go back. FORMAT is what is written now, READS the oldest that this
version reads, and WRITES what it writes once the upgrade is finished. Without a running
relay, the data directory of the configuration is read. Exit code 78: this version does not
read one of them.`,
		Args: noArgs,
	}, func(ctx context.Context, client *api.Client, _ []string) (api.Upgrade, error) {
		return c.upgrade(ctx, client)
	}, func(u api.Upgrade) error { return c.upgradeTable(&u) })
}

// upgrade asks the running relay, or looks at its stores when there is none.
func (c *cli) upgrade(ctx context.Context, client *api.Client) (api.Upgrade, error) {
	u, err := client.Upgrade(ctx)
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
		fmt.Fprintf(c.out, "\nmta %s: the upgrade is not finished; the relay finishes it after running for a day\n", draw.Clean(u.Version))
	default:
		fmt.Fprintf(c.out, "\nmta %s: the upgrade is not finished; to finish it: mta upgrade finish\n", draw.Clean(u.Version))
	}
	return nil
}

func (c *cli) storeTable(stores []api.StoreFormat) error {
	t := &draw.Table{Columns: []draw.Column{
		{Title: "STORE"}, {Title: "FORMAT", Right: true}, {Title: "READS", Right: true}, {Title: "WRITES", Right: true}, {Title: "BACK TO"}, {Title: "PATH", Shrink: true},
	}}
	for _, s := range stores {
		t.Add("", draw.Clean(s.Store), fmt.Sprint(s.Format), fmt.Sprint(s.Reads), fmt.Sprint(s.Writes), orDash(draw.Clean(s.BackTo)), draw.Clean(s.Path))
	}
	return t.Write(c.out, c.screen)
}

func newUpgradeFinish(c *cli) *cobra.Command {
	var f api.FinishUpgrade
	cmd := answers(c, &cobra.Command{
		Use:   "finish",
		Short: "write the newest formats from now on",
		Long: `Have the relay write the newest formats from now on. The version before then no longer
reads the data. Without a running relay, the next start of this version does so.`,
		Example: "  mta upgrade finish --dry-run\n  mta upgrade finish",
		Args:    noArgs,
	}, func(ctx context.Context, client *api.Client, _ []string) (api.UpgradeFinished, error) {
		return c.finishUpgrade(ctx, client, f)
	}, func(done api.UpgradeFinished) error { return c.upgradeFinished(&done) })
	changeFlags(cmd, &f.Intent)
	return cmd
}

// finishUpgrade asks the running relay, or does it to the stores when there is none.
func (c *cli) finishUpgrade(ctx context.Context, client *api.Client, f api.FinishUpgrade) (api.UpgradeFinished, error) {
	done, err := client.FinishUpgrade(ctx, f)
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
		fmt.Fprintf(c.out, "%s: format %d %s written from now on (was %d)\n", draw.Clean(s.Store), s.Writes, would, s.Format)
	}
	return nil
}
