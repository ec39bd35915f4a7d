package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/cluster/ca"
	"example.org/mta/cluster/membership"
	"example.org/mta/cluster/owner"
	"example.org/mta/cluster/postgres"
	"example.org/mta/cluster/secrets"
	"example.org/mta/cmd/mta/draw"
	"example.org/mta/internal/legible"
	"example.org/mta/mta/config"
	"example.org/mta/mta/datadir"
	"example.org/mta/mta/replica"
	"example.org/mta/operator/api"
	"example.org/mta/operator/everywhere"
	"example.org/mta/queue/vfs"
)

const clusterHelp = `Several relays are a cluster: docs/cluster.md begins with three.

The database of init, check and forget is the one of $MTA_CLUSTER_DATABASE, never an
argument, which other users can see: a URL or keywords as psql takes them. It may name
several hosts, of which the primary is used. These commands, and those below ca, need no
configuration and no running relay.`

func newCluster(c *cli) *cobra.Command {
	return group("cluster", "relays that are a cluster, their database and certificates", clusterHelp,
		newClusterInit(c), newClusterCheck(c), newClusterStatus(c), newClusterDrain(c), newClusterUndrain(c),
		newClusterForget(c), newClusterRejoin(c), newClusterAdopt(c), newClusterTakeover(c), newClusterReset(c),
		newClusterCA(c))
}

func newClusterStatus(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use: "status", Short: "show the nodes of the cluster, and this relay's part in it",
		Long: `Show the nodes of the cluster as the relay has read them within the last seconds, and its own
part: whether it takes part, for how many of the 64 shards of limits it decides, how long
the database has been silent, how many of its changes, of what all nodes know, wait for
the database, and how far its queue has moved to the others. SETTINGS is what a node has
otherwise than this relay. The exit status is 1 when something is wrong.`,
		Args: noArgs,
	}
	return answers(c, cmd, func(ctx context.Context, client *api.Client, _ []string) (api.Cluster, error) {
		return api.OpCluster.Call(ctx, client, api.None{})
	}, c.clusterStatus)
}

func (c *cli) clusterStatus(s api.Cluster) error {
	if !s.On {
		fmt.Fprintln(c.err, "this relay is in no cluster: its configuration has no cluster block")
		return nil
	}
	f := c.facts(10)
	f.add("node", "%d", s.Node)
	if s.Takes {
		f.add("shards", "%d of %d", s.Shards, owner.Shards)
		f.add("database", "%s", cmp.Or(s.Lost, "answered "+ago(s.Silent)))
	}
	if s.OnLoss == "part" && s.Part > 0 {
		f.add("on loss", "goes on with 1/%d of each shared limit", s.Part)
	} else if s.OnLoss == "part" {
		f.add("on loss", "mail under shared limits waits: this relay has no part of them in reserve yet")
	}
	if s.Waiting > 0 {
		f.add("unsent", "%s of this relay", plural(s.Waiting, "change"))
	}
	if k := s.Copy; k != nil {
		how := "up to date"
		if k.Lag >= 1 {
			lag := api.Age(time.Duration(k.Lag * float64(time.Second)))
			how = fmt.Sprintf("%s behind, %s wait", lag, legible.Size(k.Waiting))
		}
		f.add("copy", "of the queue in the database: log %d, entry %d, %s, %s", k.Log, k.Entry, legible.Size(k.Octets),
			how)
	}
	if s.Moving != nil {
		f.add("moving", "%s", moved(s.Moving))
		for _, why := range leftOut(s.Moving) {
			f.add("left out", "%s", why)
		}
	}
	for _, why := range s.Trouble {
		f.add("problem", "%s", oneLine(why))
	}
	fmt.Fprintln(c.out)
	t := draw.New("", ">NODE", "ADDRESS", "VERSION", ">INCARNATION", "SEEN", "SETTINGS")
	for _, m := range s.Members {
		seen, settings := ago(m.Seen), differing(m.Differ)
		if m.Forgotten {
			seen, settings = "forgotten", "-"
		}
		t.Add("", strconv.Itoa(m.Node), oneLine(m.Address), oneLine(m.Version), strconv.FormatUint(m.Incarnation, 10),
			seen, settings)
	}
	err := t.Write(c.out, c.screen)
	if err == nil && len(s.Trouble) > 0 {
		return exitError(exitFailed)
	}
	return err
}

// differing gives what a member's settings have otherwise than the relay's.
func differing(names []string) string {
	switch more := len(names) - 2; {
	case names == nil:
		return "-"
	case len(names) == 0:
		return "same"
	case more > 0:
		return fmt.Sprintf("differ: %s and %d more", strings.Join(names[:2], ", "), more)
	}
	return "differ: " + strings.Join(names, ", ")
}

