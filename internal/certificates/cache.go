package certificates

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/crypto/acme/autocert"

	"example.org/mta/internal/smallfile"
)

// Cache is the folder in which an ACME keeps its account's key and the certificates. Each file begins with a line that
// has the sum of the rest, which readers of PEM pass by, earlier programs too. One that is damaged is set aside, and
// the ACME gets another from the authority.
type Cache struct {
	Dir string
	Now func() time.Time
	Log *slog.Logger
}

var _ autocert.Cache = Cache{}

const (
	sumLine = "sum %08x\n"
	sumSize = len("sum 01234567\n")
)

// Get implements autocert.Cache.
func (c Cache) Get(ctx context.Context, name string) ([]byte, error) {
	data, err := os.ReadFile(c.path(name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, autocert.ErrCacheMiss
	case err != nil:
		return nil, err
	case len(data) > sumSize && string(data[:sumSize]) == fmt.Sprintf(sumLine, smallfile.Sum(data[sumSize:])):
		return data[sumSize:], nil
	case bytes.HasPrefix(data, []byte("-----BEGIN ")): // an earlier program wrote it
		if err := c.Put(ctx, name, data); err != nil {
			c.Log.Error("a file of acme has no sum until the disk takes it", "file", c.path(name), "error", err)
		}
		return data, nil
	}
	aside, err := smallfile.SetAside(c.path(name), c.Now())
	c.Log.Error("a file of acme was damaged: the certificate authority is asked for what was in it", "file",
		c.path(name), "kept", aside)
	if err != nil {
		return nil, err
	}
	return nil, autocert.ErrCacheMiss
}

// Put implements autocert.Cache.
func (c Cache) Put(_ context.Context, name string, data []byte) error {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return err
	}
	return smallfile.Write(c.path(name), 0o600, fmt.Appendf(nil, sumLine+"%s", smallfile.Sum(data), data))
}

// Delete implements autocert.Cache.
func (c Cache) Delete(_ context.Context, name string) error {
	if err := os.Remove(c.path(name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// path keeps within the folder: part of a name may be a stranger's.
func (c Cache) path(name string) string { return filepath.Join(c.Dir, filepath.Clean("/"+name)) }
