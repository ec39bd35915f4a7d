// Command notices prints the copyright file of the packages: the licence of this program, and the licences and
// notices of all modules that are in its binary. Run it in the module's directory.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if err := write(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
}

const header = `mta, an outbound mail relay.

Copyright 2026 The mta authors

Licensed under the Apache License, Version 2.0. On Debian systems the text is in
/usr/share/common-licenses/Apache-2.0, elsewhere in /usr/share/licenses/mta.

The program contains the modules below, each under the licence that follows its
name. The source of each is at the Go module of that name and version; so also
that of the modules under the Mozilla Public License 2.0, unchanged.
`

// module is one that is linked into the program.
type module struct {
	Path, Version, Dir string
	Main               bool
}

// legal are the names of files that have to go along with a copy.
var legal = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|copyright|patents|authors)([.-].*)?$`)

// write prints the whole file.
func write(w io.Writer) error {
	modules, err := linked()
	if err != nil {
		return err
	}
	if _, err := io.WriteString(w, header); err != nil {
		return err
	}
	if err := language(w); err != nil {
		return err
	}
	for _, m := range modules {
		fmt.Fprintf(w, "\n%s\n%s %s\n%[1]s\n", strings.Repeat("-", 76), m.Path, m.Version)
		if err := m.notices(w); err != nil {
			return err
		}
	}
	return nil
}

// language prints the licence of Go, whose runtime and library are in the program.
func language(w io.Writer) error {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env GOROOT: %w", err)
	}
	fmt.Fprintf(w, "\n%s\nGo, its runtime and standard library\n%[1]s\n", strings.Repeat("-", 76))
	return module{Path: "Go", Dir: strings.TrimSpace(string(root))}.notices(w)
}

// linked lists the modules of the program, by path.
func linked() ([]module, error) {
	cmd := exec.Command("go", "list", "-deps", "-f",
		"{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}", "./cmd/mta")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	paths := strings.Fields(string(out))
	slices.Sort(paths)
	list := exec.Command("go", append([]string{"list", "-m", "-json"}, slices.Compact(paths)...)...)
	list.Stderr = os.Stderr
	if out, err = list.Output(); err != nil {
		return nil, fmt.Errorf("go list -m: %w", err)
	}
	var all []module
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var m module
		if err := dec.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list -m: %w", err)
		}
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b module) int { return cmp.Compare(a.Path, b.Path) })
	return all, nil
}

// notices prints the legal files of a module; the text of the Apache License is left out.
func (m module) notices(w io.Writer) error {
	files, err := os.ReadDir(m.Dir)
	if err != nil {
		return err
	}
	found := false
	for _, f := range files {
		if f.IsDir() || !legal.MatchString(f.Name()) {
			continue
		}
		found = true
		text, err := os.ReadFile(filepath.Join(m.Dir, f.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "\n%s\n", strings.Trim(withoutApache(string(text)), "\n"))
	}
	if !found {
		return fmt.Errorf("%s has no licence file", m.Path)
	}
	return nil
}

// withoutApache replaces the text of the Apache License 2.0 by a reference to it. What stands after it stays: often
// that is the line with the copyright.
func withoutApache(text string) string {
	const last = "accepting any such warranty or additional liability."
	begin, end := strings.Index(text, "Apache License"), strings.Index(text, last)
	if begin < 0 || end < begin {
		return text
	}
	rest := strings.Replace(text[end+len(last):], "END OF TERMS AND CONDITIONS", "", 1)
	return strings.TrimSpace(text[:begin]) + "Apache License, Version 2.0, as above.\n" + appendix(rest)
}

// appendix gives the copyright lines of the licence's appendix, where it is filled in, or another text at its place.
func appendix(text string) string {
	if !strings.Contains(text, "APPENDIX: How to apply") {
		return text
	}
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "Copyright") && !strings.Contains(line, "[yyyy]") &&
			!strings.Contains(line, "{yyyy}") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}
