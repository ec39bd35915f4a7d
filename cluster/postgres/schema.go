package postgres

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed schema.sql
var first string

//go:embed changes.sql
var second string

//go:embed warmups.sql
var third string

//go:embed names.sql
var fourth string

//go:embed resets.sql
var fifth string

//go:embed reserves.sql
var sixth string

//go:embed machines.sql
var seventh string

//go:embed logs.sql
var eighth string

//go:embed takers.sql
var ninth string

// scripts make each version from the one before.
var scripts = []string{first, second, third, fourth, fifth, sixth, seventh, eighth, ninth}

var version = len(scripts)

// Reserves is the version of the schema from which on it has reserves.
const Reserves = 6

// Init creates the schema, or makes an older one this version's, and returns which version there was, 0 for none, and
// which there is. The role must have the right to create schemas in the database, or own the schema, and, to see
// standbys, pg_monitor: without a synchronous standby Init creates nothing. It refuses a newer schema, too.
func (e *Engine) Init(ctx context.Context) (was, is int, err error) {
	if err = e.protected(); err != nil {
		return 0, 0, err
	}
	if was, err = e.version(ctx); err != nil || was == version {
		return was, was, err
	}
	script := fmt.Sprintf("SET LOCAL mta_cluster.replicated = %t;\n%s", e.replicated,
		strings.Join(scripts[was:], "\n"))
	if err := e.do(ctx, func(c *conn) error { return c.script(script) }); err != nil {
		return was, was, fmt.Errorf("making version %d of the schema mta_cluster: %w", version, err)
	}
	return was, version, nil
}

// version is that of the database's schema, 0 without one.
func (e *Engine) version(ctx context.Context) (there int, err error) {
	err = e.call(ctx, &there, "SELECT to_jsonb(version) FROM mta_cluster.version")
	const undefinedTable = "42P01" // of a schema that is not there, too
	if p := (*pgconn.PgError)(nil); errors.As(err, &p) && p.Code == undefinedTable {
		return 0, nil
	}
	if err == nil && there > version {
		err = fmt.Errorf("the schema mta_cluster has version %d, and this mta knows %d: install a newer mta", there,
			version)
	}
	return there, err
}
