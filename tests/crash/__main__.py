"""`python -m tests.crash --rounds 1000`: exit 0 when every round's account holds, 1 with the seed and the folder when one doesn't."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from mqtt_proxy.demo.client import Refused
from mqtt_proxy.demo.server_process import ServerFailed

from .campaign import Campaign, CampaignFailed

ROUNDS_OF_A_CAMPAIGN = 50
"""After so many rounds the folder starts anew, with the next seed."""


def run(rounds: int, seed: int, messages: int) -> int:
    done = 0
    while done < rounds:
        folder = Path(tempfile.mkdtemp(prefix="lmq-crash-"))
        campaign = None
        began = time.monotonic()
        try:
            campaign = Campaign(folder, seed, messages)
            campaign.begin()
            for _ in range(min(ROUNDS_OF_A_CAMPAIGN, rounds - done)):
                campaign.run_round()
                done += 1
                if done % 10 == 0:
                    print(f"round {done} of {rounds}: {campaign.summary()}, {time.monotonic() - began:.0f} s", flush=True)
            campaign.end()
        except (CampaignFailed, ServerFailed, Refused) as failure:
            which = campaign.round if campaign else 0
            print(f"seed {seed}, round {which} of its campaign FAILED:\n  {failure}\nfolder: {folder}", file=sys.stderr)
            if campaign is not None:
                campaign.clients.close()
                campaign.server.stop()
            return 1
        finally:
            if campaign is not None:
                campaign.server.stop()
        shutil.rmtree(folder)
        seed += 1
    print(f"{done} rounds: nothing acknowledged was lost, nothing of QoS 2 came twice, order and state held")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--seed", type=int, default=None, help="of the first campaign; each further one takes the next number")
    parser.add_argument("--messages", type=int, default=600, help="of each publisher in a round, at most")
    options = parser.parse_args()
    seed = random.randrange(1 << 30) if options.seed is None else options.seed
    print(f"seed {seed}")
    return run(options.rounds, seed, options.messages)


if __name__ == "__main__":
    sys.exit(main())