// ago gives how long something was ago.
func ago(s float64) string {
	return api.Age(time.Duration(s*float64(time.Second)).Round(time.Second)).String() + " ago"
}

func newClusterForget(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use: "forget NODE", Short: "have a node that is gone for good take no part any more",
		Long: `Have a node that is gone for good take no part any more, with all that its data directory
has claimed. Its number is free for a relay with another data directory. A node that has
answered within 20 s is not forgotten: stop it first. What it was granted of shared limits
comes back 3 minutes after the grant, with --dead within seconds. A node with on_loss = "part"
that did not stop may be cut off and send: it is forgotten with --dead only.`,
	}
	cmd.Args = argCount(1, 1, "want one node, not %d")
	dead := cmd.Flags().Bool("dead", false, "the machine is off: don't wait for the node, nor for what it was granted")
	dry := cmd.Flags().BoolP("dry-run", "n", false, "only show what would be forgotten")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		number, err := nodeNumber(args[0])
		if err != nil {
			return err
		}
		e, err := c.engine(false)
		if err != nil {
			return err
		}
		defer e.Close()
		if *dry {
			m, shards, would, err := e.WouldForget(cmd.Context(), number, *dead)
			if err == nil && would {
				fmt.Fprintf(c.out, "node %d at %s would be forgotten: %s of %d, last seen %s\n", number, m.Address,
					plural(shards, "shard"), owner.Shards, ago(m.Ago))
			} else if err == nil {
				fmt.Fprintf(c.out, "nothing to do: node %d was forgotten before\n", number)
			}
			return err
		}
		done, err := e.Forget(cmd.Context(), number, *dead)
		if err == nil && done {
			fmt.Fprintf(c.out, "node %d is forgotten\n", number)
		} else if err == nil {
			fmt.Fprintf(c.out, "nothing to do: node %d was forgotten before\n", number)
		}
		return err
	}
	return cmd
}

func newClusterRejoin(c *cli) *cobra.Command {
	var dead, dry, send bool
	cmd := &cobra.Command{
		Use: "rejoin", Short: "have a restored or forgotten data directory take part again",
		Long: `Have the data directory of the configuration, which no relay may use, take part under its number
again: after it was restored from a backup or a snapshot, when its node was forgotten, or when its
file "cluster" is damaged. The node is forgotten as by 'mta cluster forget', unless it is, and joins
anew when its relay starts. All of its mail is held until you release or remove it, since what has
left after the backup would leave again; with --send it leaves.`,
		Args: noArgs,
	}
	cmd.Flags().BoolVar(&send, "send", false, "let the mail leave: nothing of it has left meanwhile")
	cmd.Flags().BoolVar(&dead, "dead", false, "no relay runs under its number: don't wait, as in 'forget'")
	cmd.Flags().BoolVarP(&dry, "dry-run", "n", false, "only show what would be done")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := c.config()
		if err != nil {
			return err
		}
		k := &cfg.Cluster
		if k.Database == "" {
			return usagef("the configuration has no cluster block")
		}
		pair, err := tls.LoadX509KeyPair(k.Certificate, k.Key)
		if err != nil {
			return err
		}
		_, number, err := ca.Identity(pair.Leaf)
		if err != nil {
			return fmt.Errorf("%s: %w", k.Certificate, err)
		}
		e, err := postgres.Open(postgres.Config{Database: string(k.Database), Replicated: k.Replicated})
		if err != nil {
			return err
		}
		defer e.Close()
		view, err := e.View(cmd.Context())
		if err != nil {
			return err
		}
		known := slices.ContainsFunc(view.Members, func(m postgres.Member) bool { return m.Number == number })
		return c.rejoin(cmd.Context(), cfg, e, rejoining{number, known, send, dead, dry})
	}
	return cmd
}

// rejoining is what 'mta cluster rejoin' is given: whose certificate, and whether the database knows that node.
type rejoining struct {
	number                 uint16
	known, send, dead, dry bool
}

