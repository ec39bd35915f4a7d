package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"example.org/mta/mta/config"
	"example.org/mta/operator/api"
	"example.org/mta/operator/audit"
	"example.org/mta/operator/listing"
)

const actionsHelp = `List what operators did, newest first: each change by a command, by the API or in the
console, refused ones too, each reading of a message's content, and each login at the
console. The relay writes an action down before it carries it out, and keeps it for 400
days. Without a running relay the command reads the files.

WHO is the user whose process was on the control socket, or the user of the console. COUNT
is how much was changed. OUTCOME is done, refused (nothing was changed), failed (something
may have been), or unknown (the relay was killed meanwhile).`

func newActions(c *cli) *cobra.Command {
	return newList(c, list[api.ActionQuery]{
		use: "actions", short: "list what operators did", long: actionsHelp,
		example: `  mta actions --since 1d
  mta actions --who alice --action "queue remove"
  mta actions --action sites --json`,
		what: "actions", show: actions,
	})
}

func actions(ctx context.Context, c *cli, client *api.Client, q api.ActionQuery, p *pageFlags) error {
	ask, damaged := client.Actions, 0
	l, err := collect(p, func(l *api.ActionPage) (*[]audit.Line, *string) { return &l.Actions, &l.Next },
		func(after string, limit int) (api.ActionPage, error) {
			q.After, q.Limit = after, limit
			page, err := ask(ctx, q)
			if api.Down(err) && !errors.Is(err, fs.ErrPermission) && c.socketFlag == "" {
				if files := c.actionFiles(); files != nil {
					ask = files
					page, err = ask(ctx, q)
				}
			}
			damaged += page.Damaged
			return page, err
		})
	if err != nil {
		return err
	}
	if p.asJSON {
		return writeJSON(c.out, api.ActionPage{Actions: l.Actions, Next: l.Next, Damaged: damaged, Complete: l.Next == ""})
	}
	if err := c.printTable(tableOf(c, listing.Actions, l.Actions)); err != nil {
		return err
	}
	c.pageFooter(len(l.Actions), "action", l.Next, "no action matches")
	if damaged > 0 {
		return fmt.Errorf("damaged lines in the audit log: %d: check the disk and its memory", damaged)
	}
	return nil
}

// actionFiles reads the audit log of a relay that doesn't run; nil: there is none.
func (c *cli) actionFiles() func(context.Context, api.ActionQuery) (api.ActionPage, error) {
	w, err := c.find()
	if err != nil || w.DataDir == "" {
		return nil
	}
	dir := filepath.Join(w.DataDir, config.AuditLog)
	if _, err := os.Stat(dir); err != nil {
		return nil
	}
	fmt.Fprintf(c.err, "the relay is not running: reading %s\n", dir)
	return func(ctx context.Context, q api.ActionQuery) (api.ActionPage, error) {
		return audit.Read(ctx, dir, q)
	}
}
