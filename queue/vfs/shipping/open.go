package shipping

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"sort"

	"example.org/mta/queue/vfs"
)

// Open brings a directory and its log together, and ships what changes from then on. image is that of the log, by Read.
// The directory is the one that the log is of: nobody has written to either without the other.
//
// What the log has and the directory lacks is written; that may be mail that somebody was promised. What only the
// directory has, which can be the outcome of an attempt, is shipped. A file that was removed in the last entry's time
// can come back so, as after a power cut.
func Open(ctx context.Context, cfg Config, image *Image) (*FS, error) {
	fs := newFS(cfg, image)
	local, err := fs.restoreAll(ctx)
	had := image.clone() // fs has the other
	fs.start()
	if err == nil {
		err = fs.shipRest(had, local)
	}
	if err == nil {
		err = fs.sync(func() error { return nil })
	}
	if err != nil {
		fs.stop()
		<-fs.ended
		return nil, fmt.Errorf("bringing %s and its log together: %w", cfg.Dir, err)
	}
	return fs, nil
}

// Restore writes into a directory what the log has and the directory lacks. It can be repeated after an error.
func Restore(ctx context.Context, cfg Config, image *Image) error {
	if _, err := newFS(cfg, image).restoreAll(ctx); err != nil {
		return fmt.Errorf("restoring %s from its log: %w", cfg.Dir, err)
	}
	return nil
}

// restoreAll restores what the directory lacks, and returns the sizes of the files that it has then.
func (fs *FS) restoreAll(ctx context.Context) (local map[string]int64, err error) {
	if local, err = list(fs.cfg); err != nil {
		return nil, err
	}
	lacking, err := fs.lacking(ctx, local)
	if err == nil {
		err = fs.restore(ctx, lacking, local)
	}
	return local, err
}

// list lists the files that are shipped, with their sizes.
func list(cfg Config) (map[string]int64, error) {
	all := make(map[string]int64)
	for _, sub := range cfg.Names.Dirs {
		dir := filepath.Join(cfg.Dir, sub)
		if err := cfg.FS.MkdirAll(dir); err != nil {
			return nil, err
		}
		files, err := cfg.FS.List(dir)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if name := path.Join(filepath.ToSlash(sub), f.Name); !cfg.Names.Local(name) {
				all[name] = f.Size
			}
		}
	}
	return all, nil
}

// missing is a part of a file that the disk lacks.
type missing struct {
	file uint32
	part
}

// lacking finds what the log has and the directory doesn't.
func (fs *FS) lacking(ctx context.Context, local map[string]int64) (all []missing, err error) {
	for _, number := range fs.image.numbers() {
		f := fs.image.files[number]
		_, is := local[f.name]
		if !is {
			for _, p := range f.parts {
				all = append(all, missing{number, p})
			}
			continue
		}
		if all, err = fs.compare(all, number); err != nil {
			return nil, err
		}
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].entry < all[j].entry })
	return all, ctx.Err()
}

// compare adds what a file on the disk lacks. A part that is the rest of a write can't be compared.
func (fs *FS) compare(all []missing, number uint32) ([]missing, error) {
	f := fs.image.files[number]
	on, err := fs.FS.Open(fs.path(f.name))
	if err != nil {
		return nil, err
	}
	defer on.Close()
	var buf []byte
	for _, p := range f.parts {
		if p.uncut() {
			buf = slices.Grow(buf[:0], int(p.size))[:p.size]
			n, err := on.ReadAt(buf, p.at)
			if err != nil && err != io.EOF {
				return nil, err
			}
			if int64(n) == p.size && sumOf(buf) == p.sum {
				continue
			}
		}
		all = append(all, missing{number, p})
	}
	return all, nil
}

func (fs *FS) path(name string) string { return filepath.Join(fs.cfg.Dir, filepath.FromSlash(name)) }

