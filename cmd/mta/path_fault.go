package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
)

// pathFault is why a file or directory can't be used, in plain words, and the remedy.
type pathFault struct{ text, remedy string }

// inPlain puts the system's words for a missing, closed or wrong kind of path, wherever they are in the text of an
// error, into plain ones, and gives the remedy; "" where there is none.
func inPlain(err error) (text, remedy string) {
	text = err.Error()
	var p *fs.PathError
	if !errors.As(err, &p) {
		return text, ""
	}
	f, known := faultOf(p)
	if !known {
		return text, ""
	}
	text = strings.Replace(text, p.Error(), f.text, 1)
	if twice := p.Path + ": " + f.text; text == twice || strings.HasSuffix(text, ": "+twice) {
		text = strings.TrimSuffix(text, twice) + f.text
	}
	if !strings.HasSuffix(text, f.text) {
		return text, "" // what follows is a remedy
	}
	return text, f.remedy
}

func faultOf(p *fs.PathError) (f pathFault, known bool) {
	switch {
	case errors.Is(p, fs.ErrNotExist):
		if above := filepath.Dir(p.Path); above != p.Path && !there(above) {
			for further := filepath.Dir(above); further != above && !there(further); further = filepath.Dir(above) {
				above = further
			}
			return pathFault{fmt.Sprintf("%s does not exist: there is no directory %s", p.Path, above), "check the path, or make the directory"}, true
		}
		return pathFault{fmt.Sprintf("%s does not exist", p.Path), "check the path"}, true
	case errors.Is(p, syscall.EISDIR):
		return pathFault{p.Path + " is a directory", "give a file"}, true
	case errors.Is(p, syscall.ENOTDIR):
		at := p.Path
		for above := filepath.Dir(at); above != at && !there(at); above = filepath.Dir(at) {
			at = above
		}
		return pathFault{at + " is not a directory", "give the path of a directory"}, true
	case errors.Is(p, fs.ErrPermission):
		return pathFault{fmt.Sprintf("%s may not use %s", whoAmI(), p.Path), "run the command as root or as the relay's user, or change the rights of the path"}, true
	}
	return pathFault{}, false
}

// there reports whether something is at a path, or could be for all that we may see.
func there(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR)
}

// whoAmI names the user who runs the command.
func whoAmI() string {
	if u, err := user.LookupId(fmt.Sprint(os.Geteuid())); err == nil {
		return "the user " + u.Username
	}
	return fmt.Sprintf("the user with the id %d", os.Geteuid())
}
