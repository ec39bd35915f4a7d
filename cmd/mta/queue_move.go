package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/internal/smallfile"
	"example.org/mta/mta/exported"
	"example.org/mta/operator/api"
	"example.org/mta/queue/store"
)

func newQueueExport(c *cli) *cobra.Command {
	var (
		filters filterFlags
		x       = queueExport{cli: c}
	)
	cmd := &cobra.Command{
		Use: "export [ID...]", Short: "write messages to an archive, for another relay",
		Long: `Write the selected messages, or the whole queue, to a tar archive for 'mta
queue import' on another relay: ID.json (envelope, and attempts, times, hold and last
reply of each recipient) and ID.eml (the content) for each. Mail is accepted and
delivered meanwhile.

An archive of everything or of a tenant also has the clients' idempotency keys: the
other relay does not accept a repeated request twice.

Recipients that are in delivery, or given up, are left out and counted. To move mail,
hold it first, and remove it with the receipt of the import. --remove, for held mail
only (--state held), removes it here once the file is on the disk.`,
		Example: `  mta queue export --tenant acme --to acme.tar
  mta queue export --state held | ssh new mta queue import --release --receipt - - | mta queue remove --receipt -`,
		ValidArgsFunction: c.completeIDs,
		RunE: func(cmd *cobra.Command, ids []string) (err error) {
			if x.filter, err = filters.with(ids); err != nil {
				return err
			}
			if x.remove && (x.to == "-" || x.filter.State != api.StateHeld) {
				return usagef("--remove is for held mail and a file: --state held --to FILE")
			}
			return x.run(cmd.Context())
		},
	}
	c.addParams(cmd, &filters.filter)
	cmd.Flags().StringVar(&x.to, "to", "-", "a new `file`; - is standard output")
	cmd.Flags().BoolVar(&x.remove, "remove", false, "remove from the queue what the file has")
	cmd.Flags().BoolVar(&x.asJSON, "json", false, "print JSON")
	reasonFlag(cmd)
	return cmd
}

// queueExport writes an archive.
type queueExport struct {
	*cli
	client *api.Client
	filter api.Filter
	to     string
	remove bool
	asJSON bool
}

// exportDone is what an export prints.
type exportDone struct {
	Messages   int  `json:"messages"`
	Recipients int  `json:"recipients"`
	Unheld     int  `json:"unheld"`
	InDelivery int  `json:"in_delivery"`
	Ending     int  `json:"ending"`
	Unreadable int  `json:"unreadable"`
	Keys       int  `json:"keys"`
	Removed    *int `json:"removed,omitempty"`
	Gone       *int `json:"gone,omitempty"` // of what was exported and is not removed, since it had left the queue
}

