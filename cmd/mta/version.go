package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// version is set by the linker (see Makefile).
var version = ""

// build describes this binary. Commit and Date are empty when Go did not see the repository.
type build struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Date    string `json:"date,omitempty"` // of the commit, RFC 3339
	Changed bool   `json:"changed,omitempty"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

// thisBuild returns what the linker and Go recorded in this binary.
func thisBuild() build {
	b := build{Version: version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.fill(info)
	}
	if b.Version == "" {
		b.Version = "unknown"
	}
	return b
}

// fill adds what Go recorded. The linker's version has precedence.
func (b *build) fill(info *debug.BuildInfo) {
	if b.Version == "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Date = s.Value
		case "vcs.modified":
			b.Changed = s.Value == "true"
		}
	}
}

// String is the line that 'mta version' prints.
func (b build) String() string {
	parts := []string{}
	if b.Commit != "" {
		commit := "commit " + b.Commit[:min(12, len(b.Commit))]
		if b.Date != "" {
			commit += " of " + b.Date
		}
		if b.Changed {
			commit += " with uncommitted changes"
		}
		parts = append(parts, commit)
	}
	parts = append(parts, b.Go, b.OS+"/"+b.Arch)
	return fmt.Sprintf("mta %s (%s)", b.Version, strings.Join(parts, ", "))
}

func newVersion(c *cli) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "print the version",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return writeJSON(c.out, thisBuild())
			}
			_, err := fmt.Fprintln(c.out, thisBuild())
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
