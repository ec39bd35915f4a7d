package datadir

import (
	"context"

	"example.org/mta/internal/format"
	"example.org/mta/mta/config"
	"example.org/mta/operator/api"
)

// Upgrade implements api.Upgrades.
func (d *Dir) Upgrade(context.Context) (api.Upgrade, error) {
	return UpgradeStatus(d.c.InForce(), d.c.Version, d.set), nil
}

// FinishUpgrade implements api.Upgrades.
func (d *Dir) FinishUpgrade(_ context.Context, f api.FinishUpgrade) (api.UpgradeFinished, error) {
	done, err := d.set.Finish(d.c.Now(), f.DryRun)
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
		out = append(out, api.StoreFormat(s))
	}
	return out
}