// restore writes what the directory lacks, and notes in local what it has then.
func (fs *FS) restore(ctx context.Context, lacking []missing, local map[string]int64) error {
	open := make(map[uint32]vfs.File)
	finish := func() (err error) {
		for number, f := range open {
			err = errors.Join(err, f.Sync(), f.Close())
			delete(open, number)
		}
		return err
	}
	defer finish()
	file := func(number uint32) (vfs.File, error) {
		if f := open[number]; f != nil {
			return f, nil
		}
		if len(open) == mostOpen {
			if err := finish(); err != nil {
				return nil, err
			}
		}
		is := fs.image.files[number]
		size, there := local[is.name]
		make := fs.FS.Create
		if there {
			make = fs.FS.OpenWrite
		}
		f, err := make(fs.path(is.name))
		if err != nil {
			return nil, err
		}
		if open[number] = f; size < is.size {
			err = f.Truncate(is.size)
		}
		local[is.name] = max(size, is.size)
		return f, err
	}
	for _, number := range fs.image.numbers() {
		is := fs.image.files[number]
		if size, there := local[is.name]; !there || size < is.size {
			if _, err := file(number); err != nil {
				return err
			}
		}
	}
	var data []byte
	for i, m := range lacking {
		if i == 0 || m.entry != lacking[i-1].entry {
			var err error
			if data, err = fs.cfg.Log.Data(ctx, m.entry); err != nil {
				return err
			}
		}
		if m.from+m.size > int64(len(data)) {
			return fmt.Errorf("entry %d has %d octets, and file %q needs those to %d", m.entry, len(data),
				fs.image.files[m.file].name, m.from+m.size)
		}
		octets := data[m.from : m.from+m.size]
		if m.uncut() && sumOf(octets) != m.sum {
			return fmt.Errorf("entry %d is damaged: the checksum of what it has for file %q is wrong", m.entry,
				fs.image.files[m.file].name)
		}
		f, err := file(m.file)
		if err == nil {
			_, err = f.WriteAt(octets, m.at)
		}
		if err != nil {
			return err
		}
	}
	if err := finish(); err != nil {
		return err
	}
	for _, sub := range fs.cfg.Names.Dirs {
		if err := fs.FS.SyncDir(filepath.Join(fs.cfg.Dir, sub)); err != nil {
			return err
		}
	}
	return nil
}

// shipRest ships what only the directory has.
func (fs *FS) shipRest(image *Image, local map[string]int64) error {
	for _, name := range slices.Sorted(maps.Keys(local)) {
		size := local[name]
		fs.mu.Lock()
		number, is := image.names[name]
		if !is {
			fs.last++
			number = fs.last
			fs.numbers[name] = number
			fs.record(change{kind: opCreate, file: number, name: name}, nil)
		}
		had := &file{}
		if is {
			had = image.files[number]
		}
		if had.size != size {
			fs.record(change{kind: opSize, file: number, at: size}, nil)
		}
		fs.mu.Unlock()
		if fs.cfg.Names.Void(name) {
			continue
		}
		if err := fs.shipGaps(name, number, had.parts, size); err != nil {
			return err
		}
	}
	return nil
}

// shipGaps ships what a file has where the log has nothing, except zeros.
func (fs *FS) shipGaps(name string, number uint32, parts []part, size int64) error {
	on, err := fs.FS.Open(fs.path(name))
	if err != nil {
		return err
	}
	defer on.Close()
	buf, at := make([]byte, gap), int64(0)
	for i := 0; at < size; {
		if i < len(parts) && parts[i].at <= at {
			at = parts[i].end()
			i++
			continue
		}
		end := min(size, at+gap)
		if i < len(parts) {
			end = min(end, parts[i].at)
		}
		n, err := on.ReadAt(buf[:end-at], at)
		if err != nil && err != io.EOF {
			return err
		}
		if octets := buf[:n]; slices.ContainsFunc(octets, func(b byte) bool { return b != 0 }) {
			if err := fs.room(int64(n)); err != nil {
				return err
			}
			fs.mu.Lock()
			fs.record(change{kind: opWrite, file: number, at: at, sum: sumOf(octets)}, octets)
			fs.mu.Unlock()
		}
		at = end
	}
	return nil
}

// mostOpen is how many files are open at a time.
const mostOpen = 256

// gap is how many octets are looked at at a time.
const gap = 64 << 10
