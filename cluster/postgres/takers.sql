-- Version 9: a node that takes over a log goes on with it, so that yet another one can go on after that.
SET LOCAL synchronous_commit = on;
SET LOCAL client_min_messages = warning;

UPDATE mta_cluster.version SET version = 9;

-- zone: where the log's node is. incarnation: that node's, when the log was first taken. ended: nobody goes on with it.
ALTER TABLE mta_cluster.logs ADD COLUMN zone text NOT NULL DEFAULT '', ADD COLUMN incarnation mta_cluster.uint64,
	ADD COLUMN ended boolean NOT NULL DEFAULT false;

-- What version 8 has sealed has the session of its node.
UPDATE mta_cluster.logs SET session = session + 1 WHERE sealed_by IS NOT NULL;

-- log_opened is that of version 8, and notes the zone.
CREATE FUNCTION mta_cluster.log_opened(at int, known bigint, was bigint, next bigint, place text) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
	opened jsonb := mta_cluster.log_opened(at, known, was, next);
BEGIN
	IF (opened->>'done')::boolean THEN
		UPDATE mta_cluster.logs l SET zone = place WHERE l.log = (opened->>'log')::bigint;
	END IF;
	RETURN opened;
END $$;

-- log_appended is that of version 8, also for a log that was taken: it has a session of the node that did.
CREATE OR REPLACE FUNCTION mta_cluster.log_appended(call jsonb, changes bytea, data bytea) RETURNS jsonb LANGUAGE plpgsql
AS $$
DECLARE
	number bigint := (call->>'entry')::bigint;
	mine   bigint := (call->>'session')::bigint;
	sum    bytea := decode(call->>'hash', 'base64');
	l      mta_cluster.logs;
BEGIN
	PERFORM mta_cluster.durable();
	SELECT * INTO l FROM mta_cluster.logs s WHERE s.log = (call->>'log')::bigint FOR UPDATE;
	IF l.session IS DISTINCT FROM mine THEN
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

-- log_dropped is that of version 8, likewise.
CREATE OR REPLACE FUNCTION mta_cluster.log_dropped(at bigint, mine bigint, first bigint, kept jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
	l mta_cluster.logs;
BEGIN
	PERFORM mta_cluster.durable();
	SELECT * INTO l FROM mta_cluster.logs s WHERE s.log = at FOR UPDATE;
	IF l.session IS DISTINCT FROM mine THEN
		RETURN mta_cluster.log_answer(l, false);
	END IF;
	DELETE FROM mta_cluster.entries e WHERE e.log = at AND e.n IN (SELECT o.n FROM mta_cluster.entries o
		WHERE o.log = at AND o.n < first AND o.n NOT IN (SELECT x::bigint FROM jsonb_array_elements_text(kept) x)
		AND EXISTS (SELECT FROM mta_cluster.entries i WHERE i.log = at AND i.n = first AND i.image)
		ORDER BY o.n LIMIT 5000);
	RETURN mta_cluster.log_answer(l, true);
END $$;

-- log_sealed is that of version 8, for nodes that know no later one: a new session ends those before.
CREATE OR REPLACE FUNCTION mta_cluster.log_sealed(at bigint, by int, seen bigint) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	l mta_cluster.logs;
BEGIN
	PERFORM mta_cluster.durable();
	SELECT * INTO l FROM mta_cluster.logs s WHERE s.log = at FOR UPDATE;
	IF l.last IS DISTINCT FROM seen OR l.sealed_by <> by THEN
		RETURN mta_cluster.log_answer(l, false);
	END IF;
	UPDATE mta_cluster.logs s SET sealed_by = by, session = s.session + 1 WHERE s.log = at RETURNING * INTO l;
	RETURN mta_cluster.log_answer(l, true);
END $$;

-- log_taken has a node go on with a log whose session and last entry are known. Of earlier sessions nothing is appended
-- any more.
CREATE FUNCTION mta_cluster.log_taken(call jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	l mta_cluster.logs;
BEGIN
	PERFORM mta_cluster.durable();
	SELECT * INTO l FROM mta_cluster.logs s WHERE s.log = (call->>'log')::bigint FOR UPDATE;
	IF l.session IS DISTINCT FROM (call->>'next')::bigint AND (l.session IS DISTINCT FROM (call->>'session')::bigint
		OR l.last <> (call->>'last')::bigint OR l.ended)
	THEN
		RETURN mta_cluster.log_answer(l, false);
	END IF;
	UPDATE mta_cluster.logs s SET sealed_by = (call->>'by')::int, session = (call->>'next')::bigint,
		beat = clock_timestamp(), ended = s.ended OR (call->>'ends')::boolean, incarnation = COALESCE(s.incarnation, NULLIF((call->>'incarnation')::numeric, 0))
		WHERE s.log = l.log RETURNING * INTO l;
	RETURN mta_cluster.log_answer(l, true);
END $$;

-- log_cleared is that of version 8, fewer at a time: a call has seconds.
CREATE OR REPLACE FUNCTION mta_cluster.log_cleared(at bigint, by int) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	cleared bigint;
BEGIN
	PERFORM mta_cluster.durable();
	DELETE FROM mta_cluster.entries e WHERE e.log = at AND e.n IN (SELECT o.n FROM mta_cluster.entries o
		WHERE o.log = at AND EXISTS (SELECT FROM mta_cluster.logs s WHERE s.log = at AND s.sealed_by = by)
		ORDER BY o.n LIMIT 100);
	GET DIAGNOSTICS cleared = ROW_COUNT;
	RETURN to_jsonb(cleared);
END $$;
