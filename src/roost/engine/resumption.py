"""How a run continues from the journal, after an answer or after its host died."""

from __future__ import annotations

from typing import NamedTuple

from roost.engine.hosted import HostedAgent
from roost.engine.journal import pages
from roost.engine.live import LiveTask
from roost.engine.ports import JournalReader
from roost.engine.run import Run
from roost.protocol import entries as kinds
from roost.protocol.codec import decoder
from roost.protocol.entries import AttemptRecord
from roost.protocol.fold import fold, new_task
from roost.protocol.raw import raw_decoder
from roost.protocol.types import StreamResponse


class Resumption(NamedTuple):
    run: Run
    attempts: list[AttemptRecord]
    """The attempts since the last answer or, for an agent that resumes, the last step."""


async def resume(journal: JournalReader, live: LiveTask, hosted: HostedAgent, *, has_turn: bool) -> Resumption:
    """Make the run that continues where the journal ends, with the recorded messages, answers and steps."""
    records = await journal.read_internal(live.new.id)
    attempts: list[AttemptRecord] = []
    for entry in records:
        if entry.kind == kinds.ATTEMPT:
            attempts.append(decoder(AttemptRecord)(entry.data))
        elif entry.kind == kinds.MESSAGE or hosted.profile.resume:
            attempts.clear()
    return Resumption(Run.resumed(live, hosted, records, has_turn=has_turn), attempts)


async def restart_unrecorded(journal: JournalReader, run: Run) -> None:
    """Let the run replace what a dead run streamed after the barrier: read the artifacts as they were there."""
    task = new_task(run.live.new.id, run.live.new.context_id)
    touched: set[str] = set()
    async for page in pages(journal, run.live.new.id):
        fold(task, [entry for entry in page if entry.ordinal <= run.barrier])
        for entry in page:
            if entry.kind == kinds.ARTIFACT and entry.ordinal > run.barrier:
                event = raw_decoder(StreamResponse)(entry.data).artifact_update
                if event is not None:
                    touched.add(event.artifact.artifact_id)
    known = {artifact.artifact_id: artifact for artifact in task.artifacts}
    run.restart_artifacts({artifact_id: known.get(artifact_id) for artifact_id in touched})
