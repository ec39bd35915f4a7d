package api

import (
	"context"
)

// StoreFormat is the format of one of the relay's stores.
type StoreFormat struct {
	Store  string `json:"store"`
	Path   string `json:"path"`
	Format int    `json:"format"` // that it is written in
	Reads  int    `json:"reads"`  // the oldest that the relay reads
	Writes int    `json:"writes"` // what it writes once the upgrade is finished
	// BackTo is the oldest version known to read the store, while the upgrade is not finished.
	BackTo string `json:"back_to,omitempty"`
}

// Upgrade is how far an upgrade of the relay is.
type Upgrade struct {
	Version string        `json:"version"`
	Mode    string        `json:"mode"`    // the setting upgrade: manual or auto
	Pending bool          `json:"pending"` // the version before can be put back
	Stores  []StoreFormat `json:"stores"`
}

// FinishUpgrade asks for the newest formats from now on.
type FinishUpgrade struct {
	Intent
}

// UpgradeFinished is the stores whose format has changed, as they were before.
type UpgradeFinished struct {
	Effect
	Stores []StoreFormat `json:"stores"`
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
