"""`python -m tests.fuzz`: every attack on an open, a closed and a large host, with other values in each round.

Exit code 1 if there is a finding.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from itertools import count
from pathlib import Path

from tests.fuzz import doors, large, sockets
from tests.fuzz.attack import Attack, play
from tests.fuzz.surface import Surface
from tests.fuzz.target import Finding, Target, closed_host, large_host, open_host

EXAMPLES = 50


def main() -> int:
    options = _options()
    seed = random.randrange(10**6) if options.seed is None else options.seed
    until = time.monotonic() + options.minutes * 60
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="roost-fuzz-")))
        targets = [stack.enter_context(open_host()), stack.enter_context(closed_host(folder))]
        attacks = [pair for target in targets for pair in _attacks(target)]
        wide = stack.enter_context(large_host())
        attacks += [(wide, attack) for attack in large.attacks(wide)]
        attacks = [(target, attack) for target, attack in attacks if options.only in attack.name]
        targets.append(wide)
        say(f"seed {seed}, {len(attacks)} attacks")
        found = _play(attacks, seed, options.examples, until)
        _report(targets, found, seed)
    return 1 if found else 0


def _attacks(target: Target) -> list[tuple[Target, Attack]]:
    attacks = [*Surface(target).attacks(), *doors.attacks(target), sockets.attack(target)]
    return [(target, attack) for attack in attacks]


def _play(attacks: list[tuple[Target, Attack]], seed: int, examples: int, until: float) -> list[Finding]:
    """Run the attacks in another order in each round. An attack that has found something is not repeated."""
    found: list[Finding] = []
    for number in count(seed):
        for target, attack in random.Random(number).sample(attacks, len(attacks)):
            finding = play(target, attack, examples, number)
            if finding is not None:
                found.append(finding)
                attacks.remove((target, attack))
                say(f"finding: {finding.attack}")
            if time.monotonic() > until:
                return found
        say(f"round of seed {number}: {len(found)} findings so far")
        if not attacks:
            return found
    return found


def _report(targets: list[Target], found: list[Finding], seed: int) -> None:
    statuses: Counter[str] = Counter()
    for target in targets:
        for key, number in target.statuses.items():
            statuses[key.rpartition(" ")[2]] += number
    print(f"requests: {statuses.total()}")
    print(f"answers: {', '.join(f'{status} {number}' for status, number in sorted(statuses.items()))}")
    print(f"seed: {seed}")
    print(f"findings: {len(found)}")
    for finding in found:
        print(f"\n{finding}")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long; 10 by default")
    parser.add_argument("--seed", type=int, help="the same values again; random by default")
    parser.add_argument("--only", default="", metavar="TEXT", help="attacks with this in their name")
    parser.add_argument(
        "--examples", type=int, default=EXAMPLES, help=f"of each attack in a round; {EXAMPLES} by default"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
