//go:build man

package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/sbom"
)

const billHelp = `Print the software bill of materials of a binary of mta, in CycloneDX's JSON: the modules
in it and their licences, which Go's module cache has. Its date is that of
$SOURCE_DATE_EPOCH, else now; its version that of this program.`

func newBill(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:    "sbom BINARY",
		Short:  "print the software bill of materials of a binary",
		Long:   billHelp,
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE:   func(_ *cobra.Command, args []string) error { return c.bill(args[0]) },
	}
}

func (c *cli) bill(path string) error {
	date, err := c.sourceDate()
	if err != nil {
		return err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return err
	}
	b := &sbom.Binary{Name: filepath.Base(path), Version: thisBuild().Version, SHA256: sha256.Sum256(content), Build: info}
	text, err := sbom.Make(b, date, licensesOf)
	if err == nil {
		_, err = c.out.Write(text)
	}
	return err
}

// licensesOf looks into the folder of a module.
func licensesOf(m debug.Module) ([]string, error) {
	query := m.Path
	switch {
	case m.Path == "std":
		return []string{"BSD-3-Clause"}, nil
	case m.Sum != "":
		query += "@" + m.Version
	}
	out, err := exec.Command("go", "mod", "download", "-json", query).Output()
	if m.Sum == "" { // this module
		out, err = exec.Command("go", "list", "-m", "-json", query).Output()
	}
	if err != nil {
		return nil, fmt.Errorf("go: %w", err)
	}
	var at struct{ Dir string }
	if err := json.Unmarshal(out, &at); err != nil {
		return nil, err
	}
	return sbom.Licenses(os.DirFS(at.Dir))
}
