package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/internal/smallfile"
	"example.org/mta/mta/exported"
	"example.org/mta/operator/api"
)

func newQueueExport(c *cli) *cobra.Command {
	var (
		filters filterFlags
		x       = queueExport{cli: c}
	)
	cmd := &cobra.Command{
		Use:   "export [ID...]",
		Short: "write messages to an archive, for another relay",
		Long: `Write the selected messages, or the whole queue, to a tar archive: ID.json (envelope, and
attempts, times, hold and last reply of each recipient) and ID.eml (the content) for each.
'mta queue import' gives them to another relay. Mail is taken and delivered meanwhile.

An archive of everything or of a tenant has the clients' idempotency keys, too: a request
that is repeated at the other relay is not taken twice.

Recipients that are in delivery, or given up, are left out and counted. This relay delivers
what is not held, too: to move mail, hold it first, and remove it with the receipt of the
import. With --remove the messages that the file has are removed here once it is on the
disk; all that is selected must be held (--state held).`,
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
			return hinted{fmt.Errorf("%s is there already", x.to), "name another file: an archive can be the only place where its mail is"}
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
			return hinted{fmt.Errorf("%s is whole, but what it has is still in the queue, or a part of that: %w", x.to, err), "import the file here or elsewhere only after 'mta queue remove' of the rest; or remove the file, and export again"}
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
			fmt.Fprintf(x.err, "%s exported, but no longer in the queue: expired or removed meanwhile\n", plural(*d.Gone, "recipient"))
		}
	} else if d.Unheld > 0 {
		fmt.Fprintf(x.err, "%s not held: this relay delivers them, too\n", plural(d.Unheld, "recipient"))
	}
	for _, left := range []struct {
		n   int
		why string
	}{{d.InDelivery, "in delivery; export again later"}, {d.Ending, "final: the report to the sender is being written"}, {d.Unreadable, "damaged or too large; see the log"}} {
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
		err := x.client.ExportQueue(ctx, io.MultiWriter(w, in), x.filter)
		in.CloseWithError(err)
		failed <- err
	}()
	s, err = eachExported(out, "the relay's archive", x.progress("exported"), func(*exported.Message) error { return nil })
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
func eachExported(from io.Reader, name string, progress func(), each func(*exported.Message) error) (s exported.Summary, err error) {
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
	if _, err := eachExported(f, draw.Clean(x.to), x.progress("removed"), func(m *exported.Message) error {
		return rm.add(api.MovedMessage{Node: m.Node, ID: m.ID, Recipients: indexesOf(m)})
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
