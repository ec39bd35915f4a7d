package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.org/mta/cmd/mta/manpages"
	"example.org/mta/mta/config"
)

// TestManualPagesAreComplete: each command has a page with its flags, mta.conf(5) has each setting, and the programs that
// the relay replaces have their pages.
func TestManualPagesAreComplete(t *testing.T) {
	dir := t.TempDir()
	m := manpages.Manual{
		Root: newRoot(&cli{}), Docs: os.DirFS("../../docs"), Version: "1.2.3",
		Date: time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC),
	}
	if err := m.Write(dir); err != nil {
		t.Fatal(err)
	}
	page := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
		}
		return strings.NewReplacer(`\fB`, "", `\fI`, "", `\fR`, "", `\-`, "-").Replace(string(text))
	}
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				visit(sub)
			}
		}
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
		text := page("man1/" + name + ".1")
		if !strings.Contains(text, `"Nov 2026" "mta 1.2.3"`) || !strings.Contains(text, cmd.Short) {
			t.Errorf("%s.1 is not the page of %s: %.100q", name, cmd.CommandPath(), text)
		}
		check := func(f *pflag.Flag) {
			if !f.Hidden && !strings.Contains(text, "--"+f.Name) {
				t.Errorf("%s.1 lacks --%s", name, f.Name)
			}
		}
		cmd.NonInheritedFlags().VisitAll(check)
		cmd.InheritedFlags().VisitAll(check)
	}
	visit(newRoot(&cli{}))

	conf := page("man5/mta.conf.5")
	for name, b := range config.Reference() {
		for _, s := range b.Settings {
			if !strings.Contains(conf, s.Name) {
				t.Errorf("mta.conf(5) lacks %s of block %q", s.Name, name)
			}
		}
	}
	for name, words := range map[string]string{
		"man1/sendmail.1": "-bs", "man1/mailq.1": "the whole queue", "man1/newaliases.1": "no aliases",
	} {
		text := page(name)
		if !strings.Contains(text, words) {
			t.Errorf("%s lacks %q", name, words)
		}
		if strings.Contains(text, "](") {
			t.Errorf("%s has links", name)
		}
	}
}