// rejoin has a data directory join anew. Of what fails after mail was held all can be done again.
func (c *cli) rejoin(ctx context.Context, cfg *config.Config, e *postgres.Engine, o rejoining) (err error) {
	path := cfg.Cluster.Path
	if of, err := membership.NodeOf(path); err == nil && of != 0 && of != o.number { // a damaged file names none
		return fmt.Errorf("%s belongs to node %d, and the certificate %s to node %d: one of the two is the wrong one",
			path, of, cfg.Cluster.Certificate, o.number)
	}
	if err := datadir.MayRejoin(cfg); err != nil {
		return err
	}
	if err := replica.Elsewhere(ctx, e, replica.MarkOf(cfg), o.number); err != nil {
		return err
	}
	who, would := fmt.Sprintf("node %d", o.number), false
	if o.known {
		var m postgres.Member
		if m, _, would, err = e.WouldForget(ctx, o.number, o.dead); err != nil {
			return err
		}
		if would {
			who += fmt.Sprintf(", last seen at %s %s,", m.Address, ago(m.Ago))
		}
	}
	if o.dry {
		what := "all of its mail would be held"
		if o.send {
			what = "its mail would leave"
		}
		fmt.Fprintf(c.out, "%s would join anew with %s; %s\n", who, cfg.DataDir, what)
		return nil
	}
	// The queue changes, and what is to leave is here.
	if err := replica.Abandon(ctx, e, o.number, c.now()); err != nil {
		return fmt.Errorf("ending the copy of the queue: %w", err)
	}
	if err := os.Remove(replica.MarkOf(cfg)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	what := "its mail leaves then"
	if !o.send {
		held, letters, err := datadir.HoldAll(cfg, thisBuild().Version)
		if err != nil {
			return fmt.Errorf("holding the mail: %w", err)
		}
		what = fmt.Sprintf("its mail, for %s, is held until 'mta queue release' or 'mta queue remove'",
			plural(held, "recipient"))
		c.heldLetters(letters)
	}
	if would || o.known && o.dead { // which also frees what was granted to one that was forgotten before
		if _, err := e.Forget(ctx, o.number, o.dead); err != nil {
			return err
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := errors.Join(vfs.OS().SyncDir(filepath.Dir(path)), datadir.Give(cfg)); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "node %d joins anew when its relay starts; %s\n", o.number, what)
	return nil
}

func nodeNumber(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n < 1 || n > ca.LastNode {
		return 0, usagef("%q is not the number of a node (1 to %d)", text, ca.LastNode)
	}
	return uint16(n), nil
}

func newClusterCA(c *cli) *cobra.Command {
	var name string
	begin := &cobra.Command{
		Use: "init DIR", Short: "make the authority of a cluster, in a folder",
		Args: argCount(1, 1, "want the folder, not %d arguments"),
		RunE: func(_ *cobra.Command, args []string) error {
			err := ca.Init(args[0], name, c.now())
			secretsKey := filepath.Join(args[0], secrets.FileName)
			if err == nil {
				err = secrets.WriteKeys(secretsKey)
			}
			if err == nil {
				fmt.Fprintf(c.out, "%s: for all nodes\n%s: for all nodes; keep it from everybody else\n"+
					"%s: issues certificates; keep it safe, on no node\n",
					filepath.Join(args[0], ca.Certificate), secretsKey, filepath.Join(args[0], ca.Key))
			}
			return err
		},
	}
	begin.Flags().StringVar(&name, "name", "mta", "of the cluster; the nodes of another one are refused")
	issue := &cobra.Command{
		Use: "issue DIR NODE", Short: "make the key and the certificate of a node, which has its number",
		Args: argCount(2, 2, "want the folder and a node, not %d arguments"),
		RunE: func(_ *cobra.Command, args []string) error {
			number, err := nodeNumber(args[1])
			if err != nil {
				return err
			}
			p, err := ca.Issue(args[0], number, ca.NodeHolds, c.now())
			if err != nil {
				return err
			}
			return c.issued(p.Certificate, "\n"+p.Key)
		},
	}
	renew := &cobra.Command{
		Use: "renew DIR FILE", Short: "replace a node's certificate by one that ends a year from now",
		Long: `Replace a node's certificate by one that ends a year from now, for the same key. The old one
may have expired. A running relay reads the new file by itself.`,
		Args: argCount(2, 2, "want the folder and a file, not %d arguments"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := ca.Renew(args[0], args[1], ca.NodeHolds, c.now()); err != nil {
				return err
			}
			return c.issued(args[1], "")
		},
	}
	return group("ca", "the authority of a cluster's certificates",
		`The authority of a cluster is a folder with a certificate and a key. It issues a certificate
for each node, by which the nodes know each other. Files that exist are not replaced, but by
renew. A certificate ends after a year, which is an alarm 30 days before.`, begin, issue, renew)
}

// issued reports a new certificate.
func (c *cli) issued(file, more string) error {
	left, err := ca.Left(file, c.now())
	fmt.Fprintf(c.out, "%s (until %s)%s\n", file, c.now().Add(left).UTC().Format(time.DateOnly), more)
	return err
}

// replicating is engine for a command without arguments, with the flag that goes with it.
func (c *cli) replicating(cmd *cobra.Command) func() (*postgres.Engine, error) {
	replicated := cmd.Flags().Bool("replicated", false, "a managed service replicates, so that no standby shows")
	cmd.Args = noArgs
	return func() (*postgres.Engine, error) { return c.engine(*replicated) }
}

// engine is the database of the environment.
func (c *cli) engine(replicated bool) (*postgres.Engine, error) {
	const name = "MTA_CLUSTER_DATABASE"
	address := c.env(name)
	if address == "" {
		return nil, usagef("no database: set %s, as in 'host=db1,db2 user=mta sslmode=verify-full'", name)
	}
	e, err := postgres.Open(postgres.Config{Database: address, Replicated: replicated})
	if err != nil {
		return nil, usagef("%s: %v", name, err)
	}
	return e, nil
}

func newClusterInit(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use: "init", Short: "create the schema in the database",
		Long: `Create the schema mta_cluster, unless the database has it. The role needs the right to
create schemas and, to see standbys, pg_monitor. Without a synchronous standby nothing is
created, since a failover would lose what the database has acknowledged; --replicated is
for a service that replicates below the database. docs/cluster.md has the rights
that a relay's role needs on the schema.`,
	}
	open := c.replicating(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		e, err := open()
		if err != nil {
			return err
		}
		defer e.Close()
		was, is, err := e.Init(cmd.Context())
		switch {
		case err != nil:
			return err
		case was == 0:
			fmt.Fprintln(c.out, "created the schema mta_cluster")
		case was == is:
			fmt.Fprintln(c.out, "nothing to do: the schema mta_cluster is there")
		default:
			fmt.Fprintf(c.out, "the schema mta_cluster has version %d; grant the relays' role its rights again\n", is)
		}
		return nil
	}
	return cmd
}

func newClusterCheck(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use: "check", Short: "check whether the database is fit for a cluster",
		Long: `Check the database with the role of a relay: the version of PostgreSQL, its clock, the
encryption, the role's rights, the schema, the synchronous standby, and how long a commit
takes. The exit status is 1 when a check fails.`,
	}
	open := c.replicating(cmd)
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		e, err := open()
		if err != nil {
			return err
		}
		defer e.Close()
		found, err := e.Check(cmd.Context(), c.now)
		if err != nil {
			return err
		}
		return c.printFindings(found, *asJSON)
	}
	return cmd
}

