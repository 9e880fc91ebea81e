"""`python -m chaos`: does harm to hosts under load and says whether a client could tell. Exit code 1 if one could."""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
from pathlib import Path

from chaos.report import as_json, markdown
from chaos.scenario import STORES, Round, play

KILLS = 60
SHARE = {"sqlite": 0.2, "postgres": 0.4, "postgres+nats": 0.4}
FOR_EVER = 10**6


def main() -> int:
    options = _options()
    stores = list(STORES) if options.store == "all" else [options.store]
    seed = random.randrange(10**6) if options.seed is None else options.seed
    kills = options.kills or (KILLS if options.seconds is None else int(options.seconds * 3 * len(stores)))
    folder = Path(tempfile.mkdtemp(prefix="roost-chaos-"))
    say(f"seed {seed}, {kills} kills, logs in {folder}")
    rounds: list[Round] = []
    for store in stores:
        share = round(kills * SHARE[store] / sum(SHARE[one] for one in stores))
        say(f"{store}: {share} kills")
        rounds.append(
            asyncio.run(
                play(
                    store,
                    share,
                    options.seconds or FOR_EVER,
                    seed,
                    folder / store,
                    lambda text, store=store: say(f"{store}: {text}"),
                )
            )
        )
        say(f"{store}: {len(rounds[-1].verdict.violations)} violations")
    print(as_json(rounds) if options.json else markdown(rounds))
    if any(one.verdict.violations for one in rounds):
        say(f"the logs of the hosts are kept in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--kills", type=int, help=f"of hosts, over all stores together; {KILLS} by default")
    parser.add_argument("--seconds", type=float, help="of harm on each store, at most; without --kills, as many as fit")
    parser.add_argument("--store", choices=[*STORES, "all"], default="all", help="what the hosts stand on")
    parser.add_argument("--seed", type=int, help="the same harm again; random by default")
    parser.add_argument("--json", action="store_true", help="report as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
