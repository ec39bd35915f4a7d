package api

import (
	"context"
)

// StoreFormat is the format of one of the relay's stores.
type StoreFormat struct {
	Store  string `json:"store"`  // its name
	Path   string `json:"path"`   // its folder or file
	Format int    `json:"format"` // the format that is written
	Reads  int    `json:"reads"`  // the oldest format that the relay reads
	Writes int    `json:"writes"` // the format that is written once the upgrade is finished
	// the version that has stated the format and can be put back; absent when none can
	BackTo string `json:"back_to,omitempty"`
}

// Upgrade is how far an upgrade of the relay is.
type Upgrade struct {
	Version string        `json:"version"`                  // of the relay
	Mode    string        `json:"mode" words:"manual,auto"` // the setting upgrade
	Pending bool          `json:"pending"`                  // the upgrade is not finished: the version before can be put back
	Stores  []StoreFormat `json:"stores"`                   // all that have a format
}

// FinishUpgrade asks for the newest formats from now on.
type FinishUpgrade struct {
	Intent
}

// UpgradeFinished is the stores whose format has changed, as they were before.
type UpgradeFinished struct {
	Effect
	Stores []StoreFormat `json:"stores"` // the stores whose format has changed, as they were before
}

// Upgrades is what the server asks of the relay about upgrades.
type Upgrades interface {
	Upgrade(context.Context) (Upgrade, error)
	FinishUpgrade(context.Context, FinishUpgrade) (UpgradeFinished, error)
}

// Upgrade gives how far an upgrade of the relay is.
func (c *Client) Upgrade(ctx context.Context) (Upgrade, error) { return opUpgrade.call(ctx, c, none{}) }

// FinishUpgrade has the stores written in the newest formats.
func (c *Client) FinishUpgrade(ctx context.Context, f FinishUpgrade) (UpgradeFinished, error) {
	return opFinishUpgrade.call(ctx, c, f)
}