func (c *cli) printFindings(found []postgres.Finding, asJSON bool) error {
	var err error
	if asJSON {
		err = writeJSON(c.out, map[string]any{"checks": found})
	} else {
		t := draw.New("", "CHECK", "OK", "~FOUND")
		for _, f := range found {
			t.Add("", f.Check, yesNo(f.OK), f.Text)
		}
		err = t.Write(c.out, c.screen)
	}
	if err == nil && slices.ContainsFunc(found, func(f postgres.Finding) bool { return !f.OK }) {
		return exitError(exitFailed)
	}
	return err
}

func newClusterDrain(c *cli) *cobra.Command {
	var in api.Intent
	cmd := &cobra.Command{
		Use: "drain [NODE]", Short: "take no new mail, and move the queue to the other nodes",
		Long: `Have this node, or another one, take no new mail as by 'mta drain', and move its queue to
the other nodes that take mail, while delivery goes on. Messages come there as they were:
with their attempts, times, holds and replies. What is on a connection moves when its attempt
has ended. A node that refuses mail or does not answer is left out, and named.

The command shows how far the move is, and ends when the queue is empty, or with the exit
code 1 when nothing more can move: the node delivers what is left, and goes on trying.
--no-wait, --timeout (exit code 3) and an interrupt end the command alone; run again, it
shows the same move. 'mta cluster undrain' or a restart of the relay end the move.`,
		Example: `  mta cluster drain --reason "new disks"
  mta cluster drain 3`,
		Args: argCount(0, 1, "want one node, not %d"),
	}
	noWait := cmd.Flags().Bool("no-wait", false, "don't wait for the move")
	timeout := cmd.Flags().Duration("timeout", 0, "wait no longer than this `time`; 0: without limit")
	changeFlags(cmd, &in)
	return answers(c, cmd, func(ctx context.Context, client *api.Client, args []string) (done api.DrainedNode,
		err error) {
		if *timeout < 0 {
			return done, usagef("--timeout: want a time")
		}
		if ctx, err = atNode(ctx, args); err != nil {
			return done, err
		}
		if done, err = api.OpDrainNode.Call(ctx, client, in); err == nil && !*noWait && !in.DryRun {
			if *timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, *timeout)
				defer cancel()
			}
			done.Moving, err = c.watchMoving(ctx, client)
			if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
				err = inVain{fmt.Errorf("not all moved within %v: %s", *timeout, moved(&done.Moving)), exitTimeout}
			}
		}
		return done, err
	}, func(done api.DrainedNode) error {
		if c.wouldChange(done.Effect, "node") {
			fmt.Fprintf(c.out, "%s would move\n", plural(int(done.Moving.Left), "recipient"))
			return nil
		}
		fmt.Fprintf(c.out, "node %d takes no new mail; %s\n", done.Moving.Node, moved(&done.Moving))
		if *noWait || done.Moving.Left == 0 && done.Moving.Waiting == 0 {
			return nil
		}
		for _, why := range leftOut(&done.Moving) {
			fmt.Fprintf(c.err, "left out: %s\n", why)
		}
		return exitError(exitFailed)
	})
}

