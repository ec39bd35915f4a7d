package adopting

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"example.org/mta/mta/config"
	"example.org/mta/mta/datadir"
	"example.org/mta/operator/api"
)

// onlyFiles refuses a directory in which a pipe or a device would block this relay, a link leads elsewhere, even to
// this relay's own files, or a file of the queue or the log can't be read: the queue would go on without what is in it.
// The log itself can be a link. Folders that an adoption does not use, as lost+found, may be unreadable. The maildrop
// is left out: every user may write there, and it is only listed.
func onlyFiles(ctx context.Context, cfg *config.Config) error {
	root, err := filepath.EvalSymlinks(cfg.DataDir)
	if err != nil {
		return api.Invalid(remedy(err), "%v", err)
	}
	log := cfg.Accounting.Path
	visit := func(path string, e fs.DirEntry, err error) error {
		used := inside(datadir.Queue(cfg), path) || inside(log, path)
		switch {
		case ctx.Err() != nil:
			return interrupted
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil && (used || e == nil):
			return api.Invalid(remedy(err), "%v", err)
		case err != nil, path == filepath.Join(cfg.DataDir, config.Maildrop):
			return fs.SkipDir
		case e.Type()&fs.ModeSymlink != 0 && path != log:
			if to, err := os.Readlink(path); err == nil && !strings.Contains(to, "/") { // as the log has one to its end
				return nil
			}
			if to, err := filepath.EvalSymlinks(path); err != nil || !inside(root, to) {
				return conflict("replace it with what it led to on the other machine, or remove it if nothing needs it",
					"%s is a link that leads out of the directory, or nowhere", path)
			}
		}
		if err := datadir.Foreign(path, e); err != nil {
			return conflict("", "%v", err)
		}
		switch {
		case !used || e.IsDir() || path == log:
		case e.Type()&fs.ModeSocket != 0:
			return conflict("move it away", "%s is a socket, where a relay keeps files", path)
		default:
			f, err := os.Open(path)
			if err != nil {
				return api.Invalid(remedy(err), "%v", err)
			}
			f.Close()
		}
		return nil
	}
	// The slash follows a link in place of the directory.
	if err := filepath.WalkDir(cfg.DataDir+"/", visit); err != nil {
		return err
	}
	return filepath.WalkDir(log+"/", visit)
}

// inside reports whether a path is a folder, or in it.
func inside(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}
