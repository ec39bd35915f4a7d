package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.org/mta/cmd/mta/manpages"
	"example.org/mta/mta/config"
)

// manualPages makes the manual pages; as text, without the escapes of roff.
func manualPages(t *testing.T) map[string]string {
	t.Helper()
	m := manpages.Manual{Root: newRoot(&cli{}), Docs: os.DirFS("../../docs"), Version: "1.2.3", Date: time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)}
	pages, err := m.Pages()
	if err != nil {
		t.Fatal(err)
	}
	plain := strings.NewReplacer(`\fB`, "", `\fI`, "", `\fR`, "", `\-`, "-", `\(dq`, `"`, `\(aq`, "'", `\(ga`, "`", `\(ti`, "~", `\(ha`, "^", `\e`, `\`)
	all := make(map[string]string)
	for _, p := range pages {
		if all[p.File()] != "" {
			t.Errorf("%s is made twice", p.File())
		}
		all[p.File()] = plain.Replace(string(p.Text))
	}
	return all
}

// TestManualPagesAreComplete: each command has a page with its flags, and mta.conf(5) each setting with its
// default.
func TestManualPagesAreComplete(t *testing.T) {
	pages := manualPages(t)
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				visit(sub)
			}
		}
		file := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
		page := pages[file]
		if !strings.HasPrefix(page, `.TH "`+strings.TrimSuffix(file, ".1")+`" 1 2026-11-23 "mta 1.2.3"`) || !strings.Contains(page, "\n"+cmd.CommandPath()) {
			t.Errorf("%s is not the page of %s: %.100q", file, cmd.CommandPath(), page)
		}
		check := func(f *pflag.Flag) {
			if entry := regexp.MustCompile(`(?m)^\.TP\n(-. ?, )?--` + f.Name + `(\[=| |$)`); !f.Hidden && !entry.MatchString(page) {
				t.Errorf("%s lacks --%s", file, f.Name)
			}
		}
		cmd.NonInheritedFlags().VisitAll(check)
		cmd.InheritedFlags().VisitAll(check)
	}
	visit(newRoot(&cli{}))

	conf := pages["mta.conf.5"]
	for name, b := range config.Reference() {
		for _, s := range b.Settings {
			entry := "\n.TP\n" + s.Name + "\n"
			if s.Default != "" {
				entry = "\n.TP\n" + s.Name + " = " + s.Default + "\n"
			}
			if !strings.Contains(conf, entry) {
				t.Errorf("mta.conf(5) lacks %s of block %q: %q", s.Name, name, entry)
			}
		}
	}
	for file, words := range map[string]string{"sendmail.1": "-bs", "mailq.1": "the whole queue", "newaliases.1": "no aliases"} {
		if !strings.Contains(pages[file], words) {
			t.Errorf("%s lacks %q", file, words)
		}
	}
}

// TestManualPagesReferToEachOther: no page refers to one that does not exist.
func TestManualPagesReferToEachOther(t *testing.T) {
	pages := manualPages(t)
	for file, page := range pages {
		for _, ref := range regexp.MustCompile(`([a-z][a-z.-]+)\((\d)\)`).FindAllStringSubmatch(page, -1) {
			if name := ref[1] + "." + ref[2]; pages[name] == "" && (strings.HasPrefix(name, "mta") || name == "sendmail.1") {
				t.Errorf("%s refers to %s, which does not exist", file, name)
			}
		}
		if strings.Contains(page, "](") || strings.Contains(page, "**") && !strings.Contains(page, "****") {
			t.Errorf("Markdown remains in %s", file)
		}
	}
}