func newClusterUndrain(c *cli) *cobra.Command {
	var in api.Intent
	cmd := &cobra.Command{
		Use: "undrain [NODE]", Short: "take new mail again, and keep the queue",
		Long: `Have this node, or another one, take new mail again after 'mta cluster drain'. What has
moved stays where it is.`,
		Args: argCount(0, 1, "want one node, not %d"),
	}
	return changes(c, cmd, &in, "node",
		func(ctx context.Context, client *api.Client, args []string) (done api.DrainedNode, err error) {
			if ctx, err = atNode(ctx, args); err != nil {
				return done, err
			}
			return api.OpUndrainNode.Call(ctx, client, in)
		}, func(done api.DrainedNode) {
			fmt.Fprintf(c.out, "node %d takes new mail; %s\n", done.Moving.Node, moved(&done.Moving))
		})
}

// atNode has the node be asked that a command names; without one it is this one.
func atNode(ctx context.Context, args []string) (context.Context, error) {
	if len(args) == 0 {
		return ctx, nil
	}
	n, err := nodeNumber(args[0])
	return api.AtNode(ctx, int(n)), err
}

const (
	movingPoll = time.Second
	// movingRests is for how long nothing more could move when the command gives up.
	movingRests = 10 * time.Second
)

// watchMoving shows how far a move is until its end.
func (c *cli) watchMoving(ctx context.Context, client *api.Client) (m api.Moving, err error) {
	defer c.waiting("")
	timer := time.NewTicker(movingPoll)
	defer timer.Stop()
	rests := time.Time{}
	for n := 1; ; n++ {
		now, err := api.OpMoving.Call(ctx, client, api.None{})
		if err != nil {
			return m, err
		}
		m = now
		if c.waiting(moved(&m)); !c.screen.TTY && n%lineEvery == 0 {
			fmt.Fprintln(c.err, moved(&m))
		}
		switch {
		case m.Left == 0 && m.Waiting == 0, !m.On:
			return m, nil
		case !m.Rests:
			rests = time.Time{}
		case rests.IsZero():
			rests = time.Now()
		case time.Since(rests) >= movingRests:
			return m, nil
		}
		select {
		case <-timer.C:
		case <-ctx.Done():
			return m, ctx.Err()
		}
	}
}

// moved puts into words how far a move is.
func moved(m *api.Moving) string {
	parts := []string{fmt.Sprintf("%s with %s moved, %d left", plural(m.Messages, "message"),
		plural(m.Recipients, "recipient"), m.Left)}
	if m.Busy > 0 {
		parts = append(parts, fmt.Sprintf("%d in delivery", m.Busy))
	}
	if m.Waiting > 0 {
		parts = append(parts, fmt.Sprintf("%s withheld until their node has answered", plural(m.Waiting, "message")))
	}
	if m.Declined > 0 {
		parts = append(parts, fmt.Sprintf("%s declined", plural(m.Declined, "message")))
	}
	return strings.Join(parts, ", ")
}

// leftOut names the nodes that take no mail now.
func leftOut(m *api.Moving) (all []string) {
	for _, to := range m.To {
		if to.LeftOut != "" {
			all = append(all, fmt.Sprintf("node %d: %s", to.Node, to.LeftOut))
		}
	}
	return all
}

