"""The commit of a group in PostgreSQL: one call of a function, so one round trip and one flush.

All hosts take locks in the same order (tasks by id, reservations by key, webhooks by id), so that two groups may wait
for each other but never deadlock.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from roost.engine.store_types import Append, Refusal, Reserved, Scope, StaleFence, Taken, TaskHead
from roost.stores.postgres_rows import encode_segment, from_text, to_text
from roost.stores.sqlite_schema import CODE_OF, place_of

COMMIT_FUNCTION = """
CREATE FUNCTION commit_group_1(
    -- for every append
    ids text[], fences bigint[], makes boolean[], raised bigint[],
    seqs bigint[], subs bigint[], counts integer[], internals integer[],
    blobs bytea[], bodies bytea[], artifact_arrays bytea[],
    -- for appends that create a task
    new_ords integer[], new_ids text[], new_scopes integer[], new_agents text[], new_contexts text[],
    new_created bigint[], new_turns boolean[], new_states smallint[], new_times bigint[], new_workers text[],
    new_fences bigint[], new_hidden boolean[], new_places smallint[],
    -- for other appends that change a head
    head_ords integer[], head_ids text[], head_states smallint[], head_times bigint[], head_workers text[],
    head_fences bigint[], head_hidden boolean[], head_places smallint[],
    -- for appends with a reservation
    key_ords integer[], keys bytea[], key_ids text[], key_seqs bigint[], key_fingerprints text[], key_ttls bigint[],
    -- for appends with a webhook
    push_ords integer[], push_tasks text[], push_ids text[], push_sealed bytea[], push_cursors bigint[],
    push_agents text[], push_workers text[],
    -- for appends whose task continues
    on_ords integer[], on_ids text[], on_workers text[]
) RETURNS TABLE (refused integer, holder_id text, holder_seq bigint, holder_fingerprint text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
-- Returns the refused appends: the place in the group, and who has the reservation if that is the reason.
DECLARE
    stale integer[];
    skip integer[]; -- refused, or done by an earlier try
    now_us bigint;
BEGIN
    SELECT array_agg(v.ord) FILTER (WHERE v.stale), array_agg(v.ord) FILTER (WHERE v.stale OR v.done)
    INTO stale, skip
    FROM (
        SELECT
            a.ord::integer AS ord,
            NOT a.makes AND t.fence IS DISTINCT FROM a.fence AND NOT d.done AS stale,
            a.makes AND t.id IS NOT NULL OR d.done AS done
        FROM unnest(ids, fences, makes, raised, seqs, subs, blobs)
            WITH ORDINALITY AS a (id, fence, makes, raised, seq, sub, entries, ord)
        LEFT JOIN (
            SELECT id, fence FROM tasks WHERE id = ANY (ids) ORDER BY id FOR UPDATE
        ) t ON t.id = a.id
        CROSS JOIN LATERAL (
            -- The append raised the fence itself, in an earlier try whose reply was lost. If another host raised it
            -- to the same value, its entries at that position differ, at least in their hashes.
            SELECT coalesce(a.raised <> a.fence AND a.raised = t.fence, false) AND EXISTS (
                SELECT FROM segments s
                WHERE s.task_id = a.id AND s.last_seq = a.seq AND s.last_sub = a.sub AND s.entries = a.entries
            ) AS done
        ) d
    ) v
    WHERE v.stale OR v.done;
    skip := coalesce(skip, '{}');
    RETURN QUERY SELECT s, NULL::text, NULL::bigint, NULL::text FROM unnest(stale) s;

    IF cardinality(key_ords) > 0 THEN
        now_us := clock_us();
        INSERT INTO reservations AS r (key, task_id, seq, fingerprint, expires)
        SELECT DISTINCT ON (k.key) k.key, k.id, k.seq, k.fingerprint, now_us + k.ttl * 1000000 + k.ord
        FROM unnest(key_ords, keys, key_ids, key_seqs, key_fingerprints, key_ttls)
            AS k (ord, key, id, seq, fingerprint, ttl)
        WHERE k.ord <> ALL (skip)
        ORDER BY k.key, k.ord
        ON CONFLICT (key) DO UPDATE
        SET task_id = EXCLUDED.task_id,
            seq = EXCLUDED.seq,
            fingerprint = EXCLUDED.fingerprint,
            expires = EXCLUDED.expires
        WHERE r.expires <= now_us;
        FOR refused, holder_id, holder_seq, holder_fingerprint IN
            SELECT k.ord, r.task_id, r.seq, r.fingerprint
            FROM unnest(key_ords, keys, key_ids) AS k (ord, key, id)
            JOIN reservations r ON r.key = k.key
            WHERE k.ord <> ALL (skip) AND r.task_id <> k.id
        LOOP
            skip := skip || refused;
            RETURN NEXT;
        END LOOP;
    END IF;

    IF cardinality(new_ords) > 0 THEN
        INSERT INTO tasks (
            id, scope, agent, context_id, created, turn, state, status_time, worker, fence, hidden, place
        )
        SELECT n.id, n.scope, n.agent, n.context_id, n.created, n.turn, n.state, n.status_time, n.worker, n.fence,
            n.hidden, n.place
        FROM unnest(
            new_ords, new_ids, new_scopes, new_agents, new_contexts, new_created, new_turns, new_states, new_times,
            new_workers, new_fences, new_hidden, new_places
        ) AS n (
            ord, id, scope, agent, context_id, created, turn, state, status_time, worker, fence, hidden, place
        )
        WHERE n.ord <> ALL (skip)
        ORDER BY n.id
        ON CONFLICT (id) DO NOTHING;
    END IF;

    IF cardinality(head_ords) > 0 THEN
        UPDATE tasks t
        SET state = h.state,
            status_time = h.status_time,
            worker = h.worker,
            fence = h.fence,
            hidden = h.hidden,
            place = h.place,
            turn = t.turn AND h.place = 0,
            cancel = t.cancel AND h.place = 0
        FROM (
            SELECT DISTINCT ON (u.id) u.*
            FROM unnest(
                head_ords, head_ids, head_states, head_times, head_workers, head_fences, head_hidden, head_places
            ) AS u (ord, id, state, status_time, worker, fence, hidden, place)
            WHERE u.ord <> ALL (skip)
            ORDER BY u.id, u.ord DESC
        ) h
        WHERE t.id = h.id;
    END IF;

    INSERT INTO segments (task_id, last_seq, last_sub, count, internal, entries, body, artifacts)
    SELECT s.id, s.seq, s.sub, s.count, s.internal, s.entries, s.body, s.artifacts
    FROM unnest(ids, seqs, subs, counts, internals, blobs, bodies, artifact_arrays)
        WITH ORDINALITY AS s (id, seq, sub, count, internal, entries, body, artifacts, ord)
    WHERE s.entries IS NOT NULL AND s.ord::integer <> ALL (skip)
    ON CONFLICT (task_id, last_seq, last_sub) DO NOTHING;

    IF cardinality(push_ords) > 0 THEN
        INSERT INTO pushes (task_id, id, sealed, cursor, agent, created, holder, due)
        SELECT p.task_id, p.id, p.sealed, p.cursor, p.agent, now_ms(), p.worker, now_ms()
        FROM unnest(push_ords, push_tasks, push_ids, push_sealed, push_cursors, push_agents, push_workers)
            AS p (ord, task_id, id, sealed, cursor, agent, worker)
        WHERE p.ord <> ALL (skip)
        ORDER BY p.task_id, p.id
        ON CONFLICT (task_id, id) DO NOTHING;
    END IF;

    IF cardinality(on_ords) > 0 THEN
        UPDATE pushes p
        SET due = now_ms(), holder = g.worker
        FROM (
            SELECT q.task_id, q.id, o.worker
            FROM unnest(on_ords, on_ids, on_workers) AS o (ord, id, worker)
            JOIN pushes q ON q.task_id = o.id
            WHERE o.ord <> ALL (skip) AND q.due IS NULL AND NOT q.paused
            ORDER BY q.task_id, q.id
            FOR UPDATE OF q
        ) g
        WHERE p.task_id = g.task_id AND p.id = g.id;
    END IF;
END $$
"""

WIDTHS = (11, 13, 8, 6, 7, 3)
"""The number of arguments in each of the groups above."""
COMMIT = f"SELECT * FROM commit_group_1({', '.join(f'${number}' for number in range(1, sum(WIDTHS) + 1))})"

Row = tuple[Any, ...]


def digest(scope: Scope) -> bytes:
    return blake2b(msgspec.msgpack.encode(scope), digest_size=16).digest()


def arguments(group: Sequence[Append], scopes: dict[Scope, int]) -> list[list[Any]]:
    """Turn the group into columns. `scopes` has the number of each scope in it."""
    kinds: list[list[Row]] = [[] for _ in WIDTHS]
    appends, made, heads, keys, pushes, going_on = kinds
    for number, append in enumerate(group, 1):
        task_id, head, new = to_text(append.task_id), append.head, append.create
        appends.append((task_id, append.fence, new is not None, head and head.fence, *_segment(append)))
        if new is not None:
            assert head is not None
            context_id, agent = to_text(new.context_id), to_text(new.scope.agent)
            row = (number, task_id, scopes[new.scope], agent, context_id, new.created, append.turn)
            made.append((*row, *_head(head)))
            if append.push is not None:
                push = append.push
                pushes.append((number, task_id, to_text(push.id), push.sealed, push.cursor, agent, head.worker))
        elif head is not None:
            heads.append((number, task_id, *_head(head)))
        if append.reserve is not None:
            reserve = append.reserve
            seq = append.entries[-1].seq if append.entries else 0
            keys.append((number, reserve.key, task_id, seq, reserve.fingerprint, reserve.ttl_s))
        if append.goes_on:
            going_on.append((number, task_id, head and head.worker))
    return [column for rows, width in zip(kinds, WIDTHS, strict=True) for column in _columns(rows, width)]


def refusals(group: Sequence[Append], rows: Sequence[Any]) -> list[Refusal | None]:
    results: list[Refusal | None] = [None] * len(group)
    for number, task_id, seq, fingerprint in rows:
        append = group[number - 1]
        results[number - 1] = (
            StaleFence(append.task_id) if task_id is None else Taken(Reserved(from_text(task_id), seq, fingerprint))
        )
    return results


def _segment(append: Append) -> Row:
    entries, snapshot = append.entries, append.snapshot
    if not entries:
        return (None,) * 7
    last = entries[-1]
    internal = sum(1 for entry in entries if entry.sub)
    body, artifacts = (None, None) if snapshot is None else (snapshot.body, snapshot.artifacts)
    return last.seq, last.sub, len(entries), internal, encode_segment(entries), body, artifacts


def _head(head: TaskHead) -> Row:
    place = place_of(head.state, head.hidden)
    return CODE_OF[head.state], head.status_time, head.worker, head.fence, head.hidden, place


def _columns(rows: list[Row], width: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]