func (x *queueExport) run(ctx context.Context) (err error) {
	if x.client, err = x.cli.client(); err != nil {
		return err
	}
	var s exported.Summary
	report := x.out
	if x.to == "-" {
		if x.screen.TTY {
			return hinted{usagef("an archive is not for a terminal"), "as in: mta queue export --to FILE"}
		}
		report = x.err
		s, err = x.write(ctx, x.out)
	} else {
		if _, err := os.Lstat(x.to); !errors.Is(err, fs.ErrNotExist) {
			return hinted{fmt.Errorf("%s is there already", x.to),
				"name another file: an archive can be the only place where its mail is"}
		}
		err = smallfile.Replace(x.to, 0o600, func(w io.Writer) (err error) {
			s, err = x.write(ctx, w)
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("exporting: %w", err)
	}
	done := exportDone{s.Messages, s.Recipients, s.Unheld, s.InDelivery, s.Ending, s.Unreadable, s.Keys, nil, nil}
	if x.remove {
		removed, err := x.removeExported(ctx)
		if err != nil {
			return hinted{fmt.Errorf("%s is whole, but what it has is still in the queue, or a part of that: %w", x.to,
				err), "import the file here or elsewhere only after 'mta queue remove' of the rest; or remove the " +
				"file, and export again"}
		}
		done.Removed, done.Gone = &removed.Recipients, &removed.Gone
	}
	if x.asJSON {
		return writeJSON(report, done)
	}
	x.print(report, &done)
	return nil
}

func (x *queueExport) print(w io.Writer, d *exportDone) {
	fmt.Fprintf(w, "%s with %s exported\n", plural(d.Messages, "message"), plural(d.Recipients, "recipient"))
	if d.Keys > 0 {
		fmt.Fprintf(w, "%s exported\n", plural(d.Keys, "idempotency key"))
	}
	if d.Removed != nil {
		fmt.Fprintf(w, "%s removed from the queue\n", plural(*d.Removed, "recipient"))
		if *d.Gone > 0 {
			fmt.Fprintf(x.err, "%s exported, but no longer in the queue: expired or removed meanwhile\n",
				plural(*d.Gone, "recipient"))
		}
	} else if d.Unheld > 0 {
		fmt.Fprintf(x.err, "%s not held: this relay delivers them, too\n", plural(d.Unheld, "recipient"))
	}
	for _, left := range []struct {
		n   int
		why string
	}{{d.InDelivery, "in delivery; export again later"}, {d.Ending, "final: the report to the sender is being written"},
		{d.Unreadable, "damaged or too large; see the log"}} {
		if left.n > 0 {
			fmt.Fprintf(x.err, "%s left out: %s\n", plural(left.n, "recipient"), left.why)
		}
	}
}

// write passes the archive on as it comes, and checks it on the way: a part is not taken for the whole.
func (x *queueExport) write(ctx context.Context, w io.Writer) (s exported.Summary, err error) {
	out, in := io.Pipe()
	failed := make(chan error, 1)
	go func() { // ended by the reader's Close
		err := api.OpExport.Copy(ctx, x.client, io.MultiWriter(w, in), x.filter)
		in.CloseWithError(err)
		failed <- err
	}()
	s, err = eachExported(out, "the relay's archive", x.progress("exported"), func(*exported.Message) error {
		return nil
	})
	if err == nil {
		_, err = io.Copy(io.Discard, out) // what pads it
	}
	out.CloseWithError(err)
	switch failed := <-failed; {
	case errors.Is(failed, io.ErrUnexpectedEOF):
		err = hinted{errors.New("the relay broke off"), "export again; the relay's log says why, unless it was stopped"}
	case failed != nil:
		err = failed
	}
	return s, err
}

// eachExported reads an archive to its end.
func eachExported(from io.Reader, name string, progress func(),
	each func(*exported.Message) error) (s exported.Summary, err error) {
	r := exported.NewReader(from, name)
	for {
		m, _, err := r.Next()
		if errors.Is(err, io.EOF) {
			return r.Summary(), nil
		}
		if err == nil {
			err = each(m)
		}
		if err != nil {
			return r.Summary(), remedied(err)
		}
		progress()
	}
}

// remedied gives an error of an archive its hint.
func remedied(err error) error {
	if bad := (*exported.Error)(nil); errors.As(err, &bad) {
		return hinted{err, bad.Remedy}
	}
	return err
}

// progressEvery is how often a long run reports how far it is.
const progressEvery = 10 * time.Second

// progress returns a function that counts a message, and reports from time to time.
func (c *cli) progress(done string) func() {
	n, last := 0, time.Now()
	return func() {
		if n++; time.Since(last) >= progressEvery {
			last = time.Now()
			fmt.Fprintf(c.err, "%s %s\n", plural(n, "message"), done)
		}
	}
}

// removeExported removes what the file has, which is on the disk.
func (x *queueExport) removeExported(ctx context.Context) (api.MovedRemoved, error) {
	f, err := os.Open(x.to)
	if err != nil {
		return api.MovedRemoved{}, err
	}
	defer f.Close()
	rm := receiptRemoval{ctx: ctx, client: x.client}
	archive := "the archive " + draw.Clean(filepath.Base(x.to))
	if _, err := eachExported(f, draw.Clean(x.to), x.progress("removed"), func(m *exported.Message) error {
		return rm.add(api.MovedMessage{Node: m.Node, ID: m.ID, Recipients: indexesOf(m), To: archive})
	}); err != nil {
		return rm.done, err
	}
	return rm.done, rm.flush()
}

func indexesOf(m *exported.Message) (list []int) {
	for i := range m.Recipients {
		list = append(list, m.Recipients[i].Index)
	}
	return list
}

func newQueueImport(c *cli) *cobra.Command {
	im := queueImport{cli: c, groups: map[string]*refusedGroup{}}
	var receipt string
	cmd := &cobra.Command{
		Use: "import FILE|-", Short: "take the messages of an archive into the queue",
		Long: `Accept the messages of an archive of 'mta queue export'. They get new ids; what the
command reports is durable.

Each recipient is accepted once: a repeated import takes the rest. This is remembered
for 30 days, and while idempotency_keys has capacity. Messages of unknown tenants or
pools, and invalid ones, are refused and reported; the exit code is then 1. With the
receipt, the other relay can remove what this one has: 'mta queue remove --receipt
FILE'.`,
		Example: "  mta queue import acme.tar --hold\n  mta queue import acme.tar --dry-run",
		Args:    oneArg("an archive, or -"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if im.options.Hold && im.options.Release {
				return usagef("--hold and --release exclude each other")
			}
			return im.run(cmd.Context(), args[0], receipt)
		},
	}
	c.addParams(cmd, &im.options)
	cmd.Flags().StringVar(&receipt, "receipt", "", "add what this relay has to this `file`; - is standard output")
	cmd.Flags().BoolVar(&im.asJSON, "json", false, "print JSON")
	reasonFlag(cmd)
	return cmd
}

// queueImport hands an archive to the relay, some messages at a time.
type queueImport struct {
	*cli
	client  *api.Client
	options api.ImportOptions
	receipt io.Writer // nil: none is written
	asJSON  bool

	chunk    bytes.Buffer
	writer   *exported.Writer // of chunk; nil: nothing is in it
	messages int              // in chunk

	done   importDone
	groups map[string]*refusedGroup
}

// importDone is what an import prints.
type importDone struct {
	Messages   int             `json:"messages"`
	Recipients int             `json:"recipients"`
	There      int             `json:"there"`
	Keys       int             `json:"keys"`
	Refused    []*refusedGroup `json:"refused"`
	DryRun     bool            `json:"dry_run,omitempty"`
}

// refusedGroup is messages that are refused for the same reason.
type refusedGroup struct {
	Why        string   `json:"why"`
	Remedy     string   `json:"remedy"`
	Messages   int      `json:"messages"`
	Recipients int      `json:"recipients"`
	IDs        []string `json:"ids"` // some of them
}

const (
	// importOctets and importMessages bound what is sent with one request; a larger message has one to itself.
	importOctets   = 4 << 20
	importMessages = 500
	// shownIDs is how many messages of a group of refusals are named.
	shownIDs = 10
)

func (im *queueImport) run(ctx context.Context, name, receipt string) (err error) {
	in, shown, err := im.input(name)
	if err != nil {
		return err
	}
	defer in.Close()
	if im.client, err = im.cli.client(); err != nil {
		return err
	}
	report := im.out
	switch {
	case receipt == "-":
		im.receipt, report = im.out, im.err
	case receipt != "":
		f, err := os.OpenFile(receipt, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		im.receipt = f
	}
	from := exported.NewReader(in, draw.Clean(shown))
	from.Keys = func(some []exported.Key) error { return im.keys(ctx, some) }
	err = im.all(ctx, from)
	im.done.DryRun = im.options.DryRun
	if perr := im.print(report); err == nil {
		err = perr
	}
	if err == nil && len(im.done.Refused) > 0 {
		return exitError(exitFailed)
	}
	return err
}

// all hands everything over. What was read before an error is handed over, too.
func (im *queueImport) all(ctx context.Context, r *exported.Reader) error {
	progress := im.progress("read")
	for {
		m, content, err := r.Next()
		if err == nil {
			err = im.message(ctx, m, content)
		}
		if err != nil {
			sent := im.flush(ctx)
			if errors.Is(err, io.EOF) {
				return sent
			}
			return remedied(err)
		}
		progress()
	}
}

// keys hands over some keys.
func (im *queueImport) keys(ctx context.Context, some []exported.Key) error {
	if err := im.flush(ctx); err != nil {
		return err
	}
	im.writer = exported.NewWriter(&im.chunk, exported.Summary{})
	if err := im.writer.Keys(some); err != nil {
		return err
	}
	return im.flush(ctx)
}

func (im *queueImport) message(ctx context.Context, m *exported.Message, content io.Reader) error {
	if m.Size > importOctets {
		if err := im.flush(ctx); err != nil {
			return err
		}
		return im.large(ctx, m, content)
	}
	text, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	if im.writer == nil {
		im.writer = exported.NewWriter(&im.chunk, exported.Summary{Node: m.Node})
	}
	if err := im.writer.Copy(m, bytes.NewReader(text)); err != nil {
		return err
	}
	if im.messages++; im.messages == importMessages || im.chunk.Len() >= importOctets {
		return im.flush(ctx)
	}
	return nil
}

// large hands over a message as it is read.
func (im *queueImport) large(ctx context.Context, m *exported.Message, content io.Reader) error {
	out, in := io.Pipe()
	read := make(chan error, 1)
	go func() { // ended by the reader's Close
		w := exported.NewWriter(in, exported.Summary{Node: m.Node})
		err := w.Copy(m, content)
		if err == nil {
			err = w.Close(exported.Summary{})
		}
		in.CloseWithError(err)
		read <- err
	}()
	done, err := im.client.ImportQueue(ctx, out, im.options)
	out.CloseWithError(io.ErrClosedPipe)
	bad := (*exported.Error)(nil)
	if rerr := <-read; errors.As(rerr, &bad) { // it is why the relay got no more
		err = rerr
	}
	return errors.Join(im.add(done), err)
}

// flush hands the chunk over.
func (im *queueImport) flush(ctx context.Context) error {
	if im.writer == nil {
		return nil
	}
	err := im.writer.Close(exported.Summary{})
	im.writer, im.messages = nil, 0
	if err != nil {
		return err
	}
	done, err := im.client.ImportQueue(ctx, bytes.NewReader(im.chunk.Bytes()), im.options)
	im.chunk.Reset()
	return errors.Join(im.add(done), err)
}

// add counts what became of some messages, and writes the receipt. Its error is the receipt's.
func (im *queueImport) add(done api.Imported) error {
	im.done.Messages += done.Messages
	im.done.Recipients += done.Recipients
	im.done.There += done.There
	im.done.Keys += done.Keys
	for _, r := range done.Refused {
		g := im.groups[r.Why]
		if g == nil {
			if len(im.groups) == maxBad {
				r.Why, r.Remedy = "other reasons", "import again when those above are removed"
			}
			if g = im.groups[r.Why]; g == nil {
				g = &refusedGroup{Why: r.Why, Remedy: r.Remedy}
				im.groups[r.Why] = g
				im.done.Refused = append(im.done.Refused, g)
			}
		}
		g.Messages++
		g.Recipients += r.Recipients
		if len(g.IDs) < shownIDs {
			g.IDs = append(g.IDs, r.ID)
		}
	}
	if im.receipt == nil {
		return nil
	}
	e := newEncoder(im.receipt)
	for _, m := range done.Receipt {
		if err := e.Encode(m); err != nil {
			return fmt.Errorf("writing the receipt: %w", err)
		}
	}
	return nil
}

func (im *queueImport) print(w io.Writer) error {
	if im.asJSON {
		if im.done.Refused == nil {
			im.done.Refused = []*refusedGroup{}
		}
		return writeJSON(w, im.done)
	}
	taken := "taken"
	if im.done.DryRun {
		taken = "would be taken"
	}
	fmt.Fprintf(w, "%s with %s %s\n", plural(im.done.Messages, "message"),
		plural(im.done.Recipients, "recipient"), taken)
	if im.done.Keys > 0 {
		fmt.Fprintf(w, "%s %s\n", plural(im.done.Keys, "idempotency key"), taken)
	}
	if im.done.There > 0 {
		fmt.Fprintf(w, "%s there already\n", plural(im.done.There, "recipient"))
	}
	for _, g := range im.done.Refused {
		more := ""
		if g.Messages > len(g.IDs) {
			more = ", ..."
		}
		fmt.Fprintf(im.err, "%s with %s refused: %s (%s%s)\n", plural(g.Messages, "message"),
			plural(g.Recipients, "recipient"), draw.Clean(g.Why), strings.Join(g.IDs, ", "), more)
		fmt.Fprintf(im.err, "to take them: %s\n", draw.Clean(g.Remedy))
	}
	return nil
}

// receiptRemoval removes what a receipt names, some at a time.
type receiptRemoval struct {
	ctx    context.Context
	client *api.Client
	intent api.Intent
	batch  []api.MovedMessage
	n      int // recipients of batch
	done   api.MovedRemoved
}

// removedAtOnce is how many messages or recipients are removed with one request, which they fit into.
const removedAtOnce = 1000

func (r *receiptRemoval) add(m api.MovedMessage) error {
	if r.n > 0 && (len(r.batch) == removedAtOnce || r.n+len(m.Recipients) > 50*removedAtOnce) {
		if err := r.flush(); err != nil {
			return err
		}
	}
	r.batch, r.n = append(r.batch, m), r.n+len(m.Recipients)
	return nil
}

func (r *receiptRemoval) flush() error {
	if len(r.batch) == 0 {
		return nil
	}
	done, err := api.OpRemoveMoved.Call(r.ctx, r.client, api.RemoveMoved{Receipt: r.batch, Intent: r.intent})
	r.done.Recipients += done.Recipients
	r.done.Count += done.Count
	r.done.Later += done.Later
	r.done.Gone += done.Gone
	r.done.DryRun = done.DryRun
	r.batch, r.n = nil, 0
	return err
}

// maxReceiptLine bounds a line of a receipt, in octets: that of 65,535 recipients fits.
const maxReceiptLine = 1 << 20

// removeByReceipt removes what another relay has taken according to its receipt.
func (c *cli) removeByReceipt(ctx context.Context, client *api.Client, name string, intent api.Intent,
	asJSON bool) error {
	in, shown, err := c.input(name)
	if err != nil {
		return err
	}
	defer in.Close()
	r := receiptRemoval{ctx: ctx, client: client, intent: intent}
	err = r.read(in, shown)
	if r.done.Recipients == 0 && err != nil {
		return err
	}
	if asJSON {
		return cmp.Or(writeJSON(c.out, r.done), err)
	}
	c.printRemoved(&r.done)
	return err
}

func (r *receiptRemoval) read(in io.Reader, name string) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxReceiptLine)
	n := 0
	for lines.Scan() {
		n++
		var m api.MovedMessage
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil || m.ID == "" || len(m.Recipients) == 0 {
			return hinted{fmt.Errorf("%s:%d: not a line of a receipt", name, n),
				"a receipt is written by 'mta queue import --receipt FILE'"}
		}
		if err := r.add(m); err != nil {
			return fmt.Errorf("%s:%d: %w", name, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading %s, line %d: %w", name, n+1, err)
	}
	return r.flush()
}

func (c *cli) printRemoved(d *api.MovedRemoved) {
	done := "removed"
	if d.DryRun {
		done = "would be removed"
	}
	fmt.Fprintf(c.out, "%s %s\n", plural(d.Recipients-d.Later, "recipient"), done)
	if d.Later > 0 {
		fmt.Fprintf(c.out, "%s on a connection: %s\n", plural(d.Later, "recipient"), whenItEnds[api.Remove])
	}
	if d.Gone > 0 {
		fmt.Fprintf(c.err, "%s not in the queue any more\n", plural(d.Gone, "recipient"))
	}
}

const queueFsckHelp = `Read every octet of a queue on disk and report its contents and
any damage (exit code 1). Nothing is changed. If a relay runs, the report may be
inconsistent. The notes list problems that a start of the relay repairs.

DIR is a data directory; by default that of the configuration.`

func newQueueFsck(c *cli) *cobra.Command {
	var asJSON, messages bool
	cmd := &cobra.Command{
		Use: "fsck [DIR]", Short: "check a queue on disk for damage", Long: queueFsckHelp,
		Args: argCount(0, 1, "want one directory, got %d"),
		RunE: func(_ *cobra.Command, args []string) error {
			dir, err := c.queueDir(args)
			if err != nil {
				return err
			}
			return c.queueFsck(dir, messages, asJSON)
		},
	}
	cmd.Flags().BoolVar(&messages, "messages", false, "list the messages too")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// queueDir finds the queue in a data directory. The queue's own directory is taken as well.
func (c *cli) queueDir(args []string) (string, error) {
	dir := ""
	if len(args) == 1 {
		dir = args[0]
	} else {
		w, err := c.find()
		if err != nil {
			return "", err
		}
		if dir = w.DataDir; dir == "" {
			return "", hinted{errors.New("data_dir depends on an environment variable that is not set"),
				"name the directory: mta queue fsck DIR"}
		}
	}
	within := filepath.Join(dir, "queue")
	if _, err := os.Stat(within); err == nil {
		return within, nil
	}
	return dir, nil
}

// fsckMessage is a message of a queue on disk, in the words of the listing.
type fsckMessage struct {
	ID         string            `json:"id"`
	File       string            `json:"file"`
	Offset     int64             `json:"offset"`
	Sender     string            `json:"sender"`
	Recipients map[string]string `json:"recipients"` // state by address, or by index when the envelope is damaged
	Unreadable bool              `json:"unreadable,omitempty"`
}

func (c *cli) queueFsck(dir string, listed, asJSON bool) error {
	var (
		messages []fsckMessage
		visit    func(store.FsckMessage)
	)
	if listed {
		visit = func(m store.FsckMessage) { messages = append(messages, newFsckMessage(m)) }
	}
	report, err := store.Fsck(dir, nil, visit)
	if err != nil {
		return err
	}
	if asJSON {
		err = writeJSON(c.out, struct {
			*store.Report
			List []fsckMessage `json:"list,omitempty"`
		}{report, messages})
	} else {
		err = errors.Join(report.WriteTable(c.out), c.fsckTable(messages))
	}
	if err != nil {
		return err
	}
	if report.Damaged() {
		return fmt.Errorf("queue %s is damaged in %s", dir, plural(len(report.Damage), "place"))
	}
	return nil
}

func newFsckMessage(m store.FsckMessage) fsckMessage {
	out := fsckMessage{ID: m.ID.String(), File: m.File, Offset: m.Offset, Recipients: map[string]string{},
		Unreadable: m.Message == nil}
	for i, state := range m.Recipients {
		name := fmt.Sprint(i)
		if m.Message != nil && i < len(m.Message.Recipients) {
			name = string(m.Message.Recipients[i].Address)
		}
		out.Recipients[name] = state.String()
	}
	if m.Message != nil {
		out.Sender = string(m.Message.Sender)
	}
	return out
}

func (c *cli) fsckTable(messages []fsckMessage) error {
	if len(messages) == 0 {
		return nil
	}
	t := draw.New("", "ID", "~SENDER", "~RECIPIENT", "STATE", "FILE", ">OFFSET")
	for _, m := range messages {
		first := []any{m.ID, angled(m.Sender)}
		if m.Unreadable {
			first[1] = "?"
		}
		for _, name := range slices.Sorted(maps.Keys(m.Recipients)) {
			t.Add("", append(first, angled(name), m.Recipients[name], m.File, m.Offset)...)
			first = []any{"", ""}
		}
	}
	fmt.Fprintln(c.out)
	return t.Write(c.out, c.screen)
}
