// Package datadir is the data directory of a relay: the places and formats of its stores, the end of an upgrade, its
// secrets, and the files that were damaged and set aside.
//
// In the order of use: Open refuses a directory that another version of this program must open, or that a restore has
// left; the stores ask it for the format that they write; Run finishes an upgrade in time. Commands use Formats and
// FinishUpgrade on the directory of a relay that doesn't run.
//
// A [Backup] writes the state of a relay that runs into one stream. [StageRestore] unpacks and checks it, and
// [Staged.Restore] puts it into an empty data directory.
package datadir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"example.org/mta/bounce/inbox"
	destinations "example.org/mta/destdb"
	"example.org/mta/dispatch/rules"
	"example.org/mta/dispatch/weights"
	"example.org/mta/internal/faultlog"
	"example.org/mta/internal/format"
	"example.org/mta/internal/smallfile"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/config"
	"example.org/mta/mta/events"
	"example.org/mta/operator/api"
	"example.org/mta/operator/audit"
	"example.org/mta/operator/history"
	"example.org/mta/queue/store"
	"example.org/mta/queue/vfs"
	"example.org/mta/submission/auth"
	suppressions "example.org/mta/suppression/boltstore"
	"example.org/mta/warmup"
)

// Queue is where the queue is within the data directory.
func Queue(cfg *config.Config) string { return cfg.DataDir + "/queue" }

// Places lists the stores of a relay. Without a format are the secrets, which are random octets; the secrets and
// keys of a cluster's nodes, whose files state their formats; the maildrop, whose letters each state theirs, since
// programs of any version write them; and certificates from authorities.
func Places(cfg *config.Config) []format.Place {
	folder := func(s format.Store, path string) format.Place {
		return format.Place{Store: s, Path: path, Folder: true}
	}
	file := func(s format.Store, path string) format.Place { return format.Place{Store: s, Path: path} }
	all := []format.Place{
		{Store: store.Format, Path: Queue(cfg), Folder: true, OnDisk: func() (int, error) {
			return store.OnDisk(Queue(cfg))
		}},
		file(destinations.Format, filepath.Join(cfg.DataDir, "destdb")),
		file(warmup.Format, filepath.Join(cfg.DataDir, "warmup.db")),
		file(suppressions.Format, filepath.Join(cfg.DataDir, "suppression.db")),
		folder(audit.Format, filepath.Join(cfg.DataDir, config.AuditLog)),
		file(history.Format, filepath.Join(cfg.DataDir, "history")),
		file(rules.Format, filepath.Join(cfg.DataDir, rules.FileName)),
		file(weights.Format, filepath.Join(cfg.DataDir, weights.FileName)),
		folder(inbox.Format, filepath.Join(cfg.DataDir, "inbound")),
		file(auth.KeyUseFormat, cfg.KeysUsed()),
		file(events.CursorFormat, filepath.Join(cfg.DataDir, "streams.db")),
	}
	if cfg.Accounting.Enabled {
		all = append(all, folder(accounting.Format, cfg.Accounting.Path))
	}
	return all
}

// Formats reads in which formats the stores of a configuration are, and changes nothing. An error that is
// format.ErrRefused says why a relay of this version doesn't start with them.
func Formats(cfg *config.Config, version string) (*format.Set, error) {
	return format.Inspect(version, Places(cfg)...)
}

// FinishUpgrade has the stores of a relay that is not running written in the newest formats from its next start on.
func FinishUpgrade(cfg *config.Config, version string, now time.Time, dryRun bool) ([]format.Status, error) {
	set, err := Formats(cfg, version)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(Queue(cfg)); dryRun || errors.Is(err, fs.ErrNotExist) { // no relay has begun
		return set.Finish(now, dryRun)
	}
	lock, err := vfs.OS().Lock(filepath.Join(Queue(cfg), store.LockName))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("%s is in use by a relay that does not answer on its control socket: %w",
			cfg.DataDir, err)
	}
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	return set.Finish(now, false)
}

