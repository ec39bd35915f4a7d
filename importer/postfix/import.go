package postfix

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"example.org/mta/importer"
)

// importing is an import on its way.
type importing struct {
	dir        string
	main       map[string]parameter
	order      []string // the names in main, as they stand in the file
	services   []*service
	transports map[string]*transport
	everything *hop // where mail goes that no table sends elsewhere
	pools      map[string][]string
	bySender   []*table
	policies   []*table
	passwords  []*password
	passwordOf map[string]*password // by the key
	asked      []*milter            // in the order of listeners
	top        *importer.Draft
	used       map[importer.Origin]bool
	entries    int // of all tables
	depth      int // of tables within one another

	faults  importer.Faults
	spoiled map[importer.Origin]bool // places with a fault from which others follow
	partial bool                     // an entry of master.cf can't be read
}

// Import reads main.cf and master.cf in a folder. Their faults are returned together, as an *importer.FaultList.
func Import(dir string) (*importer.Draft, error) {
	main, err := readFile(filepath.Join(dir, "main.cf"), maxConfig)
	if err != nil {
		return nil, err
	}
	master, err := readFile(filepath.Join(dir, "master.cf"), maxConfig)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s has no master.cf: name the folder of Postfix's configuration, such as /etc/postfix",
			dir)
	} else if err != nil {
		return nil, err
	}
	return convert(dir, main, master)
}

func convert(dir string, main, master []byte) (*importer.Draft, error) {
	im := &importing{
		dir: dir, main: make(map[string]parameter), transports: make(map[string]*transport),
		pools: make(map[string][]string), passwordOf: make(map[string]*password),
		used: make(map[importer.Origin]bool), spoiled: make(map[importer.Origin]bool),
		top: importer.New("mta.conf, imported from the configuration of a Postfix."),
	}
	for _, name := range []string{"main.cf", "master.cf"} {
		im.faults.Reads(name)
	}
	im.readMain(main)
	im.readMaster(master)
	im.whole()
	im.incoming()
	im.outgoing()
	im.leftover()
	if err := im.faults.Err(); err != nil {
		return nil, err
	}
	return im.top, nil
}

// fail notes a fault in the configuration.
func (im *importing) fail(at importer.Origin, format string, args ...any) {
	if !im.spoiled[at] {
		im.faults.Add(&importer.Fault{File: at.File, Line: at.Line, What: fmt.Sprintf(format, args...)})
	}
}

// spoil notes a fault after which the value is taken for an empty one: what that leads to is not a further fault.
func (im *importing) spoil(at importer.Origin, format string, args ...any) {
	im.fail(at, format, args...)
	im.spoiled[at] = true
}

// whole writes what concerns the relay as a whole.
func (im *importing) whole() {
	s := scope{im: im}
	if name, at, set := s.text("myhostname"); set && name != "" {
		if _, err := domainName(name); err != nil {
			im.fail(at, "myhostname: %q is not a host name: write one such as mail.example.com", importer.Short(name))
		}
		im.top.Set("hostname", name, at)
	} else {
		im.top.Comment("myhostname is not set: the relay takes the machine's name, too")
	}
	im.top.Comment("Postfix knows no providers: without the presets, its own limits apply. Delete the line to have " +
		"them.")
	im.top.Set("presets", false, importer.Origin{})
	v4, v6, at := s.protocols()
	if !v6 {
		im.top.Inner("router").Set("ipv6", false, at)
	}
	if !v4 {
		im.top.Inner("router").Set("ipv4", false, at)
	}
}

func sortedNames(m map[string]parameter) []string { return slices.Sorted(maps.Keys(m)) }

// Limits of what is read.
const (
	maxConfig  = 4 << 20  // octets of main.cf or master.cf
	maxTable   = 64 << 20 // octets of a table
	maxEntries = 200_000  // of all tables together
)

// line is a logical line: continuations are joined to it.
type line struct {
	text   string
	number int // of its first line, from 1
}

// logicalLines splits a file as Postfix does: a line that begins with white space continues the one before, and empty
// lines and comments count for nothing, not even as the end of a logical line.
func logicalLines(data []byte) (lines []line) {
	number := 0
	var text []byte // of the last of them
	end := func() {
		if len(lines) > 0 {
			lines[len(lines)-1].text = string(text)
		}
	}
	for raw := range bytes.Lines(data) {
		number++
		raw = bytes.TrimRight(raw, " \t\r\n")
		trimmed := bytes.TrimLeft(raw, " \t")
		switch {
		case len(trimmed) == 0 || trimmed[0] == '#':
		case len(trimmed) < len(raw) && len(lines) > 0:
			text = append(append(text, ' '), trimmed...)
		default:
			end()
			text = append(text[:0], trimmed...)
			lines = append(lines, line{number: number})
		}
	}
	end()
	return lines
}

// readFile reads a file of limited size.
func readFile(path string, limit int64) ([]byte, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		// opening a FIFO would wait for its writer
		return nil, fmt.Errorf("%s is not a file: write the table's text into one", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s is larger than %d MiB: import a part of it", path, limit>>20)
	}
	return data, err
}