func newClusterAdopt(c *cli) *cobra.Command {
	var in api.Adopt
	cmd := &cobra.Command{
		Use: "adopt DIR", Short: "move the mail of a dead node to the living ones, from its data directory",
		Long: `Have the mail of a node that is gone move to all living nodes, from its data directory, such as
a volume of the dead machine that is mounted here. The running relay does it, and must be able
to read and write the directory. Messages come as from 'mta cluster drain'; streams get the
events that the node had not sent. First the node is forgotten as by 'mta cluster forget',
which is refused while it answers, and the directory is marked: no relay starts on it any more.

The command shows how far the move is, and ends when nothing is left, or with the exit code 1
when nothing more can move. What is damaged, or can't be sent from here, is found before any
mail moves: the command refuses, or with --accept moves all else, names what stays, and ends with
the exit code 1. If it is interrupted it goes on in the relay. If that stops, or
something was left, run the command again at the same node: it goes on from there.`,
		Example: `  mta cluster adopt /mnt/node-1 --dry-run
  mta cluster adopt /mnt/node-1 --reason "mainboard"`,
		Args: oneArg("a data directory"),
	}
	return c.adopts(cmd, &in, func(args []string) (err error) {
		in.Dir, err = filepath.Abs(args[0])
		return err
	})
}

func newClusterTakeover(c *cli) *cobra.Command {
	var in api.Adopt
	cmd := &cobra.Command{
		Use: "takeover NODE", Short: "move the mail of a dead node to the living ones, from its copy in the database",
		Long: `Have the mail of a node whose machine and disk are gone move to all living nodes, sooner than the
setting 'takeover' does. The node must have had 'replicate = true' in its cluster block: then the
database has a copy of its queue. The running relay restores that into its data directory, and has
the mail move from there as by 'mta cluster adopt'. It refuses while the node answers, and a node
that comes back afterwards neither accepts nor delivers with what it had: its copy is sealed, and
it is forgotten.

If that stops, or something was left, run the command again: it goes on from there.`,
		Example: `  mta cluster takeover 3 --dry-run
  mta cluster takeover 3 --dead --reason "burnt"`,
		Args: oneArg("the number of a node"),
	}
	return c.adopts(cmd, &in, func(args []string) error {
		n, err := nodeNumber(args[0])
		in.Node = int(n)
		return err
	})
}

// adopts makes a command of an adoption; read reads its argument.
func (c *cli) adopts(cmd *cobra.Command, in *api.Adopt, read func(args []string) error) *cobra.Command {
	noWait := cmd.Flags().Bool("no-wait", false, "don't wait for the move")
	cmd.Flags().BoolVar(&in.Dead, "dead", false, "the machine is off, although the node has just answered")
	cmd.Flags().BoolVar(&in.Accept, "accept", false,
		"go on although some of it can't move: damaged mail, events, or keys of requests")
	changeFlags(cmd, &in.Intent)
	return answers(c, cmd, func(ctx context.Context, client *api.Client, args []string) (done adoption, err error) {
		if err = read(args); err != nil {
			return done, err
		}
		if done.Adopted, err = api.OpAdopt.Call(ctx, client, *in); err == nil && !*noWait && done.Adoption.Running {
			done.Adoption, err = c.watchAdoption(ctx, client)
		}
		return done, err
	}, func(done adoption) error { return c.adopted(&done.Adopted) })
}

// adopted shows what an adoption has come to.
func (c *cli) adopted(done *api.Adopted) error {
	a := &done.Adoption
	who := fmt.Sprintf("node %d (%s)", a.Moving.Node, a.NodeID)
	if a.Letters > 0 {
		fmt.Fprintf(c.err, "%s of sendmail stay in %s: move them to maildrop/new of a node\n",
			plural(a.Letters, "letter"), filepath.Join(a.Dir, "maildrop", "new"))
	}
	switch {
	case done.DryRun && a.Ended.IsZero():
		var states []string
		for _, state := range slices.Sorted(maps.Keys(done.States)) {
			states = append(states, fmt.Sprintf("%d %s", done.States[state], state))
		}
		fmt.Fprintf(c.out, "%s: %s would be moved: %s\n", who, plural(done.Count, "recipient"),
			strings.Join(states, ", "))
	case !a.Ended.IsZero() && done.Count == 0 && a.Moving.Messages == 0:
		fmt.Fprintf(c.out, "nothing to do: the mail of %s was adopted on %s\n", who,
			a.Ended.UTC().Format(time.DateTime))
	default:
		fmt.Fprintf(c.out, "%s: %s\n", who, adopting(a))
	}
	if a.Failed != "" {
		fmt.Fprintf(c.err, "problem: %s\n", a.Failed)
	}
	for _, what := range a.Stays {
		fmt.Fprintf(c.err, "stays: %s\n", what)
	}
	if !a.Running && a.Ended.IsZero() && !done.DryRun {
		for _, why := range leftOut(&a.Moving) {
			fmt.Fprintf(c.err, "left out: %s\n", why)
		}
	}
	return nil
}

