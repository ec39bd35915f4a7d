package controltest

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"example.org/mta/mta/backup"
	"example.org/mta/operator/api"
)

// Upgrade is that of a relay that was upgraded and whose operator has yet to finish that, or has.
func (r *Relay) Upgrade(context.Context) (api.Upgrade, error) {
	u := api.Upgrade{Version: "0.2.0", Mode: "manual", Pending: !r.Upgraded, Stores: []api.StoreFormat{
		{Store: "queue", Path: "/var/lib/mta/queue", Format: 9, Reads: 9, Writes: 10, BackTo: "0.1.0"},
		{Store: "suppression list", Path: "/var/lib/mta/suppression.db", Format: 2, Reads: 1, Writes: 2},
	}}
	if r.Upgraded {
		u.Stores[0].Format, u.Stores[0].BackTo = 10, ""
	}
	return u, nil
}

// FinishUpgrade finishes it.
func (r *Relay) FinishUpgrade(ctx context.Context, f api.FinishUpgrade) (api.UpgradeFinished, error) {
	u, err := r.Upgrade(ctx)
	done := api.UpgradeFinished{Stores: []api.StoreFormat{}}
	if u.Pending {
		done.Count, done.Stores = 1, u.Stores[:1]
	}
	if !f.DryRun {
		r.Upgraded = true
	}
	return done, err
}

// Backup is that of a relay with three messages.
func (r *Relay) Backup(_ context.Context, w io.Writer, o api.BackupOptions) error {
	pauses := backup.Part{Name: "pauses.json", Mode: 0o600, Open: func() (io.ReadCloser, int64, error) {
		return io.NopCloser(strings.NewReader("{}")), 2, nil
	}}
	return backup.Write(w, backup.Manifest{Version: "0.2.0", Hostname: "relay.example", At: r.Now.Add(-time.Second), Messages: 3, Recipients: 4, Secrets: o.Secrets, Log: o.Log}, slices.Values([]backup.Part{pauses}))
}
