package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/queue/store"
)

const queueFsckHelp = `Read every octet of a queue on disk and report its contents and any damage. Nothing is
changed, and no relay needs to run; if one does, the report may be inconsistent. The
notes list problems that a start of the relay repairs by itself.

DIR is a data directory; by default that of the configuration. Exit code 1: there is
damage.`

func newQueueFsck(c *cli) *cobra.Command {
	var asJSON, messages bool
	cmd := &cobra.Command{
		Use:   "fsck [DIR]",
		Short: "check a queue on disk for damage",
		Long:  queueFsckHelp,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("want one directory, got %d", len(args))
			}
			return nil
		},
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
			return "", hinted{errors.New("data_dir depends on an environment variable that is not set"), "name the directory: mta queue fsck DIR"}
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
	out := fsckMessage{ID: m.ID.String(), File: m.File, Offset: m.Offset, Recipients: map[string]string{}, Unreadable: m.Message == nil}
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
	t := &draw.Table{Columns: []draw.Column{{Title: "ID"}, {Title: "SENDER", Shrink: true}, {Title: "RECIPIENT", Shrink: true}, {Title: "STATE"}, {Title: "FILE"}, {Title: "OFFSET", Right: true}}}
	for _, m := range messages {
		first := []string{m.ID, angled(m.Sender)}
		if m.Unreadable {
			first[1] = "?"
		}
		var names []string
		for name := range m.Recipients {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			t.Add("", append(first, angled(name), m.Recipients[name], m.File, fmt.Sprint(m.Offset))...)
			first = []string{"", ""}
		}
	}
	fmt.Fprintln(c.out)
	return t.Write(c.out, c.screen)
}
