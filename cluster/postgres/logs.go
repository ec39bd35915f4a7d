package postgres

import (
	"context"
	"fmt"

	"example.org/mta/cluster/spool"
)

// OpenLog implements spool.Engine.
func (e *Engine) OpenLog(ctx context.Context, c spool.Claim) (o spool.Opened, err error) {
	if err = e.call(ctx, &o, "SELECT mta_cluster.log_opened($1, $2, $3, $4, $5::jsonb #>> '{}')", c.Node, c.Log,
		c.Session, c.Next, c.Zone); err != nil {
		err = fmt.Errorf("the log of node %d: %w", c.Node, err)
	}
	return o, err
}

// AppendEntry implements spool.Engine.
func (e *Engine) AppendEntry(ctx context.Context, n spool.Entry) (a spool.Answer, err error) {
	call := struct {
		Log     uint64 `json:"log"`
		Session uint64 `json:"session"`
		Entry   uint64 `json:"entry"`
		Image   bool   `json:"image"`
		Hash    []byte `json:"hash"`
	}{n.Log, n.Session, n.Number, n.Image, n.Hash[:]}
	if err = e.call(ctx, &a, "SELECT mta_cluster.log_appended($1, $2, $3)", call, octets(n.Changes),
		octets(n.Data)); err != nil {
		err = fmt.Errorf("entry %d of log %d: %w", n.Number, n.Log, err)
	}
	return a, err
}

// ReadLog implements spool.Engine. It waits for no commit.
func (e *Engine) ReadLog(ctx context.Context, log, from uint64, most int) ([]spool.Head, error) {
	var got []struct {
		Entry   uint64
		Image   bool
		Changes []byte
	}
	if err := e.call(ctx, &got, "SELECT mta_cluster.log_read($1, $2, $3)", log, from, most); err != nil {
		return nil, fmt.Errorf("log %d: %w", log, err)
	}
	heads := make([]spool.Head, len(got))
	for i, h := range got {
		heads[i] = spool.Head{Number: h.Entry, Image: h.Image, Changes: h.Changes}
	}
	return heads, nil
}

// EntryData implements spool.Engine. It waits for no commit.
func (e *Engine) EntryData(ctx context.Context, log, entry uint64) (data []byte, err error) {
	if err = e.call(ctx, &data, `SELECT COALESCE((SELECT to_jsonb(encode(e.data, 'base64')) FROM mta_cluster.entries e
		WHERE e.log = $1 AND e.n = $2), 'null')`, log, entry); err != nil {
		err = fmt.Errorf("entry %d of log %d: %w", entry, log, err)
	}
	return data, err
}

// DropEntries implements spool.Engine.
func (e *Engine) DropEntries(ctx context.Context, log, session, image uint64, kept []uint64) (a spool.Answer,
	err error) {
	if err = e.call(ctx, &a, "SELECT mta_cluster.log_dropped($1, $2, $3, $4)", log, session, image,
		append([]uint64{}, kept...)); err != nil {
		err = fmt.Errorf("old entries of log %d: %w", log, err)
	}
	return a, err
}

// TakeLog implements spool.Sealer.
func (e *Engine) TakeLog(ctx context.Context, t spool.Take) (a spool.Answer, err error) {
	if err = e.call(ctx, &a, "SELECT mta_cluster.log_taken($1)", t); err != nil {
		err = fmt.Errorf("going on with log %d: %w", t.Log, err)
	}
	return a, err
}

// Logs implements spool.Sealer. It waits for no commit.
func (e *Engine) Logs(ctx context.Context) (all []spool.Status, err error) {
	if err = e.call(ctx, &all, `SELECT COALESCE(jsonb_agg(jsonb_build_object('log', l.log, 'node', l.node,
		'session', l.session, 'last', l.last, 'sealed', COALESCE(l.sealed_by, 0), 'zone', l.zone,
		'incarnation', COALESCE(l.incarnation, 0),
		'ended', l.ended OR COALESCE(l.sealed_by = l.node, false),
		'empty', NOT EXISTS (SELECT FROM mta_cluster.entries n WHERE n.log = l.log),
		'beat', extract(epoch FROM l.beat),
		'ago', extract(epoch FROM clock_timestamp() - l.beat)) ORDER BY l.log), '[]')
		FROM mta_cluster.logs l`); err != nil {
		err = fmt.Errorf("the logs of the cluster: %w", err)
	}
	return all, err
}

// ClearLog implements spool.Sealer.
func (e *Engine) ClearLog(ctx context.Context, log uint64, by uint16) (err error) {
	for n := 1; n > 0; {
		if err = e.call(ctx, &n, "SELECT mta_cluster.log_cleared($1, $2)", log, by); err != nil {
			return fmt.Errorf("the entries of log %d: %w", log, err)
		}
	}
	return nil
}
