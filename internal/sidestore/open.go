package sidestore

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"example.org/mta/internal/smallfile"
)

// found is a file as it was found.
type found struct {
	path    string
	db      *bolt.DB // nil: there is none, or bbolt can't open it
	missing bool
	damage  error
	sealed  bool
	last    int // the number of its last transaction
}

// close closes the file.
func (d *found) close() error {
	if d.db == nil {
		return nil
	}
	db := d.db
	d.db = nil
	return db.Close()
}

// sound reports whether a file is there, and all in it is what was stored.
func (d *found) sound() bool { return d.db != nil && d.damage == nil && d.sealed }

// Open opens or makes a file. One that is damaged is set aside. An error means that no file can be used there, or
// that another process has it open.
func Open(c Config) (*File, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	f := &File{Config: c}
	err := f.guarded(f.open)
	if err == nil {
		return f, nil
	}
	for _, db := range f.dbs {
		err = errors.Join(err, db.Close())
	}
	hint := ""
	if errors.Is(err, bolterrors.ErrTimeout) { // of its lock
		hint = " (another process may have it open)"
	}
	return nil, fmt.Errorf("opening %s %s%s: %w", c.Name, c.Path, hint, err)
}

func (f *File) open() error {
	first, err := f.inspect(f.Path)
	if err != nil {
		return err
	}
	second := &found{missing: true}
	if f.Copy {
		if second, err = f.inspect(f.copyPath()); err != nil {
			return errors.Join(err, first.close())
		}
	}
	if first.missing && !second.missing {
		first.damage = errors.New("it is gone")
	}
	switch {
	case first.damage != nil:
		err = f.replace(first, second)
	case first.missing:
		err = f.begin()
	default:
		f.dbs = append(f.dbs, first.db)
		if !first.sealed {
			if err := f.prepare(first.db); err != nil { // a full disk, say
				f.bare.Store(true)
				f.Log.Error("a file has no sums, and no second copy, until the disk takes them", "file",
					f.Path, "error", err)
			}
		}
	}
	if err != nil || !f.Copy || f.bare.Load() { // a copy of a file without sums would get those of changes only
		return errors.Join(err, second.close())
	}
	if err := f.follow(second); err != nil { // a full disk, say
		f.Log.Error("a file has no second copy until the next start", "file", f.Path, "error", err)
	}
	return nil
}

// inspect opens a file and verifies it.
func (f *File) inspect(path string) (d *found, err error) {
	d = &found{path: path}
	if err := regular(path); errors.Is(err, fs.ErrNotExist) {
		d.missing = true
	} else if err != nil {
		return nil, err
	}
	if d.missing {
		return d, nil
	}
	if d.damage = Check(path); errors.Is(d.damage, fs.ErrPermission) {
		return nil, d.damage
	} else if d.damage != nil && !errors.Is(d.damage, ErrHead) {
		return d, nil
	}
	if d.db, err = bolt.Open(path, 0o600, options()); err != nil {
		return nil, err
	}
	err = d.db.View(func(tx *bolt.Tx) (err error) {
		d.last = tx.ID()
		sealed, damage := isSealed(tx)
		d.sealed, d.damage = sealed, cmp.Or(d.damage, damage)
		if damage != nil {
			return nil
		}
		bad, err := f.verify(tx, d.sealed, func(string, []byte, []byte) error { return nil })
		if bad > 0 {
			d.damage = cmp.Or(d.damage, fmt.Errorf("%d entries are not what was stored", bad))
		}
		return err
	})
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// prepare makes the buckets of a file that is not damaged, and the sums that it does not have.
func (f *File) prepare(db *bolt.DB) error {
	return db.Update(func(tx *bolt.Tx) error {
		if tx.Bucket(sumsBucket) != nil {
			if err := tx.DeleteBucket(sumsBucket); err != nil {
				return err
			}
		}
		all, err := tx.CreateBucket(sumsBucket)
		if err != nil {
			return err
		}
		for _, name := range f.Buckets {
			if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
				return err
			}
		}
		err = tx.ForEach(func(name []byte, entries *bolt.Bucket) error {
			if string(name) == string(sumsBucket) {
				return nil
			}
			sums, err := all.CreateBucketIfNotExists(name)
			if err != nil {
				return err
			}
			sums.FillPercent = 1 // they come in order
			return entries.ForEach(func(key, value []byte) error { return sums.Put(key, appendSum(nil, key, value)) })
		})
		if err != nil {
			return err
		}
		return all.Put(keptKey, kept(tx))
	})
}

// replace sets a damaged file aside, and puts its copy in its place, or else what is sound of both: a program without
// copies has left the copy behind, or a full disk.
func (f *File) replace(first, second *found) error {
	aside, err := f.setAside(first)
	if err != nil {
		return err
	}
	if f.damage = first.damage; second.sound() && second.last+1 >= first.last {
		f.Log.Error("a file was damaged: its second copy is in its place", "file", f.Path, "kept", aside,
			"error", first.damage)
		if err := errors.Join(first.close(), second.close(), os.Rename(second.path, f.Path)); err != nil {
			return err
		}
		*second = found{path: second.path, missing: true}
		return f.begin()
	}
	if err := f.begin(); err != nil {
		return err
	}
	n := 0
	for _, d := range []*found{second, first} {
		some, err := f.salvage(d)
		if n += some; err != nil {
			return err
		}
	}
	f.Log.Error("a file was damaged, and is begun anew with what is sound of it", "file", f.Path, "kept", aside,
		"error", first.damage, "entries", n)
	return nil
}

// begin opens or makes the file, which is not damaged.
func (f *File) begin() error {
	d, err := f.inspect(f.Path)
	if err == nil && d.missing {
		d.db, err = bolt.Open(f.Path, 0o600, options())
	} else if err == nil {
		err = d.damage
	}
	if err != nil {
		return err
	}
	if f.dbs = append(f.dbs, d.db); d.sealed {
		return nil
	}
	return f.prepare(d.db)
}

// setAside renames a file that is damaged, or keeps an empty one of a file that is gone, and leaves it open.
func (f *File) setAside(d *found) (aside string, err error) {
	if aside, err = smallfile.SetAside(d.path, f.Now()); err != nil {
		return "", fmt.Errorf("setting the damaged file aside: %w", err)
	}
	return aside, nil
}

// salvage takes over the entries of a damaged file that are sound, and closes it.
func (f *File) salvage(d *found) (n int, err error) {
	if d.db == nil {
		return 0, nil
	}
	var some []Change
	flush := func() error {
		err := apply(f.dbs[0], some)
		n, some = n+len(some), some[:0]
		return err
	}
	err = d.db.View(func(tx *bolt.Tx) error {
		_, err := f.verify(tx, d.sealed, func(bucket string, key, value []byte) error {
			if some = append(some, Change{bucket, key, value}); len(some) < step {
				return nil
			}
			return flush()
		})
		return errors.Join(err, flush())
	})
	return n, errors.Join(err, d.close())
}

// follow brings the second copy up to the file.
func (f *File) follow(second *found) error {
	last := 0
	err := f.dbs[0].View(func(tx *bolt.Tx) error { last = tx.ID(); return nil })
	if err != nil {
		return errors.Join(err, second.close())
	}
	if second.sound() && second.last == last {
		f.dbs = append(f.dbs, second.db)
		return nil
	}
	if err := second.close(); err != nil {
		return err
	}
	if second.damage != nil {
		aside, err := f.setAside(second)
		if err != nil {
			return err
		}
		f.Log.Error("the second copy of a file was damaged, and is made anew", "file", second.path, "kept", aside,
			"error", second.damage)
	}
	from, _, err := CopyOf(f.dbs[0])
	if err != nil {
		return err
	}
	defer from.Close()
	err = smallfile.Replace(f.copyPath(), 0o600, func(w io.Writer) error {
		_, err := io.Copy(w, from)
		return err
	})
	if err != nil {
		return err
	}
	db, err := bolt.Open(f.copyPath(), 0o600, options())
	if err == nil {
		f.dbs = append(f.dbs, db)
	}
	return err
}

// CopyOf returns the content of an open file as one transaction sees it, and its size in octets. It is copied beside
// the file first, under no name, since a transaction that waits for a slow reader would keep the file from growing.
func CopyOf(db *bolt.DB) (_ io.ReadCloser, size int64, err error) {
	f, err := os.CreateTemp(filepath.Dir(db.Path()), ".copy-*")
	if err != nil {
		return nil, 0, err
	}
	err = errors.Join(os.Remove(f.Name()), db.View(func(tx *bolt.Tx) (err error) {
		size, err = tx.WriteTo(f)
		return err
	}))
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, size, nil
}