// Config is the configuration of a Dir, its settings apart.
type Config struct {
	Version string
	// Places lists the stores with the formats that this program knows. Nil: Places. For tests of another version.
	Places  func(*config.Config) []format.Place
	InForce func() *config.Config
	// Mixed returns which nodes of the cluster have another version, "" for none: they could not read what moves there
	// in the newest formats.
	Mixed func() string
	Now   func() time.Time
	Log   *slog.Logger
}

// Dir is the data directory of a relay that runs.
type Dir struct {
	c   Config
	set *format.Set
}

// Open makes the data directory, and refuses one that another version of this program must open.
func Open(cfg *config.Config, c Config) (*Dir, error) {
	if c.Places == nil {
		c.Places = Places
	}
	if err := NotRestoring(cfg); err != nil {
		return nil, err
	}
	if err := notAdopted(cfg.DataDir); err != nil {
		return nil, err
	}
	if err := onlyFiles(cfg.DataDir); err != nil {
		return nil, err
	}
	if cfg.Accounting.Enabled { // the other stores are in the data directory
		if err := onlyFiles(cfg.Accounting.Path); err != nil {
			return nil, err
		}
	}
	set, err := format.Inspect(c.Version, c.Places(cfg)...)
	if err != nil {
		return nil, err
	}
	// Everybody may pass through, so that users get to the announcement and the maildrop; nobody else may list it, and
	// all else in it is for the relay's user and group only.
	if err := os.MkdirAll(cfg.DataDir, 0o751); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := set.State(c.Now()); err != nil {
		return nil, err
	}
	for _, aside := range set.Aside() {
		c.Log.Error("the statement of a format was damaged, and the newest format is stated", "kept", aside)
	}
	for _, err := range set.Later() {
		c.Log.Error("the statement of a format stays as it was until the next start", "error", err)
	}
	if pending := set.Pending(); pending != "" {
		c.Log.Info("the upgrade is not finished: the version before can be put back until 'mta upgrade finish'",
			"formats before", pending)
	}
	return &Dir{c, set}, nil
}

// onlyFiles refuses pipes and devices in a directory of the relay's: opening one would block the start, or never end;
// and a folder in place of a journal segment, which the queue would pass over. The maildrop is left out, since every
// user may write there, and it checks each file itself. The slash at the end follows a symbolic link in place of the
// directory.
func onlyFiles(dir string) error {
	return filepath.WalkDir(dir+"/", func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil: // the part that needs the folder reports it
			return fs.SkipDir
		case path == filepath.Join(dir, config.Maildrop):
			return fs.SkipDir
		}
		return Foreign(path, d)
	})
}

// Foreign refuses an entry of a data directory that is neither a file nor a folder where that is expected.
func Foreign(path string, d fs.DirEntry) error {
	switch {
	case d.Type()&(fs.ModeNamedPipe|fs.ModeDevice|fs.ModeIrregular) != 0:
		return fmt.Errorf(
			"%s is a pipe or a device, where the relay keeps files: move it away, and put the file back from a "+
				"backup if there was one: %w", path, format.ErrRefused)
	case d.IsDir() && filepath.Ext(path) == store.SegmentSuffix:
		return fmt.Errorf("%s is a folder, where the queue keeps a file: move it away, and the queue goes on "+
			"without what was in the file: %w", path, format.ErrRefused)
	}
	return nil
}

// Formats are those that the stores are written in.
func (d *Dir) Formats() *format.Set { return d.set }

// Number returns the format to write a store in, for that store to ask.
func (d *Dir) Number(s format.Store) func() int { return d.set.Of(s.Name).Number }

// Places lists the stores of a configuration.
func (d *Dir) Places(cfg *config.Config) []format.Place { return d.c.Places(cfg) }

// Secret is a random secret in the data directory. loss is what its loss means.
func (d *Dir) Secret(name, loss string) smallfile.Secret {
	return smallfile.Secret{Path: filepath.Join(d.c.InForce().DataDir, name), Loss: loss, Now: d.c.Now, Log: d.c.Log}
}

// upgradeAfter is how long a relay runs before it finishes an upgrade by itself, with upgrade = "auto".
const upgradeAfter = 24 * time.Hour

