package check

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"example.org/mta/mta/config"
	"example.org/mta/mta/datadir"
)

// folders judges, from the outside and without a trace, whether a relay could write where its
// configuration says. It says what is certain only: who looks may be another user than the relay's,
// in another folder, and may see less.
type folders struct {
	owner    int                    // the relay's user; -1: not known
	who      string                 // how that is known
	here     bool                   // we are where the relay is started, so that relative paths are its own
	readOnly func(path string) bool // the file system of path is
}

// nobodyKnown is the owner when nothing names one: no relay has run, and root starts it.
const nobodyKnown = -1

// foldersOf takes the relay's user from the queue, whose folder no one else makes; before the first start from the
// configuration, or else takes the caller for the one who starts the relay.
func foldersOf(cfg *config.Config, caller int) folders {
	f := folders{owner: nobodyKnown, who: "as whom the relay runs", readOnly: onReadOnly}
	info, err := os.Stat(datadir.Queue(cfg))
	if err == nil {
		f.here = !filepath.IsAbs(cfg.DataDir)
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			f.owner, f.who = int(stat.Uid), "to whom the queue belongs"
		}
		return f
	}
	if u, err := user.Lookup(cfg.User); cfg.User != "" && err == nil {
		if id, err := strconv.Atoi(u.Uid); err == nil {
			f.owner = id
		}
	} else if caller != 0 {
		f.owner = caller
	}
	return f
}

// userFault returns why root can't start the relay as the user of the configuration.
func userFault(name string) string {
	if _, err := user.Lookup(name); name != "" && err != nil {
		return fmt.Sprintf("the system has no user %[1]s, and root can't start the relay: make it, as with: useradd "+
			"--system %[1]s", name)
	}
	return ""
}

// onReadOnly reports whether nobody can write there, whatever the rights.
func onReadOnly(path string) bool { return errors.Is(unix.Access(path, unix.W_OK), unix.EROFS) }

// faults returns what keeps the relay from starting, or its accounting log from being written.
func (f folders) faults(cfg *config.Config) (out []string) {
	warn := func(where, fault, or string) {
		if fault != "" {
			out = append(out, fmt.Sprintf("%s: %s, or %s", where, fault, or))
		}
	}
	if fault := userFault(cfg.User); fault != "" {
		out = append(out, place("user", cfg.Origin("user"))+": "+fault)
	}
	const noStart = "the relay can't start"
	data := f.made(cfg.DataDir)
	warn(place("data_dir", cfg.Origin("data_dir")), data, noStart)
	if cfg.Log.File != "" {
		warn(place("log", cfg.Log.Origin("file")), f.logFile(cfg.Log.File), noStart)
	}
	if a := &cfg.Accounting; a.Enabled {
		if fault := f.made(a.Path); fault != data { // which by default is the same
			warn(place("accounting", a.Origin("path")), fault, noStart+", or loses the accounting records")
		}
	}
	f.keys(cfg, func(where, fault string) { warn(where, fault, noStart) })
	out = append(out, templateFaults(cfg)...)
	return out
}

// keys reports which certificates and private keys the relay could not read.
func (f folders) keys(cfg *config.Config, report func(where, fault string)) {
	for _, file := range cfg.PEMFiles() {
		report(place(file.Title, file.Origin), f.unreadable(file.Path))
	}
	for _, d := range cfg.DKIMs {
		for _, key := range d.Keys {
			report(place(fmt.Sprintf("key %q", key.Selector), key.Origin("file")), f.unreadable(key.File))
		}
	}
}

// place names a setting or block with where it stands in the file.
func place(name, origin string) string {
	if origin == "default" {
		return name + " (default)"
	}
	return name + strings.TrimPrefix(origin, name)
}

// logFile returns why the relay could not write to its log file. It makes the file, and no folder.
func (f folders) logFile(path string) string {
	if !f.known(path) {
		return ""
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		folder := filepath.Dir(path)
		if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
			return fmt.Sprintf("there is no folder %s for the log file: make it", folder)
		}
		return f.made(folder)
	case errors.Is(err, syscall.ENOTDIR):
		return f.made(filepath.Dir(path))
	case err == nil && info.IsDir():
		return path + " is a folder: name a file"
	case err == nil && info.Mode().IsRegular():
		return f.closed(path, info, 0o2)
	}
	return ""
}

// made returns why the relay could not write in a folder that it makes when it isn't there, with all
// above it.
func (f folders) made(path string) string {
	if !f.known(path) {
		return ""
	}
	info, err := os.Stat(path)
	switch above := filepath.Dir(path); {
	case err == nil && !info.IsDir():
		return path + " is not a folder: name another"
	case err == nil:
		return f.closed(path, info, 0o3)
	case above != path && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)):
		return f.made(above)
	}
	return "" // not for us to see
}

// known reports whether a path means the same to us as to the relay.
func (f folders) known(path string) bool { return f.here || filepath.IsAbs(path) }

// closed returns why the relay could not use what is there, given the rights that it takes, as of one
// class (rwx). To which groups the relay's user belongs is not asked: what any group may do, it may.
func (f folders) closed(path string, info fs.FileInfo, want fs.FileMode) string {
	if f.readOnly(path) {
		return path + " is on a file system that is mounted read-only: mount it for writing, or name another place"
	}
	if f.may(info, want) {
		return ""
	}
	return fmt.Sprintf("%s can't write to %s: let that user, or name another place", f.user(), path)
}

// may reports whether the relay's user may have these rights, as of one class (rwx), to what is
// there. Where that isn't known it is true.
func (f folders) may(info fs.FileInfo, want fs.FileMode) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || f.owner == nobodyKnown || f.owner == 0 {
		return true
	}
	mode := info.Mode().Perm()
	if int(stat.Uid) == f.owner {
		return mode>>6&want == want
	}
	return mode&want == want || mode>>3&want == want
}

// unreadable returns why the relay's user could not read a file. A file that we can't see is not judged.
func (f folders) unreadable(path string) string {
	info, err := os.Stat(path)
	if path == "" || !f.known(path) || err != nil {
		return ""
	}
	if !f.may(info, 0o4) {
		return fmt.Sprintf("%s can't read %s: let that user own it, or read it by its group", f.user(), path)
	}
	for folder, above := path, filepath.Dir(path); above != folder; folder, above = above, filepath.Dir(above) {
		if info, err := os.Stat(above); err == nil && !f.may(info, 0o1) {
			return fmt.Sprintf("%s can't pass through %s to %s: let that user (chmod o+x)", f.user(), above,
				filepath.Base(path))
		}
	}
	return ""
}

// user names the relay's user, and how it is known.
func (f folders) user() string { return userName(f.owner) + ", " + f.who + "," }

func userName(id int) string {
	if u, err := user.LookupId(strconv.Itoa(id)); err == nil {
		return u.Username
	}
	return fmt.Sprintf("user %d", id)
}
