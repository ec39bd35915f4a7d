package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/operator/api"
	"example.org/mta/operator/everywhere"
	"example.org/mta/operator/listing"
)

// asker asks the relay what a command wants to know or done, by its arguments.
type asker[A any] func(ctx context.Context, client *api.Client, args []string) (A, error)

// asking makes a command ask the relay.
func (c *cli) asking(do func(ctx context.Context, client *api.Client,
	args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		client, err := c.client()
		if err != nil {
			return err
		}
		return do(cmd.Context(), client, args)
	}
}

// answers makes a command print what the relay answers: with --json as it is, else by show.
func answers[A any](c *cli, cmd *cobra.Command, ask asker[A], show func(A) error) *cobra.Command {
	return prints(c, cmd, func(ctx context.Context, args []string) (a A, err error) {
		client, err := c.client()
		if err != nil {
			return a, err
		}
		return ask(ctx, client, args)
	}, show)
}

// prints is answers for what the command finds out by itself.
func prints[A any](
	c *cli, cmd *cobra.Command, find func(ctx context.Context, args []string) (A, error), show func(A) error,
) *cobra.Command {
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		a, err := find(cmd.Context(), args)
		switch {
		case err != nil:
			return err
		case *asJSON:
			err = writeJSON(c.out, a)
		default:
			err = show(a)
		}
		if part, ok := any(a).(interface{ lacks() error }); ok && err == nil {
			err = part.lacks()
		}
		return err
	}
	return cmd
}

// shows is answers for a command whose answers are of several types: ask returns how one is printed for people, too.
func shows(
	c *cli, cmd *cobra.Command,
	ask func(ctx context.Context, client *api.Client, args []string) (answer any, print func() error, err error),
) *cobra.Command {
	var print func() error
	return answers(c, cmd, func(ctx context.Context, client *api.Client, args []string) (answer any, err error) {
		answer, print, err = ask(ctx, client, args)
		return answer, err
	}, func(any) error { return print() })
}

// changes makes a command that changes something print how much that was: nouns with --dry-run, else by show.
func changes[A effected](
	c *cli, cmd *cobra.Command, in *api.Intent, noun string, ask asker[A], show func(A),
) *cobra.Command {
	changeFlags(cmd, in)
	return answers(c, cmd, ask, func(a A) error {
		if !c.wouldChange(a.Done(), noun) {
			show(a)
			c.behind(a.Done())
		}
		return nil
	})
}

// behind prints where in a cluster a change is not known yet.
func (c *cli) behind(e api.Effect) {
	if e.Behind != "" {
		fmt.Fprintln(c.err, e.Behind)
	}
}

// effected is an answer to a change.
type effected interface{ Done() api.Effect }

// changeFlags adds the flags of all commands that change something: --dry-run and --reason.
func changeFlags(cmd *cobra.Command, in *api.Intent) {
	cmd.Flags().BoolVarP(&in.DryRun, "dry-run", "n", false, "only count")
	reasonFlag(cmd)
}

// reasonFlag adds --reason, which goes with the request: into the audit log, and where people ask why something is
// suspended or paused.
func reasonFlag(cmd *cobra.Command) {
	reason := cmd.Flags().String("reason", "", "the `text` shown to anyone who asks why, and in 'mta actions'")
	cmd.PreRun = func(cmd *cobra.Command, _ []string) {
		cmd.SetContext(api.WithReason(cmd.Context(), *reason))
	}
}

// wouldChange reports whether a change was only counted, and prints how many of what that were.
func (c *cli) wouldChange(e api.Effect, what string) bool {
	if e.DryRun {
		fmt.Fprintf(c.out, "%s would be changed\n", plural(e.Count, what))
	}
	return e.DryRun
}

// list is a command that shows pages of what fits a filter. Its flags and arguments are the filter's parameters, see
// api.Param.
type list[F any] struct {
	use, short, long, example string
	what                      string // is listed, in the plural
	filter                    F      // with the defaults of the flags
	names                     namer  // for the arguments
	show                      func(context.Context, *cli, *api.Client, F, *pageFlags) error
	cluster                   bool // it lists the rows of all nodes with --cluster
}

