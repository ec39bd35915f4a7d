package mta

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"example.org/mta/internal/sealed"
	"example.org/mta/internal/secretfile"
	"example.org/mta/mta/config"
)

// secret is a secret of the relay's own in the data directory.
func (r *Relay) secret(cfg *config.Config, name, loss string) secretfile.Own {
	return secretfile.Own{Path: filepath.Join(cfg.DataDir, name), Loss: loss, Now: r.now, Log: r.log}
}

// damaged returns which files of the data directory were damaged and set aside, "" when there are none. They are an
// alarm until an operator has looked at them and moved them away, over restarts too.
func (r *Relay) damaged() string {
	cfg := r.policy.Load().Config
	dirs := []string{cfg.DataDir}
	for _, p := range r.opts.places(cfg) {
		dirs = append(dirs, filepath.Dir(p.StatementPath()))
	}
	slices.Sort(dirs)
	var names []string
	for _, dir := range slices.Compact(dirs) {
		some, err := sealed.Aside(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Sprintf("%s can't be read: %v", dir, err)
		}
		names = append(names, some...)
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("files in data_dir were damaged and set aside: %s; the log has what took their place; check the disk and its memory, then move these files away", few(names))
}
