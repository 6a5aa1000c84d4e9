"""`agentrl env reverify RUN`: score stored trajectories with another version of their verifier."""

from __future__ import annotations

import argparse
import json

from agentrl.cli.flags import Parser, own_options, path, whole
from agentrl.config.loading import of_flags
from agentrl.errors import ConfigError
from agentrl.report.flips import Reverification, as_json, lines

MEANING = """\
Score the stored trajectories of a run again, with another version of their environment, and show which rewards
changed. Needs no GPU and not the model of the run: each episode runs again with the tokens that were sampled. Judges
and other roles are asked again, at their endpoints; a role that a model of the run played needs one: give
--roles.NAME.url. Keys in which the environment differs from that of the run are given as --env.KEY VALUE, those of
roles as --roles.NAME.KEY VALUE. Exit code 0: every reward is as it was; 1: a reward changed or is invalid now; 2: the
command cannot be executed as given, no trajectory can be scored, or some cannot be read. Episodes that cannot be
repeated are listed as refused."""


def run(words: list[str]) -> int:
    """Score, and print what changed."""
    own, pairs = own_options(words, ("env", "roles"))
    given = _parser().parse_args(own)
    from agentrl.cluster.signals import run_until_stopped
    from agentrl.training.rescoring import reverify
    from agentrl.training.reverify import Choice, plans_of

    settings = of_flags(pairs)
    options = {one.key.removeprefix("env."): one.value for one in settings if one.key.startswith("env.")}
    roles = [one for one in settings if not one.key.startswith("env.")]
    choice = Choice(given.label, given.step, given.evaluation)
    plans = plans_of(given.run, choice, given.env, options, roles)
    if not given.json:
        episodes = sum(plan.episodes for plan in plans)
        print(f"Scoring {episodes:,} trajectories of {given.run} again.", flush=True)
    found: Reverification = run_until_stopped(reverify(plans))
    print(json.dumps(as_json(found), indent=2) if given.json else "\n".join(lines(found)))
    if found.fault:
        raise ConfigError(found.fault)
    return int(found.has_changed)


def _steps(text: str) -> tuple[int, int]:
    """Return the first and the last step of "20" or "10-20"."""
    first, _, last = text.partition("-")
    if not (first.isdecimal() and (last or first).isdecimal()) or int(last or first) < int(first):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a step nor a range of steps such as 10-20")
    return int(first), int(last or first)


def _parser() -> Parser:
    parser = Parser(prog="agentrl env reverify", description=MEANING)
    parser.add_argument("run", type=path, metavar="RUN", help="the run folder")
    parser.add_argument(
        "--env", default="", metavar="NAME|PATH", help="the environment that scores (default: that of the run)"
    )
    parser.add_argument(
        "--label", default="", metavar="LABEL", help="the environment of the run, if it has several (default: all)"
    )
    parser.add_argument("--step", type=_steps, metavar="N|N-M", help="samples of these training steps (default: all)")
    parser.add_argument(
        "--evaluation", type=whole(0), metavar="STEP", help="the evaluation after this step (default: training)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser
