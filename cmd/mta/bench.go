package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"example.org/mta/lab/bench"
)

const benchHelp = `Measure a mail server: submit messages, receive them at the bench's own sites, and report
the speed, the cost, and whether each recipient got each message exactly once.

Without --target the command starts a relay, in a temporary directory, with the defaults
and the additions of --relay-config. --target measures a running server. It must route the
sites' domains to them: by their name server (--dns), or by a transport table for Postfix,
which --transports prints. Only loopback is used.

Ctrl-C ends it without a report. Exit code 1: messages were lost, or duplicated without cause.`

// benchCommand is the flags of 'mta bench', but for those of the scenario.
type benchCommand struct {
	c          *cli
	scenario   bench.Scenario
	standard   string
	scale      float64
	target     string
	pid        int
	relay      bench.RelayOptions
	config     string // the file of further lines
	transports bool
	json       bool
}

func newBench(c *cli) *cobra.Command {
	b := &benchCommand{c: c, scenario: bench.DefaultScenario()}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "measure a mail server, and check that every message arrives once",
		Long:  benchHelp,
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := b.choose(cmd.Flags()); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return b.run(ctx)
		},
	}
	flags := cmd.Flags()
	scenarioFlags(flags, &b.scenario)
	flags.StringVar(&b.standard, "scenario", "", "start from the standard scenario of this `letter`, a to i; other flags change it")
	flags.Float64Var(&b.scale, "scale", 1, "`factor` for the number of messages")
	flags.StringVar(&b.target, "target", "", "measure the server at this `ip:port`")
	flags.IntVar(&b.pid, "pid", 0, "the process `id` of the target; its process group is measured")
	flags.IntVar(&b.relay.Limit, "connection-limit", 20, "connections of the bench's relay to a site")
	flags.IntVar(&b.relay.Sources, "sources", 0, "the `number` of addresses in 127.41.0.0/16 that the bench's relay sends from (default: one, chosen by the system)")
	flags.StringVar(&b.config, "relay-config", "", "a `file` with more lines for the configuration of the bench's relay")
	flags.StringVar(&b.relay.Dir, "dir", "", "the `directory` for the data and log of the bench's relay, kept afterwards (default: a temporary one)")
	flags.BoolVar(&b.transports, "transports", false, "only print a transport table for Postfix; needs --port")
	flags.BoolVar(&b.json, "json", false, "print the report as JSON")
	_ = cmd.RegisterFlagCompletionFunc("scenario", cobra.FixedCompletions(standardLetters(), cobra.ShellCompDirectiveNoFileComp))
	oneOf(cmd, "death", []bench.Death{bench.Silent, bench.Unreachable, bench.Refusing})
	return cmd
}

// scenarioFlags makes a flag of each part of a scenario; what it has is the default.
func scenarioFlags(flags *pflag.FlagSet, s *bench.Scenario) {
	flags.IntVar(&s.Messages, "messages", s.Messages, "`number` of messages")
	flags.IntVar(&s.Connections, "connections", s.Connections, "`number` of submitting connections")
	flags.IntVar(&s.Size, "size", s.Size, "`octets` of a message's content")
	flags.IntVar(&s.Recipients, "recipients", s.Recipients, "`number` of recipients of a message")
	flags.IntVar(&s.BigEvery, "big-every", s.BigEvery, "only every `n`th message has that many recipients, the others have one")
	flags.IntVar(&s.Rate, "rate", s.Rate, "messages per `second` (default: as fast as they are accepted)")
	flags.IntVar(&s.Domains, "domains", s.Domains, "`number` of domains")
	flags.IntVar(&s.Hosts, "hosts", s.Hosts, "`number` of hosts (default: as many as domains)")
	flags.IntVar(&s.Dead, "dead", s.Dead, "`number` of hosts that don't work")
	flags.Var(&s.Death, "death", "how dead hosts fail: silent, unreachable or refusing")
	flags.Var(&s.Latency, "latency", "the delay of a host's replies to each flight of commands")
	flags.Var(&s.Jitter, "jitter", "the maximum random addition to the latency")
	flags.BoolVar(&s.NoPipelining, "no-pipelining", s.NoPipelining, "hosts don't offer PIPELINING")
	flags.BoolVar(&s.NoChunking, "no-chunking", s.NoChunking, "hosts don't offer CHUNKING")
	flags.Float64Var(&s.Temporary, "temporary", s.Temporary, "`share` of messages that hosts defer, 0 to 1")
	flags.Float64Var(&s.Drop, "drop", s.Drop, "`probability` that a host cuts the connection, at each step")
	flags.IntVar(&s.HostConnections, "host-connections", s.HostConnections, "`number` of connections that a host accepts at a time (default: unlimited)")
	flags.IntVar(&s.HostMessages, "host-messages", s.HostMessages, "`number` of messages that a host accepts per connection (default: unlimited)")
	flags.IntVar(&s.ClientMessages, "client-messages", s.ClientMessages, "`number` of messages that a client submits per connection (default: unlimited)")
	flags.BoolVar(&s.TLS, "tls", s.TLS, "clients and hosts use STARTTLS and resume their sessions")
	flags.DurationVar(&s.Patience, "patience", s.Patience, "how long to wait after the last arrival")
	flags.Uint64Var(&s.Seed, "seed", s.Seed, "random seed (`number`) of the hosts' behavior")
	flags.IntVar(&s.Port, "port", s.Port, "the `port` of all hosts (default: any free one)")
	flags.StringVar(&s.DNS, "dns", s.DNS, "the address of the sites' name server, `ip:port` (default: any port of 127.0.0.1)")
}

