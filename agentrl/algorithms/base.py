"""The Algorithm contract: a class with its own configuration turns rewards into credit and credit into a loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from agentrl.algorithms.config import AlgorithmConfig, check_schema
from agentrl.algorithms.own_loss import REMEDIES, OwnLoss, own_loss
from agentrl.algorithms.sample import Column, Sample
from agentrl.config.schema import Config as RunConfig
from agentrl.errors import AlgorithmError, ConfigError, UnknownNameError
from agentrl.plugins.tracebacks import call_author
from agentrl.types import StepReport

if TYPE_CHECKING:
    from torch import Tensor

    from agentrl.losses.terms import Terms


LOSS_KEYS = ("clip_low", "clip_high", "dual_clip", "old_logprobs")
"""Keys that a loss of its own may read."""
OBJECTIVE_KEYS = (
    *("loss", "clip_low", "clip_high", "dual_clip", "correction", "tis_cap", "tis_floor", "geometric_low"),
    *("geometric_high", "kl_coef", "kl_in", "kl_estimator", "kl_target", "kl_horizon", "kl_stop"),
    *("entropy_coef", "entropy_target", "entropy_delta", "entropy_clip"),
)
"""Keys that the objective of agentrl and its meters read."""
REWARD_KL_KEYS = ("kl_coef", "kl_in", "kl_estimator")
"""Those of them that a KL in the reward needs, whatever the objective is."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What the run provides for an algorithm.

    `group_size` is the least number of samples per task. `columns` are computed for every sampled token before credit
    is given; "reference" and "teacher" load a frozen model, "values" trains a critic. `greedy` members are added to
    each group, decoded greedily and never trained. `epochs` is the default of `learner.epochs`. With `rewards`, a run
    without reward models (`reward.models`) is refused.
    """

    group_size: int = 1
    columns: frozenset[Column] = frozenset()
    greedy: int = 0
    epochs: int = 1
    rewards: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.columns, str) or not isinstance(self.columns, Collection):
            raise ConfigError(f"needs.columns is {self.columns!r}, write a set: Needs(columns=frozenset({{'old'}}))")
        for column in self.columns:
            if column not in get_args(Column):
                raise UnknownNameError("column of needs", str(column), get_args(Column))
        for name, least in (("group_size", 1), ("greedy", 0), ("epochs", 1)):
            if type(value := getattr(self, name)) is not int or value < least:
                raise ConfigError(f"needs.{name} is {value!r}, not a whole number of at least {least}")
        if not isinstance(self.rewards, bool):
            raise ConfigError(f"needs.rewards is {self.rewards!r}, not True or False")
        object.__setattr__(self, "columns", frozenset(self.columns))


@dataclass(frozen=True, slots=True)
class RunShape:
    """The sizes of a run that an algorithm may use: `max_tokens` per turn, `steps` in batches, `updates` per batch."""

    prompts: int = 8
    group_size: int = 8
    max_tokens: int = 512
    steps: int = 1
    updates: int = 1

    @classmethod
    def of(cls, config: RunConfig) -> RunShape:
        """Return the sizes of the run that `config` describes."""
        rollout = config.rollout
        return cls(rollout.prompts, rollout.group_size, rollout.max_tokens, config.steps, config.learner.updates)


class Algorithm(ABC):
    """Base class of the algorithms. The file of a new one is all that has to be written: see docs/algorithms.md.

    `credit` runs in the driver on numpy arrays, `loss` in every learner rank on tensors. `self.config` holds the keys
    `--algorithm.*`, `self.state` what adapts during a run: it is saved in checkpoints and sent to the ranks with each
    batch. `credit` may change nothing else of the object, because it is also called to try a group.
    """

    name: ClassVar[str] = ""
    needs: ClassVar[Needs] = Needs()
    is_batch_relative: ClassVar[bool] = False
    """Whether credit compares the whole batch, so that a single group cannot be credited alone."""
    has_open_loss: ClassVar[bool] = True
    """Whether `algorithm.loss` chooses the loss. False in a class that defines `loss`, unless it says True itself."""
    Config: ClassVar[type[AlgorithmConfig]] = AlgorithmConfig

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.name = vars(cls).get("name", cls.__name__)
        check_schema(cls.__name__, cls.Config)
        if not isinstance(cls.needs, Needs):
            raise ConfigError(f"{cls.__name__}: needs is {cls.needs!r}, write it as needs = Needs(group_size=2)")
        if "loss" in vars(cls) and "has_open_loss" not in vars(cls):
            cls.has_open_loss = False

    def __init__(self, config: AlgorithmConfig | None = None, run: RunShape | None = None) -> None:
        self.config = self.Config() if config is None else config
        self.run = run or RunShape()
        self.state: dict[str, float] = {}

    @property
    def requirements(self) -> Needs:
        """What this algorithm needs with its present configuration."""
        columns = set(self.needs.columns)
        if self.config.kl_coef > 0:
            columns |= {"reference", "old"} if self.config.has_reward_kl else {"reference"}
        return replace(self.needs, columns=frozenset(columns))

    def frozen_columns(self, *, has_adapters: bool) -> frozenset[Column]:
        """Return the columns that a frozen model computes.

        Unless it moves, the reference of adapters is the policy without them.
        """
        frozen: set[Column] = {"reference", "teacher"}
        if has_adapters and not self.config.reference_every:
            frozen = {"teacher"}
        return self.requirements.columns & frozen

    @property
    def credits_groups_alone(self) -> bool:
        """Whether the credit of a group, but for a KL in the reward, depends neither on other groups nor on columns."""
        return not (self.is_batch_relative or self.needs.columns)

    @property
    def skips_zero_advantages(self) -> bool:
        """Whether a token without an advantage has a loss of exactly 0, so that it needs no forward pass.

        Override it together with `loss`: a loss that is not ours is assumed to train every token.
        """
        config, own = self.config, type(self)
        has_kl = config.kl_coef > 0 and not config.has_reward_kl
        return not (has_kl or config.has_entropy_bonus or config.has_own_loss) and (own.loss, own.objective) == (
            Algorithm.loss,
            Algorithm.objective,
        )

    @abstractmethod
    def credit(self, groups: Sequence[Sequence[Sample]]) -> None:
        """Set `advantages` of every sample; also `returns` and `weights` where the algorithm uses them.

        Episodes that `truncated` masks are not among the samples.
        """

    def loss(self, terms: Terms) -> Tensor:
        """Return the policy loss of each sampled token [A] of a micro-batch, differentiable in `terms.logprobs`."""
        if self.config.has_own_loss:
            return self._own_loss(terms)
        from agentrl.losses import LOSSES

        return LOSSES[self.config.loss](terms, self.config)

    def _own_loss(self, terms: Terms) -> Tensor:
        from agentrl.losses.objective import per_token

        own = own_loss(self.config.loss)
        what = f"{self.name}: the loss {own.name} failed"
        made = call_author(what, own.function, terms, self.config, at=own.function, kind=AlgorithmError)
        return per_token(made, terms, own.function)

    def objective(self, terms: Terms) -> Tensor:
        """Return what the learner minimises for each token [A], before its weight: loss, KL term, entropy bonus."""
        from agentrl.losses.objective import objective

        return objective(terms, self.config, self.loss)

    def after(self, report: StepReport) -> None:  # noqa: B027 (an optional hook)
        """Adapt `self.state` after a step. The coefficients that have a target have adapted before."""

    def checked_loss(self) -> OwnLoss | None:
        """Return the author's function that is the loss, if it is one.

        Raises ConfigError if there is no such function, or if it reads columns that the run does not have.
        """
        if not (self.config.has_own_loss and self.has_open_loss):
            return None
        own, columns = own_loss(self.config.loss), self.requirements.columns
        provided = {"old", *columns, *(("returns",) if "values" in columns else ())}
        for column in sorted(own.columns - provided):
            raise ConfigError(
                f"algorithm.loss {own.name} reads {column!r}, which {self.name} does not have in this run: "
                f"{REMEDIES[column]}"
            )
        return own

    @classmethod
    def _declares(cls, key: str) -> bool:
        """Return whether a Config declares a key for the class that defines the objective, or below it."""
        author = next(number for number, base in enumerate(cls.__mro__) if "objective" in vars(base))
        above = next(base.Config for base in cls.__mro__[author + 1 :] if issubclass(base, Algorithm))
        return cls.Config.declares(key, above if issubclass(cls.Config, above) else AlgorithmConfig)

    def idle_keys(self) -> dict[str, str]:
        """Return the keys that nothing reads in this run, each with what it needs."""
        idle, own = self.config.idle_keys(), type(self)
        if not self.credits_groups_alone:
            idle["filter_zero_variance"] = "an algorithm that credits each group alone"
        if not self.has_open_loss:
            idle["loss"] = "an algorithm that leaves the loss open"
            for key in LOSS_KEYS:
                idle.pop(key, None)
        if own.objective is not Algorithm.objective:
            needs = f"an objective that reads it and a Config of {own.__name__} that declares it"
            read = REWARD_KL_KEYS if self.config.has_reward_kl else ()
            idle |= {key: needs for key in OBJECTIVE_KEYS if key not in read and not own._declares(key)}
        if "reference" not in self.requirements.columns:
            idle |= dict.fromkeys(("reference_every", "reference_ema"), "algorithm.kl_coef above 0")
        if "teacher" not in self.requirements.columns:
            idle["teacher"] = "an algorithm that has one (distillation)"
        if self.run.updates == 1:
            idle["kl_stop"] = "learner.updates_per_batch or learner.epochs above 1"
        return idle
