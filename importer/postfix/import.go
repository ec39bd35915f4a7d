package postfix

import (
	"errors"
	"fmt"
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
