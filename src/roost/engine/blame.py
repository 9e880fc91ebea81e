"""The deaths of hosts that are blamed on a task, and how carefully it is run again: docs/adr/0028-deaths.md."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from roost.protocol.entries import ALONE, FEW, ORDINARY, PAST, WAITS, AttemptRecord

MAX_ATTEMPTS = 3
SUSPECT_AFTER = 2
"""Deaths after which a task is run again in quarantine."""
WINDOW_S = 2.0
"""Seconds that a run stays in quarantine, unless its host died later than that before."""
MOST_DOUBLINGS = 5
"""A window has at most 64 seconds."""


class Loss(NamedTuple):
    """A worker was lost while it had the task."""

    worker: str
    tasks: int
    """The active tasks that the worker had, this one included."""
    manner: str
    """How the worker ran the task at the end."""
    company: int = 0
    """Other runs that may have killed the host while the task was tried alone."""

    @property
    def alone(self) -> bool:
        """No other task could have killed the host."""
        return (self.manner == ALONE and not self.company) or self.tasks == 1


class Suspicion:
    """The evidence against a task: the workers that were lost while it ran, since its last progress."""

    def __init__(self, losses: Iterable[Loss]) -> None:
        self.losses = [loss for loss in losses if loss.manner != WAITS]

    @classmethod
    def from_records(cls, records: Iterable[AttemptRecord], last: Loss | None) -> Suspicion:
        """Read the suspicion from the attempts on record and the loss that is not on record yet, if there is one."""
        losses: list[Loss] = []
        how: dict[str, AttemptRecord] = {}
        for record in records:
            if record.lost or not record.manner:
                losses.append(_loss(record.lost, record.tasks, how.get(record.lost)))
            how[record.worker] = record
        if last is not None:
            losses.append(_loss(last.worker, last.tasks, how[last.worker]) if last.worker in how else last)
        return cls(losses)

    def without(self, survivors: Collection[str]) -> Suspicion:
        """Drop the workers that lived on: they had only lost their lease."""
        return Suspicion(loss for loss in self.losses if loss.worker not in survivors)

    @property
    def workers(self) -> list[str]:
        return sorted({loss.worker for loss in self.losses} - {""})

    @property
    def blamed(self) -> int:
        """How many deaths are blamed on the task: those in which it ran alone."""
        return sum(loss.alone for loss in self.losses)

    @property
    def guilty(self) -> bool:
        return self.blamed > MAX_ATTEMPTS

    @property
    def suspect(self) -> bool:
        """The task is run in quarantine."""
        return len(self.losses) >= SUSPECT_AFTER

    @property
    def narrow(self) -> bool:
        """The task is one of few that may have killed a host, so it is run alone."""
        return any(loss.manner in (FEW, ALONE) for loss in self.losses)

    @property
    def tried(self) -> int:
        """How many hosts died while the task was tried alone, with company or without."""
        return sum(loss.manner == ALONE for loss in self.losses)

    @property
    def accompanied(self) -> bool:
        """A trial has told nothing, because others could have killed the host: the next one must have no company."""
        return any(loss.manner == ALONE and loss.company for loss in self.losses)

    @property
    def window_s(self) -> float:
        """Seconds in quarantine. They grow with every death after it, so that a task that kills late is found too."""
        return WINDOW_S * 2.0 ** min(self.late, MOST_DOUBLINGS)

    @property
    def late(self) -> int:
        """How many hosts died after the task had passed its quarantine."""
        return sum(loss.manner == PAST for loss in self.losses)


def _loss(worker: str, tasks: int, how: AttemptRecord | None) -> Loss:
    """Return the loss of a worker that ran the task as its last record says."""
    return Loss(worker, tasks, ORDINARY) if how is None else Loss(worker, tasks, how.manner, how.company)
