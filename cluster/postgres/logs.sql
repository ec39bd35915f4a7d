-- Version 8: logs, by which the queue of a node outlives its machine. What the functions promise is what spool.Engine
-- says.
SET LOCAL synchronous_commit = on;
SET LOCAL client_min_messages = warning;

UPDATE mta_cluster.version SET version = 8;

-- A row is written with each entry. A node has one log at most that is not sealed.
CREATE TABLE mta_cluster.logs (
	log       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	node      int NOT NULL CHECK (node BETWEEN 1 AND 1023),
	session   bigint NOT NULL CHECK (session > 0), -- of the process that may append
	last      bigint NOT NULL DEFAULT 0 CHECK (last >= 0),
	beat      timestamptz NOT NULL, -- when the last entry came
	sealed_by int CHECK (sealed_by BETWEEN 1 AND 1023)
) WITH (fillfactor = 25);
CREATE UNIQUE INDEX logs_open ON mta_cluster.logs (node) WHERE sealed_by IS NULL;

-- Nodes compress by themselves. No foreign key: all that write hold the lock of the log's row.
CREATE TABLE mta_cluster.entries (
	log     bigint NOT NULL,
	n       bigint NOT NULL CHECK (n > 0),
	session bigint NOT NULL,
	hash    bytea NOT NULL CHECK (octet_length(hash) = 32),
	image   boolean NOT NULL, -- whoever reads begins with the newest one
	changes bytea NOT NULL,
	data    bytea NOT NULL,
	PRIMARY KEY (log, n)
);
ALTER TABLE mta_cluster.entries ALTER changes SET STORAGE EXTERNAL, ALTER data SET STORAGE EXTERNAL;
CREATE INDEX entries_image ON mta_cluster.entries (log, n) WHERE image;

-- log_answer is how far a log is, if anything was done or not.
CREATE FUNCTION mta_cluster.log_answer(l mta_cluster.logs, done boolean) RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_build_object('done', done, 'session', COALESCE((l).session, 0), 'last', COALESCE((l).last, 0),
		'sealed', COALESCE((l).sealed_by, 0))
$$;

-- log_opened begins a session of a node's log, unless that is not the one that the caller knows: another directory has
-- written to it, or the database has lost the caller's. The commit waits for the standby, and so all that is in the log
-- counts.
CREATE FUNCTION mta_cluster.log_opened(at int, known bigint, was bigint, next bigint) RETURNS jsonb LANGUAGE plpgsql
AS $$
DECLARE
	l  mta_cluster.logs;
	ok boolean;
BEGIN
	PERFORM mta_cluster.durable();
	SELECT * INTO l FROM mta_cluster.logs s WHERE s.node = at AND s.sealed_by IS NULL FOR UPDATE;
	IF FOUND THEN
		ok := l.session = next OR l.log = known AND l.session = was;
		IF ok THEN
			UPDATE mta_cluster.logs s SET session = next, beat = clock_timestamp() WHERE s.log = l.log RETURNING * INTO l;
		END IF;
	ELSIF known > 0 THEN
		SELECT * INTO l FROM mta_cluster.logs s WHERE s.log = known;
		ok := false;
	ELSE
		INSERT INTO mta_cluster.logs (node, session, beat) VALUES (at, next, clock_timestamp()) RETURNING * INTO l;
		ok := true;
	END IF;
	RETURN mta_cluster.log_answer(l, ok) || jsonb_build_object('log', COALESCE(l.log, known));
END $$;

-- log_appended appends an entry, if it is the next one and the session the newest. One that is there as the last is
-- committed again: its commit may have been acknowledged to nobody, and then the standby may not have it.
CREATE FUNCTION mta_cluster.log_appended(call jsonb, changes bytea, data bytea) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	number bigint := (call->>'entry')::bigint;
	mine   bigint := (call->>'session')::bigint;
	sum    bytea := decode(call->>'hash', 'base64');
	l      mta_cluster.logs;