// adoption is the answer of the command; it has failed when something is left, also where that is printed as JSON.
type adoption struct{ api.Adopted }

func (a adoption) lacks() error {
	x := &a.Adoption
	if a.DryRun && x.Failed == "" || x.Running || !x.Ended.IsZero() {
		return nil
	}
	return exitError(exitFailed)
}

// adopting puts into words how far an adoption is.
func adopting(a *api.Adoption) string {
	words := moved(&a.Moving)
	if a.Events > 0 {
		words += fmt.Sprintf(", %d events to send", a.Events)
	}
	return words
}

// watchAdoption shows how far an adoption is until its end.
func (c *cli) watchAdoption(ctx context.Context, client *api.Client) (a api.Adoption, err error) {
	defer c.waiting("")
	for n := 1; ; n++ {
		if a, err = api.OpAdoption.Call(ctx, client, api.None{}); err != nil {
			return a, hinted{err,
				"if the relay has stopped, start it and give the command again: it goes on from there"}
		}
		if !a.Running {
			return a, nil
		}
		if c.waiting(adopting(&a)); !c.screen.TTY && n%lineEvery == 0 {
			fmt.Fprintln(c.err, adopting(&a))
		}
		select {
		case <-time.After(movingPoll):
		case <-ctx.Done():
			return a, ctx.Err()
		}
	}
}

func newClusterReset(c *cli) *cobra.Command {
	r := resetting{c: c}
	cmd := &cobra.Command{
		Use: "reset", Short: "have all nodes take part again after the database has lost writes",
		Long: `Have all nodes take part again after the database has lost writes: a server was promoted that
lacked some that were acknowledged, or a backup was restored. Each node that finds this takes
no part: mail under shared limits waits there, and requests with a key get a 503. Correct
what has lost them first. No relay is stopped or restarted.

Each node gives the keys of clients' requests to all others, so that what the database has
lost of these is not accepted twice. Then the nodes exchange anew all that they know, and
nobody has any of the shared limits until all that was granted has ended, in 3 minutes. The
command shows how far that is. --no-wait and an interrupt end the command alone.

--dry-run shows what each node has found. A node that does not answer can't give its keys:
the command is refused, unless --accept is given or the node is forgotten.`,
		Example: `  mta cluster reset --dry-run
  mta cluster reset --reason "failover to db2, which lagged"`,
		Args: noArgs,
	}
	cmd.Flags().BoolVar(&r.noWait, "no-wait", false, "don't wait until the limits are shared again")
	cmd.Flags().BoolVar(&r.accept, "accept", false,
		"go on although a node does not answer or get all keys, or none has found lost writes")
	changeFlags(cmd, &r.in)
	return answers(c, cmd, r.run, c.wasReset)
}

// resetting is the command.
type resetting struct {
	c              *cli
	in             api.Intent
	noWait, accept bool
}

// nodeFound is what a node has found of the database.
type nodeFound struct {
	Node  int    `json:"node"`
	Lost  string `json:"lost_writes,omitempty"` // absent: nothing
	Error string `json:"error,omitempty"`       // it has not answered
}

// resetDone is the outcome.
type resetDone struct {
	Nodes  []nodeFound `json:"nodes"`
	DryRun bool        `json:"dry_run,omitempty"`
	Reset  bool        `json:"reset"`             // the nodes begin anew
	Shared bool        `json:"shared"`            // all limits are shared again
	Lacks  string      `json:"lacks,omitempty"`   // what was lacking when the command gave up waiting
	Keys   []string    `json:"without,omitempty"` // which nodes have not got the keys of which, and why
}

func (d resetDone) lacks() error {
	if d.Lacks != "" {
		return exitError(exitFailed)
	}
	return nil
}

