"""`agentrl resume RUN`: continue from the last checkpoint."""

from __future__ import annotations

from agentrl.cli.flags import Parser, path, split
from agentrl.config.loading import of_flags


def run(words: list[str]) -> int:
    """Resume the run in a folder, with the changes that a resume allows."""
    parser = Parser(
        prog="agentrl resume",
        usage="agentrl resume RUN [--steps N] [--SECTION.KEY VALUE ...]",
        description="Continue a run from its last checkpoint.",
        epilog="May change: steps, env_lock, eval.every, checkpoint.*, track.*, engine.*, scorers.*, rollout.workers, "
        "rollout.concurrency, learner.ranks, learner.threads, learner.zero_stage, learner.sequence_parallel, "
        "learner.tensor_parallel, learner.deterministic, critic.zero_stage, critic.placement, critic.ranks, "
        "reward.threads, reward.gpus, reward.placement, *.nodes, deadlines (*_timeout_s), url and token_env in "
        "reward.models, roles.NAME.url, roles.NAME.api_key_env, roles.NAME.timeout_s, roles.NAME.concurrency, "
        "roles.NAME.retries, roles.NAME.max_calls, roles.NAME.token_budget, roles.NAME.max_context.",
    )
    parser.add_argument("run", type=path, metavar="RUN", help="the run folder")
    own, pairs = split(words)
    folder = parser.parse_args(own).run
    from agentrl.metrics.timer import process_began
    from agentrl.training.launch import resume

    resume(folder, of_flags(pairs), process_began())
    return 0
