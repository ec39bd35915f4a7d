package mta

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"example.org/mta/bounce/inbox"
	destinations "example.org/mta/destdb/file"
	"example.org/mta/dispatch/pauses"
	"example.org/mta/internal/format"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/config"
	"example.org/mta/mta/events"
	"example.org/mta/operator/api"
	"example.org/mta/operator/audit"
	"example.org/mta/operator/history"
	"example.org/mta/queue"
	"example.org/mta/queue/vfs"
	"example.org/mta/submission/keys"
	suppressions "example.org/mta/suppression/boltstore"
	"example.org/mta/warmup"
)

// places lists the stores of a relay. Without a format are the secrets, which are random octets; the maildrop,
// which programs of any version write, and each letter says how; and what certificate authorities issue.
func places(cfg *config.Config) []format.Place {
	folder := func(s format.Store, path string) format.Place {
		return format.Place{Store: s, Path: path, Folder: true}
	}
	file := func(s format.Store, path string) format.Place { return format.Place{Store: s, Path: path} }
	all := []format.Place{
		{Store: queue.Format, Path: queueDir(cfg), Folder: true, OnDisk: func() (int, error) { return queue.OnDisk(queueDir(cfg)) }},
		file(destinations.Format, filepath.Join(cfg.DataDir, "destdb")),
		file(warmup.Format, filepath.Join(cfg.DataDir, "warmup.db")),
		file(suppressions.Format, filepath.Join(cfg.DataDir, "suppression.db")),
		folder(audit.Format, filepath.Join(cfg.DataDir, config.AuditLog)),
		file(history.Format, filepath.Join(cfg.DataDir, "history")),
		file(pauses.Format, filepath.Join(cfg.DataDir, pauses.FileName)),
		folder(inbox.Format, filepath.Join(cfg.DataDir, "inbound")),
		file(keys.UseFormat, cfg.KeysUsed()),
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
	return format.Look(version, places(cfg)...)
}

// FinishUpgrade has the stores of a relay that is not running written in the newest formats from its next start on.
func FinishUpgrade(cfg *config.Config, version string, now time.Time, dryRun bool) ([]format.Status, error) {
	set, err := Formats(cfg, version)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(queueDir(cfg)); dryRun || errors.Is(err, fs.ErrNotExist) { // no relay has begun
		return set.Finish(now, dryRun)
	}
	lock, err := vfs.OS().Lock(filepath.Join(queueDir(cfg), queue.LockName))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("%s is in use by a relay that does not answer on its control socket: %w", cfg.DataDir, err)
	}
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	return set.Finish(now, false)
}

// openFormats makes the data directory, and refuses one that another version of this program must open.
func (r *Relay) openFormats(cfg *config.Config, _ *undoer) (err error) {
	if err := notRestoring(cfg); err != nil {
		return err
	}
	if r.formats, err = format.Look(r.opts.Version, r.opts.places(cfg)...); err != nil {
		return err
	}
	if err := r.openDataDir(cfg); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if err := r.formats.State(r.now()); err != nil {
		return err
	}
	for _, aside := range r.formats.Aside() {
		r.log.Error("the statement of a format was damaged, and the newest format is stated", "kept", aside)
	}
	for _, err := range r.formats.Later() {
		r.log.Error("the statement of a format stays as it was until the next start", "error", err)
	}
	if pending := r.formats.Pending(); pending != "" {
		r.log.Info("the upgrade is not finished: the version before can be put back until 'mta upgrade finish'", "formats before", pending)
	}
	return nil
}

// numberOf returns the format to write a store in, for that store to ask.
func (r *Relay) numberOf(s format.Store) func() int { return r.formats.Of(s.Name).Number }

// upgradeAfter is how long a relay runs before it finishes an upgrade by itself, with upgrade = "auto".
const upgradeAfter = 24 * time.Hour

// finishInTime finishes the upgrade once this version has run for a day, where the configuration wants that.
func (r *Relay) finishInTime(ctx context.Context) {
	day := time.NewTimer(upgradeAfter)
	defer day.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-day.C:
		}
		day.Reset(time.Hour) // the setting can change, and a full disk be cleared
		if r.policy.Load().Config.Upgrade != config.UpgradeAuto {
			continue
		}
		done, err := r.formats.Finish(r.now(), false)
		for _, s := range done {
			r.log.Info("the upgrade of a store is finished", "store", s.Store, "format", s.Writes, "was", s.Format)
		}
		if err != nil {
			r.log.Error("the upgrade can't be finished; it is tried again in an hour", "error", err)
		}
	}
}

// Upgrade implements api.Upgrades.
func (r *Relay) Upgrade(context.Context) (api.Upgrade, error) {
	return UpgradeStatus(r.policy.Load().Config, r.opts.Version, r.formats), nil
}

// FinishUpgrade implements api.Upgrades.
func (r *Relay) FinishUpgrade(_ context.Context, f api.FinishUpgrade) (api.UpgradeFinished, error) {
	done, err := r.formats.Finish(r.now(), f.DryRun)
	return UpgradeDone(done, f.DryRun), err
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
		out = append(out, api.StoreFormat{Store: s.Store, Path: s.Path, Format: s.Format, Reads: s.Reads, Writes: s.Writes, BackTo: s.BackTo})
	}
	return out
}