func standardLetters() (letters []string) {
	for _, s := range bench.Standards() {
		letters = append(letters, s.Letter+"\t"+s.Title)
	}
	return letters
}

// choose makes the scenario of all flags.
func (b *benchCommand) choose(given *pflag.FlagSet) error {
	if b.standard != "" {
		s, ok := bench.FindStandard(b.standard)
		if !ok {
			return usagef("there is no scenario %q: want a letter from a to i", b.standard)
		}
		over := pflag.NewFlagSet("", pflag.ContinueOnError)
		scenarioFlags(over, &s)
		var err error
		given.Visit(func(f *pflag.Flag) {
			if over.Lookup(f.Name) != nil {
				err = errors.Join(err, over.Set(f.Name, f.Value.String()))
			}
		})
		if err != nil {
			return err
		}
		b.scenario = s
	}
	if given.Changed("domains") && !given.Changed("hosts") {
		b.scenario.Hosts = b.scenario.Domains
	}
	if b.transports && b.scenario.Port == 0 {
		return usagef("--transports needs --port: without it the hosts have another port each time")
	}
	if b.scale <= 0 {
		return usagef("--scale must be more than 0")
	}
	if b.scale != 1 {
		b.scenario = b.scenario.Scaled(b.scale)
	}
	if err := b.scenario.Validate(); err != nil {
		return usageError{err}
	}
	return nil
}

func (b *benchCommand) run(ctx context.Context) (err error) {
	if b.config != "" {
		text, err := os.ReadFile(b.config)
		if err != nil {
			return fmt.Errorf("reading further lines of configuration: %w", err)
		}
		b.relay.Config = string(text)
	}
	ground, err := b.scenario.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ground.Close()) }()
	if b.transports {
		_, err := fmt.Fprintln(b.c.out, strings.Join(ground.Transports(), "\n"))
		return err
	}
	server := bench.Server{Name: b.target, Address: b.target, PID: b.pid}
	if b.target == "" {
		relay, err := bench.StartRelay(ctx, b.relay, ground)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, relay.Close()) }()
		server = relay.Server()
	}
	return b.measure(ctx, ground, server)
}

func (b *benchCommand) measure(ctx context.Context, ground *bench.Ground, server bench.Server) error {
	bar := &benchBar{out: b.c.err, width: terminalWidth(b.c.err)}
	report, err := bench.Measure(ctx, b.scenario, ground, server, bar.show)
	bar.clear()
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted, so there is no report")
	case report == nil:
		return err
	}
	if printed := b.print(report); printed != nil {
		return printed
	}
	switch {
	case err != nil:
		return err
	case !report.Right():
		return exitError(exitFailed) // the report has it
	}
	return nil
}

func (b *benchCommand) print(r *bench.Report) error {
	if !b.json {
		return r.Write(b.c.out)
	}
	return writeJSON(b.c.out, r)
}

// terminalWidth is 0 when out is no terminal.
func terminalWidth(out any) int {
	f, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 {
		return 80
	}
	return width
}
