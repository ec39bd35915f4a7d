package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"example.org/mta/operator/api"
)

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
	done, err := r.client.RemoveMoved(r.ctx, api.RemoveMoved{Receipt: r.batch, Intent: r.intent})
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
func (c *cli) removeByReceipt(ctx context.Context, name string, intent api.Intent, asJSON bool) error {
	in, shown, err := c.input(name)
	if err != nil {
		return err
	}
	defer in.Close()
	client, err := c.client()
	if err != nil {
		return err
	}
	r := receiptRemoval{ctx: ctx, client: client, intent: intent}
	err = r.read(in, shown)
	if r.done.Recipients == 0 && err != nil {
		return err
	}
	if asJSON {
		if err := writeJSON(c.out, r.done); err != nil {
			return err
		}
	} else {
		c.printRemoved(&r.done)
	}
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
			return hinted{fmt.Errorf("%s:%d: not a line of a receipt", name, n), "a receipt is written by 'mta queue import --receipt FILE'"}
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