func newList[F any](c *cli, l list[F]) *cobra.Command {
	var p pageFlags
	cmd := &cobra.Command{
		Use: l.use, Short: l.short, Long: l.long, Example: l.example,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.check(); err != nil {
				return err
			}
			if len(args) > 0 && args[0] == "list" { // as others have it: 'mta sites' lists them
				args = args[1:]
			}
			takeArgs(&l.filter, args)
			if p.all && !cmd.Flags().Changed("order") {
				byName(&l.filter)
			}
			client, err := c.client()
			if err != nil {
				return err
			}
			return l.show(cmd.Context(), c, client, l.filter, &p)
		},
	}
	p.add(cmd, l.what)
	if l.cluster {
		cmd.Flags().BoolVar(&p.all, "cluster", false, rowsOfAll)
	}
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
	row           api.Op[F, L]
	before        func(*cli, *L) // prints what stands above the table; nil: nothing does
	nothing       func(F) string // what is printed where no row is; nil: that none is known or matches
	unknown, hint string         // the error if nothing has a name that was given; "": that is allowed
}

func (p pages[F, L, T]) show(ctx context.Context, c *cli, client *api.Client, f F, flags *pageFlags) error {
	if flags.all {
		return p.showAll(ctx, c, f, flags)
	}
	l, err := pagesOf[T](ctx, client, flags, p.row, f)
	if err != nil {
		return err
	}
	rows, next := api.RowsOf[T](&l)
	if names := onlyNames(&f); len(*rows) == 0 && len(names) > 0 && p.unknown != "" && flags.after == "" {
		return hinted{fmt.Errorf("%s %s", p.unknown, strings.Join(names, ", ")), p.hint}
	}
	if flags.asJSON {
		return writeJSON(c.out, l)
	}
	if p.before != nil {
		p.before(c, &l)
	}
	return printPage(c, p.table, *rows, *next, p.none(f))
}

// none is what is printed where no row is.
func (p pages[F, L, T]) none(f F) string {
	if p.nothing != nil {
		return p.nothing(f)
	}
	return "no " + p.table.Noun + " is known or matches"
}

// showAll is show for all nodes of the cluster.
func (p pages[F, L, T]) showAll(ctx context.Context, c *cli, f F, flags *pageFlags) error {
	return merged(ctx, c, p.table, orderOf(&f), flags, p.none(f),
		func(ctx context.Context, client *api.Client, after string, limit int) (L, error) {
			q := f
			any(&q).(interface{ At(string, int) }).At(after, limit)
			l, err := p.row.Call(ctx, client, q)
			if err == nil && p.before != nil {
				p.before(c, &l)
			}
			return l, err
		})
}

// orderOf is the order that a filter asks for, "" for the only one.
func orderOf(filter any) string {
	for _, p := range api.Params(filter) {
		if p.Name == "order" {
			return fmt.Sprint(reflect.ValueOf(p.Field()).Elem().Interface())
		}
	}
	return ""
}