// Run finishes the upgrade once this version has run for a day, where the configuration wants that.
func (d *Dir) Run(ctx context.Context) {
	day := time.NewTimer(upgradeAfter)
	defer day.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-day.C:
		}
		day.Reset(time.Hour) // the setting can change, and a full disk be cleared
		if d.c.InForce().Upgrade != config.UpgradeAuto {
			continue
		}
		done, err := d.finish(false)
		for _, s := range done {
			d.c.Log.Info("the upgrade of a store is finished", "store", s.Store, "format", s.Writes, "was", s.Format)
		}
		if err != nil {
			d.c.Log.Error("the upgrade can't be finished; it is tried again in an hour", "error", err)
		}
	}
}

// Restoring is the folder in the data directory where a backup is unpacked. While it is there, no relay starts.
const Restoring = ".restoring"

// NotRestoring refuses a data directory that a restore has not done with.
func NotRestoring(cfg *config.Config) error {
	path := filepath.Join(cfg.DataDir, Restoring)
	_, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("looking for an interrupted restore: %w", err)
	}
	return fmt.Errorf(
		"a restore is under way, or was interrupted and has left %s: when none is, move %s away and restore again",
		path, cfg.DataDir)
}

// Aside returns which damaged files were set aside.
func Aside(cfg *config.Config, places []format.Place) (names []string, err error) {
	dirs := []string{cfg.DataDir, cfg.ACME.Path}
	for _, p := range places {
		dirs = append(dirs, filepath.Dir(p.StatementPath()))
	}
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		some, err := smallfile.Aside(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return names, err
		}
		names = append(names, some...)
	}
	return names, nil
}

// Damaged returns which files of the data directory were damaged and set aside, "" when there are none. They are an
// alarm until an operator has looked at them and moved them away, over restarts too.
func (d *Dir) Damaged() string {
	cfg := d.c.InForce()
	names, err := Aside(cfg, d.c.Places(cfg))
	switch {
	case err != nil:
		return fmt.Sprintf("data_dir can't be read: %v", err)
	case len(names) == 0:
		return ""
	}
	return fmt.Sprintf(
		"files in data_dir were damaged and set aside: %s; the log has what took their place; check the disk and its "+
			"memory, then move these files away", faultlog.Few(names))
}

// Upgrade implements api.Upgrades.
func (d *Dir) Upgrade(context.Context) (api.Upgrade, error) {
	return UpgradeStatus(d.c.InForce(), d.c.Version, d.set), nil
}

// FinishUpgrade implements api.Upgrades.
func (d *Dir) FinishUpgrade(_ context.Context, f api.FinishUpgrade) (api.UpgradeFinished, error) {
	done, err := d.finish(f.DryRun)
	return UpgradeDone(done, f.DryRun), err
}

func (d *Dir) finish(dryRun bool) ([]format.Status, error) {
	if d.set.Pending() != "" {
		if mixed := d.c.Mixed(); mixed != "" {
			return nil, &api.Error{Status: http.StatusConflict, Message: mixed + ", and this relay " + d.c.Version,
				Hint: "finish the upgrade when all nodes have the same version"}
		}
	}
	return d.set.Finish(d.c.Now(), dryRun)
}

// UpgradeStatus puts the formats of a relay into the control API's words.
func UpgradeStatus(cfg *config.Config, version string, set *format.Set) api.Upgrade {
	return api.Upgrade{Version: version, Mode: cfg.Upgrade, Pending: set.Pending() != "", Stores: inWords(set.Status())}
}

// UpgradeDone puts what was finished into the control API's words.
func UpgradeDone(done []format.Status, dryRun bool) api.UpgradeFinished {
	return api.UpgradeFinished{Effect: api.Effect{Count: len(done), DryRun: dryRun}, Stores: inWords(done)}
}

func inWords(all []format.Status) []api.StoreFormat {
	out := []api.StoreFormat{} // never null in JSON
	for _, s := range all {
		out = append(out, api.StoreFormat(s))
	}
	return out
}
