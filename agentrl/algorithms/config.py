"""The keys that every algorithm has; an algorithm's `Config` adds its own and changes defaults."""

from __future__ import annotations

from inspect import get_annotations
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from agentrl.config.patterns import compiled
from agentrl.config.schema import Keys, Unset
from agentrl.errors import ConfigError, nearest
from agentrl.plugins.files import is_path
from agentrl.plugins.registry import TARGET

Loss = Literal["ppo_clip", "dual_clip", "gspo", "cispo", "policy_gradient"]
"""The losses of agentrl."""
Correction = Literal["none", "tis", "icepop", "token_mask", "sequence_tis", "sequence_mask", "geometric_mask"]
Estimator = Literal["k1", "k2", "k3"]
CLIP_WIDTHS: dict[str, tuple[float, float]] = {
    "ppo_clip": (0.2, 0.28),
    "dual_clip": (0.2, 0.28),
    "gspo": (3e-4, 4e-4),
    "cispo": (1.0, 4.0),
}
"""Default clip widths (low, high) of a loss that replaces an algorithm's own."""


def _named(loss: str) -> str:
    """Refuse the name of a loss that is neither one of agentrl nor a function of the author's."""
    if loss in get_args(Loss) or is_path(loss) or TARGET.fullmatch(loss):
        return loss
    words, hint = ", ".join(map(repr, get_args(Loss))), nearest(loss, get_args(Loss)).strip()
    meant = f" ({hint})" if hint else ""
    raise PydanticCustomError("loss", f"Input should be {words}, ./file.py:function or package:function{meant}")


def _compiles(pattern: str) -> str:
    """Refuse what is no pattern of RE2."""
    try:
        compiled(pattern)
    except ValueError as error:
        raise PydanticCustomError("pattern", "Input should be a pattern of RE2 ({why})", {"why": str(error)}) from None
    return pattern