// byName has a filter ask for the order by name, if there is one: rows of all nodes about one thing stand together.
func byName(filter any) {
	for _, p := range api.Params(filter) {
		if p.Name == "order" && slices.Contains(p.Words, string(api.ByName)) {
			_ = p.Set(string(api.ByName)) // one of its words
		}
	}
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

// pageFlags are the flags of a listing in pages.
type pageFlags struct {
	limit  int
	after  string
	asJSON bool
	all    bool // nodes of the cluster
}

func (p *pageFlags) add(cmd *cobra.Command, what string) {
	cmd.Flags().IntVar(&p.limit, "limit", api.DefaultLimit, what+" on the page; 0: all")
	cmd.Flags().StringVar(&p.after, "after", "", "continue after the previous page (`cursor`)")
	cmd.Flags().BoolVar(&p.asJSON, "json", false, "print JSON")
}

func (p *pageFlags) check() error {
	if p.limit < 0 {
		return usagef("--limit can't be negative")
	}
	return nil
}

// pagesOf collects the pages of a listing.
func pagesOf[T, F, L any](ctx context.Context, client *api.Client, flags *pageFlags, row api.Op[F, L], f F) (L, error) {
	return collect[T](flags, func(after string, limit int) (L, error) {
		any(&f).(interface{ At(string, int) }).At(after, limit)
		return row.Call(ctx, client, f)
	})
}

// collect asks for pages until there are as many rows as the flags want. It gives them as one page.
func collect[T, L any](p *pageFlags, ask func(after string, limit int) (L, error)) (L, error) {
	all, after := []T{}, p.after
	for {
		n := api.MaxLimit
		if p.limit > 0 {
			n = min(p.limit-len(all), n)
		}
		l, err := ask(after, n)
		if err != nil {
			return l, err
		}
		rows, next := api.RowsOf[T](&l)
		all = append(all, *rows...)
		if after = *next; after == "" || len(all) == p.limit {
			*rows = all
			return l, nil
		}
	}
}

// colours are those of states: green goes on, yellow waits, red needs an operator.
var colours = map[listing.Colour]draw.Colour{listing.Good: draw.Green, listing.Warn: draw.Yellow, listing.Bad: draw.Red}

func colourOf(state string) draw.Colour { return colours[listing.ColourOf(state)] }

// look is what the cells of listings are made with.
func (c *cli) look() listing.Look { return listing.Look{Now: c.now(), Zone: time.Local} }

// tableOf makes the table of a listing.
func tableOf[T any](c *cli, l listing.Listing[T], rows []T) *draw.Table {
	l = l.For(listing.CLI)
	t := &draw.Table{NoteTitle: l.NoteTitle}
	for _, col := range l.Columns {
		t.Columns = append(t.Columns,
			draw.Column{Title: col.Title, Right: col.Right, Shrink: col.Shrink, Spare: col.Spare})
	}
	for i := range rows {
		var texts []any
		for j, cell := range l.Cells(&rows[i], c.look()) {
			texts = append(texts, cell.Text)
			if cell.Is == listing.IsState {
				t.Columns[j].Colour = colourOf
			}
		}
		t.Add(l.Note(&rows[i], c.look()), texts...)
	}
	return t
}

// printTable prints a table that has rows.
func (c *cli) printTable(t *draw.Table) error {
	if t.Empty() {
		return nil
	}
	return t.Write(c.out, c.screen)
}

// printPage prints a page of a listing, and on standard error what is not shown.
func printPage[T any](c *cli, l listing.Listing[T], rows []T, next, nothing string) error {
	if err := c.printTable(tableOf(c, l, rows)); err != nil {
		return err
	}
	c.pageFooter(len(rows), l.Noun, next, nothing)
	return nil
}

// pageFooter prints on standard error, where it is in the way of no program, what is not shown, or that there is
// nothing.
func (c *cli) pageFooter(shown int, what, next, nothing string) {
	switch {
	case next != "":
		fmt.Fprintf(c.err, "%s shown; for the next ones add: --after %q\n", plural(shown, what), next)
	case shown == 0:
		fmt.Fprintln(c.err, nothing)
	}
}

// placeholder is the name of a value in the help of a parameter.
var placeholder = regexp.MustCompile(`<([A-Za-z:, ]+)>`)

// addParams gives a command a flag for each parameter of a request, or for those that are named, with its help and its
// words. What the request has is the default. Those of a page have other flags. It reports whether the request has
// arguments.
func (c *cli) addParams(cmd *cobra.Command, request any, only ...string) (args bool) {
	for _, p := range api.Params(request) {
		switch {
		case len(only) > 0 && !slices.Contains(only, p.Name):
		case p.Tag.Get("arg") != "":
			args = true
		case p.Name != "after" && p.Name != "limit":
			c.addParam(cmd, p)
		}
	}
	return args
}

func (c *cli) addParam(cmd *cobra.Command, p api.Param) {
	if _, set := p.Text(); !set && p.Default != "" {
		if err := p.Set(p.Default); err != nil {
			panic(err) // a tag of the type is wrong
		}
	}
	flags, name, short := cmd.Flags(), p.Flag(), p.Tag.Get("short")
	switch field := p.Field().(type) {
	case *time.Time, *netip.Prefix, **string, **api.Age:
		flags.VarP(paramFlag{p, c}, name, short, placeholder.ReplaceAllString(p.Help, "`$1`"))
	default:
		addFlag(flags, field, name, short, p.Help)
	}
	if len(p.Words) > 0 {
		oneOf(cmd, name, p.Words)
	}
	if f := flags.Lookup(name); !p.IsFlag() && !p.IsList() {
		_, optional := p.Field().(**string)
		f.Value = &once{Value: f.Value, flag: "--" + name, words: p.Words, optional: optional}
	}
}

// addFlags adds a flag for each field of options, a pointer to a struct, that has these tags. What the field has is the
// default.
//
//	flag:"dry-run,n"  the name of the flag, and its letter
//	help:"..."        its meaning; a word in angle brackets stands for the value
func addFlags(flags *pflag.FlagSet, options any) {
	v := reflect.ValueOf(options).Elem()
	for _, f := range reflect.VisibleFields(v.Type()) {
		if name, letter, _ := strings.Cut(f.Tag.Get("flag"), ","); name != "" {
			addFlag(flags, v.FieldByIndex(f.Index).Addr().Interface(), name, letter, f.Tag.Get("help"))
		}
	}
}

// addFlag adds a flag for what field points to.
func addFlag(flags *pflag.FlagSet, field any, name, letter, help string) {
	help = placeholder.ReplaceAllString(help, "`$1`")
	switch field := field.(type) {
	case *bool:
		flags.BoolVarP(field, name, letter, *field, help)
	case *int:
		flags.IntVarP(field, name, letter, *field, help)
	case *int64:
		flags.Int64VarP(field, name, letter, *field, help)
	case *uint64:
		flags.Uint64VarP(field, name, letter, *field, help)
	case *float64:
		flags.Float64VarP(field, name, letter, *field, help)
	case *time.Duration:
		flags.DurationVarP(field, name, letter, *field, help)
	case *[]string:
		flags.StringSliceVarP(field, name, letter, *field, help)
	case *api.Age:
		flags.VarP((*ageFlag)(field), name, letter, help)
	case pflag.Value:
		flags.VarP(field, name, letter, help)
	default:
		text := reflect.ValueOf(field).Convert(reflect.TypeFor[*string]()).Interface().(*string)
		flags.StringVarP(text, name, letter, *text, help)
	}
}

// once is a flag with one value: of two, the one that counts would be anybody's guess, and an empty one would select
// all.
type once struct {
	pflag.Value
	flag     string
	words    []string
	optional bool // it can be empty
	set      bool
}

func (f *once) Set(text string) error {
	switch {
	case f.set:
		return usagef("%s stands twice", f.flag)
	case len(f.words) > 0 && !slices.Contains(f.words, text):
		return usagef("%s: want %s, not %q", f.flag, strings.Join(f.words, ", "), text)
	case text == "" && !f.optional:
		return usagef("%s is empty: leave it out to mean all", f.flag)
	}
	f.set = true
	return f.Value.Set(text)
}

// takeArgs makes the arguments of a command the parameter that takes them.
func takeArgs(request any, args []string) {
	for _, p := range api.Params(request) {
		if p.Tag.Get("arg") != "" {
			*p.Field().(*[]string) = args
		}
	}
}

// paramFlag is a parameter that the command line reads in another form.
type paramFlag struct {
	api.Param
	c *cli
}

// Set reads a time in one of the ways of 'mta log', and the others as the relay does.
func (f paramFlag) Set(text string) (err error) {
	if t, ok := f.Field().(*time.Time); ok {
		*t, err = f.c.parseTime("--"+f.Name, text)
		return err
	}
	if err := f.Param.Set(text); err != nil {
		return usagef("--%s: %v", f.Name, err)
	}
	return nil
}

func (f paramFlag) String() string { return "" }

func (f paramFlag) Type() string { return "string" }

// input opens the file that an argument names, where "-" is standard input. Messages call it shown.
func (c *cli) input(name string) (in io.ReadCloser, shown string, err error) {
	if name == "-" {
		return io.NopCloser(c.in), "standard input", nil
	}
	f, err := os.Open(name)
	return f, name, err
}

// readInput reads all of what an argument names.
func (c *cli) readInput(name string) (content []byte, shown string, err error) {
	in, shown, err := c.input(name)
	if err != nil {
		return nil, shown, err
	}
	defer in.Close()
	content, err = io.ReadAll(in)
	return content, shown, err
}

// clusterFlag adds --cluster, by which a command asks all nodes.
func clusterFlag(cmd *cobra.Command, help string) *bool {
	return cmd.Flags().Bool("cluster", false, help)
}

const (
	rowsOfAll   = "list the rows of all nodes of the cluster"
	eachOfAll   = "ask each node of the cluster"
	whoeverHas  = "ask all nodes of the cluster, and show the answer of the one that has it"
	actsOnAll   = "act at all nodes of the cluster"
	countsOfAll = "add up the counts of all nodes of the cluster"
)

// noCluster is why commands have no --cluster, by their first words.
var noCluster = map[string]string{
	"suppress": "all nodes share the suppression list", "key": "all nodes share API keys",
	"rule": "all nodes share rules", "pause": "all nodes share rules", "resume": "all nodes share rules",
	"pools weight": "all nodes share weights", "cluster": "it is about the cluster already",
	"sites suspend": suspensions, "sites resume": suspensions,
	"hosts suspend": suspensions, "hosts resume": suspensions,
	"warmup pause": warmups, "warmup resume": warmups, "warmup report": warmups, "warmup set-stage": warmups,
	"warmup show": warmups, "warmup start": warmups,
}

const (
	suspensions = "all nodes share what operators suspend and resume"
	warmups     = "all nodes share warm-ups"
)

// withoutCluster is the error of --cluster at a command that doesn't have it.
func withoutCluster(cmd *cobra.Command) error {
	_, name, _ := strings.Cut(cmd.CommandPath(), " ")
	first, _, _ := strings.Cut(name, " ")
	why := cmp.Or(noCluster[name], noCluster[first], "it is for one node; run it there")
	return usagef("'%s' has no --cluster: %s", cmd.CommandPath(), why)
}

// unanswered is the error of the nodes that have failed, nil for none.
func unanswered(nodes []int, failed everywhere.Failures) error {
	if same := failed.Same(len(nodes)); same != nil || len(failed) == 0 {
		return same
	}
	return failed
}

// everyone gives the way to the running relay, and the nodes of its cluster.
func (c *cli) everyone(ctx context.Context) (*api.Client, []int, error) {
	client, err := c.client()
	if err != nil {
		return nil, nil, err
	}
	nodes, err := everywhere.Nodes(ctx, client)
	return client, nodes, err
}

// merged collects the listings of all nodes, and prints them as a table or as JSON, where they have the name of the
// rows' field in L.
func merged[L, T any](ctx context.Context, c *cli, table listing.Listing[T], order string, flags *pageFlags,
	nothing string, ask func(ctx context.Context, client *api.Client, after string, limit int) (L, error)) error {
	client, nodes, err := c.everyone(ctx)
	if err != nil {
		return err
	}
	rows := []everywhere.Row[T]{}
	next, failed, err := everywhere.Merge(ctx, nodes, flags.after, flags.limit, table.In(order), table.Key,
		func(ctx context.Context, after string, limit int) ([]T, string, error) {
			l, err := ask(ctx, client, after, limit)
			page, next := api.RowsOf[T](&l)
			return *page, *next, err
		}, func(r everywhere.Row[T]) error {
			rows = append(rows, r)
			return nil
		})
	if err != nil {
		return err
	}
	if lost := unanswered(nodes, failed); len(failed) == len(nodes) {
		return lost
	}
	if flags.asJSON {
		err = writeJSON(c.out, withFailures(map[string]any{rowsField[L, T](): rows, "next": next}, failed))
	} else {
		err = printPage(c, everywhere.Listing(table), rows, next, nothing)
	}
	if err == nil {
		err = unanswered(nodes, failed)
	}
	return err
}

// withFailures is an answer in JSON with the nodes that lack in it.
func withFailures(answer map[string]any, failed everywhere.Failures) map[string]any {
	if len(failed) > 0 {
		answer["failed"] = failed
	}
	if answer["next"] == "" {
		delete(answer, "next")
	}
	return answer
}

// rowsField is the name of the rows in the JSON of a page.
func rowsField[L, T any]() string {
	page := reflect.TypeFor[L]()
	for i := range page.NumField() {
		if f := page.Field(i); f.Type == reflect.TypeFor[[]T]() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			return name
		}
	}
	panic("no rows in " + page.String())
}

