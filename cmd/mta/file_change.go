package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"example.org/mta/mta/config"
	"example.org/mta/operator/api"
	"example.org/mta/operator/audit"
)

// Commands that change a file without the relay leave the same two lines in the audit log as a change by the API. A
// running relay writes them, as it is the only writer of its log; while none runs, the command is.

// fileChange is such a command.
type fileChange struct {
	action string // one of api.FileActions
	about  api.FileSubject
	dryRun bool // it only shows what it would do
}

// fileFlags adds the flags of all commands that change files: --dry-run and --reason.
func fileFlags(cmd *cobra.Command, dryRun *bool) {
	cmd.Flags().BoolVarP(dryRun, "dry-run", "n", false, "check everything, but change nothing")
	reasonFlag(cmd)
}

// changeFile carries out a change with its lines in the audit log. do returns how much it has changed. What can't be put
// on record is not carried out.
func (c *cli) changeFile(ctx context.Context, f fileChange, do func() (int, error)) error {
	if f.dryRun {
		_, err := do()
		return err
	}
	if path, err := filepath.Abs(f.about.File); err == nil {
		f.about.File = path
	}
	end, err := c.beginFileChange(ctx, f)
	if err != nil {
		return err
	}
	n, err := do()
	if late := end(outcomeOf(n, err)); late != nil {
		fmt.Fprintf(c.err, "mta: the outcome is not in the audit log yet: %v\n", late)
	}
	return err
}

// did prints what was done to a file, or in a dry run would be.
func (c *cli) did(dryRun bool, path, format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if dryRun {
		text += " (dry run: nothing has changed)"
	}
	_, err := fmt.Fprintf(c.out, "%s: %s\n", path, text)
	return err
}

// outcomeOf gives the outcome of a change that has changed n things.
func outcomeOf(n int, err error) (audit.Outcome, int, string) {
	errno := syscall.Errno(0)
	switch {
	case err == nil:
		return audit.Done, n, ""
	case errors.Is(err, fs.ErrExist), errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
	case errors.As(err, &errno):
		return audit.Failed, n, err.Error()
	}
	return audit.Refused, n, err.Error()
}

// endOf puts the outcome of a change on record.
type endOf func(audit.Outcome, int, string) error

// beginFileChange puts it on record that a change begins: by the running relay, else in the files of a relay that does
// not run. Where there never was one, nothing is recorded.
func (c *cli) beginFileChange(ctx context.Context, f fileChange) (endOf, error) {
	client, err := c.client()
	if err != nil {
		return nil, fmt.Errorf("the change can't be put on record: %w", err)
	}
	begun, err := client.BeginFileChange(ctx, api.FileChange{Action: f.action, FileSubject: f.about})
	if err == nil {
		return func(o audit.Outcome, n int, why string) error {
			return client.EndFileChange(ctx, api.EndedFileChange{Number: begun.Number, Outcome: o, Count: n, Error: why})
		}, nil
	}
	if !api.Down(err) || errors.Is(err, fs.ErrPermission) || c.socketFlag != "" {
		return nil, err
	}
	return c.beginWithoutRelay(ctx, f)
}

func (c *cli) beginWithoutRelay(ctx context.Context, f fileChange) (endOf, error) {
	w, err := c.find()
	if err != nil {
		return nil, err
	}
	_, err = os.Stat(w.DataDir)
	if w.DataDir == "" || errors.Is(err, fs.ErrNotExist) { // no relay has run
		return func(audit.Outcome, int, string) error { return nil }, nil
	}
	var log *audit.Log
	if err == nil {
		log, err = audit.Open(audit.Config{Dir: filepath.Join(w.DataDir, config.AuditLog), Now: c.now})
	}
	if err != nil {
		return nil, noRecord(err)
	}
	begun, err := log.Begin(audit.Line{Actor: thisProcess(), Action: f.action, Subject: f.about.String(), Reason: api.ReasonOf(ctx)})
	if err != nil {
		log.Close()
		return nil, noRecord(err)
	}
	return func(o audit.Outcome, n int, why string) error {
		return errors.Join(begun.End(o, n, why), log.Close())
	}, nil
}

func noRecord(err error) error {
	hint := "nothing can be changed while the audit log in data_dir can't be written: look at its disk"
	if errors.Is(err, fs.ErrPermission) {
		hint = "run this as root or as the relay's user: the audit log is in its data_dir"
	}
	return hinted{fmt.Errorf("the change can't be put on record: %w", err), hint}
}

// thisProcess is who runs the command, as the control socket would name it.
func thisProcess() audit.Actor {
	uid := uint32(os.Getuid())
	a := audit.Actor{Kind: audit.ByCommand, UID: &uid, PID: os.Getpid()}
	if u, err := user.Current(); err == nil {
		a.User = u.Username
	}
	return a
}
