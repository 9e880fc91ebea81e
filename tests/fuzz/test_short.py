"""A short round of every attack, the same each time. `make fuzz` goes on with others: see docs/fuzzing.md."""

from __future__ import annotations

from tests.fuzz import doors, large, sockets
from tests.fuzz.attack import Attack, play
from tests.fuzz.surface import Surface
from tests.fuzz.target import Target

EXAMPLES = 2


def holds_against(target: Target, attacks: list[Attack], examples: int = EXAMPLES) -> None:
    before = target.statuses.total()
    found = [finding for attack in attacks if (finding := play(target, attack, examples, None)) is not None]
    assert not found, "\n\n".join(map(str, found))
    assert target.statuses.total() >= before + len(attacks)


def test_every_operation_answers_as_it_is_documented(target: Target) -> None:
    surface = Surface(target)
    holds_against(target, surface.attacks())
    asked = {key.rpartition(" ")[0] for key in target.statuses}
    assert {operation.label for operation in surface.operations} <= asked


def test_bodies_that_are_nearly_right_are_answered_in_the_form_of_their_door(target: Target) -> None:
    holds_against(target, doors.attacks(target), 3 * EXAMPLES)


def test_what_is_hardly_http_is_refused_or_closed(target: Target) -> None:
    holds_against(target, [sockets.attack(target)], 5 * EXAMPLES)


def test_the_largest_bodies_keep_nobody_waiting(large_target: Target) -> None:
    holds_against(large_target, large.attacks(large_target), 5 * EXAMPLES)