BEGIN
	PERFORM mta_cluster.durable();
	SELECT * INTO l FROM mta_cluster.logs s WHERE s.log = (call->>'log')::bigint FOR UPDATE;
	IF l.session IS DISTINCT FROM mine OR l.sealed_by IS NOT NULL THEN
		RETURN mta_cluster.log_answer(l, false);
	ELSIF l.last = number - 1 THEN
		INSERT INTO mta_cluster.entries
			VALUES (l.log, number, mine, sum, (call->>'image')::boolean, changes, data);
	ELSIF l.last <> number OR NOT EXISTS (SELECT FROM mta_cluster.entries e
		WHERE e.log = l.log AND e.n = number AND e.session = mine AND e.hash = sum)
	THEN
		RETURN mta_cluster.log_answer(l, false);
	END IF;
	UPDATE mta_cluster.logs s SET last = number, beat = clock_timestamp() WHERE s.log = l.log RETURNING * INTO l;
	RETURN mta_cluster.log_answer(l, true);
END $$;

-- log_read gives entries in order from one on, 0: from the newest that begins with an image; so many octets of changes
-- at a time, or those of one entry.
CREATE FUNCTION mta_cluster.log_read(at bigint, first bigint, octets bigint) RETURNS jsonb LANGUAGE sql AS $$
	SELECT COALESCE(jsonb_agg(jsonb_build_object('entry', e.n, 'image', e.image,
		'changes', encode(e.changes, 'base64')) ORDER BY e.n), '[]')
	FROM (SELECT k.*, sum(octet_length(k.changes)) OVER (ORDER BY k.n) - octet_length(k.changes) AS before
		FROM (SELECT o.n, o.image, o.changes FROM mta_cluster.entries o WHERE o.log = at AND o.n >= CASE WHEN first > 0 THEN first ELSE
			COALESCE((SELECT max(i.n) FROM mta_cluster.entries i WHERE i.log = at AND i.image), 0) END
			ORDER BY o.n LIMIT 1000) k) e
	WHERE e.before < octets
$$;

-- log_dropped deletes entries before one that begins with an image, some at a time: appends wait for the lock. The next
-- call goes on.
CREATE FUNCTION mta_cluster.log_dropped(at bigint, mine bigint, first bigint, kept jsonb) RETURNS jsonb LANGUAGE plpgsql
AS $$
DECLARE
	l mta_cluster.logs;
BEGIN
	PERFORM mta_cluster.durable();
	SELECT * INTO l FROM mta_cluster.logs s WHERE s.log = at FOR UPDATE;
	IF l.session IS DISTINCT FROM mine OR l.sealed_by IS NOT NULL THEN
		RETURN mta_cluster.log_answer(l, false);
	END IF;
	DELETE FROM mta_cluster.entries e WHERE e.log = at AND e.n IN (SELECT o.n FROM mta_cluster.entries o
		WHERE o.log = at AND o.n < first AND o.n NOT IN (SELECT x::bigint FROM jsonb_array_elements_text(kept) x)
		AND EXISTS (SELECT FROM mta_cluster.entries i WHERE i.log = at AND i.n = first AND i.image)
		ORDER BY o.n LIMIT 5000);
	RETURN mta_cluster.log_answer(l, true);
END $$;

-- log_sealed ends a log whose last entry is known, once and for all.
CREATE FUNCTION mta_cluster.log_sealed(at bigint, by int, seen bigint) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	l mta_cluster.logs;
BEGIN
	PERFORM mta_cluster.durable();
	SELECT * INTO l FROM mta_cluster.logs s WHERE s.log = at FOR UPDATE;
	IF l.last IS DISTINCT FROM seen OR l.sealed_by <> by THEN
		RETURN mta_cluster.log_answer(l, false);
	END IF;
	UPDATE mta_cluster.logs s SET sealed_by = by WHERE s.log = at RETURNING * INTO l;
	RETURN mta_cluster.log_answer(l, true);
END $$;

-- log_cleared deletes entries of a log that a node has sealed, some at a time, and returns how many.
CREATE FUNCTION mta_cluster.log_cleared(at bigint, by int) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	cleared bigint;
BEGIN
	PERFORM mta_cluster.durable();
	DELETE FROM mta_cluster.entries e WHERE e.log = at AND e.n IN (SELECT o.n FROM mta_cluster.entries o
		WHERE o.log = at AND EXISTS (SELECT FROM mta_cluster.logs s WHERE s.log = at AND s.sealed_by = by)
		ORDER BY o.n LIMIT 1000);
	GET DIAGNOSTICS cleared = ROW_COUNT;
	RETURN to_jsonb(cleared);
END $$;
