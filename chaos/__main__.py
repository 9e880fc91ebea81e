"""`python -m chaos`: injects faults into hosts under load. The exit code is 1 if a client noticed one."""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
from pathlib import Path

from chaos.report import as_json, markdown
from chaos.scenario import ATTACK_REQUESTS, ATTACK_S, STORES, Round, run_attack, run_round

KILLS = 60
SHARE = {"sqlite": 0.2, "postgres": 0.4, "postgres+nats": 0.4}
NO_LIMIT_S = 10**6


def main() -> int:
    options = _options()
    stores = list(STORES) if options.store == "all" else [options.store]
    seed = random.randrange(10**6) if options.seed is None else options.seed
    kills = options.kills or (KILLS if options.seconds is None else int(options.seconds * 3 * len(stores)))
    folder = Path(tempfile.mkdtemp(prefix="roost-chaos-"))
    log(f"seed {seed}, {kills} kills, logs in {folder}")
    rounds: list[Round] = []
    if options.attack:
        stores = []
        rounds.append(asyncio.run(run_attack(ATTACK_REQUESTS, ATTACK_S, seed, folder / "attack", log)))
    for store in stores:
        share = round(kills * SHARE[store] / sum(SHARE[one] for one in stores))
        log(f"{store}: {share} kills")
        rounds.append(
            asyncio.run(
                run_round(
                    store,
                    share,
                    options.seconds or NO_LIMIT_S,
                    seed,
                    folder / store,
                    lambda text, store=store: log(f"{store}: {text}"),
                    hostile=options.hostile,
                )
            )
        )
        log(f"{store}: {len(rounds[-1].verdict.violations)} violations")
    print(as_json(rounds) if options.json else markdown(rounds))
    if any(one.verdict.violations for one in rounds):
        log(f"the logs of the hosts are in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--kills", type=int, help=f"number of kills over all stores together; {KILLS} by default")
    parser.add_argument(
        "--seconds",
        type=float,
        help="longest time of fault injection on each store; without --kills, as many kills as fit",
    )
    parser.add_argument("--store", choices=[*STORES, "all"], default="all", help="the store of the hosts")
    parser.add_argument("--no-hostile", dest="hostile", action="store_false", help="without the hostile client")
    parser.add_argument(
        "--attack",
        action="store_true",
        help=f"instead: {ATTACK_REQUESTS} hostile requests in {ATTACK_S:g} s to two replicas on PostgreSQL",
    )
    parser.add_argument("--seed", type=int, help="repeat the same faults; random by default")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
