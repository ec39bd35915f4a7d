package mta

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"example.org/mta/internal/format"
	"example.org/mta/internal/sealed"
	"example.org/mta/internal/secretfile"
	"example.org/mta/mta/config"
)

// secret is a secret of the relay's own in the data directory.
func (r *Relay) secret(cfg *config.Config, name, loss string) secretfile.Own {
	return secretfile.Own{Path: filepath.Join(cfg.DataDir, name), Loss: loss, Now: r.now, Log: r.log}
}

// aside returns which damaged files were set aside.
func aside(cfg *config.Config, places []format.Place) (names []string, err error) {
	dirs := []string{cfg.DataDir, cfg.ACME.Path}
	for _, p := range places {
		dirs = append(dirs, filepath.Dir(p.StatementPath()))
	}
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		some, err := sealed.Aside(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return names, err
		}
		names = append(names, some...)
	}
	return names, nil
}

// asideWarnings are those of damaged files that were set aside.
func asideWarnings(cfg *config.Config) (out []string) {
	names, _ := aside(cfg, places(cfg)) // who may not read the folder checks a draft
	for _, name := range names {
		out = append(out, name+": it was damaged, and the relay has set it aside: check the disk and its memory, then move the file away")
	}
	return out
}

// damaged returns which files of the data directory were damaged and set aside, "" when there are none. They are an
// alarm until an operator has looked at them and moved them away, over restarts too.
func (r *Relay) damaged() string {
	cfg := r.policy.Load().Config
	names, err := aside(cfg, r.opts.places(cfg))
	switch {
	case err != nil:
		return fmt.Sprintf("data_dir can't be read: %v", err)
	case len(names) == 0:
		return ""
	}
	return fmt.Sprintf("files in data_dir were damaged and set aside: %s; the log has what took their place; check the disk and its memory, then move these files away", few(names))
}
