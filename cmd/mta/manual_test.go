package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"example.org/mta/internal/envelope"
)

const (
	manual         = "../../docs/cli.md"
	manualExamples = "testdata/examples.md"
)

// block is a piece of code in the manual.
type block struct {
	kind  string // what stands after the three back quotes
	lines []string
	file  string
	line  int // where it begins
}

// readBlocks reads the part of the manual that people write, and the examples of the other.
func readBlocks(t *testing.T) (blocks []block) {
	t.Helper()
	for _, file := range []string{manual, manualExamples} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		written, _, _ := strings.Cut(string(text), manualMark)
		blocks = append(blocks, blocksOf(file, written)...)
	}
	return blocks
}

func blocksOf(file, text string) (blocks []block) {
	var in *block
	for i, line := range strings.Split(text, "\n") {
		kind, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && in == nil:
			in = &block{kind: kind, file: file, line: i + 2}
		case fence:
			blocks = append(blocks, *in)
			in = nil
		case in != nil:
			in.lines = append(in.lines, line)
		}
	}
	return blocks
}

// TestManualExamples runs every example with a "$" and compares what it prints. Each block begins
// with the sample relay as it is.
func TestManualExamples(t *testing.T) {
	p := scriptParams(t)
	dir := t.TempDir()
	for _, b := range readBlocks(t) {
		if b.kind != "console" && b.kind != "console fails" {
			continue
		}
		file := filepath.Join(dir, fmt.Sprintf("%s-%d.txt", filepath.Base(b.file), b.line))
		if err := os.WriteFile(file, []byte(b.script(t)), 0o600); err != nil {
			t.Fatal(err)
		}
		p.Files = append(p.Files, file)
	}
	if len(p.Files) < 10 {
		t.Fatalf("only %d examples were found", len(p.Files))
	}
	testscript.Run(t, p)
}

// script makes a script of a block's commands and what they are to print.
func (b *block) script(t *testing.T) string {
	t.Helper()
	script, files := "relay\nanswers\nreceiver\n", ""
	not := ""
	if b.kind == "console fails" {
		not = "! "
	}
	for i := 0; i < len(b.lines); {
		command, ok := strings.CutPrefix(b.lines[i], "$ ")
		if !ok {
			t.Fatalf("%s:%d: an example begins with its output", b.file, b.line+i)
		}
		n, output := b.line+i, ""
		for i++; i < len(b.lines) && !strings.HasPrefix(b.lines[i], "$ "); i++ {
			output += b.lines[i] + "\n"
		}
		script += fmt.Sprintf("%sexec sh %d.sh\ncmp stdout %d.out\n", not, n, n)
		files += fmt.Sprintf("-- %d.sh --\nexec 2>&1\n%s\n-- %d.out --\n%s", n, command, n, output)
	}
	return script + files
}

// TestManualCommandLines: the examples that are not run are at least understood.
func TestManualCommandLines(t *testing.T) {
	n := 0
	for _, b := range readBlocks(t) {
		if b.kind != "sh" {
			continue
		}
		for i, line := range b.lines {
			words := strings.Fields(line)
			if len(words) == 0 || words[0] != "mta" {
				continue
			}
			n++
			cmd, args, err := newRoot(&cli{}).Find(words[1:])
			if err == nil {
				err = cmd.ParseFlags(args)
			}
			if err == nil {
				err = cmd.ValidateArgs(cmd.Flags().Args())
			}
			if err != nil {
				t.Errorf("%s:%d: %s: %v", b.file, b.line+i, line, err)
			}
		}
	}
	if n == 0 {
		t.Error("no command line was found")
	}
}

// TestHelpIsShort: each command has a short help without a full stop.
func TestHelpIsShort(t *testing.T) {
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: short help %q", cmd.CommandPath(), cmd.Short)
		}
	}
	visit(newRoot(&cli{}))
}

// TestManualHasTheStates compares the states of recipients in the manual with their table.
func TestManualHasTheStates(t *testing.T) {
	page, err := os.ReadFile(manual)
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := os.ReadFile("../../docs/accounting.md")
	if err != nil {
		t.Fatal(err)
	}
	_, metric, _ := strings.Cut(string(metrics), "- `mta_recipients_by_state{state}`: ")
	metric, _, _ = strings.Cut(metric, "\n")
	rows := 0
	for _, s := range envelope.States {
		if !strings.Contains(string(page), fmt.Sprintf("\n- `%s`: %s", s.State, s.Meaning)) {
			t.Errorf("docs/cli.md lacks the state %s: %q", s.State, s.Meaning)
		}
		if !strings.Contains(metric, fmt.Sprintf("`%s`", s.State)) {
			t.Errorf("docs/accounting.md lacks the state %s of mta_recipients_by_state", s.State)
		}
		rows++
	}
	_, list, _ := strings.Cut(string(page), fmt.Sprintf("\n- `%s`: ", envelope.States[0].State))
	list, _, _ = strings.Cut(list, "\n\n")
	if n := strings.Count(list+"\n", "\n"); n != rows {
		t.Errorf("docs/cli.md has %d states, the program %d", n, rows)
	}
}
