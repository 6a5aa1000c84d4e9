"""The environments of verifiers as environments of agentrl: `--env verifiers:ID`.

`Verifiers` is the adapter for the verifiers that is installed, 0.3 or 0.4. verifiers 0.4 finds `ChatHarness` here, by
the name of this package.
"""

from agentrl_verifiers.env import VerifiersEnv
from agentrl_verifiers.library import is_classic

__all__ = ["Verifiers"]

Verifiers: type[VerifiersEnv]
if is_classic():
    from agentrl_verifiers.classic import ClassicEnv

    Verifiers = ClassicEnv
else:
    from agentrl_verifiers.harness import ChatHarness
    from agentrl_verifiers.tasksets import TasksetEnv

    Verifiers = TasksetEnv
    __all__ += [ChatHarness.__name__]
