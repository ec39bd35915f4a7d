package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
)

// list is a command that shows pages of what fits a filter. Its flags and arguments are the filter's parameters, see
// api.Param.
type list[F any] struct {
	use, short, long, example string
	what                      string // is listed, in the plural
	filter                    F      // with the defaults of the flags
	names                     namer  // for the arguments
	show                      func(context.Context, *cli, *api.Client, F, *pageFlags) error
}

func newList[F any](c *cli, l list[F]) *cobra.Command {
	var p pageFlags
	cmd := &cobra.Command{
		Use: l.use, Short: l.short, Long: l.long, Example: l.example,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.check(); err != nil {
				return err
			}
			takeArgs(&l.filter, args)
			client, err := c.client()
			if err != nil {
				return err
			}
			return l.show(cmd.Context(), c, client, l.filter, &p)
		},
	}
	p.add(cmd, l.what)
	if !c.addParams(cmd, &l.filter) {
		cmd.Args = noArgs
	}
	if l.names != nil {
		cmd.ValidArgsFunction = c.complete(l.names)
	}
	return cmd
}

// pages is the usual way to show a list: pages are collected, and printed as a table or as JSON.
type pages[F, L, T any] struct {
	table         listing.Listing[T]
	ask           func(*api.Client, context.Context, F, string, int) (L, error)
	of            func(*L) (*[]T, *string) // the rows of a page, and the cursor of the next one
	unknown, hint string                   // the error if nothing has a name that was given; "": that is none
}

func (p pages[F, L, T]) show(ctx context.Context, c *cli, client *api.Client, f F, flags *pageFlags) error {
	l, err := collect(flags, p.of, func(after string, limit int) (L, error) { return p.ask(client, ctx, f, after, limit) })
	if err != nil {
		return err
	}
	rows, next := p.of(&l)
	if names := onlyNames(&f); len(*rows) == 0 && len(names) > 0 && p.unknown != "" && flags.after == "" {
		return hinted{fmt.Errorf("%s %s", p.unknown, strings.Join(names, ", ")), p.hint}
	}
	if flags.asJSON {
		return writeJSON(c.out, l)
	}
	return printPage(c, p.table, *rows, *next)
}

// onlyNames returns the names that a filter has, if it has nothing else.
func onlyNames(filter any) (names []string) {
	for _, p := range api.Params(filter) {
		switch _, set := p.Text(); {
		case p.Tag.Get("arg") != "":
			names = *p.Field().(*[]string)
		case set && p.Name != "order":
			return nil
		}
	}
	return names
}
