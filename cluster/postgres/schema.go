package postgres

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed schema.sql
var schema string

// version is that of schema.sql.
const version = 1

// Init creates the schema, unless it is there. The role must have the right to create schemas in the database, and, to
// see standbys, pg_monitor: without a synchronous standby Init refuses. It refuses a newer schema, too.
func (e *Engine) Init(ctx context.Context) (created bool, err error) {
	if there, err := e.version(ctx); err != nil || there > 0 {
		return false, err
	}
	script := fmt.Sprintf("SET LOCAL mta_cluster.replicated = %t;\n%s", e.replicated, schema)
	if err := e.do(ctx, func(c *conn) error { return c.script(script) }); err != nil {
		return false, fmt.Errorf("creating the schema mta_cluster: %w", err)
	}
	return true, nil
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
