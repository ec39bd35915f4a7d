package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/mta/exported"
	"example.org/mta/operator/api"
)

func newQueueImport(c *cli) *cobra.Command {
	im := queueImport{cli: c, groups: map[string]*refusedGroup{}}
	var receipt string
	cmd := &cobra.Command{
		Use:   "import FILE|-",
		Short: "take the messages of an archive into the queue",
		Long: `Take the messages of an archive that 'mta queue export' has written into the queue of the
running relay, with their attempts, times, holds, last replies and reroutes. They get new
ids; what the command reports is durable.

Each recipient is taken once: an import that is repeated, or was cut off and begins again,
takes the rest. This is remembered for 30 days, and while idempotency_keys has capacity.
Messages of unknown tenants or pools, and invalid ones, are refused and reported; the exit
code is then 1. With the receipt, the relay that they come from can remove what this one
has: 'mta queue remove --receipt FILE'.`,
		Example: "  mta queue import acme.tar --hold\n  mta queue import acme.tar --dry-run",
		Args:    oneArg("an archive, or -"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if im.options.Hold && im.options.Release {
				return usagef("--hold and --release exclude each other")
			}
			return im.run(cmd.Context(), args[0], receipt)
		},
	}
	cmd.Flags().BoolVar(&im.options.Hold, "hold", false, "hold all of them")
	cmd.Flags().BoolVar(&im.options.Release, "release", false, "hold none of them, whatever the archive says")
	cmd.Flags().BoolVarP(&im.options.DryRun, "dry-run", "n", false, "only count")
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
	fmt.Fprintf(w, "%s with %s %s\n", plural(im.done.Messages, "message"), plural(im.done.Recipients, "recipient"), taken)
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
		fmt.Fprintf(im.err, "%s with %s refused: %s (%s%s)\n", plural(g.Messages, "message"), plural(g.Recipients, "recipient"), draw.Clean(g.Why), strings.Join(g.IDs, ", "), more)
		fmt.Fprintf(im.err, "to take them: %s\n", draw.Clean(g.Remedy))
	}
	return nil
}
