package postgres

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"example.org/mta/cluster/owner"
)

// Finding is what a check found.
type Finding struct {
	Check string `json:"check"`
	OK    bool   `json:"ok"`
	Text  string `json:"text"`
}

// Limits of a check.
const (
	oldest = 14 // the version of PostgreSQL
	behind = 10 * time.Second
	slow   = time.Second
)

// Check looks whether the database is fit for a cluster. now is the clock; an error means that nothing was found out.
func (e *Engine) Check(ctx context.Context, now func() time.Time) (found []Finding, err error) {
	add := func(check string, ok bool, format string, args ...any) {
		found = append(found, Finding{check, ok, fmt.Sprintf(format, args...)})
	}
	var s struct {
		Version, Names string
		Clock          float64
	}
	if err := e.call(ctx, &s, `SELECT jsonb_build_object('version', current_setting('server_version'),
		'names', current_setting('synchronous_standby_names'),
		'clock', extract(epoch FROM clock_timestamp()))`); err != nil {
		return nil, err
	}
	off := time.Unix(0, int64(s.Clock*1e9)).Sub(now()).Round(time.Millisecond)
	add("version", true, "PostgreSQL %s (14 or newer is needed)", s.Version)
	add("clock", off.Abs() < behind, "%v from the one here", off)
	open := e.Unprotected()
	add("encryption", open == "", "%s", cmp.Or(open, "each connection is local or has sslmode=verify-full"))
	var lacks struct {
		Role    string
		Missing []string
	}
	if err := e.call(ctx, &lacks, rights); err != nil {
		return nil, err
	} else if all := lacks.Missing; len(all) > 0 {
		some := strings.Join(all[:min(2, len(all))], ", ")
		if len(all) > 2 {
			some += fmt.Sprintf(" and %d more", len(all)-2)
		}
		add("rights", false, "missing: %s: GRANT USAGE ON SCHEMA mta_cluster TO %[2]s; GRANT SELECT, INSERT, UPDATE, "+
			"DELETE ON ALL TABLES IN SCHEMA mta_cluster TO %[2]s;", some, lacks.Role)
		return found, nil
	}
	there, err := e.version(ctx)
	switch {
	case err != nil:
		add("schema", false, "%v", err)
	case there == 0:
		add("schema", false, "there is none: mta cluster init creates it")
	case there < version:
		add("schema", false, "version %d; mta cluster init makes it version %d", there, version)
	default:
		add("rights", true, "none is missing")
		add("schema", true, "version %d", there)
		e.inside(ctx, now, s.Names, add)
	}
	return found, nil
}

// rights are those that the role lacks, of a schema that is there.
const rights = `SELECT jsonb_build_object('role', quote_ident(current_user), 'missing',
	COALESCE(jsonb_agg(x.missing ORDER BY x.missing), '[]')) FROM pg_namespace n, LATERAL (
	SELECT 'USAGE on schema mta_cluster' AS missing WHERE NOT has_schema_privilege(n.oid, 'USAGE')
	UNION ALL SELECT p || ' on mta_cluster.' || t.relname
	FROM pg_class t, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) p
	WHERE t.relnamespace = n.oid AND t.relkind IN ('r', 'p') AND NOT t.relispartition
	AND NOT has_table_privilege(t.oid, p)) x WHERE n.nspname = 'mta_cluster'`

// inside checks what only the schema's functions can find out.
func (e *Engine) inside(ctx context.Context, now func() time.Time, names string,
	add func(check string, ok bool, format string, args ...any),
) {
	var s Standbys
	err := e.call(ctx, &s, "SELECT mta_cluster.standbys()")
	missing, with := s.Missing(), ""
	switch {
	case err != nil:
		add("standby", false, "%v", err)
	case missing == "":
		with = ", with the standby"
		add("standby", true, "%s; synchronous_standby_names = %q", strings.Join(s.Names, ", "), names)
	case e.replicated:
		add("standby", true, "not needed: a service replicates (--replicated)")
	default:
		add("standby", false, "%s; synchronous_standby_names = %q; if a service replicates: --replicated", missing,
			names)
	}
	began, done := now(), false
	ctx, cancel := context.WithTimeout(ctx, owner.Patience)
	defer cancel()
	if err = e.call(ctx, &done, "SELECT mta_cluster.probe()"); err != nil {
		add("commit", false, "%v", err)
		return
	}
	took := now().Sub(began)
	add("commit", took < slow, "%v%s", took.Round(10*time.Microsecond), with)
}

// Unprotected names a host to which the connection is not encrypted, or whose name is not verified; "": there is none.
func (e *Engine) Unprotected() string {
	hosts := append([]*pgconn.FallbackConfig{{Host: e.cfg.Host, TLSConfig: e.cfg.TLSConfig}}, e.cfg.Fallbacks...)
	at := slices.IndexFunc(hosts, func(h *pgconn.FallbackConfig) bool {
		ip, _ := netip.ParseAddr(h.Host)
		local := strings.HasPrefix(h.Host, "/") || h.Host == "localhost" || ip.IsLoopback()
		return !local && (h.TLSConfig == nil || h.TLSConfig.InsecureSkipVerify)
	})
	if at < 0 {
		return ""
	}
	return "to " + hosts[at].Host + " without sslmode=verify-full"
}

// protected is an error unless each connection is local or has sslmode=verify-full.
func (e *Engine) protected() error {
	if open := e.Unprotected(); open != "" {
		return fmt.Errorf("a connection %s: add that, and sslrootcert=FILE if the database has a private authority",
			open)
	}
	return nil
}