func (r *resetting) run(ctx context.Context, client *api.Client, _ []string) (done resetDone, err error) {
	done.DryRun = r.in.DryRun
	nodes, err := everywhere.Nodes(ctx, client)
	if err != nil {
		return done, err
	}
	var away []string
	lost := false
	for _, n := range nodes {
		s, err := api.OpCluster.Call(api.AtNode(ctx, n), client, api.None{})
		found := nodeFound{Node: n, Lost: s.Lost}
		if err != nil {
			found.Error = everywhere.Failure{Node: n, Err: err}.Error()
			away = append(away, found.Error)
		}
		lost = lost || s.Lost != ""
		done.Nodes = append(done.Nodes, found)
	}
	switch {
	case r.in.DryRun:
		return done, nil
	case !lost && !r.accept:
		return done, hinted{errors.New("no node that answers has found that the database has lost writes"),
			"'mta cluster status' has what is wrong"}
	case len(away) > 0 && !r.accept:
		return done, hinted{fmt.Errorf("%s: what its clients send again may be taken twice",
			strings.Join(away, "; ")),
			"start that relay, or 'mta cluster forget' the node if it is gone for good; or --accept"}
	}
	for _, found := range done.Nodes {
		if found.Error != "" {
			continue
		}
		without, err := r.keys(ctx, client, found.Node)
		if err != nil {
			return done, err
		}
		done.Keys = append(done.Keys, without...)
	}
	if len(done.Keys) > 0 && !r.accept {
		return done, hinted{fmt.Errorf("the keys of clients' requests can't be given to all nodes: %s",
			strings.Join(done.Keys, "; ")), "see to that; or --accept: what clients send again there is taken twice"}
	}
	if _, err := api.OpReset.Call(ctx, client, api.Reset{Intent: r.in}); err != nil {
		return done, err
	}
	if done.Reset = true; !r.noWait {
		done.Lacks, err = r.watch(ctx, client, nodes)
		done.Shared = err == nil && done.Lacks == ""
	}
	return done, err
}

// keys has a node give the keys that it has to all others, and returns which have not got them.
func (r *resetting) keys(ctx context.Context, client *api.Client, node int) (without []string, err error) {
	defer r.c.waiting("")
	for {
		r.c.waiting(fmt.Sprintf("node %d gives the keys of clients' requests to the others", node))
		done, err := api.OpReset.Call(api.AtNode(ctx, node), client, api.Reset{Keys: true})
		if err != nil {
			return nil, err
		}
		for _, n := range done.Without {
			without = append(without, fmt.Sprintf("those of node %d to node %d: %s", node, n.Node, n.LeftOut))
		}
		if done.Done {
			return without, nil
		}
	}
}

// resetLate is how much longer than a term the command waits: shards are taken some at a time.
const resetLate = time.Minute

// watch waits until all shards are owned by nodes that have followed the reset, and returns what lacks when that takes
// too long.
func (r *resetting) watch(ctx context.Context, client *api.Client, nodes []int) (lacks string, err error) {
	defer r.c.waiting("")
	began := time.Now()
	for n := 1; ; n++ {
		shards, waits := 0, []string(nil)
		for _, node := range nodes {
			s, err := api.OpCluster.Call(api.AtNode(ctx, node), client, api.None{})
			switch {
			case err != nil:
				waits = append(waits, everywhere.Failure{Node: node, Err: err}.Error())
			case s.Lost != "" || !s.Takes:
				waits = append(waits, fmt.Sprintf("node %d takes no part yet", node))
			}
			shards += s.Shards
		}
		left := membership.Term.Waits() - time.Since(began)
		switch {
		case left <= 0 && len(waits) == 0 && shards >= owner.Shards: // before that nodes have those of before the reset
			return "", nil
		case left < -resetLate:
			waits = append(waits, fmt.Sprintf("%d of %d shards are owned", shards, owner.Shards))
			return strings.Join(waits, "; "), nil
		}
		line := fmt.Sprintf("limits are shared in %v: %d of %d shards", max(left, 0).Round(time.Second), shards,
			owner.Shards)
		if len(waits) > 0 {
			line += "; " + strings.Join(waits, "; ")
		}
		if r.c.waiting(line); !r.c.screen.TTY && n%lineEvery == 0 {
			fmt.Fprintln(r.c.err, line)
		}
		select {
		case <-time.After(movingPoll):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// wasReset shows the outcome.
func (c *cli) wasReset(d resetDone) error {
	if !d.Reset {
		for _, n := range d.Nodes {
			switch {
			case n.Error != "":
				fmt.Fprintln(c.out, n.Error)
			case n.Lost != "":
				fmt.Fprintf(c.out, "node %d: %s\n", n.Node, n.Lost)
			default:
				fmt.Fprintf(c.out, "node %d: has found nothing lost\n", n.Node)
			}
		}
		return nil
	}
	for _, what := range d.Keys {
		fmt.Fprintf(c.err, "the keys of clients' requests are not at all nodes: %s\n", what)
	}
	switch {
	case d.Shared:
		fmt.Fprintln(c.out, "all nodes take part again, and share the limits")
	case d.Lacks != "":
		fmt.Fprintf(c.err, "problem: %s\n", d.Lacks)
	default:
		fmt.Fprintln(c.out, "all nodes take part again as they see the reset; limits are shared in 3 minutes")
	}
	return nil
}
