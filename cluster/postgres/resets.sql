-- Version 5: resets, after the database has lost writes.
SET LOCAL synchronous_commit = on;
SET LOCAL client_min_messages = warning;

UPDATE mta_cluster.version SET version = 5;

-- reset is the newest one, in seconds since 1970 or more; 0: there was none.
ALTER TABLE mta_cluster.version ADD COLUMN reset bigint NOT NULL DEFAULT 0;

-- reset begins anew what nodes have in the database, whatever they know of it, and returns its number. Shards get an
-- owner that never beats, so that nobody takes them for a term; their epochs are later than any that was lost, since
-- take-overs are rarer than one a second. In the new era all nodes exchange all that they know. Keys, warm-ups and
-- members stay as they are.
CREATE FUNCTION mta_cluster.reset(by int, known bigint) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
BEGIN
	PERFORM mta_cluster.durable();
	UPDATE mta_cluster.version v
		SET reset = greatest(v.reset + 1, known + 1, extract(epoch FROM clock_timestamp())::bigint)
		RETURNING v.reset INTO STRICT n;
	PERFORM s.shard FROM mta_cluster.shards s ORDER BY s.shard FOR UPDATE;
	UPDATE mta_cluster.shards s SET node = by, incarnation = 0, boot = 0, epoch = greatest(s.epoch + 1, n),
		beat = s.beat + 1;
	DELETE FROM mta_cluster.books;
	UPDATE mta_cluster.sequence SET era = gen_random_uuid()::text;
	RETURN to_jsonb(n);
END $$;