class AlgorithmConfig(Keys):
    """Base of every algorithm's `class Config`: rejects unknown keys and validates values and defaults."""

    model_config = ConfigDict(validate_default=True, allow_inf_nan=False)

    loss: Annotated[str, AfterValidator(_named)] = Field(
        "ppo_clip",
        description="policy loss of a token: ppo_clip, dual_clip, gspo, cispo, policy_gradient, ./file.py:function or "
        "package:function",
    )
    clip_low: float = Field(0.2, gt=0, le=1, description="clip of the ratio policy / old below 1")
    clip_high: float = Field(0.28, gt=0, le=100, description="clip of the ratio policy / old above 1 (clip-higher)")
    dual_clip: float = Field(
        3.0, gt=1, le=100, description="greatest ratio where the advantage is negative (dual_clip)"
    )
    normalization: Literal["token", "sequence", "constant"] = Field(
        "token", description="mean of the loss over tokens, over sequences, or the sum divided by a constant per sample"
    )
    constant: Annotated[int, Unset("rollout.max_tokens")] = Field(
        0, ge=0, description="tokens per sample by which a constant normalization divides"
    )
    old_logprobs: Literal["learner", "sampler"] = Field(
        "learner", description="old logprobs of the PPO ratio: the learner's, or the sampler's (without a correction)"
    )
    correction: Correction = Field("tis", description="correction of the mismatch between sampler and learner")
    tis_cap: float = Field(2.0, ge=1, description="greatest importance weight learner / sampler of the correction")
    tis_floor: float = Field(0.5, ge=0, le=1, description="least importance weight that a masking correction keeps")
    geometric_low: float = Field(0.99, ge=0, le=1, description="least geometric mean of a kept sequence's ratios")
    geometric_high: float = Field(1.01, ge=1, description="greatest geometric mean of a kept sequence's ratios")
    kl_coef: float = Field(0.0, ge=0, le=100, description="coefficient of KL(policy || reference); 0: no reference")
    kl_in: Literal["loss", "reward"] = Field(
        "loss", description="add the KL to the loss, or subtract it from the rewards"
    )
    kl_estimator: Estimator = Field(
        "k3",
        description="estimator (joschu.net/blog/kl-approx.html) of the reported KL and, with kl_in reward, of the "
        "penalty, then k1 by default; in the loss the gradient is always that of the reverse KL",
    )
    kl_target: float = Field(0.0, ge=0, description="KL to which the coefficient adapts; 0: fixed coefficient")
    kl_horizon: int = Field(10_000, gt=0, description="samples in which an adaptive KL coefficient moves by 20 %")
    kl_stop: float = Field(
        0.0, ge=0, description="KL(old || policy) beyond which a batch gets no further update; 0: no limit"
    )
    reference_every: int = Field(0, ge=0, description="steps between updates of the reference; 0: never")
    reference_ema: float = Field(
        0.0, ge=0, lt=1, description="share of the reference that an update keeps; 0: replaced by the policy"
    )
    teacher: str = Field(
        "", description="frozen model whose logprobs an algorithm learns from (distillation): a folder or a hub id"
    )
    entropy_coef: float = Field(0.0, ge=0, le=10, description="coefficient of the entropy bonus")
    entropy_target: float = Field(
        0.0, ge=0, description="entropy below which the coefficient grows, above which it shrinks; 0: fixed coefficient"
    )
    entropy_delta: float = Field(0.005, gt=0, le=1, description="change of an adaptive entropy coefficient per step")
    entropy_clip: float = Field(0.0, ge=0, description="entropy above which a token gets no bonus; 0: no bound")
    truncated: Literal["keep", "mask"] = Field(
        "keep", description="train episodes that a limit cut off, or leave them out of loss, divisor and all baselines"
    )
    overlong_penalty: float = Field(
        0.0, ge=0, le=100, description="greatest penalty for a turn that nears rollout.max_tokens (DAPO); 0: none"
    )
    overlong_buffer: Annotated[int, Unset("a fifth of rollout.max_tokens")] = Field(
        0, ge=0, description="tokens before rollout.max_tokens over which the penalty grows"
    )
    format_pattern: Annotated[str, AfterValidator(_compiles)] = Field(
        "",
        description="pattern (RE2) of which the last reply of an episode has to contain a match; empty: none",
    )
    format_penalty: float = Field(
        0.0, ge=0, le=100, description="penalty for a last reply without a match of the pattern"
    )
    reward_clip: float = Field(0.0, ge=0, description="clip the reward of a turn and of an episode to +-this; 0: none")
    normalize_rewards: bool = Field(
        False, description="divide rewards by the standard deviation of all episode rewards of the run so far"
    )
    filter_zero_variance: bool = Field(
        False, description="drop groups whose advantages are all zero and sample replacements (DAPO)"
    )
    max_filtered_batches: int = Field(4, ge=1, description="maximum batches of dropped groups per step")

    @classmethod
    def __pydantic_init_subclass__(cls, **keywords: Any) -> None:
        """Keep the type of a key whose default a subclass changes, unless it allows fewer of the key's words."""
        for name, replaced in AlgorithmConfig.model_fields.items():
            own, words = cls.model_fields[name], get_args(Loss if name == "loss" else replaced.annotation)
            if not 0 < len(get_args(own.annotation)) < len(words):
                own.annotation = replaced.annotation
        cls.model_rebuild(force=True)
        super().__pydantic_init_subclass__(**keywords)

    @classmethod
    def declares(cls, key: str, base: type[AlgorithmConfig]) -> bool:
        """Return whether the Config of an algorithm declares this key itself, and not only its base class `base`."""
        return cls._depth(key) < cls.__mro__.index(base)

    @classmethod
    def _depth(cls, key: str) -> int:
        """Return the number of base classes between this one and the nearest that declares a key."""
        return next(depth for depth, base in enumerate(cls.__mro__) if key in get_annotations(base))

    @model_validator(mode="before")
    @classmethod
    def _with_estimator(cls, keys: Any) -> Any:
        """Subtract k1 from the rewards unless an estimator is set: only its policy gradient is that of the KL."""
        if not isinstance(keys, dict) or keys.get("kl_in", cls.model_fields["kl_in"].default) != "reward":
            return keys
        return keys if cls.declares("kl_estimator", AlgorithmConfig) else {"kl_estimator": "k1"} | keys

    @model_validator(mode="before")
    @classmethod
    def _with_clip_widths(cls, keys: Any) -> Any:
        """Give a loss the clip widths of its paper in place of those that a class declares for another loss.

        Widths that are set with the loss stay, and between losses of the same widths (dual_clip is ppo_clip with one
        more bound) those of the class.
        """
        if not isinstance(keys, dict):
            return keys
        chosen = CLIP_WIDTHS.get(keys.get("loss", cls.model_fields["loss"].default))
        return keys | {
            key: width
            for key, width in zip(("clip_low", "clip_high"), chosen or (), strict=False)
            if key not in keys and chosen != CLIP_WIDTHS.get(cls._loss_beside(key))
        }

    @classmethod
    def _loss_beside(cls, key: str) -> Any:
        """Return the loss of the class that declares a key, the nearest of the base classes."""
        fields = getattr(cls.__mro__[cls._depth(key)], "model_fields", cls.model_fields)
        return fields["loss"].default

    @property
    def has_own_loss(self) -> bool:
        """Whether the loss is a function of an author's."""
        return self.loss not in get_args(Loss)

    @property
    def has_reward_kl(self) -> bool:
        """Whether a KL is subtracted from the rewards."""
        return self.kl_coef > 0 and self.kl_in == "reward"

    @property
    def has_entropy_bonus(self) -> bool:
        """Whether there is an entropy bonus, if only later in the run."""
        return self.entropy_coef > 0 or self.entropy_target > 0

    def idle_keys(self) -> dict[str, str]:
        """Return the keys that have no effect beside the others, each with what it needs."""
        correction = self.correction if self.old_logprobs == "learner" else "none"
        has_kl, clips = self.kl_coef > 0, self.loss != "policy_gradient"
        is_floored = correction in ("icepop", "token_mask", "sequence_mask")
        a_kl, a_mean = "algorithm.kl_coef above 0", "algorithm.correction geometric_mask"
        conditions = (
            ("clip_low", clips, "a loss that clips"),
            ("clip_high", clips, "a loss that clips"),
            ("dual_clip", self.loss == "dual_clip" or self.has_own_loss, "algorithm.loss dual_clip"),
            ("constant", self.normalization == "constant", "algorithm.normalization constant"),
            ("old_logprobs", clips or self.old_logprobs == "learner", "a loss with the ratio policy / old"),
            ("correction", self.old_logprobs == "learner", "algorithm.old_logprobs learner"),
            (
                "tis_cap",
                (has_kl and self.kl_in == "loss") or correction != "none",
                "algorithm.old_logprobs learner and a correction",
            ),
            ("tis_floor", is_floored, "algorithm.correction icepop, token_mask or sequence_mask"),
            ("geometric_low", correction == "geometric_mask", a_mean),
            ("geometric_high", correction == "geometric_mask", a_mean),
            *((key, has_kl, a_kl) for key in ("kl_in", "kl_estimator", "kl_target")),
            ("kl_horizon", has_kl and self.kl_target > 0, "algorithm.kl_target above 0"),
            ("reference_ema", self.reference_every > 0, "algorithm.reference_every above 0"),
            ("entropy_delta", self.entropy_target > 0, "algorithm.entropy_target above 0"),
            ("entropy_clip", self.has_entropy_bonus, "algorithm.entropy_coef above 0"),
            ("overlong_buffer", self.overlong_penalty > 0, "algorithm.overlong_penalty above 0"),
            ("format_penalty", bool(self.format_pattern), "algorithm.format_pattern"),
            ("max_filtered_batches", self.filter_zero_variance, "algorithm.filter_zero_variance true"),
        )
        return {key: needs for key, is_read, needs in conditions if not is_read}


def check_schema(algorithm: str, schema: object) -> None:
    """Raise ConfigError if the `Config` of the class called `algorithm` cannot check `--algorithm.*`."""
    if not (isinstance(schema, type) and issubclass(schema, AlgorithmConfig)):
        raise ConfigError(
            f"{algorithm}: Config must derive from agentrl.algorithms.AlgorithmConfig, which checks the --algorithm.* "
            "keys"
        )
    loss = schema.model_fields["loss"].default
    if isinstance(loss, str) and is_path(loss) and not Path(loss).expanduser().is_absolute():
        raise ConfigError(
            f"{algorithm}: Config.loss {loss!r} is another file in every folder: write the method `loss`, or the path "
            "with str(Path(__file__).with_name(...))"
        )
    if "name" in schema.model_fields:
        raise ConfigError(
            f"{algorithm}: Config.name cannot be set, because --algorithm.name selects the algorithm; rename the key"
        )
