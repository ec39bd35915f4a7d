package replica

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"example.org/mta/cluster/spool"
	"example.org/mta/internal/format"
	"example.org/mta/queue/store"
)

// supersede sets the queue of the directory aside, if err is that another node has its mail, and returns nil: the next
// open begins an empty one with a log of its own. Else it returns why not. What is kept of the node goes along, so that
// it joins anew.
func (c *Config) supersede(ctx context.Context, err error) error {
	taken := (*spool.Taken)(nil)
	if !errors.As(err, &taken) || taken.Is.Session < taken.Session || taken.Is.Sealed == 0 ||
		taken.Is.Sealed == c.Node {
		return err
	}
	if _, err := c.await(ctx, taken.Log, err); err != nil {
		return err
	}
	dir := filepath.Join(c.Aside, fmt.Sprintf("log-%d", taken.Log))
	c.Log.Warn("another node has the mail of this queue: it is set aside, and this relay goes on with an empty one; "+
		"'mta queue fsck' shows what is there, and nobody needs it any more", "node", taken.Is.Sealed, "dir", dir)
	return c.setAside(dir)
}

// setAside moves to a directory what the one of this relay has of its node and queue; others that were set aside before
// are removed. It can be cut off and begun again: the mark, by which a start comes here, is the last to move.
func (c *Config) setAside(dir string) error {
	mark := filepath.Join(dir, filepath.Base(c.Mark))
	old, err := os.ReadDir(c.Aside)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, err = os.Lstat(mark)
	ended := err == nil // the same log of another database
	for _, e := range old {
		if path := filepath.Join(c.Aside, e.Name()); path != dir || ended {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	for _, sub := range store.Shipped().Dirs {
		if err := c.moveFiles(filepath.Join(c.Dir, sub), filepath.Join(dir, filepath.Base(c.Dir), sub)); err != nil {
			return err
		}
	}
	for _, path := range c.Files {
		err := c.FS.Rename(path, filepath.Join(dir, filepath.Base(path)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	own, queue := filepath.Dir(c.Mark), filepath.Join(dir, filepath.Base(c.Dir))
	if err := c.sync(queue, dir, c.Aside, own); err != nil {
		return err
	}
	if err := c.FS.Rename(c.Mark, mark); err != nil {
		return err
	}
	return c.sync(dir, own)
}

// moveFiles moves the files of a folder of the queue, but the lock, which this process has, and the statement of the
// format, which was made for what comes.
func (c *Config) moveFiles(from, to string) error {
	files, err := c.FS.List(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = c.FS.MkdirAll(to)
	}
	if err != nil {
		return err
	}
	for _, f := range files {
		if f.Name == store.LockName || strings.HasPrefix(f.Name, format.FileName) {
			continue
		}
		if err := c.FS.Rename(filepath.Join(from, f.Name), filepath.Join(to, f.Name)); err != nil {
			return err
		}
	}
	return c.sync(to, from)
}

func (c *Config) sync(dirs ...string) error {
	for _, dir := range dirs {
		if err := c.FS.SyncDir(dir); err != nil {
			return err
		}
	}
	return nil
}
