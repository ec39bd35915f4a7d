-- Version 3: warm-ups that all nodes share. What the functions promise is what warmup.Store does.
SET LOCAL synchronous_commit = on;
SET LOCAL client_min_messages = warning;

UPDATE mta_cluster.version SET version = 3;

-- Each row is written twice for each round of a node that sends from its address. Times are in milliseconds.
CREATE TABLE mta_cluster.warmups (
	name    bytea PRIMARY KEY CHECK (octet_length(name) <= 256),
	version bigint NOT NULL DEFAULT 0, -- 0: nothing has been written
	fence   bigint NOT NULL DEFAULT 0, -- of the newest lock
	owner   text NOT NULL DEFAULT '',  -- of the lock, '': there is none
	expires bigint NOT NULL DEFAULT 0, -- when it ends by itself
	seen    bigint NOT NULL DEFAULT 0, -- the time that was given with the newest lock
	value   bytea CHECK (octet_length(value) <= 131072)
) WITH (fillfactor = 50);

-- How far the time of warm-ups is ahead of the server's clock: a server that is promoted may have an earlier time.
CREATE TABLE mta_cluster.warmup_clock (ahead bigint NOT NULL);
INSERT INTO mta_cluster.warmup_clock VALUES (0);

-- warmup_time is that time, which goes on from the latest that was given.
CREATE FUNCTION mta_cluster.warmup_time(latest bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	wall   bigint := extract(epoch FROM clock_timestamp()) * 1000;
	moment bigint;
BEGIN
	SELECT wall + c.ahead INTO STRICT moment FROM mta_cluster.warmup_clock c;
	IF latest > moment THEN
		UPDATE mta_cluster.warmup_clock c SET ahead = greatest(c.ahead, latest - wall);
	END IF;
	RETURN greatest(moment, latest);
END $$;

-- warmups_claimed locks what nobody else has, and answers the rest as busy: it waits for no lock. What is new when there
-- are 10,000 is answered as full; what no node has asked for in 90 days makes room. A commit waits for the
-- standby, and so what was read counts, also what an earlier commit with an unknown outcome has left.
CREATE FUNCTION mta_cluster.warmups_claimed(call jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	me     text := call->>'owner';
	names  bytea[] := ARRAY(SELECT decode(k->>'name', 'base64') FROM jsonb_array_elements(call->'keys') k);
	fresh  bytea[];
	mine   bytea[];
	moment bigint;
	latest bigint;
BEGIN
	PERFORM mta_cluster.durable();
	fresh := ARRAY(SELECT DISTINCT n FROM unnest(names) n
		WHERE NOT EXISTS (SELECT FROM mta_cluster.warmups w WHERE w.name = n));
	IF cardinality(fresh) > 0 THEN
		DELETE FROM mta_cluster.warmups WHERE name IN (SELECT w.name FROM mta_cluster.warmups w
			WHERE w.seen < (extract(epoch FROM clock_timestamp()) - 90 * 86400) * 1000 FOR UPDATE SKIP LOCKED);
		INSERT INTO mta_cluster.warmups (name) SELECT n FROM unnest(fresh) n ORDER BY n
			LIMIT greatest(0, 10000 - (SELECT count(*) FROM mta_cluster.warmups)) ON CONFLICT DO NOTHING;
	END IF;
	SELECT greatest((call->>'seen')::bigint, max(w.seen)) INTO latest
		FROM mta_cluster.warmups w WHERE w.name = ANY (names);
	moment := mta_cluster.warmup_time(latest);
	SELECT array_agg(f.name), max(f.seen) INTO mine, latest FROM (
		SELECT w.name, w.seen FROM mta_cluster.warmups w
		WHERE w.name = ANY (names) AND (w.owner IN ('', me) OR w.expires <= moment)
		ORDER BY w.name FOR UPDATE SKIP LOCKED) f;
	moment := mta_cluster.warmup_time(greatest(moment, latest));
	UPDATE mta_cluster.warmups w SET fence = w.fence + 1, owner = me, expires = moment + (call->>'ttl')::bigint,
		seen = moment WHERE w.name = ANY (mine);
	RETURN jsonb_build_object('now', moment, 'rows', (
		SELECT COALESCE(jsonb_agg(CASE WHEN w.name IS NULL THEN '{"full": true}'
			WHEN m IS NULL THEN '{"busy": true}' ELSE jsonb_build_object(
			'fence', w.fence, 'version', w.version,
			'value', CASE WHEN w.version <> k.have THEN encode(w.value, 'base64') END) END ORDER BY k.n), '[]')
		FROM ROWS FROM (jsonb_to_recordset(call->'keys') AS (name text, have bigint)) WITH ORDINALITY AS k (name, have, n)
			LEFT JOIN mta_cluster.warmups w ON w.name = decode(k.name, 'base64') LEFT JOIN unnest(mine) m ON m = w.name));
END $$;

-- warmups_written carries out each change that has the newest lock and version. One that was carried out before is
-- written again: it may have been acknowledged to nobody, and then the standby may not have it.
CREATE FUNCTION mta_cluster.warmups_written(changes jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	result jsonb;
BEGIN
	PERFORM mta_cluster.durable();
	PERFORM w.name FROM mta_cluster.warmups w
		WHERE w.name IN (SELECT decode(c->>'name', 'base64') FROM jsonb_array_elements(changes) c)
		ORDER BY w.name FOR UPDATE;
	WITH c AS MATERIALIZED (
		SELECT decode(p.name, 'base64') AS name, p.fence, p.version, decode(p.value, 'base64') AS value, p.release, p.n
		FROM ROWS FROM (jsonb_to_recordset(changes) AS (name text, fence bigint, version bigint, value text,
			release boolean)) WITH ORDINALITY AS p (name, fence, version, value, release, n)),
	done AS (
		UPDATE mta_cluster.warmups w SET version = CASE WHEN c.value IS NULL THEN w.version ELSE c.version + 1 END,
			value = COALESCE(c.value, w.value), owner = CASE WHEN c.release THEN '' ELSE w.owner END
		FROM c WHERE w.name = c.name AND w.fence = c.fence AND (c.value IS NULL OR w.version = c.version
			OR w.version = c.version + 1 AND w.value = c.value)
		RETURNING c.n)
	SELECT COALESCE(jsonb_agg(d.n IS NOT NULL ORDER BY c.n), '[]') INTO result FROM c LEFT JOIN done d ON d.n = c.n;
	RETURN result;
END $$;