// whole makes a command show a listing without pages.
func whole[L, T any](c *cli, cmd *cobra.Command, table listing.Listing[T], row api.Op[api.None, L], none string,
) *cobra.Command {
	ask := func(ctx context.Context, client *api.Client, _ []string) (L, error) {
		return row.Call(ctx, client, api.None{})
	}
	answers(c, cmd, ask, func(l L) error {
		rows, _ := api.RowsOf[T](&l)
		if len(*rows) == 0 {
			fmt.Fprintln(c.err, none)
		}
		return c.printTable(tableOf(c, table, *rows))
	})
	here, all := cmd.RunE, clusterFlag(cmd, rowsOfAll)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !*all {
			return here(cmd, args)
		}
		flags := pageFlags{asJSON: asJSON(cmd)}
		return merged(cmd.Context(), c, table, "", &flags, none,
			func(ctx context.Context, client *api.Client, _ string, _ int) (L, error) {
				return ask(ctx, client, args)
			})
	}
	return cmd
}

// asJSON reports whether a command has --json.
func asJSON(cmd *cobra.Command) bool {
	is, _ := cmd.Flags().GetBool("json")
	return is
}

// ofAll is answers for a command that asks all nodes with --cluster: it shows the answer of each, or, if the arguments
// name a thing that one of them has, of that one.
func ofAll[A any](c *cli, cmd *cobra.Command, help string, one func(args []string) bool, ask asker[A],
	show func(A) error) *cobra.Command {
	answers(c, cmd, ask, show)
	here, all := cmd.RunE, clusterFlag(cmd, help)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !*all {
			return here(cmd, args)
		}
		client, nodes, err := c.everyone(cmd.Context())
		if err != nil {
			return err
		}
		var found []everywhere.Row[A]
		var failed everywhere.Failures
		if one(args) {
			for _, id := range nowAt(cmd.Context(), client, nodes, args) { // one, unless it has moved in parts
				row, failure := everywhere.First(cmd.Context(), nodes, "message "+id,
					func(ctx context.Context) (A, error) { return ask(ctx, client, []string{id}) })
				found, failed, err = append(found, row), row.Failed, cmp.Or(err, failure)
			}
		} else {
			found, failed = everywhere.Ask(cmd.Context(), nodes, func(ctx context.Context, _ int) (A, error) {
				return ask(ctx, client, args)
			})
		}
		switch {
		case err != nil, len(found) == 0:
		case asJSON(cmd) && one(args) && len(found) == 1:
			err = writeJSON(c.out, found[0])
		case asJSON(cmd):
			err = writeJSON(c.out, withFailures(map[string]any{"nodes": found}, failed))
		default:
			err = showEach(c, found, show)
		}
		if err == nil {
			err = unanswered(nodes, failed)
		}
		return err
	}
	return cmd
}

// showEach shows answers under the numbers of their nodes.
func showEach[A any](c *cli, found []everywhere.Row[A], show func(A) error) error {
	for i, row := range found {
		if i > 0 {
			fmt.Fprintln(c.out)
		}
		c.facts(12).add("node", "%d", row.Node)
		if err := show(*row.Value); err != nil {
			return err
		}
	}
	return nil
}
