//go:build man

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/manpages"
)

const manHelp = `Write the manual pages and the scripts for shell completion into a directory, for
packages: man1/*.1, man5/mta.conf.5, bash/mta, zsh/_mta and fish/mta.fish. The pages have
the date of $SOURCE_DATE_EPOCH (seconds since 1970), else today's.`

// forPackagers are the commands that only a program built with the tag "man" has.
func forPackagers(c *cli) []*cobra.Command {
	var docs string
	cmd := &cobra.Command{
		Use: "man DIR", Short: "write the manual pages and shell completion scripts", Long: manHelp, Hidden: true,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.man(cmd.Root(), docs, args[0]) },
	}
	cmd.Flags().StringVar(&docs, "docs", "docs", "the folder of the documentation")
	return []*cobra.Command{cmd}
}

func (c *cli) man(root *cobra.Command, docs, dir string) error {
	date, err := c.sourceDate()
	if err != nil {
		return err
	}
	m := manpages.Manual{Root: root, Docs: os.DirFS(docs), Version: thisBuild().Version, Date: date}
	if err := m.Write(dir); err != nil {
		return err
	}
	for shell, file := range map[string]string{"bash": "mta", "zsh": "_mta", "fish": "mta.fish"} {
		script, err := completionScript(root, shell)
		if err == nil {
			err = writePublic(filepath.Join(dir, shell, file), script)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sourceDate is the time of what is built, by the convention of reproducible builds.
func (c *cli) sourceDate() (time.Time, error) {
	epoch := c.env("SOURCE_DATE_EPOCH")
	if epoch == "" {
		return c.now(), nil
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(seconds, 0), nil
}

// writePublic writes a file that everybody may read, and makes its folder.
func writePublic(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}
