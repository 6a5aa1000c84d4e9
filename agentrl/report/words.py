"""The sentences about steps, evaluations and times that terminal, report and summary share."""

from __future__ import annotations

import math
from collections.abc import Sequence

from agentrl.metrics.step import EnvStep, EvaluationRecord, PhaseSeconds, StepRecord
from agentrl.types import RoleUse

# Control codes become visible signs: the terminal shows an escape sequence in a model's answer and does not obey it.
PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"}
PICTURES |= {127: 0x2421} | dict.fromkeys(range(128, 160), 65533)
# Those that set the direction of text would let an answer read otherwise than it is written.
PICTURES |= dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), 65533)

PAGE = "docs/when-it-does-not-learn.md"
SEQUENCES_PAGE = "See docs/bring-an-agent.md (What is trained)."


def visible(text: str) -> str:
    """Return the text of a model or an environment with every control code but tab and newline replaced by a sign."""
    return text.translate(PICTURES)


def duration(seconds: float) -> str:
    """'8 s', '3 min 20 s', '2 h 05 min'."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


# --- steps ------------------------------------------------------------------------------------------------------


def step_words(r: StepRecord, steps: int) -> str:
    """Return a step in one line of plain text."""
    return (
        f"step {r.step}/{steps} · reward {r.reward_mean:.3f} · {r.length_mean:.0f} tokens{sequences_words(r)}"
        f" · entropy {r.entropy:.2f}{envs_words(r)} · {learned_words(r)}"
        f" · staleness {r.staleness_mean:.2f}{dropped_words(r)} · {speed_words(r)}"
    )


def sequences_words(r: StepRecord) -> str:
    """', 3.0 sequences' per episode, '' where every episode is one."""
    return f", {r.sequences_mean:.1f} sequences" if r.sequences_mean > 1 else ""


def rewriting_words(env: str, sequences: float) -> str:
    """Return the warning about an environment whose turns begin sequences of their own."""
    return (
        f"{env}: every turn begins a sequence of its own ({sequences:.1f} per episode), because the agent or the "
        f"model's chat template rewrites the history; each turn is trained with all its context again. {SEQUENCES_PAGE}"
    )


def envs_words(r: StepRecord) -> str:
    """' · math 0.250 (5 groups), guess 0.750 (3 groups)' for a run with several environments, else ''."""
    parts = ", ".join(f"{label} {env_words(part)}" for label, part in r.envs.items())
    return f" · {parts}" if parts else ""


def env_words(part: EnvStep) -> str:
    """'0.250 (5 groups)': the reward of one environment and its trained groups, or '- (0 groups)'."""
    reward = f"{part.reward_mean:.3f}" if part.trained else "-"
    return f"{reward} ({part.groups} group{'s' * (part.groups != 1)})"


def role_words(use: RoleUse) -> str:
    """'12 calls, 4 from the cache, 1 unusable, 3,400 tokens': what samples asked of a role."""
    parts = [f"{use.calls:,} call{'s' * (use.calls != 1)}"]
    parts += [f"{use.cached:,} from the cache"] if use.cached else []
    parts += [f"{use.unreadable:,} unusable"] if use.unreadable else []
    return ", ".join([*parts, f"{use.prompt_tokens + use.completion_tokens:,} tokens"])


def learned_words(r: StepRecord) -> str:
    """'KL 0.0012' with the number of skipped updates, or why there was no update."""
    bad = r.learner.nonfinite_steps
    some = f" · {bad} of {bad + r.learner.optimizer_steps} updates skipped: the gradient was not finite" if bad else ""
    return why_no_update(r) or f"KL {r.learner.meters.get('mismatch_kl', 0.0):.4f}{some}"


def dropped_words(r: StepRecord) -> str:
    """' · 2 invalid · 3 stale', '' if every sample was trained."""
    reasons = ("invalid", "unanswered", "stale", "filtered", "lost")
    return "".join(f" · {count} {name}" for name in reasons if (count := getattr(r, name)))


def speed_words(r: StepRecord) -> str:
    """'512 tok/s sampled, 1,204 learned, 12.3 s a step'."""
    learned = f"{r.trained_per_s:,.0f} learned, " if r.learner.has_learned else ""
    return f"{r.sampled_per_s:,.0f} tok/s sampled, {learned}{r.seconds.total:.1f} s a step"


def why_no_update(step: StepRecord) -> str:
    """Return why a step changed no weight, '' if it did."""
    if step.learner.has_learned:
        return ""
    if step.learner.nonfinite_steps:
        return "no update: the gradient was not finite"
    if "value_loss" in step.learner.meters and not step.learner.skipped_steps:
        return "no update: the critic learns alone (critic.warmup_steps)"
    if step.reward_std == 0:
        return f"no update: every reward is {step.reward_mean:.3g}, so there is nothing to compare"
    return "no update: all rewards of each group are equal, so there is nothing to compare"


def no_update_words(steps: Sequence[StepRecord]) -> str:
    """Return how many steps changed no weight, the most common reason and the page with advice.

    Returns '' if every step changed one.
    """
    reasons = [reason for reason in map(why_no_update, steps) if reason]
    if not reasons:
        return ""
    reason = max(dict.fromkeys(reasons), key=reasons.count).removeprefix("no update: ")
    return f"{len(reasons)} of {len(steps)} steps: {reason}; see {PAGE}"


# --- evaluations ------------------------------------------------------------------------------------------------


def evaluation_words(r: EvaluationRecord) -> str:
    """Return an evaluation of a run in one line of plain text."""
    return f"evaluation after step {r.step} · {score_words(r)}"


def score_words(r: EvaluationRecord) -> str:
    """'pass@1 0.680 [0.562, 0.789] · 8 test tasks x 16 · 40 s'."""
    more = f" · pass@{r.k} {r.pass_at_k}" if r.k > 1 and math.isfinite(r.pass_at_k.mean) else ""
    validity = f" · {r.validity}" if r.validity else ""
    each = "".join(f" · {label} {score.pass_at_1}" for label, score in r.envs.items())
    return f"pass@1 {r.pass_at_1}{more}{each} · {r.tasks} {r.split} tasks x {r.samples} · {r.seconds:.0f} s{validity}"


def progress_words(before: EvaluationRecord | None, after: EvaluationRecord | None) -> str:
    """'pass@1 0.070 [0.05, 0.09] → 0.812 [0.78, 0.84]', or as much as is known."""
    if before is None:
        return ""
    first = f"pass@1 {before.pass_at_1}"
    return first if after is None else f"{first} → {after.pass_at_1}"


def env_progress(before: EvaluationRecord | None, after: EvaluationRecord | None) -> dict[str, str]:
    """Return the same of each environment by label, {} for a run with one."""
    scores = [record.envs for record in (before, after) if record]
    labels = scores[0] if scores else {}
    return {label: f"pass@1 {' → '.join(str(envs[label].pass_at_1) for envs in scores)}" for label in labels}


# --- time -------------------------------------------------------------------------------------------------------


def time_words(seconds: PhaseSeconds, parts: dict[str, float]) -> str:
    """'1 min 20 s: start 40 s (engines 31 s, ray 5 s), rollout 30 s, …' with every phase of at least half a second."""
    phases = {name: getattr(seconds, name) for name in PhaseSeconds.__slots__}
    of_start = ", ".join(f"{name} {value:.0f} s" for name, value in _longest(parts))
    notes = {"start": f" ({of_start})"} if of_start else {}
    spent = ", ".join(f"{name} {value:.0f} s{notes.get(name, '')}" for name, value in _longest(phases))
    return f"{duration(seconds.total)}: {spent}" if spent else duration(seconds.total)


def _longest(seconds: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(((name, value) for name, value in seconds.items() if value >= 0.5), key=lambda item: -item[1])
